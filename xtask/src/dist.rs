//! `cargo xtask dist`: the archive that is released, with the program, its completions and pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::root;

#[derive(Args)]
pub(crate) struct Options {
    /// The folder that the archive is written to.
    #[arg(long, default_value = "target/dist", value_name = "FOLDER")]
    out: PathBuf,
    /// Build with these cargo features only, instead of all of them.
    #[arg(long, value_name = "LIST")]
    features: Option<String>,
    /// Build with this cargo profile.
    #[arg(long, default_value = "dist", value_name = "NAME")]
    profile: String,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let program = build(options)?;
    let version = text(Command::new(&program).arg("--version"))?;
    let version = version.trim().rsplit(' ').next().unwrap_or("0").to_owned();
    let host = text(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let name = format!("chapar-{version}-{}", host.trim());
    let out = root().join(&options.out);
    let folder = out.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("completions"))?;
    fs::copy(&program, folder.join("chapar")).context("cannot copy the program")?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        fs::copy(root().join(file), folder.join(file)).with_context(|| file.to_owned())?;
    }
    for (shell, file) in [("bash", "chapar.bash"), ("zsh", "_chapar"), ("fish", "chapar.fish")] {
        let script = text(Command::new(&program).args(["completions", shell]))?;
        fs::write(folder.join("completions").join(file), script)?;
    }
    run_command(Command::new(&program).arg("man").arg(folder.join("man")))?;
    let archive = out.join(format!("{name}.tar.gz"));
    run_command(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&out).arg(&name))?;
    let size = |path: &Path| fs::metadata(path).map(|file| file.len() as f64 / 1e6);
    println!("{} ({:.1} MB)", archive.display(), size(&archive)?);
    println!("the program alone has {:.1} MB", size(&program)?);
    Ok(ExitCode::SUCCESS)
}

/// Builds the program and says where it is.
fn build(options: &Options) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["build", "--package", "chapar-cli"]);
    command.args(["--profile", &options.profile, "--message-format=json-render-diagnostics"]);
    match &options.features {
        Some(features) => command.args(["--features", features]),
        None => command.arg("--all-features"),
    };
    let messages = text(command.stderr(Stdio::inherit()))?;
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let program = message["executable"].as_str()?;
        (message["target"]["name"] == "chapar").then(|| PathBuf::from(program))
    });
    built.next_back().context("cargo did not say where the program is")
}

fn text(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn run_command(command: &mut Command) -> Result<()> {
    text(command).map(drop)
}
