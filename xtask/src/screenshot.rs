//! `cargo xtask screenshot`: the picture in the README, taken of the real program in a real browser.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chapar_testkit::{Browser, servers};
use clap::Args;

use crate::root;

#[derive(Args)]
pub(crate) struct Options {
    /// Where the picture goes.
    #[arg(long, default_value = "docs/images/console.png")]
    out: PathBuf,
    /// How long the hotel runs before the picture is taken, so that there is something to see.
    #[arg(long, default_value = "75", value_name = "SECONDS")]
    after: u64,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let chromium = servers::chromium().context("a browser is needed")?;
    let folder = std::env::temp_dir().join(format!("chapar-screenshot-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (mut hotel, address) = start(&folder)?;
    let taken = take(options, &chromium, &address);
    // The program is killed with this process; its database file is temporary.
    let _ = hotel.kill();
    let _ = hotel.wait();
    let _ = std::fs::remove_dir_all(&folder);
    taken?;
    println!("{}", options.out.display());
    Ok(ExitCode::SUCCESS)
}

fn start(folder: &std::path::Path) -> Result<(Child, String)> {
    let mut hotel = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .args(["--", "up", "--listen", "127.0.0.1:0", "--rate", "20"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cargo cannot be started")?;
    let stderr = hotel.stderr.take().context("no output")?;
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.split_once("console  ")?.1.trim().to_owned()));
    let Some(address) = address else { bail!("chapar up did not start") };
    // Keep reading, or the program would block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Ok((hotel, address))
}

fn take(options: &Options, chromium: &servers::Endpoint, address: &str) -> Result<()> {
    let browser = Browser::open(chromium)?;
    browser.resize(1280, 1640)?;
    browser.goto(address)?;
    eprintln!("waiting {} s for traffic to show", options.after);
    std::thread::sleep(Duration::from_secs(options.after));
    let picture = browser.screenshot()?;
    let out = root().join(&options.out);
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&out, picture).with_context(|| format!("{} cannot be written", out.display()))
}
