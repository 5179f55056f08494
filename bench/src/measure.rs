//! Measuring several contestants, interleaved.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

/// The default number of rounds.
pub const ROUNDS: usize = 5;

/// A progress line is shown once a benchmark has taken this long.
const PATIENCE: Duration = Duration::from_secs(2);

/// One way of doing it.
pub struct Contestant<'a> {
    name: &'static str,
    run: Box<dyn FnMut() -> Result<f64> + 'a>,
}

/// What the rounds of one contestant gave: the median, and how far the rounds are apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The figures of all contestants, round by round.
#[derive(Debug, Clone)]
pub struct Rounds {
    names: Vec<&'static str>,
    /// By contestant, then by round.
    figures: Vec<Vec<f64>>,
}

impl<'a> Contestant<'a> {
    /// A contestant whose run gives a figure, in whatever unit all of them use.
    pub fn new(name: &'static str, run: impl FnMut() -> Result<f64> + 'a) -> Self {
        Contestant { name, run: Box::new(run) }
    }

    /// A contestant that is called over and over for a while; its figure is the mean of a call,
    /// in microseconds.
    pub fn repeated(
        name: &'static str,
        turn: Duration,
        mut call: impl FnMut() -> Result<()> + 'a,
    ) -> Self {
        /// The clock is read once in so many calls, as reading it is not free either.
        const BETWEEN: u32 = 256;
        Contestant::new(name, move || {
            let start = Instant::now();
            let mut calls = 0u64;
            loop {
                for _ in 0..BETWEEN {
                    call()?;
                }
                calls += u64::from(BETWEEN);
                let taken = start.elapsed();
                if taken >= turn {
                    return Ok(taken.as_secs_f64() * 1e6 / calls as f64);
                }
            }
        })
    }
}

/// Runs every contestant once per round, one after the other, so that other load on the machine affects all of them
/// alike. A first round warms up and does not count.
pub fn interleaved(contestants: &mut [Contestant<'_>], rounds: usize) -> Result<Rounds> {
    ensure!(rounds > 0, "a benchmark needs at least one round");
    ensure!(!contestants.is_empty(), "a benchmark needs a contestant");
    let mut progress = Progress::start();
    let mut figures = vec![Vec::with_capacity(rounds); contestants.len()];
    for round in 0..=rounds {
        for (contestant, figures) in contestants.iter_mut().zip(&mut figures) {
            match round {
                0 => progress.say(&format!("warming up: {}", contestant.name)),
                _ => progress.say(&format!("round {round} of {rounds}: {}", contestant.name)),
            }
            let figure = (contestant.run)()?;
            if round > 0 {
                figures.push(figure);
            }
        }
    }
    Ok(Rounds { names: contestants.iter().map(|contestant| contestant.name).collect(), figures })
}

/// As [`interleaved`], for contestants that interleave themselves in small slices: a round gives the figure of each.
pub fn sliced(
    names: Vec<&'static str>,
    rounds: usize,
    mut round: impl FnMut() -> Result<Vec<f64>>,
) -> Result<Rounds> {
    ensure!(rounds > 0, "a benchmark needs at least one round");
    let mut progress = Progress::start();
    let mut figures = vec![Vec::with_capacity(rounds); names.len()];
    for number in 0..=rounds {
        match number {
            0 => progress.say("warming up"),
            _ => progress.say(&format!("round {number} of {rounds}")),
        }
        let of_round = round()?;
        if number > 0 {
            figures.iter_mut().zip(of_round).for_each(|(figures, figure)| figures.push(figure));
        }
    }
    Ok(Rounds { names, figures })
}

impl Rounds {
    /// The figures of a contestant.
    pub fn of(&self, name: &str) -> Option<Spread> {
        Spread::of(self.figures(name)?)
    }

    /// The ratio of two contestants, computed within each round: what slows a round down slows both.
    pub fn over(&self, name: &str, other: &str) -> Option<Spread> {
        let pairs = self.figures(name)?.iter().zip(self.figures(other)?);
        Spread::of(&pairs.map(|(this, other)| this / other).collect::<Vec<_>>())
    }

    /// How many rounds were counted.
    pub fn len(&self) -> usize {
        self.figures.first().map_or(0, Vec::len)
    }

    /// Never: there is no benchmark without a round.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn figures(&self, name: &str) -> Option<&[f64]> {
        let at = self.names.iter().position(|known| *known == name)?;
        Some(&self.figures[at])
    }
}

impl Spread {
    /// The spread of some figures; none of none.
    pub fn of(figures: &[f64]) -> Option<Spread> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Spread { median, min, max })
    }
}

/// A table with one line per contestant, its columns as wide as they must be.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Names to the left, figures to the right.
            match column {
                0 => line.push_str(&format!("{cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        line.trim_end().to_owned() + "\n"
    };
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let lines = std::iter::once(line(&head)).chain(rows.iter().map(|row| line(row)));
    lines.collect()
}

/// A progress line, on a terminal only.
struct Progress {
    start: Instant,
    shown: bool,
    watched: bool,
}

impl Progress {
    fn start() -> Self {
        let watched = std::io::stderr().is_terminal();
        Progress { start: Instant::now(), shown: false, watched }
    }

    fn say(&mut self, text: &str) {
        if self.watched && self.start.elapsed() >= PATIENCE {
            self.shown = true;
            // A closed terminal does not stop the measurement.
            let _ = write!(std::io::stderr(), "\r\x1b[2K{text} …");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn contestants_take_turns_and_the_first_round_does_not_count() {
        let order = RefCell::new(String::new());
        let contestant = |name: &'static str, figures: [f64; 4]| {
            let mut figures = figures.into_iter();
            let order = &order;
            Contestant::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(figures.next().unwrap())
            })
        };
        let mut both =
            [contestant("a", [100.0, 4.0, 2.0, 30.0]), contestant("b", [100.0, 1.0, 2.0, 10.0])];
        let rounds = interleaved(&mut both, 3).unwrap();
        drop(both);
        assert_eq!(order.into_inner(), "abababab");
        assert_eq!(rounds.of("a"), Some(Spread { median: 4.0, min: 2.0, max: 30.0 }));
        // Of the rounds' ratios 4, 1 and 3, and not of the medians.
        assert_eq!(rounds.over("a", "b"), Some(Spread { median: 3.0, min: 1.0, max: 4.0 }));
        assert_eq!((rounds.of("c"), rounds.len()), (None, 3));
    }

    #[test]
    fn a_contestant_that_fails_ends_the_benchmark() {
        let fails = Contestant::new("a", || anyhow::bail!("no store"));
        assert_eq!(interleaved(&mut [fails], 5).unwrap_err().to_string(), "no store");
        assert!(interleaved(&mut [], 5).is_err());
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_table_lines_up() {
        let rows = [vec!["bare".into(), "1.0".into()], vec!["b".into(), "10.25".into()]];
        assert_eq!(table(&["what", "µs"], &rows), "what     µs\nbare    1.0\nb     10.25\n");
    }
}
