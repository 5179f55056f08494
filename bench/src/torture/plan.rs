//! The options of a run.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::mutants::Mutant;

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The command `chapar`, which every process of the run is.
    pub program: PathBuf,
    /// A PostgreSQL database for this run alone; a private server if there is none.
    pub store: Option<String>,
    /// `sql:`, `nats` or `kafka` for the log in the database or a private broker, or the URL of a NATS server.
    pub transport: String,
    /// How long faults happen, in seconds.
    pub seconds: f64,
    /// Makes the same schedule again.
    pub seed: u64,
    /// How many events all writers together write per second, as far as the machine can.
    pub rate: f64,
    /// What happens.
    pub faults: BTreeSet<Fault>,
    /// A wrong relay in place of ours, or a sabotaged database.
    pub mutant: Option<Mutant>,
    /// Stop as soon as a guarantee is broken for good.
    pub until_violation: bool,
    /// Keep the servers and processes of a violated run until it is interrupted, to look at what they hold.
    pub hold: bool,
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $fault:ident = $name:literal,)+) => {
        /// A fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $fault,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)+];

            /// Its name on the command line and in the report.
            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => $name,)+
                }
            }
        }
    };
}

faults! {
    /// `kill -9` of a relay.
    KillRelay = "kill-relay",
    /// `kill -9` of a consumer.
    KillConsumer = "kill-consumer",
    /// `kill -9` of a writer.
    KillWriter = "kill-writer",
    /// A relay is frozen for longer than its lease, and continues.
    FreezeRelay = "freeze-relay",
    /// A consumer is frozen for longer than its lease, and continues.
    FreezeConsumer = "freeze-consumer",
    /// `kill -9` of the database server.
    CrashDatabase = "crash-database",
    /// `kill -9` of the database server, which is back in less than a second.
    QuickCrash = "quick-crash",
    /// `kill -9` of one backend: the server ends all others and recovers by itself.
    KillBackend = "kill-backend",
    /// The database server is lost, and a standby that lags behind is promoted; once in a run.
    PromoteStandby = "promote-standby",
    /// `kill -9` of the broker.
    RestartBroker = "restart-broker",
    /// The connections of a relay or a consumer to the broker break.
    CutBroker = "cut-broker",
    /// The network between a relay or a consumer and the broker is slow.
    SlowBroker = "slow-broker",
    /// Nothing passes to or from the broker, over connections that stay open.
    HalfOpenBroker = "half-open-broker",
    /// The broker's acknowledgements do not arrive.
    LostAckBroker = "lost-ack-broker",
    /// The connections of a relay or a consumer to the database break.
    CutDatabase = "cut-database",
    /// The network between a relay or a consumer and the database is slow.
    SlowDatabase = "slow-database",
    /// Nothing passes to or from the database, over connections that stay open.
    HalfOpenDatabase = "half-open-database",
    /// The database's answers, commits included, do not arrive.
    LostAckDatabase = "lost-ack-database",
    /// A transaction that writes stays open in another database of the cluster.
    ForeignTransaction = "foreign-transaction",
    /// The database takes no writes for a moment.
    ReadOnly = "read-only",
    /// The default isolation level of the database is repeatable read, later serializable.
    Isolation = "isolation",
    /// Consumers join and leave, and a new version that reads another topic is rolled out.
    Deploys = "deploys",
    /// Operators seek, replay, edit, delete, drop, release, republish, pause, and move a tenant.
    Operators = "operators",
    /// Writers keep transactions open, before and after they lock their keys.
    LongTransactions = "long-transactions",
    /// Writers roll back.
    Rollbacks = "rollbacks",
    /// Writers lock two keys in either order, one after the other.
    LockOrderRaces = "lock-order-races",
    /// Writers commit without waiting for the disk.
    AsyncCommits = "async-commits",
    /// Writers append rows of 250 kB among small ones.
    LargeRows = "large-rows",
    /// Writers append what breaks rules, cannot be read, or is too long.
    HostileRows = "hostile-rows",
}

impl Fault {
    /// Faults that writers cause themselves, all the time.
    pub fn is_a_habit(self) -> bool {
        matches!(
            self,
            Fault::LongTransactions
                | Fault::Rollbacks
                | Fault::LockOrderRaces
                | Fault::AsyncCommits
                | Fault::LargeRows
                | Fault::HostileRows
        )
    }

    /// Whether it breaks the database server, which must be ours then.
    pub(super) fn breaks_the_database(self) -> bool {
        matches!(
            self,
            Fault::CrashDatabase
                | Fault::QuickCrash
                | Fault::KillBackend
                | Fault::PromoteStandby
                | Fault::ReadOnly
                | Fault::Isolation
        )
    }

    /// Whether it concerns the way to a broker.
    pub(super) fn needs_a_broker(self) -> bool {
        matches!(
            self,
            Fault::RestartBroker
                | Fault::CutBroker
                | Fault::SlowBroker
                | Fault::HalfOpenBroker
                | Fault::LostAckBroker
        )
    }

    /// Reads `all`, `none`, or names with commas between.
    pub fn list(text: &str) -> Result<BTreeSet<Fault>, String> {
        match text {
            "all" => Ok(Fault::ALL.iter().copied().collect()),
            "none" => Ok(BTreeSet::new()),
            names => names.split(',').map(|name| name.trim().parse()).collect(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Fault::ALL.iter().copied().find(|fault| fault.name() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
            format!("there is no fault {name:?}; give all, none, or some of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_listed_by_name() {
        let listed = Fault::list("kill-relay, rollbacks").map(Vec::from_iter);
        assert_eq!(listed, Ok(vec![Fault::KillRelay, Fault::Rollbacks]));
        assert_eq!(Fault::list("all").map(|all| all.len()), Ok(Fault::ALL.len()));
        assert!(Fault::list("kill-everything").is_err_and(|error| error.contains("kill-relay")));
    }
}
