//! The judge of histories finds each kind of wrong, in histories made by hand, and nothing in good ones.

use chapar_testkit::history::{Applied, Fate, History, Judgement, Message, Seek, Write};

/// Two keys with three committed writes each, applied by two consumers, all as it should be.
fn good() -> History {
    let mut history = History { broker: Some(vec![]), ..History::default() };
    for n in 1..=3 {
        for key in ["a", "b"] {
            history.writes.push(write(key, n, Fate::Committed));
            publish(&mut history, key, &format!("{key}{n}"));
            for consumer in ["desk", "bill"] {
                history.apply(consumer, key, &format!("{key}{n}"));
            }
        }
    }
    history
}

fn write(key: &str, n: u64, fate: Fate) -> Write {
    Write { fate, ..Write::new(format!("{key}{n}"), key, n) }
}

fn publish(history: &mut History, key: &str, id: &str) {
    let message = Message { key: key.into(), id: id.into(), ..Message::default() };
    history.broker.get_or_insert_default().push(message);
}

fn list<'h>(history: &'h mut History, consumer: &str, key: &str) -> &'h mut Vec<Applied> {
    history.applied.entry(consumer.into()).or_default().entry(key.into()).or_default()
}

/// The counts that must be zero.
fn violations(judgement: &Judgement) -> [usize; 7] {
    judgement.violations().map(|(_, count)| count)
}

#[track_caller]
fn found(history: &History, expected: [usize; 7]) {
    let judgement = history.judge();
    assert_eq!(violations(&judgement), expected, "{:#?}", judgement.examples);
    assert_eq!(judgement.holds(), expected == [0; 7]);
    assert_eq!(judgement.examples.is_empty(), expected == [0; 7], "violations are told in words");
}

#[test]
fn a_good_history_has_no_violation() {
    let judgement = good().judge();
    assert_eq!(violations(&judgement), [0; 7], "{:#?}", judgement.examples);
    assert_eq!((judgement.acknowledged, judgement.unknown, judgement.duplicates), (6, 0, 0));
}

#[test]
fn a_write_that_a_consumer_lacks_is_lost() {
    let mut history = good();
    list(&mut history, "bill", "b").pop();
    found(&history, [1, 0, 0, 0, 0, 0, 0]);
    let so_far = history.judge_so_far();
    assert!(so_far.holds(), "it may still arrive: {so_far:#?}");
    list(&mut history, "desk", "a").remove(1);
    assert_eq!(history.judge_so_far().lost, 1, "its follower is there already");
}

#[test]
fn a_write_that_the_broker_lacks_is_lost_once_not_per_place() {
    let mut history = good();
    history.broker.get_or_insert_default().retain(|message| message.id != "a3");
    list(&mut history, "desk", "a").pop();
    found(&history, [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_consumer_that_applied_nothing_at_all_has_lost_everything() {
    let mut history = good();
    history.applied.insert("idle".into(), Default::default());
    found(&history, [6, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_failed_write_and_one_that_was_never_written_are_phantoms() {
    let mut history = good();
    // Its number went to the next that committed.
    history.writes.push(Write { id: "rolled back".into(), ..write("a", 3, Fate::Failed) });
    found(&history, [0; 7]);
    history.apply("desk", "a", "rolled back");
    history.apply("bill", "a", "rolled back");
    found(&history, [0, 1, 0, 0, 0, 0, 0]);
    publish(&mut history, "b", "from nowhere");
    found(&history, [0, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn a_write_of_another_key_is_a_phantom() {
    let mut history = good();
    history.writes.push(write("c", 1, Fate::Unknown));
    history.apply("desk", "a", "c1");
    found(&history, [0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_write_that_is_applied_twice_is_found_wherever_the_second_stands() {
    let mut history = good();
    history.apply("desk", "a", "a3");
    history.apply("desk", "b", "b1");
    found(&history, [0, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn a_duplicate_at_the_broker_is_counted_and_no_violation() {
    let mut history = good();
    publish(&mut history, "a", "a1");
    found(&history, [0; 7]);
    assert_eq!(history.judge().duplicates, 1);
}

#[test]
fn a_list_out_of_order_is_found_also_across_neighbours() {
    let mut history = good();
    list(&mut history, "desk", "a").swap(1, 2);
    found(&history, [0, 0, 0, 1, 0, 0, 0]);
    let mut history = good();
    list(&mut history, "desk", "a").rotate_right(1);
    found(&history, [0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn first_appearances_at_the_broker_count_even_if_consumers_put_it_right() {
    let mut history = good();
    history.broker.get_or_insert_default().swap(0, 2);
    found(&history, [0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_write_of_unknown_fate_may_be_there_once_or_not_at_all() {
    let mut history = good();
    history.writes.push(write("a", 4, Fate::Unknown));
    found(&history, [0; 7]);
    publish(&mut history, "a", "a4");
    history.apply("desk", "a", "a4");
    found(&history, [0; 7]);
    history.apply("desk", "a", "a4");
    found(&history, [0, 0, 1, 0, 0, 0, 0]);
    let mut history = good();
    history.writes.push(Write { n: 0, ..write("a", 4, Fate::Unknown) });
    history.apply("desk", "a", "a4");
    found(&history, [0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_parked_key_is_a_prefix_and_its_follower_must_not_be_applied() {
    let mut history = good();
    list(&mut history, "desk", "a").truncate(1);
    history.held.insert("desk".into(), ["a2", "a3"].map(String::from).into());
    found(&history, [0; 7]);
    history.apply("desk", "a", "a3");
    found(&history, [0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn a_quarantined_key_waits_everywhere() {
    let mut history = good();
    history.quarantined.insert("b2".into());
    history.broker.get_or_insert_default().retain(|message| message.id != "b2");
    for consumer in ["desk", "bill"] {
        list(&mut history, consumer, "b").retain(|it| it.id != "b2");
    }
    found(&history, [0, 0, 0, 0, 2, 0, 0]);
}

#[test]
fn a_letter_that_was_replayed_blocks_nothing() {
    let mut history = good();
    history.held.insert("desk".into(), ["a2".to_owned()].into());
    found(&history, [0; 7]);
}

/// Entries of "a", applied at these times, after a seek to the time 0 that began at 10.
fn sought(entries: &[(u64, u64)]) -> History {
    let mut history = good();
    list(&mut history, "desk", "a").clear();
    for (n, at) in entries {
        history.apply_at("desk", "a", &format!("a{n}"), *at);
    }
    let seek = Seek { consumer: "desk".into(), target: 0, begun: 10, done: true };
    history.seeks.push(seek);
    for n in 1..=3 {
        history.apply_at("desk", "b", &format!("b{n}"), 20);
    }
    history
}

#[test]
fn after_a_seek_a_list_begins_again_once_and_is_complete() {
    found(&sought(&[(1, 1), (2, 2), (3, 3), (1, 11), (2, 12), (3, 13)]), [0; 7]);
    found(&sought(&[(1, 1), (2, 11), (1, 12), (2, 13), (3, 14)]), [0; 7]);
    // What was fetched before the seek comes first: the list goes back twice.
    found(&sought(&[(1, 1), (2, 2), (3, 3), (2, 11), (3, 12), (1, 13)]), [0, 0, 0, 1, 0, 0, 0]);
    found(
        &sought(&[(1, 1), (2, 2), (3, 3), (1, 11), (1, 12), (2, 13), (3, 14)]),
        [0, 0, 1, 0, 0, 0, 0],
    );
    found(&sought(&[(1, 1), (2, 2), (3, 3), (2, 12), (3, 13)]), [1, 0, 0, 0, 0, 0, 0]);
    // Before the seek there is no reason to go back.
    found(&sought(&[(1, 1), (2, 2), (1, 3), (1, 11), (2, 12), (3, 13)]), [0, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn a_seek_of_unknown_outcome_may_apply_again_and_need_not() {
    for entries in [&[(1, 1), (2, 2), (3, 3)][..], &[(1, 1), (2, 2), (3, 3), (2, 12), (3, 13)]] {
        let mut history = sought(entries);
        history.seeks[0].done = false;
        found(&history, [0; 7]);
    }
}

#[test]
fn what_was_given_up_is_accounted_for_and_never_applied_afterwards() {
    let mut history = good();
    list(&mut history, "desk", "a").remove(1);
    history.given_up.insert("desk".into(), [("a2".to_owned(), 5)].into());
    found(&history, [0; 7]);
    history.apply_at("desk", "a", "a2", 6);
    found(&history, [0, 0, 0, 1, 0, 0, 1]);
}

#[test]
fn what_was_dropped_is_never_published() {
    let mut history = good();
    history.dropped.insert("a2".into());
    found(&history, [0, 0, 0, 0, 0, 0, 1]);
    history.broker.get_or_insert_default().retain(|message| message.id != "a2");
    for consumer in ["desk", "bill"] {
        list(&mut history, consumer, "a").retain(|it| it.id != "a2");
    }
    found(&history, [0; 7]);
}

#[test]
fn only_an_ill_write_may_be_refused_or_become_a_letter() {
    for ill in [true, false] {
        let mut history = good();
        list(&mut history, "desk", "a").pop();
        for write in history.writes.iter_mut().filter(|write| write.id == "a3") {
            write.ill = ill;
        }
        history.held.insert("desk".into(), ["a3".to_owned()].into());
        history.letters.insert("desk".into(), ["a3".to_owned()].into());
        found(&history, [0, 0, 0, 0, 0, usize::from(!ill), 0]);
    }
}

#[test]
fn a_consumer_owes_only_what_it_reads_since_it_reads_it() {
    let mut history = good();
    for write in &mut history.writes {
        (write.topic, write.at) = (write.key.clone(), write.n);
    }
    history.readers.insert("desk".into(), [("a".to_owned(), 2)].into());
    list(&mut history, "desk", "a").remove(0);
    list(&mut history, "desk", "b").clear();
    found(&history, [0; 7]);
    list(&mut history, "desk", "a").remove(0);
    found(&history, [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_forgotten_write_may_be_anywhere_or_nowhere() {
    let mut history = good();
    history.writes.push(Write { id: "ghost".into(), ..write("a", 2, Fate::Forgotten) });
    found(&history, [0; 7]);
    history.apply("desk", "a", "ghost");
    publish(&mut history, "a", "ghost");
    found(&history, [0; 7]);
    assert_eq!(history.judge().forgotten, 1);
}

#[test]
fn topics_of_a_key_may_be_in_any_order_where_the_broker_keeps_only_that_of_a_topic() {
    let mut history = good();
    let broker = history.broker.get_or_insert_default();
    broker.swap(0, 2);
    broker.iter_mut().for_each(|message| message.line = message.id.clone());
    found(&history, [0; 7]);
}
