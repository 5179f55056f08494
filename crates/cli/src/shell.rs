//! `chapar completions` and `chapar man`: what a shell and `man` know of the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::output::print_bytes;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// For which shell.
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct Man {
    /// The folder that the pages are written to.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  chapar completions bash > /etc/bash_completion.d/chapar
  chapar completions zsh > ~/.zfunc/_chapar
  chapar completions fish > ~/.config/fish/completions/chapar.fish";

pub(crate) fn completions(args: &Completions) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "chapar", &mut script);
    print_bytes(&script);
    Ok(ExitCode::SUCCESS)
}

/// One page for the program and one for each of its commands.
pub(crate) fn man(args: &Man) -> Result<ExitCode> {
    fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make the folder {}", args.folder.display()))?;
    let mut command = Cli::command();
    command.build();
    page(&args.folder, "chapar", command.clone())?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("chapar-{}", sub.get_name());
        page(&args.folder, &name, sub.clone().display_name(&name))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(folder: &Path, name: &str, command: clap::Command) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    let file = folder.join(format!("{name}.1"));
    fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))
}
