//! The processes of a run, which are killed and restarted.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use chapar_testkit::servers::Guard;
use rustix::process::{Pid, Signal, kill_process};

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Relay,
    Consumer,
    Writer,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Relay => "relay",
            Role::Consumer => "consumer",
            Role::Writer => "writer",
        }
    }
}

/// All processes of a run. They end with it in any case.
pub(super) struct Crew {
    inner: Mutex<Inner>,
    program: PathBuf,
    folder: PathBuf,
}

struct Inner {
    guard: Guard,
    members: Vec<Member>,
}

struct Member {
    role: Role,
    index: usize,
    args: Vec<String>,
    /// The number of its lives.
    life: u32,
    child: Option<Child>,
    /// It is not restarted.
    dismissed: bool,
}

impl Crew {
    /// Processes that write into `folder`, which is deleted with them if the run is killed.
    pub(super) fn new(program: &Path, folder: &Path) -> Result<Self> {
        let guard = Guard::over_workers(folder)?;
        Ok(Crew {
            inner: Mutex::new(Inner { guard, members: Vec::new() }),
            program: program.to_owned(),
            folder: folder.to_owned(),
        })
    }

    /// Adds a process. `{life}` in an argument is the number of its life.
    pub(super) fn hire(&self, role: Role, index: usize, args: Vec<String>) -> Result<()> {
        let mut inner = self.inner();
        inner.members.push(Member { role, index, args, life: 0, child: None, dismissed: false });
        drop(inner);
        self.tend()
    }

    /// Replaces the program of a process, as a deployment does: it is asked to end, and the new one is started when it
    /// has.
    pub(super) fn deploy(&self, role: Role, index: usize, args: Vec<String>) {
        if let Some(member) = self.inner().member(role, index) {
            (member.args, member.dismissed) = (args, false);
        }
        self.restart(role, index);
    }

    /// Asks a process to end; it is started again when it has.
    pub(super) fn restart(&self, role: Role, index: usize) {
        self.signal(role, index, Signal::CONT);
        self.signal(role, index, Signal::TERM);
    }

    /// Asks a process to end, and does not start it again.
    pub(super) fn leave(&self, role: Role, index: usize) {
        if let Some(member) = self.inner().member(role, index) {
            member.dismissed = true;
        }
        self.restart(role, index);
    }

    /// Starts every process that should run and does not.
    pub(super) fn tend(&self) -> Result<()> {
        let mut inner = self.inner();
        let Inner { guard, members } = &mut *inner;
        for member in members {
            let gone = match &mut member.child {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            if gone && !member.dismissed {
                member.life += 1;
                member.child = Some(guard.spawn(&mut self.command(member)?)?);
            }
        }
        Ok(())
    }

    /// `kill -9`; it is restarted at the next tending. False if it was not running.
    pub(super) fn kill(&self, role: Role, index: usize) -> bool {
        let mut inner = self.inner();
        // Taken out: the process id may soon belong to another process.
        let Some(mut child) = inner.member(role, index).and_then(|member| member.child.take())
        else {
            return false;
        };
        let killed = child.kill().is_ok();
        let _ = child.wait();
        killed
    }

    /// Freezes a process. False if it was not running.
    pub(super) fn freeze(&self, role: Role, index: usize) -> bool {
        self.signal(role, index, Signal::STOP)
    }

    /// Continues it.
    pub(super) fn thaw(&self, role: Role, index: usize) {
        self.signal(role, index, Signal::CONT);
    }

    /// Asks all of a role to end, and waits until they have; those that have not by the deadline are killed.
    pub(super) fn dismiss(&self, role: Role, patience: Duration) {
        let mut inner = self.inner();
        let deadline = Instant::now() + patience;
        for member in inner.members.iter_mut().filter(|member| member.role == role) {
            member.dismissed = true;
            if let Some(child) = &member.child {
                let _ = kill_process(Pid::from_child(child), Signal::CONT);
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
            }
        }
        for member in inner.members.iter_mut().filter(|member| member.role == role) {
            let Some(mut child) = member.child.take() else { continue };
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// How many lives beyond the first the processes have had.
    pub(super) fn restarts(&self) -> u32 {
        self.inner().members.iter().map(|member| member.life.saturating_sub(1)).sum()
    }

    /// The last output of every process, for the report of a failure.
    pub(super) fn last_words(&self, lines: usize) -> String {
        let inner = self.inner();
        let words = inner.members.iter().map(|member| {
            let name = member.name();
            let text = std::fs::read_to_string(self.folder.join(format!("{name}.log")));
            let text = text.unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(lines).collect();
            tail.iter().rev().map(|line| format!("{name}: {line}\n")).collect::<String>()
        });
        words.collect()
    }

    fn command(&self, member: &Member) -> Result<Command> {
        let log = self.folder.join(format!("{}.log", member.name()));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let life = member.life.to_string();
        let mut command = Command::new(&self.program);
        command
            .args(member.args.iter().map(|arg| arg.replace("{life}", &life)))
            // No configuration file, and only the environment that the run sets.
            .current_dir(&self.folder)
            .env_remove("CHAPAR_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Ok(command)
    }

    fn signal(&self, role: Role, index: usize, signal: Signal) -> bool {
        let mut inner = self.inner();
        let Some(child) = inner.member(role, index).and_then(|member| member.child.as_mut()) else {
            return false;
        };
        let alive = matches!(child.try_wait(), Ok(None));
        alive && kill_process(Pid::from_child(child), signal).is_ok()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn member(&mut self, role: Role, index: usize) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| (member.role, member.index) == (role, index))
    }
}

impl Member {
    fn name(&self) -> String {
        format!("{}-{}", self.role.name(), self.index)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.inner().members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
