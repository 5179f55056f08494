//! Output formats, and colours on terminals.

use std::io::IsTerminal;

use clap::ValueEnum;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Red on a terminal, plain otherwise and if NO_COLOR is set.
pub(crate) fn red(text: &str) -> String {
    painted(text, "31;1")
}

/// Dim on a terminal.
pub(crate) fn dim(text: &str) -> String {
    painted(text, "2")
}

/// Bold on a terminal.
pub(crate) fn bold(text: &str) -> String {
    painted(text, "1")
}

fn painted(text: &str, code: &str) -> String {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
