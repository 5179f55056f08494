//! The judge of histories finds each kind of wrong, in histories made by hand, and nothing in good ones.

use chapar_testkit::history::{Fate, History, Judgement, Message, Write};

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
    Write { id: format!("{key}{n}"), key: key.into(), n, fate }
}

fn publish(history: &mut History, key: &str, id: &str) {
    let message = Message { key: key.into(), id: id.into() };
    history.broker.get_or_insert_default().push(message);
}

fn list<'h>(history: &'h mut History, consumer: &str, key: &str) -> &'h mut Vec<String> {
    history.applied.entry(consumer.into()).or_default().entry(key.into()).or_default()
}

/// The counts that must be zero.
fn violations(judgement: &Judgement) -> [usize; 5] {
    let Judgement { lost, phantom, applied_twice, out_of_order, unparked_followers, .. } =
        judgement;
    [*lost, *phantom, *applied_twice, *out_of_order, *unparked_followers]
}

#[track_caller]
fn found(history: &History, expected: [usize; 5]) {
    let judgement = history.judge();
    assert_eq!(violations(&judgement), expected, "{:#?}", judgement.examples);
    assert_eq!(judgement.holds(), expected == [0; 5]);
    assert_eq!(judgement.examples.is_empty(), expected == [0; 5], "violations are told in words");
}

#[test]
fn a_good_history_has_no_violation() {
    let judgement = good().judge();
    assert_eq!(violations(&judgement), [0; 5], "{:#?}", judgement.examples);
    assert_eq!((judgement.acknowledged, judgement.unknown, judgement.duplicates), (6, 0, 0));
}

#[test]
fn a_write_that_a_consumer_lacks_is_lost() {
    let mut history = good();
    list(&mut history, "bill", "b").pop();
    found(&history, [1, 0, 0, 0, 0]);
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
    found(&history, [1, 0, 0, 0, 0]);
}

#[test]
fn a_consumer_that_applied_nothing_at_all_has_lost_everything() {
    let mut history = good();
    history.applied.insert("idle".into(), Default::default());
    found(&history, [6, 0, 0, 0, 0]);
}

#[test]
fn a_failed_write_and_one_that_was_never_written_are_phantoms() {
    let mut history = good();
    // Its number went to the next that committed.
    history.writes.push(Write { id: "rolled back".into(), ..write("a", 3, Fate::Failed) });
    found(&history, [0; 5]);
    history.apply("desk", "a", "rolled back");
    history.apply("bill", "a", "rolled back");
    found(&history, [0, 1, 0, 0, 0]);
    publish(&mut history, "b", "from nowhere");
    found(&history, [0, 2, 0, 0, 0]);
}

#[test]
fn a_write_of_another_key_is_a_phantom() {
    let mut history = good();
    history.writes.push(write("c", 1, Fate::Unknown));
    history.apply("desk", "a", "c1");
    found(&history, [0, 1, 0, 0, 0]);
}

#[test]
fn a_write_that_is_applied_twice_is_found_wherever_the_second_stands() {
    let mut history = good();
    history.apply("desk", "a", "a3");
    history.apply("desk", "b", "b1");
    found(&history, [0, 0, 2, 0, 0]);
}

#[test]
fn a_duplicate_at_the_broker_is_counted_and_no_violation() {
    let mut history = good();
    publish(&mut history, "a", "a1");
    found(&history, [0; 5]);
    assert_eq!(history.judge().duplicates, 1);
}

#[test]
fn a_list_out_of_order_is_found_also_across_neighbours() {
    let mut history = good();
    list(&mut history, "desk", "a").swap(1, 2);
    found(&history, [0, 0, 0, 1, 0]);
    let mut history = good();
    list(&mut history, "desk", "a").rotate_right(1);
    found(&history, [0, 0, 0, 2, 0]);
}

#[test]
fn first_appearances_at_the_broker_count_even_if_consumers_put_it_right() {
    let mut history = good();
    history.broker.get_or_insert_default().swap(0, 2);
    found(&history, [0, 0, 0, 1, 0]);
}

#[test]
fn a_write_of_unknown_fate_may_be_there_once_or_not_at_all() {
    let mut history = good();
    history.writes.push(write("a", 4, Fate::Unknown));
    found(&history, [0; 5]);
    publish(&mut history, "a", "a4");
    history.apply("desk", "a", "a4");
    found(&history, [0; 5]);
    history.apply("desk", "a", "a4");
    found(&history, [0, 0, 1, 0, 0]);
    let mut history = good();
    history.writes.push(Write { n: 0, ..write("a", 4, Fate::Unknown) });
    history.apply("desk", "a", "a4");
    found(&history, [0, 0, 0, 1, 0]);
}

#[test]
fn a_parked_key_is_a_prefix_and_its_follower_must_not_be_applied() {
    let mut history = good();
    list(&mut history, "desk", "a").truncate(1);
    history.boxed.insert("desk".into(), ["a2", "a3"].map(String::from).into());
    found(&history, [0; 5]);
    history.apply("desk", "a", "a3");
    found(&history, [0, 0, 0, 0, 1]);
}

#[test]
fn a_quarantined_key_waits_everywhere() {
    let mut history = good();
    history.quarantined.insert("b2".into());
    history.broker.get_or_insert_default().retain(|message| message.id != "b2");
    for consumer in ["desk", "bill"] {
        list(&mut history, consumer, "b").retain(|id| id != "b2");
    }
    found(&history, [0, 0, 0, 0, 2]);
}

#[test]
fn a_letter_that_was_replayed_blocks_nothing() {
    let mut history = good();
    history.boxed.insert("desk".into(), ["a2".to_owned()].into());
    found(&history, [0; 5]);
}
