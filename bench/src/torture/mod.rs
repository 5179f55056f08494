//! `chapar torture`: writers, relays and consumers as real processes on a real database and broker, with faults by a
//! seeded schedule, checked by the content of the tables and of the broker's log.
//!
//! * [`Options`] says what happens; [`run`] does it and returns a [`Report`].
//! * [`work`] is what the processes do that are not our relays.
//! * [`Mutant`]s are wrong relays and sabotaged databases. A test that does not detect each of them proves nothing.
//!
//! `kill -9` is the crash of a process, not a power cut.

mod consumer;
mod crew;
mod deploys;
mod diary;
mod drain;
mod faults;
mod mutants;
mod operators;
mod outages;
mod plan;
mod reader;
mod report;
mod site;
mod worker;
mod world;
mod writer;

use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use tokio_util::sync::CancellationToken;

pub use self::faults::Toll;
pub use self::mutants::Mutant;
pub use self::plan::{Fault, Options};
pub use self::report::{Report, Verdict};
pub use self::worker::{Worker, work};

use self::crew::{Crew, Role};
use self::drain::{Judged, drain, watch};
use self::faults::{Schedule, Tolls};
use self::operators::{Acts, Desk};
use self::reader::LogReader;
use self::site::{Carrier, Site};

const RELAYS: usize = 2;
const CONSUMERS: usize = 2;
const WRITERS: usize = 3;

/// Runs it. `stop` ends it early, and the history so far is checked.
pub async fn run(
    options: &Options,
    stop: CancellationToken,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Report> {
    say("preparing the servers");
    let (site, mut servers) = Site::prepare(options, RELAYS + CONSUMERS).await?;
    let crew = Crew::new(&options.program, site.folder())?;
    if let Some(mutant) = options.mutant {
        mutant.prepare(&mut site.connect().await?).await?;
    }
    let acts = Acts::default();
    let desk = Desk::new(options.program.clone(), &site, &acts)?;
    let hiring = Hiring { site: &site, options };
    hiring.hire(&crew)?;
    let log = LogReader::start(&site);
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
        mutant: options.mutant.is_some_and(Mutant::is_a_relay),
        stop: &over,
        say,
    };
    let lots = Lots::of(options, site.carrier);
    let mut dice = Rng::with_seed(options.seed);
    let mut fork = || dice.fork();
    let timer = async {
        let time = Duration::from_secs_f64(options.seconds);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = over.cancelled() => {}
            caught = watch(&site, &log, &acts, say), if options.until_violation => caught?,
        }
        over.cancel();
        anyhow::Ok(())
    };
    let (deploying, operating) = (fork(), fork());
    // The schedule ends before the drain begins, and with every server up.
    let happened = tokio::try_join!(
        timer,
        schedule.processes(&lots.relays, fork()),
        schedule.processes(&lots.others, fork()),
        schedule.lines(&lots.lines, fork()),
        outages::happen(&mut servers, &schedule, &desk, &lots.servers, fork()),
        async {
            match lots.deploys {
                true => deploys::happen(&schedule, &hiring, &acts, deploying).await,
                false => Ok(()),
            }
        },
        async {
            match lots.operators {
                true => desk.work(&schedule, &crew, operating).await,
                false => Ok(()),
            }
        },
        tend(&crew, &over),
    );
    happened?;
    let seconds = began.elapsed().as_secs_f64();
    site.lines.iter().for_each(site::Line::heal);
    say("healed: the writers stop, the rest arrives");
    site::blocking(|| crew.dismiss(Role::Writer, Duration::from_secs(15)));
    let ended = drain(&site, &crew, &log, &acts, options, &stop).await?;
    if ended.1.is_none() && !options.until_violation {
        say(&crew.last_words(3));
    }
    if options.hold && !ended.0.judgement.holds() {
        say(&format!("violated: {}", ended.0.judgement.examples.join("; ")));
        let folder = site.folder().display();
        say(&format!("held until Ctrl-C: {} {} {folder}", site.store(), site.transport));
        stop.cancelled().await;
    }
    let restarts = crew.restarts();
    site::blocking(|| crew.dismiss(Role::Consumer, Duration::from_secs(10)));
    site::blocking(|| crew.dismiss(Role::Relay, Duration::from_secs(10)));
    sum_up(options, &site, &stop, &tolls, &lots, (seconds, restarts), ended)
}

fn sum_up(
    options: &Options,
    site: &Site,
    stop: &CancellationToken,
    tolls: &Tolls,
    lots: &Lots,
    (seconds, restarts): (f64, u32),
    (judged, drained_after): (Judged, Option<f64>),
) -> Result<Report> {
    let Judged { judgement, so_far, habits, unknown, unknown_committed, parked } = judged;
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
    Ok(Report {
        seed: options.seed,
        transport: options.transport.clone(),
        mutant: options.mutant.map(Mutant::name),
        seconds,
        acknowledged: judgement.acknowledged,
        acknowledged_per_second: judgement.acknowledged as f64 / seconds,
        unknown,
        unknown_committed,
        forgotten: judgement.forgotten,
        lost: judgement.lost,
        phantom: judgement.phantom,
        applied_twice: judgement.applied_twice,
        out_of_order: judgement.out_of_order,
        unparked_followers: judgement.unparked_followers,
        wrongly_held: judgement.wrongly_held,
        resurrected: judgement.resurrected,
        duplicates_removed: removed + judgement.duplicates as u64,
        parked,
        restarts,
        drained_after,
        faults: tolls.take(),
        left_out: lots.impossible.iter().map(|fault| fault.name()).collect(),
        verdict,
        examples: judgement.examples,
    })
}

/// What the processes of a run are started with.
struct Hiring<'r> {
    site: &'r Site,
    options: &'r Options,
}

impl Hiring<'_> {
    fn hire(&self, crew: &Crew) -> Result<()> {
        let Hiring { site, options } = self;
        for index in 0..CONSUMERS {
            crew.hire(Role::Consumer, index, self.consumer(index, 1, false))?;
        }
        for (index, line) in site.lines[..RELAYS].iter().enumerate() {
            let args = match options.mutant {
                Some(mutant) if mutant.is_a_relay() => {
                    self.worker(&["mutant", mutant.name()], line, index)
                }
                _ => self.relay(line),
            };
            crew.hire(Role::Relay, index, args)?;
        }
        let habits = options.faults.iter().filter(|fault| fault.is_a_habit());
        let habits: Vec<&str> = habits.map(|fault| fault.name()).collect();
        let habits = if habits.is_empty() { "none".to_owned() } else { habits.join(",") };
        let rate = (options.rate / WRITERS as f64).to_string();
        for index in 0..WRITERS {
            let mut task = vec!["writer", "--habits", &habits, "--rate", &rate];
            // A wrong relay can publish, but cannot complete drafts from SQL.
            let sealed = options.mutant.is_some_and(Mutant::is_a_relay);
            task.extend(sealed.then_some("--sealed"));
            crew.hire(Role::Writer, index, self.worker(&task, &site.calm, index))?;
        }
        Ok(())
    }

    fn consumer(&self, index: usize, version: u32, newcomer: bool) -> Vec<String> {
        let version = version.to_string();
        let mut task = vec!["consumer", "--release", &version];
        task.extend(newcomer.then_some("--newcomer"));
        self.worker(&task, &self.site.lines[RELAYS + index], index)
    }

    fn relay(&self, line: &site::Line) -> Vec<String> {
        let mut args = vec!["relay", "--store", &line.store, "--transport", &line.transport];
        args.extend(["--profile", world::SYSTEM, "--listen", "127.0.0.1:0"]);
        args.extend(world::TOPICS.iter().flat_map(|topic| ["--stamp", topic]));
        args.into_iter().map(str::to_owned).collect()
    }

    fn worker(&self, task: &[&str], line: &site::Line, index: usize) -> Vec<String> {
        let folder = self.site.folder().display().to_string();
        let seed = (self.options.seed ^ index as u64).to_string();
        let index = index.to_string();
        let common = [
            ["--store", &line.store],
            ["--transport", &line.transport],
            ["--folder", &folder],
            ["--run", &self.site.run],
            ["--index", &index],
            ["--seed", &seed],
            ["--life", "{life}"],
        ];
        let all = ["torture-worker"].iter().chain(task).chain(common.iter().flatten());
        all.map(|arg| (*arg).to_owned()).collect()
    }
}

/// The faults of one lot take turns; lots run concurrently.
#[derive(Default)]
struct Lots {
    servers: Vec<Fault>,
    relays: Vec<Fault>,
    others: Vec<Fault>,
    lines: Vec<Fault>,
    deploys: bool,
    operators: bool,
    /// What was asked for and cannot happen here.
    impossible: Vec<Fault>,
}

impl Lots {
    fn of(options: &Options, carrier: Carrier) -> Self {
        let mut lots = Lots::default();
        let ours = ["nats", "kafka"].contains(&options.transport.as_str());
        for fault in options.faults.iter().copied().filter(|fault| !fault.is_a_habit()) {
            match fault {
                _ if fault.breaks_the_database() && options.store.is_some() => {
                    lots.impossible.push(fault);
                }
                Fault::RestartBroker if !ours => lots.impossible.push(fault),
                _ if fault.needs_a_broker() && carrier == Carrier::Sql => {
                    lots.impossible.push(fault);
                }
                _ if fault.breaks_the_database() => lots.servers.push(fault),
                Fault::RestartBroker => lots.servers.push(fault),
                Fault::KillRelay | Fault::FreezeRelay => lots.relays.push(fault),
                Fault::KillConsumer | Fault::KillWriter | Fault::FreezeConsumer => {
                    lots.others.push(fault);
                }
                Fault::Deploys => lots.deploys = true,
                Fault::Operators => lots.operators = true,
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
