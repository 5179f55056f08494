//! Every command in the documents has all that it needs, with the names that flags have today.

#[allow(dead_code, reason = "the tests of the documents use more of it")]
#[path = "../tests/docs/shell.rs"]
mod shell;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::Cli;

/// What the environment may name instead.
const FROM_ENVIRONMENT: [&str; 2] = ["--store <URL>", "--profile <NAME|FILE>"];

#[test]
fn every_command_in_the_documents_is_complete() {
    let mut parsed = 0;
    for (place, command) in shell::documented() {
        let words = words(&command);
        let optional = words.iter().any(|word| word == "bench" || word == "torture");
        if optional && !cfg!(feature = "bench") {
            continue;
        }
        if let Err(error) = Cli::try_parse_from(&words) {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(names)) => names.clone(),
                _ => Vec::new(),
            };
            let given = error.kind() == ErrorKind::MissingRequiredArgument
                && missing.iter().all(|name| FROM_ENVIRONMENT.contains(&name.as_str()));
            assert!(given, "{place}: {command}\n{error}");
        }
        parsed += 1;
    }
    assert!(parsed > 80, "only {parsed} commands found: are blocks still marked `sh`?");
}

#[test]
fn words_are_what_a_shell_makes_of_a_line() {
    let expected = ["chapar", "x", "--reason", "two words", "a*"];
    assert_eq!(words("chapar x --reason \"two words\" 'a*'"), expected);
}

/// The words of a line, without the quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            (mark, Some(open)) if mark == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.push(String::new()),
            (letter, _) => words.last_mut().expect("there is one from the start").push(letter),
        }
    }
    words
}
