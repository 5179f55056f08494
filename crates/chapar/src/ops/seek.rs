//! Setting a consumer to another place of history: what it would mean, and doing it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use chapar_core::machine::order::Place;
use chapar_core::machine::stamps::{HEADER, Stamp};
use chapar_core::port::{
    Kept, Position, ReadFrom, SeekTo, SubscriptionSpec, Transport, TransportError,
};
use chapar_sql::{
    AuditEntry, Hold, MarkPlace, Paused, Scope, Store, StoreError, Stretch, Tables, Tx,
};
use jiff::Timestamp;
use serde::Serialize;

/// A wish to set a consumer to another place.
#[derive(Debug, Clone)]
pub struct Seek {
    /// Whom.
    pub consumer: String,
    /// Where to.
    pub to: SeekTarget,
    /// Only these events; the others of the stretch are left as they are.
    pub scope: Scope,
    /// Events that were applied are applied again.
    pub reapply: bool,
    /// What a consumer will read that has not run yet.
    pub topics: Vec<String>,
}

/// Where to set a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeekTarget {
    /// The first event that is kept.
    Beginning,
    /// Behind the last.
    End,
    /// The first event published at or after this time.
    Time(Timestamp),
    /// This very message; other partitions stay where they are.
    Position(Position),
    /// Behind the last snapshot of the read model that the consumer keeps.
    Snapshot,
}

/// What a seek would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SeekPreview {
    /// Events that would come again, or for the first time, within the scope.
    pub events: u64,
    /// Of these, how many were applied before.
    pub applied: u64,
    /// How many would be applied: those that never were and, where that is asked for, the others.
    pub to_apply: u64,
    /// Of those to be applied, how many the inbox has forgotten: the consumer is past them.
    pub forgotten: u64,
    /// Events of the stretch outside of the scope: they come too, and are passed over.
    pub outside: u64,
    /// Events outside of the scope that the inbox has forgotten.
    pub forgotten_outside: u64,
    /// Events that were never applied and would be skipped for good.
    pub skipped: u64,
    /// The same by topic.
    pub topics: BTreeMap<String, TopicCount>,
}

/// What a seek would do with the events of a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the preview")]
pub struct TopicCount {
    pub events: u64,
    pub applied: u64,
    pub to_apply: u64,
}

/// Why a consumer is not set to another place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeekError {
    /// No consumer of this name has run.
    #[error(
        "no consumer {0} has run on this store; name its topics to prepare one that has not, or see who has with `chapar consumers list`"
    )]
    Unknown(String),
    /// It must not apply anything twice.
    #[error(
        "CH3020: {consumer} is declared append-only, and {events} events would be applied again; seek to a later place"
    )]
    AppendOnly {
        /// Who.
        consumer: String,
        /// How many events it would be.
        events: u64,
    },
    /// A scope that skips.
    #[error(
        "CH3021: a scope only makes sense going back: going forward skips what lies between for all tenants and types"
    )]
    ScopeForward,
    /// The broker's inbox has forgotten events outside of the scope.
    #[error(
        "CH3022: {0} events outside of the scope would be applied too, because the inbox has forgotten them; seek to a later place, or without a scope"
    )]
    ForgottenOutside(u64),
    /// There is no snapshot.
    #[error("CH3023: {0} keeps no read model with a snapshot; seek to a time or a position")]
    NoSnapshot(String),
    /// Another seek holds the consumer.
    #[error("another seek of {0} is under way; wait until it has ended")]
    UnderWay(String),
    /// The consumer runs again before the seek has ended.
    #[error(
        "{0} was resumed while it was being moved, by an operator or because this command was stopped for too long; run the seek again"
    )]
    Resumed(String),
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The transport said no.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// How many messages of a broker are looked at together.
const AT_ONCE: usize = 5_000;
/// How long a broker may be silent before what was read is taken for all there is.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a consumer stays paused for a seek that has died: longer than any step of a seek.
const HOLD: Duration = Duration::from_secs(30);

impl Seek {
    /// What it would do; nothing is changed.
    ///
    /// Where events lie in the store itself they are counted there; on a broker they are read.
    pub async fn preview(
        &self,
        store: &Store,
        transport: &dyn Transport,
    ) -> Result<SeekPreview, SeekError> {
        let known = self.known(store).await?;
        let preview = match transport.features().in_store {
            true => self.preview_log(store, &known).await?,
            false => self.preview_broker(store, transport, &known).await?,
        };
        self.check(&preview, &known)?;
        if !transport.features().in_store {
            check_outside(&preview)?;
        }
        Ok(preview)
    }

    /// Does it, on behalf of an operator who says why. Other consumers are not affected.
    pub async fn carry_out(
        &self,
        store: &Store,
        transport: &dyn Transport,
        actor: &str,
        reason: &str,
    ) -> Result<SeekPreview, SeekError> {
        let known = self.known(store).await?;
        if !known.has_run {
            let spec = SubscriptionSpec {
                name: self.consumer.clone(),
                topics: known.topics.clone(),
                ack_deadline: Duration::from_secs(60),
                max_in_flight: 1000,
            };
            transport.apply(&[], &[spec]).await?;
        }
        match transport.features().in_store {
            true => self.move_in_log(store, transport, &known, actor, reason).await,
            false => self.move_on_broker(store, transport, &known, actor, reason).await,
        }
    }

    async fn known(&self, store: &Store) -> Result<Known, SeekError> {
        let mut tx = store.begin_read().await?;
        let topics = tx.consumers().topics_of(&self.consumer).await?;
        let declared = tx.consumers().declared(&self.consumer).await?;
        let has_run = !topics.is_empty();
        let marks = match self.to {
            SeekTarget::Snapshot => Some(tx.projections().snapshot_marks(&self.consumer).await?),
            _ => None,
        };
        tx.rollback().await?;
        let marks = match marks {
            Some(None) => return Err(SeekError::NoSnapshot(self.consumer.clone())),
            marks => marks.flatten(),
        };
        let topics = if has_run { topics } else { self.topics.clone() };
        if topics.is_empty() {
            return Err(SeekError::Unknown(self.consumer.clone()));
        }
        let append_only = declared.is_some_and(|declared| declared.append_only);
        Ok(Known { topics, has_run, append_only, marks })
    }

    fn check(&self, preview: &SeekPreview, known: &Known) -> Result<(), SeekError> {
        let again = match self.reapply {
            true => preview.applied + preview.forgotten,
            false => preview.forgotten,
        };
        if known.append_only && again > 0 {
            let consumer = self.consumer.clone();
            return Err(SeekError::AppendOnly { consumer, events: again });
        }
        if !self.scope.is_all() && preview.skipped > 0 {
            return Err(SeekError::ScopeForward);
        }
        Ok(())
    }

    async fn preview_log(&self, store: &Store, known: &Known) -> Result<SeekPreview, SeekError> {
        let mut tx = store.begin_read().await?;
        let stretches = self.stretches(&mut tx.conn(), known).await?;
        let preview = self.count(&mut tx.conn(), known, &stretches).await?;
        tx.rollback().await?;
        Ok(preview)
    }

    async fn stretches(
        &self,
        conn: &mut chapar_sql::Conn<'_>,
        known: &Known,
    ) -> Result<Vec<Stretch>, StoreError> {
        let to = match &self.to {
            SeekTarget::Beginning => SeekTo::Beginning,
            SeekTarget::End => SeekTo::End,
            SeekTarget::Time(at) => SeekTo::Time(*at),
            SeekTarget::Position(at) => SeekTo::Position(*at),
            SeekTarget::Snapshot => SeekTo::Beginning,
        };
        let mut stretches = match known.has_run {
            true => conn.cursors().stretches(&self.consumer, to).await?,
            // One that has not run has no cursors yet: it would start at the beginning.
            false => {
                let mut stretches = Vec::new();
                for (partition, end) in conn.cursors().heads().await? {
                    let first = match to {
                        SeekTo::Beginning => 1,
                        SeekTo::End => end,
                        SeekTo::Time(at) => conn.cursors().offset_at(partition, at).await?,
                        SeekTo::Position(at) if at.partition == partition => at.offset as i64,
                        SeekTo::Position(_) => continue,
                    };
                    stretches.push(Stretch { partition, first, end, acked: 0 });
                }
                stretches
            }
        };
        if let Some(marks) = &known.marks {
            for stretch in &mut stretches {
                stretch.first = marks.get(&stretch.partition).map_or(1, |at| *at as i64 + 1);
            }
        }
        Ok(stretches)
    }

    async fn count(
        &self,
        conn: &mut chapar_sql::Conn<'_>,
        known: &Known,
        stretches: &[Stretch],
    ) -> Result<SeekPreview, SeekError> {
        let mut preview = SeekPreview::default();
        for group in
            conn.cursors().count_stretches(&self.consumer, &known.topics, stretches).await?
        {
            let inside = self.scope.has(&group.topic, &group.tenant);
            let forgotten = group.passed && !group.applied;
            self.add(&mut preview, &group.topic, inside, group.applied, forgotten, group.count);
        }
        let ahead: Vec<Stretch> = stretches
            .iter()
            .filter(|stretch| known.has_run && stretch.first > stretch.acked + 1)
            .map(|stretch| Stretch { first: stretch.acked + 1, end: stretch.first, ..*stretch })
            .collect();
        if !ahead.is_empty() {
            let between =
                conn.cursors().count_stretches(&self.consumer, &known.topics, &ahead).await?;
            let missed = between.iter().filter(|group| !group.applied);
            preview.skipped = missed.map(|group| group.count as u64).sum();
        }
        Ok(preview)
    }

    fn add(
        &self,
        preview: &mut SeekPreview,
        topic: &str,
        inside: bool,
        applied: bool,
        forgotten: bool,
        count: i64,
    ) {
        let count = u64::try_from(count).unwrap_or(0);
        let set = |to: &mut u64, holds: bool| *to += if holds { count } else { 0 };
        if !inside {
            preview.outside += count;
            set(&mut preview.forgotten_outside, forgotten);
            return;
        }
        let of = preview.topics.entry(topic.to_owned()).or_default();
        let applies = self.reapply || !applied;
        set(&mut of.events, true);
        set(&mut of.applied, applied);
        set(&mut of.to_apply, applies);
        set(&mut preview.events, true);
        set(&mut preview.applied, applied);
        set(&mut preview.to_apply, applies);
        set(&mut preview.forgotten, forgotten);
    }

    async fn move_in_log(
        &self,
        store: &Store,
        transport: &dyn Transport,
        known: &Known,
        actor: &str,
        reason: &str,
    ) -> Result<SeekPreview, SeekError> {
        let mut tx = store.begin_engine().await?;
        // No batch is under way while the consumer moves, and what was fetched before is discarded.
        tx.consumers().hold_batches(&self.consumer).await?;
        tx.consumers().move_on(&self.consumer).await?;
        let stretches = self.stretches(&mut tx.conn(), known).await?;
        let preview = self.count(&mut tx.conn(), known, &stretches).await?;
        self.check(&preview, known)?;
        if self.reapply {
            tx.inbox().expect_again(&self.consumer, &known.topics, &stretches, &self.scope).await?;
            tx.inbox().forget_intents(&self.consumer).await?;
            self.rewind(&mut tx, transport, known, &stretches).await?;
        }
        if !self.scope.is_all() {
            tx.inbox().leave_out(&self.consumer, &known.topics, &stretches, &self.scope).await?;
        }
        tx.cursors().move_to(&self.consumer, &stretches).await?;
        self.audit(&mut tx.conn(), &preview, actor, reason).await?;
        tx.commit().await?;
        store.nudge();
        Ok(preview)
    }

    /// Sets the marks of the keys back to before what is applied again. Otherwise an event would not
    /// wait for its predecessors on other topics, which count as applied.
    async fn rewind(
        &self,
        tx: &mut Tx,
        transport: &dyn Transport,
        known: &Known,
        stretches: &[Stretch],
    ) -> Result<(), SeekError> {
        if !tx.inbox().has_marks(&self.consumer).await? {
            return Ok(());
        }
        let heads = tx.cursors().heads().await?;
        let mut offsets: BTreeMap<u32, u64> =
            heads.into_iter().map(|(partition, head)| (partition, head as u64)).collect();
        for stretch in stretches {
            offsets.insert(stretch.partition, (stretch.first - 1).max(0) as u64);
        }
        let mut reader = transport.read(&known.topics, ReadFrom::Behind(offsets)).await?;
        while !reader.is_caught_up() {
            let kept = reader.read(AT_ONCE, SILENCE).await?;
            if kept.is_empty() {
                break;
            }
            let inside = |kept: &&Kept| self.scope.has(&kept.delivery.topic, &kept.tenant);
            let places = kept.iter().filter(inside).filter_map(place).collect();
            tx.inbox().rewind(&self.consumer, places).await?;
        }
        Ok(())
    }

    async fn audit(
        &self,
        conn: &mut chapar_sql::Conn<'_>,
        preview: &SeekPreview,
        actor: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let detail = serde_json::json!({
            "to": format!("{:?}", self.to), "topics": self.scope.topics,
            "tenants": self.scope.tenants, "reapply": self.reapply, "events": preview.events,
            "applied": preview.applied, "to_apply": preview.to_apply, "skipped": preview.skipped,
        })
        .to_string();
        let entry = AuditEntry {
            actor,
            action: "consumer.seek",
            target: &self.consumer,
            reason,
            detail: &detail,
        };
        conn.audit_log().record(&entry).await
    }

    async fn preview_broker(
        &self,
        store: &Store,
        transport: &dyn Transport,
        known: &Known,
    ) -> Result<SeekPreview, SeekError> {
        let mut preview = SeekPreview::default();
        self.walk(store, transport, known, None, |seen| {
            for (event, standing) in seen {
                let inside = self.scope.has(&event.topic, &event.tenant);
                if event.before {
                    let missed = !standing.applied && !standing.forgotten;
                    preview.skipped += u64::from(missed && known.has_run);
                    continue;
                }
                let Standing { applied, forgotten } = standing;
                self.add(&mut preview, &event.topic, inside, applied, forgotten, 1);
            }
            Vec::new()
        })
        .await?;
        Ok(preview)
    }

    async fn move_on_broker(
        &self,
        store: &Store,
        transport: &dyn Transport,
        known: &Known,
        actor: &str,
        reason: &str,
    ) -> Result<SeekPreview, SeekError> {
        let preview = self.preview_broker(store, transport, known).await?;
        self.check(&preview, known)?;
        check_outside(&preview)?;
        // Paused for as long as it takes: what is already expected again must not be applied by
        // what was fetched before the cursor moves.
        let hold = Hold {
            holder: format!("seek {:032x}", fastrand::u128(..)),
            reason: "a seek is under way",
            ttl: HOLD,
        };
        self.hold(store, &hold).await?;
        let moved = self.move_paused(store, transport, known, &hold).await;
        let mut tx = store.begin_engine().await?;
        tx.consumers().hold_batches(&self.consumer).await?;
        tx.consumers().move_on(&self.consumer).await?;
        tx.consumers().end_hold(&self.consumer, &hold).await?;
        if moved.is_ok() {
            self.audit(&mut tx.conn(), &preview, actor, reason).await?;
        }
        tx.commit().await?;
        moved.map(|()| preview)
    }

    /// Pauses the consumer, and waits for the batches under way. What was fetched before is
    /// discarded, also if this seek is abandoned half-way.
    async fn hold(&self, store: &Store, hold: &Hold) -> Result<(), SeekError> {
        let mut tx = store.begin_engine().await?;
        tx.consumers().hold_batches(&self.consumer).await?;
        if tx.consumers().hold(&self.consumer, hold).await? == Paused::ByAnother {
            return Err(SeekError::UnderWay(self.consumer.clone()));
        }
        tx.consumers().move_on(&self.consumer).await?;
        Ok(tx.commit().await?)
    }

    /// Checks that the consumer is still paused, and keeps it so.
    async fn extend(&self, tx: &mut Tx, hold: &Hold) -> Result<(), SeekError> {
        match tx.consumers().extend_hold(&self.consumer, hold).await? {
            true => Ok(()),
            false => Err(SeekError::Resumed(self.consumer.clone())),
        }
    }

    async fn move_paused(
        &self,
        store: &Store,
        transport: &dyn Transport,
        known: &Known,
        hold: &Hold,
    ) -> Result<(), SeekError> {
        // The inbox expects them first: should the seek fail, nothing comes and nothing is lost.
        if self.reapply {
            self.walk(store, transport, known, Some(hold), |seen| {
                let again = seen.into_iter().filter(|(event, standing)| {
                    let inside = self.scope.has(&event.topic, &event.tenant);
                    inside && standing.applied && !event.before
                });
                again.map(|(event, _)| event).collect()
            })
            .await?;
        }
        let mut tx = store.begin_engine().await?;
        self.extend(&mut tx, hold).await?;
        if self.reapply {
            tx.inbox().forget_intents(&self.consumer).await?;
        }
        tx.commit().await?;
        match tokio::time::timeout(HOLD / 2, self.seek(transport, known)).await {
            Ok(sought) => sought,
            Err(_) => {
                let silent = "the broker did not answer in time; run the seek again";
                Err(TransportError::Unavailable(silent.into()).into())
            }
        }
    }

    /// Moves the cursors of the broker.
    async fn seek(&self, transport: &dyn Transport, known: &Known) -> Result<(), SeekError> {
        let to = match &self.to {
            SeekTarget::Beginning => SeekTo::Beginning,
            SeekTarget::End => SeekTo::End,
            SeekTarget::Time(at) => SeekTo::Time(*at),
            SeekTarget::Position(at) => SeekTo::Position(*at),
            SeekTarget::Snapshot => {
                for (partition, offset) in known.marks.iter().flatten() {
                    let position = Position { partition: *partition, offset: offset + 1 };
                    transport.seek(&self.consumer, SeekTo::Position(position)).await?;
                }
                return Ok(());
            }
        };
        Ok(transport.seek(&self.consumer, to).await?)
    }

    /// Walks over the messages of a broker, and has the inbox expect again what `each` returns.
    async fn walk(
        &self,
        store: &Store,
        transport: &dyn Transport,
        known: &Known,
        hold: Option<&Hold>,
        mut each: impl FnMut(Vec<(Seen, Standing)>) -> Vec<Seen>,
    ) -> Result<(), SeekError> {
        let mut tx = store.begin_read().await?;
        let since = tx.inbox().remembers_since(&self.consumer).await?;
        tx.rollback().await?;
        let from = match &self.to {
            // Going to the end is about what lies before it.
            SeekTarget::End | SeekTarget::Position(_) | SeekTarget::Beginning => {
                ReadFrom::Beginning
            }
            SeekTarget::Time(at) => ReadFrom::Time((*at).min(since.unwrap_or(Timestamp::MAX))),
            SeekTarget::Snapshot => ReadFrom::Behind(known.marks.clone().unwrap_or_default()),
        };
        let began = Timestamp::now();
        let mut reader = transport.read(&known.topics, from).await?;
        while !reader.is_caught_up() {
            let kept = reader.read(AT_ONCE, SILENCE).await?;
            if kept.is_empty() {
                break;
            }
            let ids: Vec<String> = kept.iter().map(|kept| kept.id.clone()).collect();
            let mut tx = store.begin_engine().await?;
            if let Some(hold) = hold {
                self.extend(&mut tx, hold).await?;
            }
            let applied: HashSet<String> =
                tx.inbox().applied_among(&self.consumer, ids).await?.into_iter().collect();
            let seen = kept.into_iter().filter_map(|kept| {
                let at = kept.delivery.token.position;
                let published = kept.delivery.published_at;
                let before = match &self.to {
                    SeekTarget::End => published < began,
                    SeekTarget::Time(to) => published < *to,
                    SeekTarget::Position(to) if at.partition != to.partition => return None,
                    SeekTarget::Position(to) => at.offset < to.offset,
                    SeekTarget::Beginning | SeekTarget::Snapshot => false,
                };
                let applied = applied.contains(&kept.id);
                let forgotten = !applied && since.is_some_and(|since| published < since);
                let place = place(&kept);
                let topic = kept.delivery.topic;
                let seen = Seen { id: kept.id, topic, tenant: kept.tenant, before, place };
                Some((seen, Standing { applied, forgotten }))
            });
            let again = each(seen.collect());
            if !again.is_empty() {
                let places = again.iter().filter_map(|seen| seen.place.clone()).collect();
                tx.inbox().rewind(&self.consumer, places).await?;
                let again = again.into_iter().map(|seen| seen.id).collect();
                tx.inbox().expect_events_again(&self.consumer, again).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }
}

/// What is known of the consumer.
struct Known {
    topics: Vec<String>,
    has_run: bool,
    append_only: bool,
    marks: Option<BTreeMap<u32, u64>>,
}

/// An event on a broker.
struct Seen {
    id: String,
    topic: String,
    tenant: String,
    /// It lies before the place to go to.
    before: bool,
    place: Option<MarkPlace>,
}

/// Where a stamped event stands in its key.
fn place(kept: &Kept) -> Option<MarkPlace> {
    let delivery = &kept.delivery;
    let stamp = delivery.headers.get(HEADER).and_then(Stamp::read)?;
    let number = Place::by_stamp(&stamp, &delivery.topic, []).number;
    let (tenant, ordering_key) = (kept.tenant.clone(), delivery.key.clone()?);
    Some(MarkPlace { tenant, ordering_key, line: delivery.topic.clone(), number })
}

#[derive(Clone, Copy)]
struct Standing {
    applied: bool,
    forgotten: bool,
}

/// On a broker a scope cannot keep forgotten events from being applied again.
fn check_outside(preview: &SeekPreview) -> Result<(), SeekError> {
    match preview.forgotten_outside {
        0 => Ok(()),
        events => Err(SeekError::ForgottenOutside(events)),
    }
}
