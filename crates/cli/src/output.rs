//! Everything that is printed: formats, colours, and data that must not control a terminal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};
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
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// What [`painted`] writes.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31;1m"];

/// Prints to stdout, for the macros `print!` and `println!` of this program.
///
/// A reader that closes the pipe, such as `head`, ends the process quietly.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    write_out(escaped(&text.to_string()).as_bytes());
}

/// Prints bytes as they are, unless they would go to a terminal.
pub(crate) fn print_bytes(bytes: &[u8]) {
    match io::stdout().is_terminal() {
        true => print(format_args!("{}", String::from_utf8_lossy(bytes))),
        false => write_out(bytes),
    }
}

/// As if the signal of a closed pipe had ended the process: a script that sets `pipefail` must not take it for a success.
const CLOSED_PIPE: i32 = 141;

fn write_out(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(CLOSED_PIPE),
        Err(error) => {
            eprint(format_args!("{}: stdout cannot be written: {error}\n", red("error")));
            std::process::exit(1);
        }
    }
}

/// Prints to stderr, for the macro `eprintln!`; a closed stderr is no reason to stop.
pub(crate) fn eprint(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = io::stderr().lock().write_all(escaped(&text).as_bytes());
}

/// Escapes control characters as JSON does, so that data cannot move the cursor, set the title of
/// a terminal or reverse the direction of a line. In JSON they mean the same as before.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| rest.starts_with(**colour));
        let taken = colour.map_or(c.len_utf8(), |colour| colour.len());
        match is_control(c) && colour.is_none() {
            true => {
                let _ = write!(clean, "\\u{:04x}", u32::from(c));
            }
            false => clean.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    Cow::Owned(clean)
}

fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n' && c != '\t') || turns
}

/// The text of an error with its causes; a cause that is already quoted is not repeated.
pub(crate) fn report(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Asks the operator; `instead` names what to give where there is no terminal to ask on.
pub(crate) fn confirmed(question: &str, instead: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("nothing was done: give {instead}");
    }
    let mut stderr = io::stderr();
    write!(stderr, "{} [y/N] ", escaped(question)).and_then(|()| stderr.flush())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("no answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_our_colours_are_not() {
        let data = "a\tb\n\x1b[2J\x07\u{9b}\u{202e}\r\x1b[31m";
        let clean = "a\tb\n\\u001b[2J\\u0007\\u009b\\u202e\\u000d\\u001b[31m";
        assert_eq!(escaped(data), clean);
        assert_eq!(escaped("\x1b[1mbold\x1b[0m"), "\x1b[1mbold\x1b[0m");
        assert!(matches!(escaped("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_cause_is_not_repeated() {
        let error = anyhow::anyhow!("refused").context("the store said: refused").context("no");
        assert_eq!(report(&error), "no: the store said: refused");
    }
}
