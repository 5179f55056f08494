//! Setting a consumer to another place: what the preview says is what happens.

use std::sync::Arc;

use chapar::ops::{Seek, SeekError, SeekPreview, SeekTarget};
use chapar::{Consumer, Running, Service};
use chapar_core::port::{Position, Transport};
use chapar_sql::{Backend, Scope, SqlTransport};
use jiff::Timestamp;

use crate::harness::{House, eventually, on_each_store, stop, write_down};
use crate::order::{MODIFIED, TOPICS, note};

on_each_store!(
    going_back_applies_nothing_twice_unless_asked,
    only_what_is_in_the_scope_is_applied_again,
    what_the_inbox_has_forgotten_outside_of_the_scope_stays_untouched,
    stamped_events_are_applied_again_too,
    an_intent_is_carried_out_again,
    an_append_only_consumer_does_not_go_back,
    going_forward_says_what_is_skipped,
    a_time_and_a_position_are_found,
    a_new_consumer_starts_where_it_is_told,
);

pub(crate) fn back_to(consumer: &str, to: SeekTarget) -> Seek {
    Seek {
        consumer: consumer.into(),
        to,
        scope: Scope::default(),
        reapply: false,
        topics: Vec::new(),
    }
}

impl House {
    async fn preview(&self, seek: &Seek) -> Result<SeekPreview, SeekError> {
        seek.preview(self.chapar.store(), &*self.transport).await
    }

    pub(crate) async fn seek(&self, seek: &Seek) -> Result<SeekPreview, SeekError> {
        seek.carry_out(self.chapar.store(), &*self.transport, "ada", "a test").await
    }

    /// Appends these numbers, and waits until they are applied.
    async fn apply(&self, consumer: Consumer, keys: &[(&str, &str)], numbers: i64) -> Running {
        let name = consumer.name().to_owned();
        let running = self.run(consumer).await;
        for (tenant, key) in keys {
            self.note(tenant, key, 1..=numbers).await;
        }
        let metrics = running.metrics().consumer(&name);
        let all = numbers as u64 * keys.len() as u64;
        eventually("all is applied", async || metrics.applied() == all).await;
        running
    }
}

fn notes() -> Consumer {
    Consumer::named("c").on(write_down)
}

async fn going_back_applies_nothing_twice_unless_asked(house: House) {
    let running = house.apply(notes(), &[("acme", "a"), ("acme", "b")], 5).await;
    stop(running).await;
    let mut seek = back_to("c", SeekTarget::Beginning);
    let preview = house.preview(&seek).await.unwrap();
    assert_eq!((preview.events, preview.applied, preview.to_apply), (10, 10, 0));
    assert_eq!(preview.topics[MODIFIED].applied, 10);
    house.seek(&seek).await.unwrap();
    let running = house.run(notes()).await;
    let metrics = running.metrics().consumer("c");
    eventually("they come again", async || metrics.duplicates() == 10).await;
    assert_eq!(house.applied("a").await, [1, 2, 3, 4, 5]);

    // While it runs, and other keys are in flight.
    seek.reapply = true;
    let preview = house.preview(&seek).await.unwrap();
    assert_eq!((preview.events, preview.applied, preview.to_apply), (10, 10, 10));
    house.seek(&seek).await.unwrap();
    let twice = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5];
    eventually("they are applied again", async || {
        house.applied("a").await == twice && house.applied("b").await == twice
    })
    .await;
    assert_eq!(house.preview(&seek).await.unwrap().to_apply, 10);
    let audited = match house.chapar.store().backend() {
        Backend::Postgres => "select count(*) from chapar.audit_log where action = 'consumer.seek'",
        Backend::Sqlite => "select count(*) from chapar_audit_log where action = 'consumer.seek'",
    };
    assert_eq!(house.ints(audited, vec![]).await, [2]);
    stop(running).await;
    assert_eq!(house.applied("a").await, twice, "once more is once more");
}

async fn only_what_is_in_the_scope_is_applied_again(house: House) {
    let running = house.apply(notes(), &[("acme", "a"), ("umbrella", "b")], 3).await;
    let mut seek = back_to("c", SeekTarget::Beginning);
    seek.reapply = true;
    seek.scope.tenants = vec!["umbrella".into()];
    let preview = house.preview(&seek).await.unwrap();
    assert_eq!((preview.events, preview.to_apply, preview.outside), (3, 3, 3));
    house.seek(&seek).await.unwrap();
    let metrics = running.metrics().consumer("c");
    eventually("b again", async || house.applied("b").await == [1, 2, 3, 1, 2, 3]).await;
    eventually("a is passed over", async || metrics.duplicates() == 3).await;
    assert_eq!(house.applied("a").await, [1, 2, 3]);
    seek.scope = Scope { topics: vec!["nothing.of.it.v1".into()], tenants: vec![] };
    let preview = house.preview(&seek).await.unwrap();
    assert_eq!((preview.events, preview.outside), (0, 6));
    stop(running).await;
}

async fn what_the_inbox_has_forgotten_outside_of_the_scope_stays_untouched(house: House) {
    let running = house.apply(notes(), &[("acme", "a"), ("umbrella", "b")], 3).await;
    stop(running).await;
    house.forget_inbox().await;
    let mut seek = back_to("c", SeekTarget::Beginning);
    seek.scope.tenants = vec!["umbrella".into()];
    let preview = house.preview(&seek).await.unwrap();
    assert_eq!((preview.applied, preview.to_apply, preview.forgotten), (0, 3, 3));
    assert_eq!(preview.forgotten_outside, 3);
    house.seek(&seek).await.unwrap();
    let running = house.run(notes()).await;
    let metrics = running.metrics().consumer("c");
    eventually("b again", async || house.applied("b").await == [1, 2, 3, 1, 2, 3]).await;
    eventually("a is passed over", async || metrics.duplicates() == 3).await;
    assert_eq!(house.applied("a").await, [1, 2, 3]);
    stop(running).await;
}

async fn stamped_events_are_applied_again_too(house: House) {
    let consumer = || Consumer::named("c").on_any(&TOPICS, note);
    let app =
        house.app().stamp(TOPICS).service(Service::new("inventory-service").consumer(consumer()));
    let running = app.start().await.unwrap();
    house.note("acme", "a", 1..=4).await;
    eventually("applied", async || house.applied("a").await == [1, 2, 3, 4]).await;
    let mut seek = back_to("c", SeekTarget::Beginning);
    seek.reapply = true;
    house.seek(&seek).await.unwrap();
    eventually("again", async || house.applied("a").await == [1, 2, 3, 4, 1, 2, 3, 4]).await;
    house.note("acme", "a", [5]).await;
    eventually("and on", async || house.applied("a").await.last() == Some(&5)).await;
    assert_eq!(running.metrics().consumer("c").late(), 0);
    stop(running).await;
}

async fn an_intent_is_carried_out_again(house: House) {
    let consumer = || notes().dedupe_by_intent();
    let running = house.apply(consumer(), &[("acme", "a")], 2).await;
    let mut seek = back_to("c", SeekTarget::Beginning);
    seek.reapply = true;
    house.seek(&seek).await.unwrap();
    eventually("again", async || house.applied("a").await == [1, 2, 1, 2]).await;
    stop(running).await;
}

async fn an_append_only_consumer_does_not_go_back(house: House) {
    let running = house.apply(notes().append_only(), &[("acme", "a")], 3).await;
    stop(running).await;
    let mut seek = back_to("c", SeekTarget::Beginning);
    house.preview(&seek).await.expect("nothing would be applied again");
    seek.reapply = true;
    let refused = house.seek(&seek).await.unwrap_err().to_string();
    assert!(refused.starts_with("CH3020") && refused.contains("3 events"), "{refused}");
    seek.reapply = false;
    house.forget_inbox().await;
    let refused = house.seek(&seek).await.unwrap_err();
    assert!(matches!(refused, SeekError::AppendOnly { events: 3, .. }), "{refused}");
}

async fn going_forward_says_what_is_skipped(house: House) {
    let running = house.apply(notes(), &[("acme", "a")], 2).await;
    stop(running).await;
    let relay = house.app().start().await.unwrap();
    house.note("acme", "a", 3..=7).await;
    let mut seek = back_to("c", SeekTarget::End);
    eventually("they are published", async || house.preview(&seek).await.unwrap().skipped == 5)
        .await;
    seek.scope.tenants = vec!["acme".into()];
    assert!(matches!(house.preview(&seek).await, Err(SeekError::ScopeForward)));
    seek.scope = Scope::default();
    house.seek(&seek).await.unwrap();
    stop(relay).await;
    let running = house.run(notes()).await;
    house.note("acme", "a", [8]).await;
    eventually("on from the end", async || house.applied("a").await == [1, 2, 8]).await;
    stop(running).await;
}

async fn a_time_and_a_position_are_found(house: House) {
    let running = house.apply(notes(), &[("acme", "a")], 6).await;
    let at = |order: &'static str| {
        let sql = match (house.chapar.store().backend(), order) {
            (Backend::Postgres, "place") => {
                "select log_partition::bigint * 1000 + log_offset from chapar.log order by log_offset"
            }
            (Backend::Sqlite, "place") => {
                "select log_partition * 1000 + log_offset from chapar_log order by log_offset"
            }
            (Backend::Postgres, _) => {
                "select (extract(epoch from published_at) * 1000000)::bigint from chapar.log \
                 order by log_offset"
            }
            (Backend::Sqlite, _) => "select published_at from chapar_log order by log_offset",
        };
        house.ints(sql, vec![])
    };
    let place = at("place").await[3];
    let position = Position { partition: (place / 1000) as u32, offset: (place % 1000) as u64 };
    let seek = back_to("c", SeekTarget::Position(position));
    assert_eq!(house.preview(&seek).await.unwrap().events, 3);
    let times = at("time").await;
    for (n, time) in times.iter().enumerate() {
        let first = times.iter().position(|other| other == time).unwrap();
        let time = Timestamp::from_microsecond(*time).unwrap();
        let seek = back_to("c", SeekTarget::Time(time));
        assert_eq!(house.preview(&seek).await.unwrap().events, 6 - first as u64, "from {n}");
    }
    let later = back_to("c", SeekTarget::Time(Timestamp::now()));
    assert_eq!(house.preview(&later).await.unwrap().events, 0);
    stop(running).await;
}

async fn a_new_consumer_starts_where_it_is_told(house: House) {
    let old = house.apply(notes(), &[("acme", "a")], 3).await;
    let mut seek = back_to("new", SeekTarget::End);
    let refused = house.preview(&seek).await.unwrap_err().to_string();
    assert!(refused.contains("no consumer new has run"), "{refused}");
    seek.topics = vec![MODIFIED.into()];
    house.seek(&seek).await.unwrap();
    let other: Arc<dyn Transport> =
        Arc::new(SqlTransport::new(house.chapar.store().clone(), "another"));
    let consumer = Consumer::named("new").on_any(&[MODIFIED], note);
    let app = chapar::App::new(house.chapar.clone(), other, "another");
    let new =
        app.service(Service::new("billing-service").consumer(consumer)).start().await.unwrap();
    house.note("acme", "a", [4]).await;
    eventually("both have the fourth", async || house.applied("a").await == [1, 2, 3, 4, 4]).await;
    // History to one, without the others noticing.
    seek.to = SeekTarget::Beginning;
    let preview = house.seek(&seek).await.unwrap();
    assert_eq!((preview.events, preview.applied, preview.to_apply), (4, 1, 3));
    eventually("history", async || house.applied("a").await == [1, 2, 3, 4, 4, 1, 2, 3]).await;
    assert_eq!(old.metrics().consumer("c").duplicates(), 0);
    stop(old).await;
    stop(new).await;
}
