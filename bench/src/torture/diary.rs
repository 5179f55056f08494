//! The writers' journals, and their evaluation.
//!
//! A line is written before the commit of a transaction, and another when its outcome is known. A written line survives
//! the process; a missing one leaves the outcome unknown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Result;
use chapar_testkit::history::{Fate, Write};
use serde::{Deserialize, Serialize};

/// The journal of one life of one writer.
pub(super) struct Diary(Mutex<File>);

/// A transaction. Its writes are named `TX.0`, `TX.1`, ….
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Intent {
    pub(super) tx: String,
    pub(super) at: u64,
    /// It does not wait for the disk.
    #[serde(default)]
    pub(super) loose: bool,
    pub(super) writes: Vec<Entry>,
}

/// A write: key, topic, number, and whether something is wrong with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry(pub(super) String, pub(super) String, pub(super) u64, pub(super) bool);

#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// About to be committed.
    #[serde(rename = "i")]
    Intent(Intent),
    /// How it ended.
    #[serde(rename = "o")]
    Outcome(String, Fate),
    /// Something that a writer did on purpose, or an error it got.
    #[serde(rename = "h")]
    Habit(String),
}

/// The content of all journals of a run.
#[derive(Debug, Default)]
pub(super) struct Diaries {
    pub(super) intents: Vec<Intent>,
    pub(super) fates: HashMap<String, Fate>,
    pub(super) habits: BTreeMap<String, u64>,
}

impl Diary {
    pub(super) fn open(folder: &Path, name: &str) -> Result<Self> {
        let file = folder.join(format!("{name}.diary"));
        Ok(Diary(Mutex::new(OpenOptions::new().create(true).append(true).open(file)?)))
    }

    pub(super) fn intend(&self, intent: &Intent) -> Result<()> {
        self.line(&Line::Intent(intent.clone()))
    }

    pub(super) fn end(&self, tx: &str, fate: Fate) -> Result<()> {
        self.line(&Line::Outcome(tx.to_owned(), fate))
    }

    pub(super) fn habit(&self, name: &str) -> Result<()> {
        self.line(&Line::Habit(name.to_owned()))
    }

    fn line(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(text.as_bytes())?;
        Ok(())
    }
}

impl Diaries {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut diaries = Diaries::default();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "diary") {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            // The last line of a killed writer may be incomplete.
            for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                match line {
                    Line::Intent(intent) => diaries.intents.push(intent),
                    Line::Outcome(tx, fate) => {
                        diaries.fates.insert(tx, fate);
                    }
                    Line::Habit(name) => *diaries.habits.entry(name).or_default() += 1,
                }
            }
        }
        Ok(diaries)
    }

    /// The writes as their writers know them.
    pub(super) fn writes(&self) -> Vec<Write> {
        self.writes_with(|intent| self.fates.get(&intent.tx).copied().unwrap_or_default())
    }

    /// The writes as the database has them: unknown outcomes are replaced by what it says. A transaction that was
    /// acknowledged and is missing counts as forgotten where that is allowed: it did not wait for the disk, or it was
    /// written before a standby was promoted.
    pub(super) fn resolved(&self, committed: &HashSet<String>, promoted: u64) -> Vec<Write> {
        self.writes_with(|intent| {
            let said = self.fates.get(&intent.tx).copied().unwrap_or_default();
            match (said, committed.contains(&intent.tx)) {
                (Fate::Unknown, true) => Fate::Committed,
                (Fate::Committed | Fate::Unknown, false)
                    if intent.loose || intent.at < promoted =>
                {
                    Fate::Forgotten
                }
                (Fate::Unknown, false) => Fate::Failed,
                (said, _) => said,
            }
        })
    }

    fn writes_with(&self, fate: impl Fn(&Intent) -> Fate) -> Vec<Write> {
        let mut writes = Vec::new();
        for intent in &self.intents {
            let fate = fate(intent);
            for (place, Entry(key, topic, n, ill)) in intent.writes.iter().enumerate() {
                writes.push(Write {
                    id: format!("{}.{place}", intent.tx),
                    key: key.clone(),
                    n: *n,
                    fate,
                    topic: topic.clone(),
                    at: intent.at,
                    ill: *ill,
                });
            }
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn intent(tx: &str, loose: bool) -> Intent {
        let writes = vec![Entry("k".into(), "t".into(), 1, false)];
        Intent { tx: tx.into(), at: 5, loose, writes }
    }

    #[test]
    fn an_outcome_that_was_never_written_down_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), "a").unwrap();
        for tx in ["1", "2", "3"] {
            diary.intend(&intent(tx, false)).unwrap();
        }
        diary.end("1", Fate::Committed).unwrap();
        diary.end("2", Fate::Failed).unwrap();
        diary.habit("rollbacks").unwrap();
        let read = Diaries::read(folder.path()).unwrap();
        let fates: Vec<Fate> = read.writes().iter().map(|write| write.fate).collect();
        assert_eq!(fates, [Fate::Committed, Fate::Failed, Fate::Unknown]);
        assert_eq!(read.habits["rollbacks"], 1);
    }

    #[test]
    fn an_acknowledged_write_may_be_forgotten_only_where_that_was_announced() {
        let mut diaries = Diaries::default();
        for (tx, loose) in [("durable", false), ("loose", true)] {
            diaries.intents.push(intent(tx, loose));
            diaries.fates.insert(tx.into(), Fate::Committed);
        }
        let fates = |promoted| {
            let writes = diaries.resolved(&HashSet::new(), promoted);
            writes.iter().map(|write| write.fate).collect::<Vec<_>>()
        };
        assert_eq!(fates(0), [Fate::Committed, Fate::Forgotten], "the first is lost");
        assert_eq!(fates(6), [Fate::Forgotten, Fate::Forgotten], "the standby had neither");
    }
}
