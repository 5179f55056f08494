//! The test programs of the workspace, and what they report.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::interrupt::Foreground;
use crate::root;

/// One test program.
pub(crate) struct Suite {
    pub(crate) name: String,
    package: String,
    program: PathBuf,
    folder: PathBuf,
}

/// The result of running a suite.
pub(crate) struct Outcome {
    pub(crate) suite: String,
    pub(crate) tally: Tally,
    pub(crate) took: Duration,
}

/// The counts of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: Vec<String>,
    pub(crate) failures: Vec<String>,
}

/// Builds every test program and names them.
pub(crate) fn build(cargo_options: &[&str], foreground: &Foreground) -> Result<Vec<Suite>> {
    let mut command = cargo();
    command
        .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(cargo_options);
    let mut cargo = foreground.spawn(command.stdout(Stdio::piped()))?;
    let stdout = cargo.stdout.take().context("cargo has no output")?;
    let mut suites = Vec::new();
    for line in BufReader::new(stdout).lines() {
        suites.extend(serde_json::from_str(&line?).ok().as_ref().and_then(Suite::from_message));
    }
    let status = cargo.wait()?;
    foreground.clear();
    if !status.success() {
        bail!("the tests do not compile");
    }
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(suites)
}

impl Suite {
    /// The suite in one of cargo's JSON messages, if it announces a test program.
    fn from_message(message: &Value) -> Option<Self> {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let program = message["executable"].as_str()?.into();
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = package_name(message["package_id"].as_str()?)?;
        let target = message["target"]["name"].as_str()?;
        let name = match message["target"]["kind"][0].as_str()? {
            "test" => format!("{package}::{target}"),
            "bin" => format!("{package} (command)"),
            "example" => format!("{package} (example {target})"),
            "bench" => format!("{package} (benchmark {target})"),
            _ => package.clone(),
        };
        Some(Self { name, package, program, folder })
    }

    /// Runs it where cargo would, with its output shown as it comes.
    pub(crate) fn run(
        &self,
        arguments: &[String],
        environment: (&str, &Path),
        foreground: &Foreground,
    ) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env(environment.0, environment.1);
        run(&self.name, &mut command, foreground)
    }
}

/// Runs the examples in the documentation.
pub(crate) fn run_doc_tests(
    cargo_options: &[&str],
    arguments: &[String],
    environment: (&str, &Path),
    foreground: &Foreground,
) -> Result<Outcome> {
    let mut command = cargo();
    command
        .args(["test", "--doc", "--no-fail-fast"])
        .args(cargo_options)
        .arg("--")
        .args(arguments)
        .env(environment.0, environment.1);
    run("documentation", &mut command, foreground)
}

fn run(name: &str, command: &mut Command, foreground: &Foreground) -> Result<Outcome> {
    let started = Instant::now();
    let mut program = foreground.spawn(command.stdout(Stdio::piped()))?;
    let stdout = program.stdout.take().context("the suite has no output")?;
    let mut tally = Tally::default();
    let mut reported = false;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        reported |= tally.read(&line);
        writeln!(std::io::stdout(), "{line}")?;
    }
    let status = program.wait()?;
    foreground.clear();
    if !status.success() && tally.failed == 0 {
        tally.failed = 1;
        tally.failures.push(format!("it ended with {status}"));
    } else if !reported && status.success() && name != "documentation" {
        // A program without libtest's harness is one test.
        tally.passed = 1;
    }
    Ok(Outcome { suite: name.to_owned(), tally, took: started.elapsed() })
}

impl Tally {
    /// Counts a line of libtest's output; `true` for the line with the result.
    fn read(&mut self, line: &str) -> bool {
        if let Some(test) = line.strip_prefix("test ") {
            if let Some(test) = test.strip_suffix(" ... FAILED") {
                self.failures.push(test.to_owned());
            } else if let Some((test, _)) = test.split_once(" ... ignored") {
                self.ignored.push(test.to_owned());
            }
        }
        let Some(result) = line.strip_prefix("test result: ") else { return false };
        let count = |what: &str| -> usize {
            let counted = result.split([';', '.']).find_map(|part| part.trim().strip_suffix(what));
            counted.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        self.passed += count(" passed");
        self.failed += count(" failed");
        true
    }
}

/// `name` out of `path+file:///folder#name@1.0.0`; cargo omits a name equal to the folder's.
fn package_name(id: &str) -> Option<String> {
    let (path, fragment) = id.rsplit_once('#')?;
    let name = match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next()?,
    };
    Some(name.to_owned())
}

/// Cargo as a person would call it. The variables that `cargo xtask` was started with would make the
/// build scripts that watch them (ring's) run again, and with them everything that depends on them.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let of_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if of_package {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_as_in_its_manifest() {
        assert_eq!(
            package_name("path+file:///w/crates/core#chapar-core@0.1.0").as_deref(),
            Some("chapar-core")
        );
        assert_eq!(package_name("path+file:///w/xtask#0.1.0").as_deref(), Some("xtask"));
    }

    #[test]
    fn the_tally_adds_up_what_libtest_prints() {
        let mut tally = Tally::default();
        let output = "running 3 tests\ntest a ... ok\ntest b::c ... FAILED\ntest d ... ignored, needs a moon\n\
                      test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s";
        let results = output.lines().filter(|line| tally.read(line)).count();
        assert_eq!(results, 1);
        let expected = Tally {
            passed: 1,
            failed: 1,
            ignored: vec!["d".into()],
            failures: vec!["b::c".into()],
        };
        assert_eq!(tally, expected);
    }
}
