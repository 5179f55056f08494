//! Values for people: raw in JSON, rounded on the page. The script formats them in the same way.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

/// `12,345`
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Count(pub(crate) u64);

/// Something per second: `0`, `3.2`, `1,204`
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Rate(pub(crate) f64);

/// How long something waits or took: `4 ms`, `1.4 s`, `12 s`, `3 min`, `5 h`
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Wait(pub(crate) f64);

/// How long something runs: `12 s`, `3 min 12 s`, `5 h 3 min`
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Span(pub(crate) u64);

/// A time as seen from another: `12 s ago`
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ago {
    pub(crate) at: Timestamp,
    pub(crate) now: Timestamp,
}

/// `awaiting_payment` as `Awaiting payment`
pub(crate) fn label(name: &str) -> String {
    let mut words = name.replace(['_', '-'], " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
}

impl Count {
    /// A count of the store, which is never negative.
    pub(crate) fn of(n: i64) -> Self {
        Count(n.max(0) as u64)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.char_indices() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round();
        if tenths == 0.0 {
            f.write_str("0")
        } else if tenths < 100.0 {
            write!(f, "{:.1}", tenths / 10.0)
        } else {
            Count(self.0.round() as u64).fmt(f)
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0.0);
        let milliseconds = (seconds * 1000.0).round();
        if milliseconds == 0.0 {
            f.write_str("0 s")
        } else if milliseconds < 1000.0 {
            write!(f, "{milliseconds} ms")
        } else if milliseconds < 9950.0 {
            write!(f, "{:.1} s", milliseconds / 1000.0)
        } else {
            coarse(seconds as u64, f)
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours) = (self.0 / 86_400, self.0 / 3600);
        let (minutes, seconds) = (self.0 / 60, self.0 % 60);
        if days > 0 {
            write!(f, "{days} d {} h", hours % 24)
        } else if hours > 0 {
            write!(f, "{hours} h {} min", minutes % 60)
        } else if minutes > 0 {
            write!(f, "{minutes} min {seconds} s")
        } else {
            write!(f, "{seconds} s")
        }
    }
}

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.now.duration_since(self.at).max(SignedDuration::ZERO);
        match passed.as_secs() {
            0 => f.write_str("just now"),
            seconds => {
                coarse(seconds as u64, f)?;
                f.write_str(" ago")
            }
        }
    }
}

impl Serialize for Ago {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.at.serialize(serializer)
    }
}

fn coarse(seconds: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match seconds {
        0..120 => write!(f, "{seconds} s"),
        120..7200 => write!(f, "{} min", seconds / 60),
        7200..172_800 => write!(f, "{} h", seconds / 3600),
        _ => write!(f, "{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_for_people() {
        let shown = [
            Count(0).to_string(),
            Count(1_234_567).to_string(),
            Rate(0.01).to_string(),
            Rate(3.24).to_string(),
            Rate(9.97).to_string(),
            Rate(1203.6).to_string(),
            Wait(0.0421).to_string(),
            Wait(1.42).to_string(),
            Wait(300.0).to_string(),
            Span(11_000).to_string(),
            Ago { at: Timestamp::UNIX_EPOCH, now: Timestamp::UNIX_EPOCH }.to_string(),
        ];
        let expected = [
            "0",
            "1,234,567",
            "0",
            "3.2",
            "10",
            "1,204",
            "42 ms",
            "1.4 s",
            "5 min",
            "3 h 3 min",
            "just now",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn names_become_labels() {
        assert_eq!(label("awaiting_payment"), "Awaiting payment");
        assert_eq!(label("éclair"), "éclair");
        assert_eq!(label(""), "");
    }
}
