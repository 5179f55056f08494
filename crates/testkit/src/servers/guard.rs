//! A server must not outlive its owner, even one that was killed with `kill -9` and could clean up nothing.
//!
//! The guard is a small shell that leads a process group and waits at the end of a pipe which only the owner holds.
//! The server joins that group, so from its first instant it is in reach. When the owner ends, in whatever way, the
//! kernel closes the pipe, and the guard ends the group and removes the folder. (The parent-death signal of Linux would
//! not do: it fires when the *thread* that started the server ends, it spares the server's children, and changing the
//! user clears it.)

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Reads the server's process id, one line per start, empty when it has ended. The signals of a terminal reach the owner;
/// the guard sees them as the pipe's end. A polite signal first lets PostgreSQL release its shared memory. In a container
/// whose first process reaps no orphans, a dead server stays as a zombie: that counts as ended.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
server=
while read -r line; do server=$line; done
if [ -n "$server" ] && kill "-$2" "$server" 2>/dev/null; then
    tries=0
    while [ $tries -lt 50 ] && kill -0 "$server" 2>/dev/null &&
        ! grep -q '^State:.*zombie' "/proc/$server/status" 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
    done
fi
rm -rf "$1" || rm -rf "$1"
kill -KILL 0
"#;

/// Processes that end with their owner, and a folder that is deleted with them.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// A guard that removes `dir` in the end.
    pub(super) fn over(dir: &Path, discard: Signal) -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "chapar-guard"])
            .arg(dir)
            .arg(discard.as_raw().to_string())
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }

    /// A guard for processes that may be killed at any time.
    pub fn over_workers(dir: &Path) -> io::Result<Self> {
        Self::over(dir, Signal::KILL)
    }

    /// Starts a process inside the guarded group.
    pub fn spawn(&mut self, command: &mut Command) -> io::Result<Child> {
        let group = i32::try_from(self.shell.id()).map_err(io::Error::other)?;
        let server = command.process_group(group).spawn()?;
        self.tell(&server.id().to_string());
        Ok(server)
    }

    /// Ends the server with `signal`, after `patience` with SIGKILL, and waits until it is gone.
    pub(super) fn end(&mut self, server: &mut Child, signal: Signal, patience: Duration) {
        let _ = kill_process(Pid::from_child(server), signal);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline && matches!(server.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = server.kill();
        let _ = server.wait();
        self.tell("");
    }

    fn tell(&mut self, line: &str) {
        // If the guard has ended already, the owner's own clean-up still runs.
        if let Some(pipe) = &mut self.pipe {
            let _ = writeln!(pipe, "{line}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.shell), Signal::KILL);
        let _ = self.shell.wait();
    }
}
