//! A worker: a process of a subscription, started by the test program, that reports its deliveries.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use chapar_core::port::{SubscriptionSpec, Transport};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::Bench;

const VARIABLE: &str = "CHAPAR_CONFORMANCE_WORKER";
/// The prefix of every report, because libtest writes to the same pipe.
const MARK: &str = "@got ";

/// One delivery to one worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Got {
    /// Microseconds of the system clock, comparable between processes.
    pub(super) at: u64,
    pub(super) owner: String,
    pub(super) body: String,
    pub(super) attempt: u32,
}

#[derive(Serialize, Deserialize)]
struct Orders {
    address: String,
    owner: String,
    subscription: String,
    topics: Vec<String>,
    deadline_ms: u64,
    max_in_flight: usize,
}

impl Orders {
    fn spec(&self) -> SubscriptionSpec {
        SubscriptionSpec {
            name: self.subscription.clone(),
            topics: self.topics.clone(),
            ack_deadline: Duration::from_millis(self.deadline_ms),
            max_in_flight: self.max_in_flight,
        }
    }
}

/// A running worker; it is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    body: Body,
    reports: Mutex<Receiver<Got>>,
}

#[derive(Debug)]
enum Body {
    Process { child: Child, stdin: Option<ChildStdin> },
    Task { task: tokio::task::JoinHandle<()>, stop: Arc<tokio::sync::Notify> },
}

impl Worker {
    pub(super) async fn start<B: Bench>(
        address: &str,
        owner: &str,
        spec: &SubscriptionSpec,
    ) -> Self {
        let orders = Orders {
            address: address.into(),
            owner: owner.into(),
            subscription: spec.name.clone(),
            topics: spec.topics.clone(),
            deadline_ms: spec.ack_deadline.as_millis() as u64,
            max_in_flight: spec.max_in_flight,
        };
        let (sender, reports) = channel();
        let body =
            if B::PROCESSES { process(&orders, sender) } else { task::<B>(orders, sender).await };
        Worker { body, reports: Mutex::new(reports) }
    }

    /// What has been reported since the last call.
    pub(super) fn reports(&self) -> Vec<Got> {
        self.reports.lock().expect("no holder panics").try_iter().collect()
    }

    /// Kills it, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        match &mut self.body {
            Body::Process { child, .. } => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Body::Task { task, .. } => task.abort(),
        }
    }

    /// Freezes it at whatever point it is, until [`Worker::wake`].
    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Body::Process { child, .. } = &self.body {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.expect("a process id"), signal).expect("our child takes signals");
        }
    }

    /// Makes it close its subscription and end, and waits for that.
    pub(super) async fn leave(&mut self) {
        match &mut self.body {
            Body::Process { child, stdin } => {
                drop(stdin.take());
                let limit = Instant::now() + Duration::from_secs(20);
                while child.try_wait().expect("our child").is_none() {
                    assert!(Instant::now() < limit, "the worker does not end");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Body::Task { task, stop } => {
                stop.notify_one();
                let _ = task.await;
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In a worker process: works until standard input ends. Elsewhere: nothing.
pub(super) fn main<B: Bench>() {
    let Ok(orders) = std::env::var(VARIABLE) else { return };
    let orders: Orders = serde_json::from_str(&orders).expect("orders");
    let stop = Arc::new(tokio::sync::Notify::new());
    let ended = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.notify_one();
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let transport = B::connect(&orders.address, &orders.owner).await;
        let report = |got: Got| {
            let line = serde_json::to_string(&got).expect("plain text");
            let mut out = std::io::stdout().lock();
            let _ = write!(out, "\n{MARK}{line}\n").and_then(|()| out.flush());
        };
        consume(transport, &orders, &stop, report).await;
    });
}

fn process(orders: &Orders, sender: Sender<Got>) -> Body {
    // The worker of the same module as the case: the thread has the test's name.
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let module = test.rsplit_once("::").map_or("", |(module, _)| module);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("{module}::worker"), "--nocapture", "--test-threads=1"])
        .env(VARIABLE, serde_json::to_string(orders).expect("plain text"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker");
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().expect("piped");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // A killed worker may leave half a line.
            let got = line.strip_prefix(MARK).and_then(|got| serde_json::from_str(got).ok());
            if let Some(got) = got
                && sender.send(got).is_err()
            {
                return;
            }
        }
    });
    Body::Process { child, stdin }
}

async fn task<B: Bench>(orders: Orders, sender: Sender<Got>) -> Body {
    let transport = B::connect(&orders.address, &orders.owner).await;
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let report = |got| {
            let _ = sender.send(got);
        };
        consume(transport, &orders, &stopped, report).await;
    });
    Body::Task { task, stop }
}

/// Reports each delivery before it acknowledges it, so that a report of another process on the
/// same message or a later one of its key has a later time.
async fn consume(
    transport: Arc<dyn Transport>,
    orders: &Orders,
    stop: &tokio::sync::Notify,
    report: impl Fn(Got),
) {
    let subscription = transport.subscribe(&orders.spec()).await.expect("a subscription");
    let mut stopped = std::pin::pin!(stop.notified());
    loop {
        let fetched = tokio::select! {
            fetched = subscription.fetch(4, Duration::from_millis(200)) => fetched,
            () = &mut stopped => break,
        };
        for delivery in fetched.unwrap_or_default() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            report(Got {
                at: now.unwrap_or_default().as_micros() as u64,
                owner: orders.owner.clone(),
                body: String::from_utf8_lossy(&delivery.body).into_owned(),
                attempt: delivery.attempt,
            });
            // Simulate a handler. The report comes before the acknowledgement.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let _ = subscription.ack(&[delivery.token]).await;
        }
    }
    subscription.close().await.expect("it leaves");
}
