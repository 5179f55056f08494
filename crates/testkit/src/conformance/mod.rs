//! The conformance suite: what every transport must do, listed once and run over each of them.
//!
//! An adapter's test file brings a [`Bench`] and one line:
//!
//! ```text
//! chapar_testkit::conformance!(nats, NatsBench);
//! ```
//!
//! which creates one test for each case, `nats::a_key_keeps_its_order` and so on. A case for a
//! feature that the adapter lacks is skipped by name and with its reason; those on durability,
//! order, fan-out, redelivery and duplicate ids do not depend on
//! [`Features`](chapar_core::port::Features) and cannot be skipped.
//!
//! Competing processes are real processes: the test program starts itself again as a worker that
//! reports its deliveries, and a crash is `kill -9`.

mod delivery;
mod desk;
mod outage;
mod sharing;
mod worker;

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::port::Transport;

pub use self::desk::Desk;
use crate::servers::ServerError;

/// The cases.
pub mod cases {
    pub use super::delivery::*;
    pub use super::outage::*;
    pub use super::sharing::*;
}

/// What a case needs of its broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Any broker: it may be shared with other tests.
    Shared,
    /// One that accepts messages of 1 MiB with headers.
    Large,
    /// One that can be stopped and started.
    Own,
}

/// An adapter together with a broker for it.
pub trait Bench: Send + Sync + Sized + 'static {
    /// Whether other processes can reach the broker. Otherwise tasks take their place.
    const PROCESSES: bool = true;

    /// Whether a process may be frozen at any point without blocking the others.
    const FREEZES: bool = Self::PROCESSES;

    /// A broker, or why there is none on this machine.
    fn open(need: Need) -> Result<Self, ServerError>;

    /// Where [`Bench::connect`] finds the broker, from this process or another.
    fn address(&self) -> String;

    /// A transport for the process called `owner`. The lease of a crashed process should expire
    /// after about a second.
    fn connect(address: &str, owner: &str) -> impl Future<Output = Arc<dyn Transport>> + Send;

    /// Crashes the broker; its data stays. `false` where there is no broker to crash.
    fn crash(&mut self) -> bool {
        false
    }

    /// Starts the crashed broker again.
    fn revive(&mut self) {}
}

/// Why a case is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacks(pub &'static str);

/// How a case ends, unless it panics.
pub type Verdict = Result<(), Lacks>;

/// Runs one case over a bench. [`conformance!`](crate::conformance!) calls it.
///
/// # Panics
///
/// Fails the test where the case fails or takes longer than two minutes.
pub fn run<B: Bench, F: Future<Output = Verdict>>(
    name: &str,
    bench: B,
    case: impl FnOnce(Desk<B>) -> F,
) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let verdict = runtime.block_on(async {
        let limit = Duration::from_secs(120);
        tokio::time::timeout(limit, case(Desk::new(bench))).await.expect("the case hangs")
    });
    if let Err(Lacks(what)) = verdict {
        // Write past libtest's capture, so that a skipped case is always visible.
        let _ = writeln!(std::io::stderr(), "skipped {name}: this transport cannot {what}");
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Runs a worker process; does nothing in the test program itself.
pub fn work<B: Bench>() {
    worker::main::<B>();
}

/// One test of each case, in a module of the given name, over a [`Bench`](crate::conformance::Bench).
#[macro_export]
macro_rules! conformance {
    ($module:ident, $bench:ty) => {
        mod $module {
            #[allow(unused_imports, reason = "the bench may be named by a path")]
            use super::*;

            /// Not a case: runs a worker that a case has started.
            #[test]
            fn worker() {
                $crate::conformance::work::<$bench>();
            }

            $crate::conformance_case! { $bench;
                an_acknowledged_publish_is_durable: Own,
                a_key_keeps_its_order: Shared,
                a_key_keeps_its_order_over_topics: Shared,
                every_subscription_gets_its_own_copy: Shared,
                a_nacked_message_comes_again_before_its_followers: Shared,
                a_delayed_nack_waits: Shared,
                a_message_past_its_deadline_comes_again: Shared,
                a_heartbeat_extends_the_deadline: Shared,
                fetching_none_takes_none: Shared,
                the_oldest_of_each_partition_comes_beyond_the_bound: Shared,
                a_token_that_was_not_delivered_is_refused: Shared,
                a_repeated_publish_with_one_id_is_one_message: Shared,
                headers_and_binary_bodies_survive: Shared,
                a_subscription_goes_back_to_a_time: Shared,
                a_subscription_goes_to_a_position: Shared,
                what_is_kept_is_read_without_a_subscription: Shared,
                no_more_are_in_flight_than_asked: Shared,
                no_key_starves_behind_a_busy_one: Shared,
                a_mebibyte_arrives: Large,
                topology_applied_twice_is_a_no_op: Shared,
                competing_processes_share_the_messages: Shared,
                a_crashed_process_leaves_its_messages_to_others: Shared,
                a_process_that_overslept_does_no_harm: Shared,
                order_holds_while_processes_join_and_leave: Shared,
                a_closed_subscription_hands_over_at_once: Shared,
                a_restarted_broker_is_found_again: Own,
                publishing_fails_in_time_while_the_broker_is_down: Own,
            }
        }
    };
}

/// The tests of a list of cases. Part of [`conformance!`](crate::conformance!).
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_case {
    ($bench:ty; $($case:ident: $need:ident,)*) => {$(
        #[test]
        fn $case() {
            use $crate::conformance::{Bench, Need, cases, run};
            let bench = $crate::need!(<$bench as Bench>::open(Need::$need));
            let name = concat!(module_path!(), "::", stringify!($case));
            run(name, bench, cases::$case::<$bench>);
        }
    )*};
}
