//! The writers' journals, and their evaluation.
//!
//! A line is written before the commit, and another when its outcome is known. A written line survives the process; a
//! missing one leaves the outcome unknown.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Result;
use chapar_testkit::history::{Fate, Write};
use serde::{Deserialize, Serialize};

/// The journal of one life of one writer.
pub(super) struct Diary(Mutex<File>);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// About to be committed.
    Intent(Write),
    /// How it ended.
    Outcome { ids: Vec<String>, fate: Fate },
    /// Something that a writer did on purpose, or an error it got.
    Habit(String),
}

/// The content of all journals of a run.
#[derive(Debug, Default)]
pub(super) struct Diaries {
    pub(super) writes: Vec<Write>,
    pub(super) habits: BTreeMap<String, u64>,
}

impl Diary {
    pub(super) fn open(folder: &Path, name: &str) -> Result<Self> {
        let file = folder.join(format!("{name}.diary"));
        Ok(Diary(Mutex::new(OpenOptions::new().create(true).append(true).open(file)?)))
    }

    pub(super) fn intend(&self, writes: &[Write]) -> Result<()> {
        self.lines(writes.iter().cloned().map(Line::Intent))
    }

    pub(super) fn end(&self, writes: &[Write], fate: Fate) -> Result<()> {
        let ids = writes.iter().map(|write| write.id.clone()).collect();
        self.lines([Line::Outcome { ids, fate }])
    }

    pub(super) fn habit(&self, name: &str) -> Result<()> {
        self.lines([Line::Habit(name.to_owned())])
    }

    fn lines(&self, lines: impl IntoIterator<Item = Line>) -> Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(&line)?);
            text.push('\n');
        }
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(text.as_bytes())?;
        Ok(())
    }
}

impl Diaries {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let (mut writes, mut fates) = (Vec::new(), HashMap::new());
        let mut habits: BTreeMap<String, u64> = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "diary") {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            // The last line of a killed writer may be incomplete.
            for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                match line {
                    Line::Intent(write) => writes.push(write),
                    Line::Outcome { ids, fate } => {
                        fates.extend(ids.into_iter().map(|id| (id, fate)));
                    }
                    Line::Habit(name) => *habits.entry(name).or_default() += 1,
                }
            }
        }
        for write in &mut writes {
            if let Some(fate) = fates.get(&write.id) {
                write.fate = *fate;
            }
        }
        Ok(Diaries { writes, habits })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn an_outcome_that_was_never_written_down_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), "a").unwrap();
        let write = |id: &str| Write { id: id.into(), key: "k".into(), n: 1, fate: Fate::Unknown };
        diary.intend(&[write("1"), write("2"), write("3")]).unwrap();
        diary.end(&[write("1")], Fate::Committed).unwrap();
        diary.end(&[write("2")], Fate::Failed).unwrap();
        diary.habit("rollbacks").unwrap();
        let read = Diaries::read(folder.path()).unwrap();
        let fates: Vec<Fate> = read.writes.iter().map(|write| write.fate).collect();
        assert_eq!(fates, [Fate::Committed, Fate::Failed, Fate::Unknown]);
        assert_eq!(read.habits["rollbacks"], 1);
    }
}
