//! Two models of stores: rows with guarded statements and a clock, as in a database, and one
//! document with compare-and-set and no clock, as in a key-value bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use chapar_core::machine::ownership::{
    Beat, Claim, Heartbeat, LeaseState, Plan, Reads, Roster, Standing, Watch,
};

pub(crate) const LEASE: Duration = Duration::from_millis(3000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rows,
    Document,
}

#[derive(Debug, Clone)]
struct MemberRow {
    reads: Reads<u32>,
    /// Used by rows.
    expires_at: Duration,
    /// Used by the document.
    heartbeat: Heartbeat,
}

#[derive(Debug, Clone, Default)]
struct Row {
    claim: Claim,
    expires_at: Duration,
    /// Up to where the messages of the partition are acknowledged.
    cursor: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Store {
    kind: Kind,
    members: BTreeMap<String, MemberRow>,
    rows: BTreeMap<u32, Row>,
    revision: u64,
}

/// What a member has read in its turn.
#[derive(Debug, Clone)]
pub(crate) struct View {
    revision: u64,
    members: BTreeMap<String, MemberRow>,
    rows: BTreeMap<u32, Row>,
    /// When it was read, by the store's clock.
    read_at: Duration,
}

impl Store {
    pub(crate) fn new(kind: Kind, partitions: u32) -> Self {
        let rows = (0..partitions).map(|partition| (partition, Row::default())).collect();
        Store { kind, members: BTreeMap::new(), rows, revision: 0 }
    }

    /// The first part of a turn. In rows it renews what is not expired.
    pub(crate) fn read(&mut self, name: &str, reads: &Reads<u32>, now: Duration) -> View {
        if self.kind == Kind::Rows {
            let heartbeat = Heartbeat { life: 0, beat: 0 };
            let row = MemberRow { reads: reads.clone(), expires_at: now + LEASE, heartbeat };
            self.members.insert(name.to_owned(), row);
            for row in self.rows.values_mut() {
                if row.claim.owner.as_deref() == Some(name) && row.expires_at > now {
                    row.expires_at = now + LEASE;
                }
            }
        }
        let (members, rows) = (self.members.clone(), self.rows.clone());
        View { revision: self.revision, members, rows, read_at: now }
    }

    /// The second part of a turn; none where the document has changed since it was read.
    pub(crate) fn write(
        &mut self,
        name: &str,
        view: View,
        plan: &Plan<u32>,
        now: Duration,
    ) -> Option<BTreeMap<u32, u64>> {
        match self.kind {
            Kind::Rows => self.write_rows(name, plan, now),
            Kind::Document if self.revision == view.revision => {
                self.members = view.members;
                plan.remove.iter().for_each(|expired| self.leave(expired));
                self.write_document(name, plan);
                self.revision += 1;
            }
            Kind::Document => return None,
        }
        let ours = |row: &Row| {
            let valid = self.kind == Kind::Document || row.expires_at > now;
            row.claim.owner.as_deref() == Some(name) && valid
        };
        let owned = self.rows.iter().filter(|(_, row)| ours(row));
        Some(owned.map(|(partition, row)| (*partition, row.claim.epoch)).collect())
    }

    fn write_rows(&mut self, name: &str, plan: &Plan<u32>, now: Duration) {
        self.members.retain(|member, row| !plan.remove.contains(member) || row.expires_at > now);
        for (partition, epoch) in &plan.give_back {
            let row = self.rows.get_mut(partition).unwrap();
            if row.claim.epoch == *epoch {
                (row.claim.owner, row.expires_at) = (None, now);
            }
        }
        for (partition, epoch) in &plan.take {
            let row = self.rows.get_mut(partition).unwrap();
            let free = row.expires_at <= now || row.claim.owner.as_deref() == Some(name);
            if free && row.claim.epoch + 1 == *epoch {
                row.claim = Claim { owner: Some(name.to_owned()), epoch: *epoch };
                row.expires_at = now + LEASE;
            }
        }
    }

    fn write_document(&mut self, name: &str, plan: &Plan<u32>) {
        for (partition, epoch) in &plan.give_back {
            let row = self.rows.get_mut(partition).unwrap();
            if row.claim.epoch == *epoch {
                row.claim.owner = None;
            }
        }
        for (partition, epoch) in &plan.take {
            let row = self.rows.get_mut(partition).unwrap();
            row.claim = Claim { owner: Some(name.to_owned()), epoch: *epoch };
        }
    }

    pub(crate) fn leave(&mut self, name: &str) {
        self.members.remove(name);
        for row in self.rows.values_mut() {
            if row.claim.owner.as_deref() == Some(name) {
                (row.claim.owner, row.expires_at) = (None, Duration::ZERO);
            }
        }
        self.revision += 1;
    }

    /// Moves a cursor, if the epoch is current. A cursor never skips a message.
    pub(crate) fn ack(&mut self, partition: u32, epoch: u64, message: u64) -> bool {
        let row = self.rows.get_mut(&partition).unwrap();
        let current = row.claim.epoch == epoch && row.claim.owner.is_some();
        if current {
            assert!(message <= row.cursor + 1, "message {} was skipped", row.cursor + 1);
            row.cursor = row.cursor.max(message);
        }
        current
    }

    pub(crate) fn cursor(&self, partition: u32) -> u64 {
        self.rows[&partition].cursor
    }

    pub(crate) fn claim(&self, partition: u32) -> &Claim {
        &self.rows[&partition].claim
    }
}

impl View {
    /// The roster as the member sees it. In a document the member writes its heartbeat first.
    pub(crate) fn roster(
        &mut self,
        kind: Kind,
        name: &str,
        reads: &Reads<u32>,
        watch: &mut Watch,
        now: Duration,
    ) -> Roster<u32> {
        let mut expired: Vec<String> = Vec::new();
        match kind {
            Kind::Rows => {
                let over = |(_, row): &(&String, &MemberRow)| row.expires_at <= self.read_at;
                expired.extend(self.members.iter().filter(over).map(|(name, _)| name.clone()));
            }
            Kind::Document => {
                let stored = self.members.get(name).map(|row| row.heartbeat);
                let heartbeat = match watch.beat(stored).expect("names differ") {
                    Beat::GoOn(heartbeat) | Beat::Join(heartbeat) => heartbeat,
                };
                let row = MemberRow { reads: reads.clone(), expires_at: Duration::ZERO, heartbeat };
                self.members.insert(name.to_owned(), row);
                let beats = self.members.iter().map(|(name, row)| (&**name, row.heartbeat));
                expired.extend(watch.expired(beats, now).into_iter().map(str::to_owned));
            }
        }
        let standing = |name: &String, row: &MemberRow| Standing {
            lease: match expired.contains(name) {
                true => LeaseState::Expired,
                false => LeaseState::Valid,
            },
            reads: row.reads.clone(),
        };
        let members = self.members.iter().map(|(name, row)| (name.clone(), standing(name, row)));
        let claim = |row: &Row| match kind {
            Kind::Rows if row.expires_at <= self.read_at => Claim { owner: None, ..row.claim },
            _ => row.claim.clone(),
        };
        let partitions = self.rows.iter().map(|(partition, row)| (*partition, claim(row)));
        Roster { members: members.collect(), partitions: partitions.collect() }
    }
}
