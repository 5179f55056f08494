//! Programs in Python that use the official SDK for CloudEvents.

use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_testkit::servers;

/// The SDK and clients of brokers, in the cache of the test servers.
pub(crate) struct Python(PathBuf);

impl Python {
    /// Fetches the packages the first time. Where they cannot be had, the test is skipped by name,
    /// and fails in CI.
    pub(crate) fn of(test: &str) -> Option<Self> {
        match packages() {
            Ok(packages) => Some(Python(packages)),
            Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{why}"),
            Err(why) => {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "skipped {test}: {why}");
                None
            }
        }
    }

    /// Runs an example to its end; returns what it printed.
    pub(crate) fn run(&self, example: &str, args: &[&str]) -> String {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cloudevents");
        let mut command = Command::new("python3");
        run(command.env("PYTHONPATH", &self.0).arg(examples.join(example)).args(args)).unwrap()
    }
}

fn packages() -> Result<PathBuf, String> {
    let packages = servers::cache_dir().join("python-cloudevents-2.2.0-2");
    if packages.join("cloudevents").is_dir() {
        return Ok(packages);
    }
    std::fs::create_dir_all(servers::cache_dir()).map_err(|error| error.to_string())?;
    let fresh = tempfile::tempdir_in(servers::cache_dir()).map_err(|error| error.to_string())?;
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(fresh.path())
        .args(["cloudevents==2.2.0", "nats-py==2.16.0", "kafka-python[snappy]==3.0.12"]))?;
    // Another test program may have been faster; then its copy serves as well.
    let _ = std::fs::rename(fresh.path(), &packages);
    Ok(packages)
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("python3 does not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
