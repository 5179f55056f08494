//! What operators do with dead letters.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chapar::ops::{Edit, LetterFilter, Letters, Operator, TriageError};
use chapar::{Consumer, Cx, Event, Failure, Service};
use chapar_core::machine::failure::{FailureClass, FailurePolicy};
use chapar_sql::{Arrival, AuditFilter, AuditLine, Backend, LetterFailure, NewDeadLetter, Tables};
use jiff::{SignedDuration, Timestamp};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    failures_that_differ_in_numbers_only_are_one_group,
    every_filter_means_what_it_says_and_pages_do_not_overlap,
    the_class_gates_a_replay,
    a_fix_that_did_not_help_is_none,
    a_replay_that_was_stopped_loses_none_and_repeats_none,
    what_is_given_up_lets_its_followers_go_on,
    an_edited_event_is_delivered_and_the_original_stays,
    what_could_not_be_read_is_delivered_as_it_was_mended,
    a_letter_older_than_the_inbox_remembers_needs_a_word,
    a_letter_leaves_the_store_only_after_it_was_exported,
    many_letters_of_a_key_are_replayed_in_the_order_in_which_they_failed,
    the_broker_gets_a_copy_of_every_letter,
);

const BY: Operator<'static> = Operator { name: "ada", reason: "INC-7" };

impl House {
    fn desk(&self) -> Letters {
        Letters::of(self.chapar.store())
    }

    async fn audit(&self) -> Vec<AuditLine> {
        let mut tx = self.chapar.store().begin_read().await.unwrap();
        tx.audit_log().lines(&AuditFilter::default(), 100).await.unwrap()
    }
}

fn consumer(name: &str) -> Consumer {
    Consumer::named(name).backoff(Duration::from_millis(5), Duration::from_millis(10)).retry(2)
}

/// A flag for each store, since the tests of both run at once in one program.
fn of_store<T>(cx: &mut Cx, flags: &'static [T; 2]) -> &'static T {
    &flags[usize::from(cx.tx().as_postgres().is_some())]
}

fn mend(house: &House, flags: &'static [AtomicBool; 2]) {
    let on_postgres = house.chapar.store().backend() == Backend::Postgres;
    flags[usize::from(on_postgres)].store(true, Ordering::SeqCst);
}

async fn failures_that_differ_in_numbers_only_are_one_group(house: House) {
    let handler = async |noted: Noted, _: &mut Cx| {
        Err::<(), _>(match noted.n {
            n if n < 10 => Failure::terminal(format!("number {n} of \"{}\" is taken", noted.key)),
            _ => Failure::retry("the vendor is away"),
        })
    };
    let running = house.run(consumer("c").on(handler)).await;
    for (key, n) in [("a", 1), ("b", 2), ("c", 3), ("d", 11)] {
        house.note("acme", key, [n]).await;
    }
    let all = LetterFilter::default();
    let desk = house.desk();
    eventually("all failed", async || desk.list(&all, None, 9).await.unwrap().letters.len() == 4)
        .await;
    let groups = desk.groups(&all, 9).await.unwrap();
    assert_eq!(groups.iter().map(|group| group.letters).collect::<Vec<_>>(), [3, 1], "{groups:?}");
    let (taken, away) = (&groups[0], &groups[1]);
    assert_eq!((taken.consumer.as_str(), taken.kind.as_str()), ("c", "rule_violation"));
    assert_eq!((taken.topic.as_str(), taken.class.as_deref()), (Noted::SUBJECT, None));
    assert_eq!((away.kind.as_str(), away.class.as_deref()), ("transient", Some("vendor_outage")));
    assert!(taken.error.contains("is taken"), "{taken:?}");
    // Any number and any quoted value stands for all of them.
    let like = |error: &str| LetterFilter { error: Some(error.into()), ..all.clone() };
    for (error, expected) in [("NUMBER 99 of 'x' is", 3), ("away", 1), ("of%taken", 0), ("_", 0)] {
        let found = desk.list(&like(error), None, 9).await.unwrap().letters;
        assert_eq!(found.len(), expected, "{error}");
    }
    stop(running).await;
}

/// Letters of many sorts, none of which is ever delivered.
async fn plant(house: &House, count: u64) -> Vec<NewDeadLetter> {
    let start = Timestamp::from_second(1_760_000_000).unwrap();
    let mut planted = Vec::new();
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    for n in 0..count {
        let pick =
            |choices: &[&str], every: u64| choices[(n / every) as usize % choices.len()].to_owned();
        let (consumer, kind) = (pick(&["c1", "c2"], 1), pick(&["transient", "rule_violation"], 2));
        let (topic, shape) = (pick(&["t.a.v1", "t.b.v1"], 3), pick(&["x is away", "no # left"], 5));
        let failed = start + SignedDuration::from_secs((n / 3) as i64);
        let letter = NewDeadLetter {
            id: format!("letter-{:03}", n * 7 % 1000),
            arrival: Arrival {
                event_id: format!("event-{n}"),
                tenant: pick(&["acme", "kabul-grand", "herat"], 1),
                topic: topic.clone(),
                ordering_key: Some(format!("k{n}")),
                partition: 0,
                offset: n,
                headers: Default::default(),
                body: Bytes::from_static(b"{}"),
            },
            failure: LetterFailure {
                error: shape.replace('#', &n.to_string()),
                fingerprint: format!("{consumer}{kind}{topic}{shape}"),
                class: [None, Some("poison".to_owned())][(n % 4 == 1) as usize].clone(),
                kind,
                shape,
            },
            consumer,
            attempts: 3,
            first_failed_at: failed,
            last_failed_at: failed,
            blocks_key: true,
            deferral: None,
        };
        tx.letters().bury(&letter).await.unwrap();
        planted.push(letter);
    }
    tx.commit().await.unwrap();
    planted
}

async fn every_filter_means_what_it_says_and_pages_do_not_overlap(house: House) {
    let planted = plant(&house, 140).await;
    let one = |value: &str| [None, Some(value.to_owned())];
    let since = planted[30].last_failed_at;
    let until = planted[100].last_failed_at;
    let mut tried = 0;
    for bits in 0..256u32 {
        let on = |bit: u32| (bits >> bit & 1) as usize;
        let filter = LetterFilter {
            consumer: one("c1")[on(0)].clone(),
            topic: one("t.a.v1")[on(1)].clone(),
            tenant: one("herat")[on(2)].clone(),
            kind: one("transient")[on(3)].clone(),
            error: one("no 5 left")[on(4)].clone(),
            class: one("poison")[on(5)].clone(),
            since: [None, Some(since)][on(6)],
            until: [None, Some(until)][on(7)],
            ..LetterFilter::default()
        };
        let means = |letter: &&NewDeadLetter| {
            let (failure, at) = (&letter.failure, letter.last_failed_at);
            (on(0) == 0 || letter.consumer == "c1")
                && (on(1) == 0 || letter.arrival.topic == "t.a.v1")
                && (on(2) == 0 || letter.arrival.tenant == "herat")
                && (on(3) == 0 || failure.kind == "transient")
                && (on(4) == 0 || failure.shape == "no # left")
                && (on(5) == 0 || failure.class.is_some())
                && (on(6) == 0 || at >= since)
                && (on(7) == 0 || at < until)
        };
        let mut expected: Vec<_> = planted.iter().filter(means).collect();
        expected.sort_by(|a, b| (b.last_failed_at, &b.id).cmp(&(a.last_failed_at, &a.id)));
        let expected: Vec<&str> = expected.iter().map(|letter| letter.id.as_str()).collect();
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = house.desk().list(&filter, after.as_deref(), 7).await.unwrap();
            found.extend(page.letters.into_iter().map(|letter| letter.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
        let outlook = house.desk().outlook(&filter, true).await.unwrap();
        assert_eq!(outlook.selected as usize, expected.len(), "{filter:?}");
        let groups = house.desk().groups(&filter, 99).await.unwrap();
        let counted: i64 = groups.iter().map(|group| group.letters).sum();
        assert_eq!(counted as usize, expected.len(), "{filter:?}");
        tried += usize::from(!expected.is_empty());
    }
    assert!(tried > 60, "most filters find something: {tried}");
}

static CLASSED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

async fn the_class_gates_a_replay(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| match of_store(cx, &CLASSED) {
        mended if mended.load(Ordering::SeqCst) => write_down(noted, cx).await,
        _ => Err(Failure::terminal("not yet")),
    };
    let running = house.run(consumer("c").on(handler)).await;
    house.note("acme", "a", 0..2).await;
    eventually("it failed", async || house.letters().await.len() == 1).await;
    let id = house.letters().await.remove(0).id;
    let (one, desk) = (LetterFilter::one(&id), house.desk());

    desk.classify(&one, Some(FailureClass::Poison), None, BY).await.unwrap();
    let poison = desk.retry(&id, BY).await;
    assert!(matches!(poison, Err(TriageError::Poison(_))), "{poison:?}");
    assert_eq!(desk.outlook(&one, false).await.unwrap().poison, 1);
    let run = desk.begin_replay("r1", &one, false, BY).await.unwrap();
    let (run, _) = desk.ask(&run.id, 10).await.unwrap();
    assert_eq!((run.asked, run.refused), (0, 1), "a run passes over it, too");

    for class in [FailureClass::SchemaDrift, FailureClass::ConsumerBug] {
        desk.classify(&one, Some(class), None, BY).await.unwrap();
        let unfixed = desk.retry(&id, BY).await;
        assert!(matches!(unfixed, Err(TriageError::Unfixed { .. })), "{unfixed:?}");
        assert_eq!(desk.outlook(&one, false).await.unwrap().unfixed, 1);
    }
    let needless = desk.classify(&one, Some(FailureClass::VendorOutage), Some("x"), BY).await;
    assert!(matches!(needless, Err(TriageError::NeedlessFix(_))), "{needless:?}");
    desk.classify(&one, Some(FailureClass::ConsumerBug), Some("released 1.2"), BY).await.unwrap();
    eventually("its follower is parked", async || {
        let outlook = desk.outlook(&one, false).await.unwrap();
        (outlook.replayed, outlook.followers) == (1, 1)
    })
    .await;
    mend(&house, &CLASSED);
    desk.retry(&id, BY).await.unwrap();
    eventually("the key has caught up", async || house.applied("a").await == [0, 1]).await;
    let letter = desk.get(&id).await.unwrap();
    assert_eq!((letter.status.as_str(), letter.outcome.as_deref()), ("closed", Some("applied")));
    let again = desk.retry(&id, BY).await;
    assert!(matches!(again, Err(TriageError::NotOpen { .. })), "{again:?}");
    stop(running).await;

    let audit = house.audit().await;
    assert_eq!(audit[0].action, "dead_letter.retry");
    let fixed = &audit[1];
    assert_eq!((fixed.actor.as_str(), fixed.reason.as_str()), ("ada", "INC-7"));
    assert_eq!((fixed.action.as_str(), &fixed.target), ("dead_letter.classify", &id));
    assert!(fixed.detail.contains("released 1.2") && fixed.detail.contains("\"before\""));
}

async fn a_fix_that_did_not_help_is_none(house: House) {
    let handler = async |noted: Noted, _: &mut Cx| {
        Err::<(), _>(Failure::terminal(format!("still wrong, {}", noted.n)))
    };
    let running = house.run(consumer("c").on(handler)).await;
    house.note("acme", "a", [1]).await;
    eventually("it failed", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    let one = LetterFilter::one(&letter.id);
    let bug = Some(FailureClass::ConsumerBug);
    house.desk().classify(&one, bug, Some("surely mended"), BY).await.unwrap();
    house.desk().retry(&letter.id, BY).await.unwrap();
    eventually("it is back", async || {
        let back = house.desk().get(&letter.id).await.unwrap();
        back.status == "open" && back.attempts == letter.attempts + 1
    })
    .await;
    let refused = house.desk().retry(&letter.id, BY).await;
    assert!(matches!(refused, Err(TriageError::Unfixed { .. })), "{refused:?}");
    stop(running).await;
}

static OPENED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

async fn a_replay_that_was_stopped_loses_none_and_repeats_none(house: House) {
    const LETTERS: i64 = 120;
    let handler = async |noted: Noted, cx: &mut Cx| match of_store(cx, &OPENED) {
        // Some fail again, and must not be taken up a second time by the same run.
        opened if opened.load(Ordering::SeqCst) && noted.n % 10 != 0 => write_down(noted, cx).await,
        _ => Err(Failure::terminal(format!("room {} is closed", noted.n))),
    };
    let running = house.run(consumer("c").on(handler).lanes(3).batch(7)).await;
    for n in 0..LETTERS {
        house.note(["acme", "herat"][(n % 2) as usize], &format!("k{n}"), [n]).await;
    }
    let (desk, all) = (house.desk(), LetterFilter::default());
    eventually("all failed", async || desk.outlook(&all, false).await.unwrap().replayed == LETTERS)
        .await;
    let attempts: Vec<i64> = house.letters().await.iter().map(|letter| letter.attempts).collect();
    mend(&house, &OPENED);
    desk.begin_replay("run-1", &all, false, BY).await.unwrap();
    let (run, more) = desk.ask("run-1", 50).await.unwrap();
    assert_eq!((run.asked, more), (50, true));
    // Whoever asked is gone; somebody else, elsewhere, goes on. Meanwhile letters fail again.
    eventually("what was asked for is settled", async || {
        desk.progress("run-1").await.unwrap().waiting == 0
    })
    .await;
    let elsewhere = Letters::of(house.chapar.store());
    while elsewhere.ask("run-1", 33).await.unwrap().1 {}
    eventually("all are settled", async || desk.progress("run-1").await.unwrap().waiting == 0)
        .await;
    let progress = desk.progress("run-1").await.unwrap();
    assert_eq!((progress.asked, progress.refused), (LETTERS, 0));
    assert_eq!((progress.applied, progress.failed), (LETTERS - 12, 12));
    let applied = house.ints("select n from notes", vec![]).await;
    let distinct: BTreeSet<i64> = applied.iter().copied().collect();
    assert_eq!((applied.len(), distinct.len()), (108, 108), "each once");
    let left = house.letters().await;
    assert!(left.iter().all(|letter| letter.attempts == attempts[0] + 1), "each tried once more");
    assert!(!desk.ask("run-1", 50).await.unwrap().1, "it is over");
    let ends: Vec<_> = house.audit().await.into_iter().map(|line| line.action).collect();
    assert_eq!(ends, ["dead_letter.replay.asked", "dead_letter.replay"]);
    stop(running).await;
}

async fn what_is_given_up_lets_its_followers_go_on(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| match noted.n {
        0 => Err(Failure::terminal("impossible")),
        _ => write_down(noted, cx).await,
    };
    let running = house.run(consumer("c").on(handler)).await;
    house.note("acme", "kept", 0..3).await;
    house.note("acme", "gone", 0..3).await;
    eventually("both are parked", async || {
        let letters = house.letters().await;
        letters.len() == 2 && letters.iter().all(|letter| letter.followers == 2)
    })
    .await;
    let find = async |key: &str| {
        let letters = house.letters().await;
        let is = |key: &str, of: &Option<String>| of.as_ref().is_some_and(|of| of.ends_with(key));
        letters.into_iter().find(|letter| is(key, &letter.arrival.ordering_key)).unwrap()
    };
    let (kept, gone) = (find("kept").await, find("gone").await);
    let desk = house.desk();
    let settled = desk.quarantine(&LetterFilter::one(&kept.id), BY).await.unwrap();
    assert_eq!((settled.selected, settled.changed), (1, 1));
    desk.delete(&LetterFilter::one(&gone.id), BY).await.unwrap();
    for key in ["kept", "gone"] {
        eventually("its followers go on", async || house.applied(key).await == [1, 2]).await;
    }
    let (kept, gone) = (desk.get(&kept.id).await.unwrap(), desk.get(&gone.id).await.unwrap());
    assert_eq!(kept.outcome.as_deref(), Some("quarantined"));
    assert!(!kept.arrival.body.is_empty(), "held for whoever looks into it");
    assert_eq!((kept.note.as_deref(), kept.closed_by.as_deref()), (Some("INC-7"), Some("ada")));
    assert_eq!(gone.outcome.as_deref(), Some("deleted"));
    assert!(gone.arrival.body.is_empty() && gone.arrival.headers.is_empty(), "erased");
    let twice = desk.delete(&LetterFilter::one(&gone.id), BY).await;
    assert!(matches!(twice, Err(TriageError::NotOpen { .. })), "{twice:?}");
    let nobody = desk.delete(&LetterFilter::one("nobody"), BY).await;
    assert!(matches!(nobody, Err(TriageError::NoLetter(_))), "{nobody:?}");
    let closed: Vec<_> = desk.closed(9).await.unwrap().into_iter().map(|l| l.id).collect();
    assert_eq!(closed, [gone.id, kept.id], "newest first");
    assert_eq!(house.audit().await.len(), 2, "what was not done is not written down");
    stop(running).await;
}

async fn an_edited_event_is_delivered_and_the_original_stays(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| match noted.n {
        n if n < 0 => Err(Failure::terminal(format!("{n} is negative"))),
        _ => write_down(noted, cx).await,
    };
    let running = house.run(consumer("c").on(handler)).await;
    house.note("acme", "a", [-1, 2]).await;
    eventually("it failed", async || house.letters().await.len() == 1).await;
    let before = house.letters().await.remove(0);
    let desk = house.desk();
    let edit = async |text: &str| {
        let edit = Edit::Payload(text.into());
        desk.edit_and_replay(&house.chapar, &before.id, &edit, BY).await
    };
    let broken = edit("{\"key\": ").await.unwrap_err();
    assert!(broken.to_string().starts_with("CH3005"), "{broken}");
    assert!(desk.get(&before.id).await.unwrap().edited.is_none(), "nothing has changed");
    desk.classify(&LetterFilter::one(&before.id), Some(FailureClass::Poison), None, BY)
        .await
        .unwrap();
    let poison = edit("{\"key\": \"a\", \"n\": 1}").await;
    assert!(matches!(poison, Err(TriageError::Poison(_))), "{poison:?}");
    desk.classify(&LetterFilter::one(&before.id), None, None, BY).await.unwrap();
    edit("{\"key\": \"a\", \"n\": 1}").await.unwrap();
    eventually("it was applied as edited", async || house.applied("a").await == [1, 2]).await;
    let after = desk.get(&before.id).await.unwrap();
    assert_eq!(after.arrival, before.arrival, "the original stays");
    let edited = after.edited.unwrap();
    assert_eq!(edited.by, "ada");
    let text = String::from_utf8(edited.body.to_vec()).unwrap();
    assert!(text.contains(&before.arrival.event_id) && text.contains("\"n\": 1"), "{text}");
    let audit = house.audit().await.remove(0);
    assert_eq!(audit.action, "dead_letter.edit_and_replay");
    assert!(audit.detail.contains("original_sha256"), "{}", audit.detail);
    stop(running).await;
}

async fn what_could_not_be_read_is_delivered_as_it_was_mended(house: House) {
    let running = house.run(consumer("c").on(write_down)).await;
    house.note("acme", "a", [1]).await;
    eventually("one goes well", async || house.applied("a").await == [1]).await;
    let body = match house.chapar.store().backend() {
        Backend::Sqlite => "select body from chapar_log",
        Backend::Postgres => "select body from chapar.log",
    };
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    let well: Bytes = tx.fetch(body, vec![]).await.unwrap()[0].get(0).unwrap();
    drop(tx);
    let well = String::from_utf8(well.to_vec()).unwrap();
    let broken = well.replacen('{', "", 1);
    house.publish_raw(Noted::SUBJECT, "acme:a", broken.as_bytes()).await;
    eventually("it failed", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!((letter.kind.as_str(), letter.arrival.tenant.as_str()), ("undecodable", "platform"));
    let desk = house.desk();
    let payload = Edit::Payload("{}".into());
    let refused = desk.edit_and_replay(&house.chapar, &letter.id, &payload, BY).await.unwrap_err();
    assert!(refused.to_string().contains("give the whole message"), "{refused}");
    // Another event than the one that was applied.
    let id = well.split('"').nth(3).unwrap();
    let other =
        well.replace(id, "0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e").replace("\"n\":1", "\"n\":2");
    let message = Edit::Message(other.into());
    desk.edit_and_replay(&house.chapar, &letter.id, &message, BY).await.unwrap();
    eventually("it was applied", async || house.applied("a").await == [1, 2]).await;
    eventually("no letter is left", async || house.letters().await.is_empty()).await;
    stop(running).await;
}

async fn a_letter_older_than_the_inbox_remembers_needs_a_word(house: House) {
    let planted = plant(&house, 1).await;
    let old = &planted[0].id;
    let desk = house.desk();
    let refused = desk.retry(old, BY).await;
    assert!(matches!(refused, Err(TriageError::Forgotten(_))), "{refused:?}");
    let all = LetterFilter::default();
    assert_eq!(desk.outlook(&all, false).await.unwrap().forgotten, 1);
    assert_eq!(desk.outlook(&all, true).await.unwrap().replayed, 1);
    desk.begin_replay("no", &all, false, BY).await.unwrap();
    assert_eq!(desk.ask("no", 9).await.unwrap().0.refused, 1);
    desk.begin_replay("yes", &all, true, BY).await.unwrap();
    assert_eq!(desk.ask("yes", 9).await.unwrap().0.asked, 1);
}

async fn a_letter_leaves_the_store_only_after_it_was_exported(house: House) {
    let planted = plant(&house, 3).await;
    let desk = house.desk();
    for letter in &planted[..2] {
        desk.quarantine(&LetterFilter::one(&letter.id), BY).await.unwrap();
    }
    let (store, keep) = (house.chapar.store(), chapar_sql::Keep::default());
    let change = async |sqlite: &'static str, postgres: &'static str, id: &str| {
        let mut tx = store.begin_engine().await.unwrap();
        let sql = if store.backend() == Backend::Sqlite { sqlite } else { postgres };
        tx.execute(sql, vec![id.into()]).await.unwrap();
        tx.commit().await.unwrap();
    };
    for letter in &planted[..2] {
        change(
            "update chapar_dead_letters set closed_at = 0 where id = $1",
            "update chapar.dead_letters set closed_at = 'epoch' where id = $1",
            &letter.id,
        )
        .await;
    }
    store.keep_house(&keep).await.unwrap();
    assert_eq!(desk.closed(9).await.unwrap().len(), 2, "held until they are exported");
    for letter in [&planted[0], &planted[2]] {
        change(
            "update chapar_dead_letters set exported_at = 0 where id = $1",
            "update chapar.dead_letters set exported_at = 'epoch' where id = $1",
            &letter.id,
        )
        .await;
    }
    store.keep_house(&keep).await.unwrap();
    let left: Vec<_> = desk.closed(9).await.unwrap().into_iter().map(|letter| letter.id).collect();
    assert_eq!(left, [planted[1].id.clone()]);
    desk.get(&planted[2].id).await.expect("an open one stays, exported or not");
}

static MANY: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

async fn many_letters_of_a_key_are_replayed_in_the_order_in_which_they_failed(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| match of_store(cx, &MANY) {
        mended if mended.load(Ordering::SeqCst) => write_down(noted, cx).await,
        _ => Err(Failure::terminal("not yet")),
    };
    let skips = consumer("c").on(handler).on_failure(FailurePolicy::SkipToDlq);
    let running = house.run(skips.lanes(3).batch(4)).await;
    for n in 0..12 {
        for key in ["a", "b"] {
            house.note("acme", key, [n]).await;
        }
    }
    eventually("all failed", async || house.letters().await.len() == 24).await;
    mend(&house, &MANY);
    let desk = house.desk();
    desk.begin_replay("r", &LetterFilter::default(), false, BY).await.unwrap();
    while desk.ask("r", 1000).await.unwrap().1 {}
    for key in ["a", "b"] {
        eventually("all are applied", async || house.applied(key).await.len() == 12).await;
        assert_eq!(house.applied(key).await, (0..12).collect::<Vec<_>>());
    }
    stop(running).await;
}

async fn the_broker_gets_a_copy_of_every_letter(house: House) {
    let handler = async |noted: Noted, _: &mut Cx| {
        Err::<(), _>(Failure::terminal(format!("{} is too many", noted.n)))
    };
    let app = house.app().copy_dead_letters();
    let running = app
        .service(Service::new("inventory-service").consumer(consumer("c").on(handler)))
        .start()
        .await
        .unwrap();
    for key in ["a", "b", "c"] {
        house.note("acme", key, [7, 8]).await;
    }
    let copies = match house.chapar.store().backend() {
        Backend::Sqlite => {
            "select body, headers, ordering_key from chapar_log where topic like '%.dlq'"
        }
        Backend::Postgres => {
            "select body, headers, ordering_key from chapar.log where topic like '%.dlq'"
        }
    };
    let read = async || {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.fetch(copies, vec![]).await.unwrap()
    };
    eventually("three copies", async || read().await.len() == 3).await;
    let letters = house.letters().await;
    for row in read().await {
        let body: Bytes = row.get(0).unwrap();
        let (headers, key): (String, String) = (row.get(1).unwrap(), row.get(2).unwrap());
        let of_key = |l: &&chapar_sql::DeadLetter| l.arrival.ordering_key.as_ref() == Some(&key);
        let letter = letters.iter().find(of_key).unwrap();
        assert!(headers.contains(&letter.id) && headers.contains("chapar-consumer"), "{headers}");
        let copy: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let names: Vec<&str> = copy.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "error_message",
            "failed_at",
            "headers",
            "original_key",
            "original_offset",
            "original_partition",
            "original_topic",
            "original_value",
            "retry_count",
        ];
        let names: BTreeSet<&str> = names.into_iter().collect();
        assert_eq!(names, expected.into_iter().collect(), "as the readers know it");
        assert_eq!(copy["original_topic"], Noted::SUBJECT);
        assert_eq!(copy["error_message"], "7 is too many");
        assert_eq!(copy["retry_count"], letter.attempts);
        assert_eq!(copy["original_offset"], letter.arrival.offset);
        let value = base64::Engine::decode(
            &base64::prelude::BASE64_STANDARD,
            copy["original_value"].as_str().unwrap(),
        );
        assert_eq!(value.unwrap(), letter.arrival.body, "byte for byte");
    }
    // Once each: what is copied is not wanted any more.
    let wanted = match house.chapar.store().backend() {
        Backend::Sqlite => "select count(*) from chapar_dead_letter_copies",
        Backend::Postgres => "select count(*) from chapar.dead_letter_copies",
    };
    eventually("nothing is left to copy", async || house.ints(wanted, vec![]).await == [0]).await;
    assert_eq!(read().await.len(), 3);
    stop(running).await;
}
