//! A member of a consumer group: the thread that reads, commits, and hands partitions over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::machine::ownership::Phase;
use chapar_core::port::TransportError;
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::Offset;
use tracing::{debug, warn};

use super::client::{Ears, config, creation};
use super::subscription::{Ahead, Inner, State};
use super::wire::Decoder;
use super::{lock, unavailable};

/// The longest time between two commits of what was acknowledged.
const TICK: Duration = Duration::from_millis(50);
/// While messages keep coming, the time between two runs of everything else.
const LOOK: Duration = Duration::from_millis(10);
/// The most messages, and about the most bytes, that are read in one portion.
const PORTION: (usize, usize) = (1000, 4 << 20);
/// The pause before a client is created again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Member {
    inner: Arc<Inner>,
    number: usize,
    group: String,
    topics: Vec<String>,
}

/// A client in a consumer group, with its callbacks.
pub(super) type GroupConsumer = BaseConsumer<Desk>;

impl Member {
    /// A member and its consumer, subscribed and not yet polled.
    pub(super) fn open(
        inner: Arc<Inner>,
        number: usize,
        group: String,
        topics: Vec<String>,
    ) -> Result<(Self, GroupConsumer), TransportError> {
        let member = Member { inner, number, group, topics };
        let consumer = member.consumer()?;
        Ok((member, consumer))
    }

    fn consumer(&self) -> Result<GroupConsumer, TransportError> {
        let kafka = &self.inner.kafka.0;
        let mut config = config(&kafka.servers, &kafka.options)?;
        let session = kafka.options.session.as_millis().max(100);
        config
            .set("group.id", &self.group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", session.to_string())
            .set("heartbeat.interval.ms", (session / 4).to_string())
            .set("max.poll.interval.ms", session.max(300_000).to_string())
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", "100")
            .set("fetch.error.backoff.ms", "100")
            .set("fetch.queue.backoff.ms", "5")
            .set("queued.min.messages", "20000")
            .set("queued.max.messages.kbytes", "16384");
        let (inner, number) = (self.inner.clone(), self.number);
        let desk = Desk { inner, number, ears: Ears::new(&kafka.options) };
        let consumer: GroupConsumer =
            config.create_with_context(desk).map_err(|error| creation(&error))?;
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| unavailable(&error))?;
        Ok(consumer)
    }

    /// Runs until the subscription is closed.
    pub(super) fn run(self, consumer: GroupConsumer) {
        let mut next = Some(consumer);
        while !self.inner.state().closing {
            let consumer = match next.take().map_or_else(|| self.consumer(), Ok) {
                Ok(consumer) => consumer,
                Err(error) => {
                    self.inner.state().refusal = Some(error.to_string());
                    self.pause();
                    continue;
                }
            };
            self.read(&consumer);
            self.tell(&consumer);
            self.inner.state().give_up_all(self.number);
            // Leaves the group.
            drop(consumer);
            self.inner.state().pulses[self.number].reconnected();
            self.pause();
        }
    }

    fn pause(&self) {
        let (until, mut state) = (Instant::now() + PAUSE, self.inner.state());
        while !state.closing && Instant::now() < until {
            state = self.inner.wait(state, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Reads until the subscription is closed or the client has failed for good.
    fn read(&self, consumer: &GroupConsumer) {
        let (mut doubted_at, mut told_at) = (Instant::now(), Instant::now());
        let mut decoder = Decoder::default();
        loop {
            let caught_up = self.rest();
            {
                let mut state = self.inner.state();
                if state.closing {
                    return;
                }
                if beat(&self.inner, &mut state, self.number) {
                    doubted_at = Instant::now() - PAUSE;
                }
            }
            self.follow(consumer);
            let looked_at = Instant::now();
            loop {
                self.portion(consumer, &mut decoder);
                let none = decoder.read().0 == 0;
                if none || self.inner.push(&mut decoder) || looked_at.elapsed() > LOOK {
                    break;
                }
            }
            // Each commit is a write at the broker, so collect acknowledgements for a while.
            if told_at.elapsed() >= TICK {
                told_at = Instant::now();
                self.tell(consumer);
            }
            self.throttle(consumer, caught_up);
            if doubted_at.elapsed() > PAUSE / 4 && self.ask(consumer) {
                doubted_at = Instant::now();
            }
            if let Some(why) = done_for(consumer) {
                warn!(group = self.group, %why, "Kafka client failed; creating another one");
                self.inner.state().refusal = Some(why.to_string());
                return;
            }
        }
    }

    /// Reads the messages that are available, and waits up to a tick for the first.
    fn portion(&self, consumer: &GroupConsumer, decoder: &mut Decoder) {
        let mut wait = TICK;
        while matches!(decoder.read(), (read, bytes) if read < PORTION.0 && bytes < PORTION.1) {
            match consumer.poll(wait) {
                Some(Ok(message)) => decoder.add(&message, self.inner.epoch()),
                Some(Err(error)) => self.complain(&error),
                None => break,
            }
            wait = Duration::ZERO;
        }
    }

    /// Waits until deliveries have caught up with reading, and returns whether they have. Only for
    /// a short time: the client must be polled to take part in rebalancing.
    fn rest(&self) -> bool {
        if !self.inner.ahead().is_enough(self.inner.plenty()) {
            return true;
        }
        let until = Instant::now() + TICK * 4;
        let mut state = self.inner.state();
        while !state.closing && Instant::now() < until {
            self.inner.place(&mut state);
            let all = state.ahead(|owned| owned.member == self.number);
            let read = state.ahead(|owned| owned.member == self.number && !owned.paused);
            if !(Ahead { bytes: all.bytes, ..read }).is_enough(self.inner.plenty()) {
                return true;
            }
            state = self.inner.wait(state, TICK / 10);
        }
        false
    }

    /// Carries out a seek on the partitions that have not followed it yet.
    fn follow(&self, consumer: &GroupConsumer) {
        let name = &self.inner.spec.name;
        let Some(seek) = lock(&self.inner.kafka.0.seeks).get(name).cloned() else { return };
        let mut moves: Vec<(String, i32, i64)> = Vec::new();
        for (_, held) in self.inner.state().owned.iter() {
            let owned = &held.item;
            let place = ((*owned.topic.name).to_owned(), owned.partition);
            let start = seek.starts.get(&place);
            let stays = held.phase == Phase::Delivering;
            let ours = owned.member == self.number && stays && owned.seek != seek.id;
            if let Some(start) = start.filter(|_| ours) {
                moves.push((place.0, place.1, *start));
            }
        }
        for (topic, partition, start) in moves {
            let moved = consumer.seek(&topic, partition, Offset::Offset(start), PAUSE);
            match moved {
                Ok(()) => {
                    self.inner.take(self.number, (&topic, partition), &seek.id, Some(start));
                }
                // The client does not read it yet; the next run tries again.
                Err(error) => {
                    debug!(group = self.group, topic, partition, %error, "seek failed; retrying");
                }
            }
        }
    }

    fn complain(&self, error: &KafkaError) {
        debug!(group = self.group, %error, "librdkafka");
        if let TransportError::Setup(why) = unavailable(error) {
            self.inner.state().refusal = Some(why);
        }
    }

    /// Commits the contiguous prefix of what is acknowledged.
    fn tell(&self, consumer: &GroupConsumer) {
        let done = progress(&mut self.inner.state(), |_, _| true, self.number, Report::New);
        self.commit(consumer, &done);
    }

    fn commit(&self, consumer: &GroupConsumer, done: &TopicPartitionList) {
        consumer.context().commit(consumer, done);
    }

    /// Asks the group whether this process is still in it, by committing offsets again; returns
    /// whether that was in doubt.
    fn ask(&self, consumer: &GroupConsumer) -> bool {
        let mut state = self.inner.state();
        if !state.pulses[self.number].is_doubtful() {
            return false;
        }
        let done = progress(&mut state, |_, _| true, self.number, Report::All);
        if done.count() == 0 {
            // Nothing was ever read, so there is nothing to doubt.
            state.pulses[self.number].clear_doubt();
        }
        drop(state);
        self.commit(consumer, &done);
        true
    }

    /// Pauses partitions with enough messages waiting, and resumes those with room. Above the
    /// memory bound, one waiting message is enough. A partition with none waiting is never paused,
    /// because the message that the consumer needs next may be in it.
    ///
    /// While deliveries keep up, nothing is paused: librdkafka discards what it has fetched of a
    /// paused partition and fetches it again.
    fn throttle(&self, consumer: &GroupConsumer, caught_up: bool) {
        let mut state = self.inner.state();
        let heavy = state.ahead(|owned| owned.member == self.number).is_heavy();
        let (plenty, room) =
            if heavy { (1, 0) } else { (self.inner.plenty(), self.inner.plenty() / 2) };
        let (mut full, mut free) = (TopicPartitionList::new(), TopicPartitionList::new());
        for owned in state.owned.items_mut().filter(|owned| owned.member == self.number) {
            let waiting = owned.flight.waiting();
            if !owned.paused && !caught_up && waiting >= plenty {
                owned.paused = true;
                full.add_partition(&owned.topic.name, owned.partition);
            } else if owned.paused && waiting <= room {
                owned.paused = false;
                free.add_partition(&owned.topic.name, owned.partition);
            }
        }
        drop(state);
        let turn = |list: &TopicPartitionList, pause: bool| match (list.count(), pause) {
            (0, _) => Ok(()),
            (_, true) => consumer.pause(list),
            (_, false) => consumer.resume(list),
        };
        if let Err(error) = turn(&full, true).and_then(|()| turn(&free, false)) {
            debug!(group = self.group, %error, "cannot pause or resume partitions");
        }
    }
}

/// Why a client has failed for good, if it has.
fn done_for(consumer: &GroupConsumer) -> Option<TransportError> {
    let (ears, fatal) = (&consumer.context().ears, consumer.client().fatal_error());
    let code = match fatal {
        Some((code, _)) => code,
        None if ears.is_refused() => RDKafkaErrorCode::Authentication,
        None => return None,
    };
    Some(ears.explain(&KafkaError::Global(code)))
}

/// Notes that a member's thread runs. Returns whether it did not for so long that the group may
/// have gone on without it; what was delivered before is then taken back.
fn beat(inner: &Inner, state: &mut State, member: usize) -> bool {
    let slept = state.pulses[member].beat(inner.now());
    if slept {
        let ours = state.owned.items_mut().filter(|owned| owned.member == member);
        ours.for_each(|owned| owned.flight.recall());
    }
    slept
}

/// Which offsets to commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    /// Those that have moved since the last commit.
    New,
    /// All of partitions from which something was read, to hear the group's answer.
    All,
}

/// What is acknowledged of some partitions of a member, to be committed.
fn progress(
    state: &mut State,
    of: impl Fn(&str, i32) -> bool,
    member: usize,
    report: Report,
) -> TopicPartitionList {
    let mut done = TopicPartitionList::new();
    for owned in state.owned.items_mut() {
        let acked = owned.flight.acked();
        let read = owned.flight.read_to() > 0;
        let news = match owned.committed {
            Some(committed) => acked > committed || (report == Report::All && read),
            None => read || !owned.seek.is_empty(),
        };
        if owned.member == member && news && of(&owned.topic.name, owned.partition) {
            let offset = Offset::Offset(i64::try_from(acked).unwrap_or(i64::MAX));
            let mut place = done.add_partition(&owned.topic.name, owned.partition);
            if !owned.seek.is_empty() {
                place.set_metadata(&owned.seek);
            }
            if place.set_offset(offset).is_ok() {
                owned.committed = Some(acked);
            }
        }
    }
    done
}

/// The callbacks of a client, called while it is polled.
pub(super) struct Desk {
    inner: Arc<Inner>,
    number: usize,
    ears: Ears,
}

impl ClientContext for Desk {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.ears.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.ears.error(error, reason);
    }
}

impl ConsumerContext for Desk {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                debug!(subscription = self.inner.spec.name, ?list, "partitions assigned");
                let followed = self.followed(consumer, list);
                for place in list.elements() {
                    let at = (place.topic(), place.partition());
                    let seek = followed.get(&(at.0.to_owned(), at.1));
                    self.inner.take(self.number, at, seek.map_or("", String::as_str), None);
                }
            }
            Rebalance::Revoke(list) => {
                debug!(subscription = self.inner.spec.name, ?list, "partitions revoked");
                self.hand_over(consumer, list);
            }
            Rebalance::Error(error) => debug!(%error, "librdkafka"),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let mut state = self.inner.state();
        let pulse = &mut state.pulses[self.number];
        match result {
            Ok(()) => pulse.accepted(),
            Err(error) => {
                pulse.refused();
                debug!(subscription = self.inner.spec.name, %error, "commit failed; trying again");
                for place in offsets.elements() {
                    if let Some(held) = state.find(place.topic(), place.partition()) {
                        held.item.committed = None;
                    }
                }
            }
        }
    }

    fn main_queue_min_poll_interval(&self) -> rdkafka::util::Timeout {
        rdkafka::util::Timeout::After(TICK)
    }
}

impl Desk {
    fn commit(&self, consumer: &BaseConsumer<Self>, done: &TopicPartitionList) {
        if done.count() == 0 {
            return;
        }
        match consumer.commit(done, CommitMode::Async) {
            Ok(()) => self.inner.state().pulses[self.number].asked(),
            Err(error) => debug!(%error, "commit not sent"),
        }
    }

    /// The last seek that each partition has followed. Without an answer from the broker they
    /// follow it again, which repeats messages and skips none.
    fn followed(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &TopicPartitionList,
    ) -> HashMap<(String, i32), String> {
        if list.count() == 0 {
            return HashMap::new();
        }
        let asked = consumer.committed_offsets(list.clone(), self.inner.kafka.0.options.timeout);
        let Ok(answer) = asked else { return HashMap::new() };
        let place = |p: rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            ((p.topic().to_owned(), p.partition()), p.metadata().to_owned())
        };
        answer.elements().into_iter().map(place).collect()
    }

    /// Gives partitions up. Waits first until nothing of them is in flight, unless they were lost
    /// to another member already or the subscription is closing.
    fn hand_over(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let places: Vec<(String, i32)> =
            list.elements().iter().map(|p| (p.topic().to_owned(), p.partition())).collect();
        let lost = consumer.assignment_lost();
        let mut state = self.inner.state();
        let until = Instant::now() + self.inner.kafka.0.options.drain;
        while !lost && !state.closing && Instant::now() < until {
            let mut flying = 0;
            for (topic, partition) in &places {
                if let Some(held) = state.find(topic, *partition) {
                    held.drain();
                    flying += held.item.flight.in_flight();
                }
            }
            if flying == 0 {
                break;
            }
            beat(&self.inner, &mut state, self.number);
            state = self.inner.wait(state, TICK);
        }
        let of =
            |topic: &str, partition: i32| places.iter().any(|(t, p)| t == topic && *p == partition);
        let done = progress(&mut state, of, self.number, Report::New);
        for (topic, partition) in &places {
            state.give_up(topic, *partition);
        }
        if lost {
            // What is assigned next is certain.
            state.pulses[self.number].clear_doubt();
        }
        drop(state);
        if !lost {
            self.commit(consumer, &done);
        }
    }
}
