//! Programs in Python against the same broker, with packages from its registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_testkit::servers;

/// The programs of `examples/cloudevents`, and the packages they need.
pub(crate) struct Python {
    packages: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Python {
    /// Gets packages such as `cloudevents==2.2.0` the first time, into the cache of the test
    /// servers. Where they cannot be had the test is skipped by name; in CI that is an error.
    pub(crate) fn with(test: &str, wanted: &[&str]) -> Option<Self> {
        match packages(wanted) {
            Ok(packages) => Some(Python { packages, variables: Vec::new() }),
            Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
                panic!("{test} needs {wanted:?} for Python: {why}");
            }
            Err(why) => {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "skipped {test}: {why}");
                None
            }
        }
    }

    /// Sets a variable for the programs.
    #[allow(dead_code, reason = "each transport takes what it needs")]
    pub(crate) fn set(mut self, variable: &'static str, value: &str) -> Self {
        self.variables.push((variable, value.to_owned()));
        self
    }

    /// Runs a program to its end; returns what it printed.
    pub(crate) fn run(&self, script: &str, args: &[&str]) -> String {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cloudevents");
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &self.packages).envs(self.variables.iter().cloned());
        run(command.arg(examples.join(script)).args(args)).unwrap()
    }
}

fn packages(wanted: &[&str]) -> Result<PathBuf, String> {
    let name: String = wanted.join("-").replace("==", "-").replace(['[', ']'], "_");
    let packages = servers::cache_dir().join(format!("python-{name}"));
    if packages.is_dir() {
        return Ok(packages);
    }
    std::fs::create_dir_all(servers::cache_dir()).map_err(|error| error.to_string())?;
    let fresh = tempfile::tempdir_in(servers::cache_dir()).map_err(|error| error.to_string())?;
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(fresh.path())
        .args(wanted))?;
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
