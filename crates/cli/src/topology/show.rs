//! Output of differences as text.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use chapar_core::port::{Action, Difference, How, Pruning};

use crate::output::{bold, dim, red};

pub(super) fn differences(plan: &[Difference]) -> String {
    plan.iter().map(difference).collect()
}

fn difference(difference: &Difference) -> String {
    let (kind, name) = (difference.kind, bold(&difference.name));
    match &difference.action {
        Action::Create { settings } => {
            let settings: Vec<_> =
                settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
            format!("+ {kind} {name}  {}\n", dim(&settings.join(", ")))
        }
        Action::Extra { holds } => {
            format!("- {kind} {name}  {}\n", dim(&format!("not in the catalog; holds {holds}")))
        }
        Action::Change { settings } => {
            let mut text = format!("~ {kind} {name}\n");
            for setting in settings {
                let (is, should) = (&setting.is, &setting.should);
                text.push_str(&format!("    {}: {is} → {should}", setting.setting));
                text.push_str(&match &setting.how {
                    How::InPlace => "\n".to_owned(),
                    How::Deletes => format!("  {}\n", red("deletes messages: needs --prune")),
                    How::ByHand(remedy) => format!("\n      {}: {remedy}\n", red("by hand")),
                });
            }
            text
        }
    }
}

pub(super) fn done(done: &[Difference]) -> String {
    let line = |part: &Difference| {
        let verb = match &part.action {
            Action::Create { .. } => "created",
            Action::Change { .. } => "changed",
            Action::Extra { .. } => "deleted",
        };
        format!("{verb} {} {}\n", part.kind, bold(&part.name))
    };
    done.iter().map(line).collect()
}

pub(super) fn failed(part: &Difference, error: &str) -> String {
    format!("{}: {} {}: {error}", red("failed"), part.kind, part.name)
}

pub(super) fn summary(plan: &[Difference], pruning: Pruning) -> String {
    let count = |wanted: fn(&Action) -> bool| plan.iter().filter(|d| wanted(&d.action)).count();
    let create = count(|action| matches!(action, Action::Create { .. }));
    let change = count(|action| matches!(action, Action::Change { .. }));
    let extra = count(|action| matches!(action, Action::Extra { .. }));
    let more = match extra {
        0 => String::new(),
        _ if pruning == Pruning::Delete => format!(", {extra} to delete"),
        _ => format!("; {extra} not in the catalog, which --prune deletes"),
    };
    match create + change {
        0 if extra > 0 && pruning == Pruning::Delete => format!("0 to create, 0 to change{more}"),
        0 => format!("the transport matches the catalog{more}"),
        _ => format!("{create} to create, {change} to change{more}"),
    }
}

/// A progress counter, on a terminal and once it takes longer than a moment.
pub(super) struct Progress {
    of: usize,
    since: Instant,
}

impl Progress {
    pub(super) fn new(of: usize) -> Self {
        Progress { of, since: Instant::now() }
    }

    pub(super) fn show(&self, done: usize) {
        if self.is_shown() {
            eprint!("\r{done} of {}", self.of);
            let _ = std::io::stderr().flush();
        }
    }

    pub(super) fn clear(&self) {
        if self.is_shown() {
            eprint!("\r\x1b[K");
        }
    }

    fn is_shown(&self) -> bool {
        self.since.elapsed() > Duration::from_secs(2) && std::io::stderr().is_terminal()
    }
}
