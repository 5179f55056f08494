//! What differs from server to server; everything else is shared.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(super) use rustix::process::Signal;

/// How one server is found, fetched, started and asked whether it is ready.
pub(super) trait Recipe: Sync {
    /// Looks for the server's programs on this machine. Cheap, and changes nothing.
    fn find(&self) -> Result<Found, Missing>;

    /// Downloads what no Debian package holds into the cache, once the packages named by [`Missing`] are there.
    fn fetch(&self) -> Result<(), String> {
        Ok(())
    }

    /// How many free ports the server needs; clients use the first.
    fn ports(&self) -> usize {
        1
    }

    /// Writes configuration and formats storage; runs once, before the first start.
    fn prepare(&self, _site: &Site) -> Result<(), String> {
        Ok(())
    }

    /// The server in the foreground, data under the site's folder.
    fn command(&self, site: &Site) -> Command;

    /// The address that clients use.
    fn url(&self, port: u16) -> String;

    /// Asks the server over its own protocol whether it serves clients, and for its version where it tells.
    fn probe(&self, url: &str) -> Result<Option<String>, String>;

    /// Asks the server to shut down cleanly.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Ends a server whose data is no longer needed.
    fn discard_signal(&self) -> Signal {
        Signal::KILL
    }
}

/// A server's programs on this machine.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) version: String,
    /// The program, or the folder of programs, that the recipe starts.
    pub(super) path: PathBuf,
}

/// Why a server was not found, and which Debian packages would bring it or what fetching it needs.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    pub(super) reason: String,
    pub(super) packages: Vec<&'static str>,
}

/// One instance's place: its folder, ports and settings.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) dir: PathBuf,
    pub(super) ports: Vec<u16>,
    pub(super) settings: Vec<(String, String)>,
    pub(super) found: Found,
}

impl Site {
    pub(super) fn port(&self) -> u16 {
        self.ports[0]
    }
}

/// The first executable of that name on `PATH`.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_executable(file))
}

pub(super) fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Runs a program to its end and returns its standard output; the error holds what it printed.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name} did not start: {error}"))?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(stdout);
    }
    let said = tail(&format!("{stdout}{}", String::from_utf8_lossy(&stderr)), 20);
    Err(format!("{name} ended with {status}: {said}"))
}

/// The first dotted number in what a program prints about its version.
pub(super) fn version_of(program: &Path) -> Option<String> {
    let said = run(Command::new(program).arg("--version")).ok()?;
    first_version(&said).map(str::to_owned)
}

/// The first word of `text` that reads as a version: digits and dots, perhaps after a `v`.
pub(super) fn first_version(text: &str) -> Option<&str> {
    text.split(|c: char| c.is_whitespace() || c == '=')
        .map(|word| word.trim_start_matches('v').trim_end_matches(','))
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

/// The last lines of a text.
pub(super) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_print() {
        let printed = [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", "15.14"),
            ("nats-server: v2.15.1", "2.15.1"),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "7.0.15"),
            (
                "prometheus, version 2.42.0+ds (branch: debian/sid, revision: 2.42.0+ds-5)",
                "2.42.0+ds",
            ),
            ("Chromium 150.0.7871.100 built on Debian GNU/Linux 12", "150.0.7871.100"),
        ];
        for (said, version) in printed {
            assert_eq!(first_version(said), Some(version));
        }
    }
}
