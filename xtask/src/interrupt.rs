//! Ctrl-C and SIGTERM end the run in order: first the running program, then the servers.

use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit code of a program that a signal ended.
const INTERRUPTED: i32 = 130;

/// The running program, which a signal to this process must end too.
#[derive(Clone, Default)]
pub(crate) struct Foreground(Arc<Mutex<Option<Pid>>>);

impl Foreground {
    /// Starts a program and ends it when this process is told to end.
    pub(crate) fn spawn(&self, command: &mut Command) -> Result<Child> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let child =
            command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        *current = Some(Pid::from_child(&child));
        Ok(child)
    }

    /// The program has ended and its process id is no longer valid.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn end(&self) {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = *current {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// On a signal: ends the program in the foreground, calls `clean_up`, exits.
pub(crate) fn on_signal(
    foreground: &Foreground,
    clean_up: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
    let foreground = foreground.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("\ninterrupted: stopping");
            foreground.end();
            clean_up();
            std::process::exit(INTERRUPTED);
        }
    })?;
    Ok(())
}
