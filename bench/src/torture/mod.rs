//! `chapar torture`: writers, relays and consumers as real processes on a real database and broker, with faults by a
//! seeded schedule, checked by the content of the tables and of the broker's log.
//!
//! * [`Options`] says what happens; [`run`] does it and returns a [`Report`].
//! * [`work`] is what the processes do that are not our relays.
//! * [`Mutant`]s are wrong relays. A test that does not detect each of them proves nothing.
//!
//! `kill -9` is the crash of a process, not a power cut.

mod consumer;
mod crew;
mod diary;
mod faults;
mod mutants;
mod plan;
mod reader;
mod report;
mod site;
mod worker;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use chapar_testkit::history::{Fate, History, Judgement};
use fastrand::Rng;
use tokio_util::sync::CancellationToken;

pub use self::faults::Toll;
pub use self::mutants::Mutant;
pub use self::plan::{Fault, Options};
pub use self::report::{Report, Verdict};
pub use self::worker::{Worker, work};

use self::crew::{Crew, Role};
use self::faults::{Schedule, Tolls};
use self::reader::BrokerReader;
use self::site::Site;

const RELAYS: usize = 2;
const CONSUMERS: usize = 2;
const WRITERS: usize = 3;
/// How long everything may take to arrive after the last fault.
const DRAIN: Duration = Duration::from_secs(90);

/// Runs it. `stop` ends it early, and the history so far is checked.
pub async fn run(
    options: &Options,
    stop: CancellationToken,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Report> {
    say("preparing the servers");
    let (site, mut servers) = Site::prepare(options, RELAYS).await?;
    let crew = Crew::new(&options.program, site.folder())?;
    if let Some(mutant) = options.mutant {
        mutant.prepare(&mut site.connect().await?).await?;
    }
    hire(&crew, &site, options)?;
    let broker = BrokerReader::start(&site.transport, &site.run);
    let tolls = Tolls::default();
    let over = stop.child_token();
    let began = Instant::now();
    let schedule = Schedule {
        site: &site,
        crew: &crew,
        tolls: &tolls,
        relays: RELAYS,
        consumers: CONSUMERS,
        writers: WRITERS,
        mutant: options.mutant.is_some(),
        stop: &over,
        say,
    };
    let lots = Lots::of(options);
    let mut dice = Rng::with_seed(options.seed);
    let mut fork = || dice.fork();
    let timer = async {
        let time = Duration::from_secs_f64(options.seconds);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = over.cancelled() => {}
            caught = watch(&site, &broker, say), if options.until_violation => caught?,
        }
        over.cancel();
        anyhow::Ok(())
    };
    // The schedule ends before the drain begins, and with every server up.
    let happened = tokio::try_join!(
        timer,
        schedule.processes(&lots.relays, fork()),
        schedule.processes(&lots.others, fork()),
        schedule.lines(&lots.lines, fork()),
        faults::servers(&mut servers, &schedule, &lots.servers, fork()),
        tend(&crew, &over),
    );
    happened?;
    let seconds = began.elapsed().as_secs_f64();
    site.lines.iter().for_each(site::Line::heal);
    say("healed: the writers stop, the rest arrives");
    site::blocking(|| crew.dismiss(Role::Writer, Duration::from_secs(15)));
    let (judged, drained_after) = drain(&site, &crew, &broker, options, &stop).await?;
    if drained_after.is_none() && !options.until_violation {
        say(&crew.last_words(3));
    }
    let restarts = crew.restarts();
    site::blocking(|| crew.dismiss(Role::Consumer, Duration::from_secs(10)));
    site::blocking(|| crew.dismiss(Role::Relay, Duration::from_secs(10)));
    let Judged { judgement, so_far, habits, unknown, unknown_committed, acknowledged, parked } =
        judged;
    for fault in options.faults.iter().filter(|fault| fault.is_a_habit()) {
        let count = habits.get(fault.name()).copied().unwrap_or(0);
        tolls.add(*fault, count, "transactions", count);
    }
    if let Some(deadlocks) = habits.get("deadlocks") {
        tolls.add(Fault::LockOrderRaces, 0, "deadlocks", *deadlocks);
    }
    let removed = reader::duplicates_removed(site.folder())?;
    let verdict = match judgement.holds() {
        true => Verdict::Held,
        false if stop.is_cancelled() && so_far.holds() => Verdict::Interrupted,
        false => Verdict::Violated,
    };
    let impossible =
        |fault: &&Fault| fault.needs_private_servers() && !lots.servers.contains(fault);
    Ok(Report {
        seed: options.seed,
        mutant: options.mutant.map(Mutant::name),
        seconds,
        acknowledged,
        unknown,
        unknown_committed,
        lost: judgement.lost,
        phantom: judgement.phantom,
        applied_twice: judgement.applied_twice,
        out_of_order: judgement.out_of_order,
        unparked_followers: judgement.unparked_followers,
        duplicates_removed: removed + judgement.duplicates as u64,
        parked,
        restarts,
        drained_after,
        faults: tolls.take(),
        left_out: options.faults.iter().filter(impossible).map(|fault| fault.name()).collect(),
        verdict,
        examples: judgement.examples,
    })
}

fn hire(crew: &Crew, site: &Site, options: &Options) -> Result<()> {
    let worker = |task: &[&str], store: &str, transport: &str, index: usize| -> Vec<String> {
        let folder = site.folder().display().to_string();
        let (index, seed) = (index.to_string(), (options.seed ^ index as u64).to_string());
        let common = [
            ["--store", store],
            ["--transport", transport],
            ["--folder", &folder],
            ["--run", &site.run],
            ["--index", &index],
            ["--seed", &seed],
            ["--life", "{life}"],
        ];
        let all = ["torture-worker"].iter().chain(task).chain(common.iter().flatten());
        all.map(|arg| (*arg).to_owned()).collect()
    };
    for index in 0..CONSUMERS {
        let args = worker(&["consumer"], &site.store, &site.transport, index);
        crew.hire(Role::Consumer, index, args)?;
    }
    for (index, line) in site.lines.iter().enumerate() {
        let args = match options.mutant {
            Some(mutant) => worker(&["mutant", mutant.name()], &line.store, &line.transport, index),
            None => {
                let relay = ["relay", "--store", &line.store, "--transport", &line.transport];
                let rest = ["--profile", site::SYSTEM, "--listen", "127.0.0.1:0"];
                relay.iter().chain(&rest).map(|arg| (*arg).to_owned()).collect()
            }
        };
        crew.hire(Role::Relay, index, args)?;
    }
    let habits: Vec<&str> = options
        .faults
        .iter()
        .filter(|fault| fault.is_a_habit())
        .map(|fault| fault.name())
        .collect();
    let habits = if habits.is_empty() { "none".to_owned() } else { habits.join(",") };
    for index in 0..WRITERS {
        let mut task = vec!["writer", "--habits", &habits];
        // A wrong relay can publish, but cannot complete drafts from SQL.
        task.extend(options.mutant.map(|_| "--sealed"));
        crew.hire(Role::Writer, index, worker(&task, &site.store, &site.transport, index))?;
    }
    Ok(())
}

/// The faults of one lot take turns; lots run concurrently.
#[derive(Default)]
struct Lots {
    servers: Vec<Fault>,
    relays: Vec<Fault>,
    others: Vec<Fault>,
    lines: Vec<Fault>,
}

impl Lots {
    fn of(options: &Options) -> Self {
        let mut lots = Lots::default();
        for fault in options.faults.iter().copied().filter(|fault| !fault.is_a_habit()) {
            match fault {
                Fault::CrashDatabase if options.store.is_some() => {}
                Fault::RestartBroker if options.transport.is_some() => {}
                Fault::CrashDatabase | Fault::RestartBroker => lots.servers.push(fault),
                Fault::KillRelay | Fault::FreezeRelay => lots.relays.push(fault),
                Fault::KillConsumer | Fault::KillWriter | Fault::FreezeConsumer => {
                    lots.others.push(fault);
                }
                _ => lots.lines.push(fault),
            }
        }
        lots
    }
}

/// Restarts dead processes, as a supervisor would.
async fn tend(crew: &Crew, over: &CancellationToken) -> Result<()> {
    while !over.is_cancelled() {
        crew.tend()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Ends at the first violation that cannot be repaired by time.
async fn watch(site: &Site, broker: &BrokerReader, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // The database may be down on purpose.
        let Ok(mut connection) = site.connect().await else { continue };
        let Ok((history, _)) = reader::history(site, broker, &mut connection).await else {
            continue;
        };
        let judgement = history.judge_so_far();
        if let Some(example) = judgement.examples.first() {
            say(&format!("caught: {example}"));
            return Ok(());
        }
    }
}

struct Judged {
    judgement: Judgement,
    /// What is broken, whatever may still arrive.
    so_far: Judgement,
    habits: BTreeMap<String, u64>,
    acknowledged: usize,
    unknown: usize,
    unknown_committed: usize,
    parked: usize,
}

/// Waits until everything has arrived, and checks it; also if it has not by the deadline.
async fn drain(
    site: &Site,
    crew: &Crew,
    broker: &BrokerReader,
    options: &Options,
    stop: &CancellationToken,
) -> Result<(Judged, Option<f64>)> {
    let began = Instant::now();
    loop {
        crew.tend()?;
        let mut judged = judge(site, broker).await?;
        let arrived = judged.judgement.lost == 0;
        if arrived || stop.is_cancelled() || began.elapsed() > DRAIN {
            let after = began.elapsed().as_secs_f64();
            return Ok((judged, arrived.then_some(after)));
        }
        // Whether an overtaken event is lost or only late shows within moments.
        let told = judged.so_far.lost == 0 || began.elapsed() > Duration::from_secs(3);
        if options.until_violation && !judged.so_far.holds() && told {
            // Events still in flight do not count as lost.
            judged.judgement = judged.so_far.clone();
            return Ok((judged, None));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Checks the history as it is now. The writers have ended, so the database knows the outcome of every write.
async fn judge(site: &Site, broker: &BrokerReader) -> Result<Judged> {
    let mut connection = site.connect().await?;
    let (mut history, habits) = reader::history(site, broker, &mut connection).await?;
    let committed = reader::committed(&mut connection).await?;
    let so_far = history.judge_so_far();
    let said = history.judge();
    let unknown_committed = resolve(&mut history, &committed);
    Ok(Judged {
        judgement: history.judge(),
        so_far,
        habits,
        acknowledged: said.acknowledged,
        unknown: said.unknown,
        unknown_committed,
        parked: history.boxed.values().map(BTreeSet::len).sum(),
    })
}

/// Replaces unknown outcomes by what the database has; returns how many of those committed.
fn resolve(history: &mut History, committed: &BTreeSet<String>) -> usize {
    let mut count = 0;
    for write in history.writes.iter_mut().filter(|write| write.fate == Fate::Unknown) {
        write.fate = match committed.contains(&write.id) {
            true => Fate::Committed,
            false => Fate::Failed,
        };
        count += usize::from(write.fate == Fate::Committed);
    }
    count
}
