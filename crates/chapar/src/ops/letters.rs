use std::collections::BTreeMap;

use chapar_core::machine::failure::FailureClass;
use chapar_core::machine::fingerprint::shape;
use chapar_sql::{
    DeadLetter, LetterCount, LetterCursor, LetterFilter, LetterGroup, Store, StoreError, Tables, Tx,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{Operator, TriageError, audit};

/// How many letters are taken in one statement.
pub(super) const AT_ONCE: usize = 1000;

/// The dead letters of a store, for operators.
#[derive(Debug, Clone)]
pub struct Letters {
    pub(super) store: Store,
}

/// Some letters, newest first.
#[derive(Debug, Clone)]
pub struct Page {
    /// The letters.
    pub letters: Vec<DeadLetter>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}

/// The result of an action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LettersChanged {
    /// How many letters were meant.
    pub selected: i64,
    /// How many were changed.
    pub changed: i64,
    /// What they were before, by status.
    pub before: BTreeMap<String, i64>,
    /// What they are now, by status.
    pub after: BTreeMap<String, i64>,
}

impl Letters {
    /// The dead letters of a store.
    pub fn of(store: &Store) -> Self {
        Letters { store: store.clone() }
    }

    /// The newest open letters that match a filter; `after` is [`Page::next`] of the page
    /// before.
    pub async fn list(
        &self,
        filter: &LetterFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, TriageError> {
        let before = after.map(place).transpose()?;
        let mut tx = self.store.begin_read().await?;
        let letters = tx.letters().page(&shaped(filter), before, limit as i64).await?;
        tx.rollback().await?;
        let last = letters.last().filter(|_| filter.ids.is_empty() && letters.len() == limit);
        let next = last.map(|last| format!("{}/{}", last.last_failed_at.as_microsecond(), last.id));
        Ok(Page { letters, next })
    }

    /// The letters that were closed last.
    pub async fn closed(&self, limit: usize) -> Result<Vec<DeadLetter>, TriageError> {
        let mut tx = self.store.begin_read().await?;
        let letters = tx.letters().closed(limit as i64).await?;
        tx.rollback().await?;
        Ok(letters)
    }

    /// Letters that failed alike, the largest groups first.
    pub async fn groups(
        &self,
        filter: &LetterFilter,
        limit: usize,
    ) -> Result<Vec<LetterGroup>, TriageError> {
        let mut tx = self.store.begin_read().await?;
        let groups = tx.letters().groups(&shaped(filter), limit as i64).await?;
        tx.rollback().await?;
        Ok(groups)
    }

    /// A letter with everything that is known of it, open or closed.
    pub async fn get(&self, id: &str) -> Result<DeadLetter, TriageError> {
        let mut tx = self.store.begin_read().await?;
        let letter = tx.letters().get(id).await?;
        tx.rollback().await?;
        letter.ok_or_else(|| TriageError::NoLetter(id.to_owned()))
    }

    /// Sets the class of letters and, if required, the fix.
    /// Without a class they are unclassified again.
    pub async fn classify(
        &self,
        filter: &LetterFilter,
        class: Option<FailureClass>,
        fix: Option<&str>,
        by: Operator<'_>,
    ) -> Result<LettersChanged, TriageError> {
        if let (Some(class), Some(_)) = (class, fix)
            && !class.needs_fix()
        {
            return Err(TriageError::NeedlessFix(class));
        }
        let name = class.map(FailureClass::as_str);
        let mut what = Sweep::begin(self, filter).await?;
        while let Some(ids) = what.next().await? {
            let changed = what.tx.letters().classify(ids, name, fix).await?;
            what.settled.changed += changed as i64;
        }
        what.settled.after = what.settled.before.clone();
        let detail = json!({ "class": name, "fix": fix });
        what.end("dead_letter.classify", detail, by).await
    }

    /// Closes letters and keeps their events; their followers go on without them.
    pub async fn quarantine(
        &self,
        filter: &LetterFilter,
        by: Operator<'_>,
    ) -> Result<LettersChanged, TriageError> {
        self.give_up(filter, false, "dead_letter.quarantine", by).await
    }

    /// Closes letters and erases their events; the record of the letter is kept. Their followers
    /// go on without them.
    pub async fn delete(
        &self,
        filter: &LetterFilter,
        by: Operator<'_>,
    ) -> Result<LettersChanged, TriageError> {
        self.give_up(filter, true, "dead_letter.delete", by).await
    }

    async fn give_up(
        &self,
        filter: &LetterFilter,
        erase: bool,
        action: &str,
        by: Operator<'_>,
    ) -> Result<LettersChanged, TriageError> {
        let mut what = Sweep::begin(self, filter).await?;
        while let Some(ids) = what.next().await? {
            let changed = what.tx.letters().give_up(ids, erase, by.name, by.reason).await?;
            what.settled.changed += changed as i64;
        }
        what.settled.after.insert("closed".into(), what.settled.changed);
        let settled = what.end(action, json!({}), by).await?;
        self.store.nudge();
        Ok(settled)
    }

    pub(super) async fn counts(
        &self,
        filter: &LetterFilter,
        remembered_since: Timestamp,
    ) -> Result<Vec<LetterCount>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let counts = tx.letters().count(&shaped(filter), remembered_since).await?;
        tx.rollback().await?;
        Ok(counts)
    }
}

/// All letters of a filter in one transaction: an interrupted action changes nothing.
struct Sweep {
    tx: Tx,
    filter: LetterFilter,
    groups: Vec<String>,
    cursor: LetterCursor,
    settled: LettersChanged,
}

impl Sweep {
    async fn begin(letters: &Letters, filter: &LetterFilter) -> Result<Self, TriageError> {
        let filter = shaped(filter);
        let mut tx = letters.store.begin_engine().await?;
        let groups = tx.letters().groups_of(&filter).await?;
        let mut settled = LettersChanged::default();
        for count in tx.letters().count(&filter, Timestamp::UNIX_EPOCH).await? {
            settled.selected += count.letters;
            *settled.before.entry(count.status).or_default() += count.letters;
        }
        if let [id] = filter.ids.as_slice()
            && settled.selected == 0
        {
            return Err(match tx.letters().get(id).await? {
                Some(letter) => TriageError::NotOpen { id: letter.id, found: letter.status },
                None => TriageError::NoLetter(id.clone()),
            });
        }
        Ok(Sweep { tx, filter, groups, cursor: LetterCursor::default(), settled })
    }

    async fn next(&mut self) -> Result<Option<Vec<String>>, TriageError> {
        let Sweep { tx, filter, groups, cursor, .. } = self;
        let ids = tx.letters().next(filter, groups, cursor, AT_ONCE).await?;
        Ok(Some(ids).filter(|ids| !ids.is_empty()))
    }

    async fn end(
        mut self,
        action: &str,
        mut detail: serde_json::Value,
        by: Operator<'_>,
    ) -> Result<LettersChanged, TriageError> {
        if self.settled.changed > 0 {
            detail["filter"] = json!(self.filter);
            detail["selected"] = json!(self.settled.selected);
            detail["changed"] = json!(self.settled.changed);
            detail["before"] = json!(self.settled.before);
            detail["after"] = json!(self.settled.after);
            let target = target(&self.filter);
            audit(&mut self.tx.conn(), by, action, &target, &detail).await?;
        }
        self.tx.commit().await?;
        Ok(self.settled)
    }
}

/// What an action was done to, in a word; the whole filter is in the detail.
pub(super) fn target(filter: &LetterFilter) -> String {
    match (filter.ids.as_slice(), &filter.group, &filter.consumer) {
        ([id], ..) => id.clone(),
        ([], Some(group), _) => group.clone(),
        ([], None, Some(consumer)) => consumer.clone(),
        _ => "dead_letters".to_owned(),
    }
}

/// Numbers and quoted values in the text of an error match any value.
pub(super) fn shaped(filter: &LetterFilter) -> LetterFilter {
    let error = filter.error.as_deref().map(shape);
    LetterFilter { error, ..filter.clone() }
}

fn place(text: &str) -> Result<(Timestamp, String), TriageError> {
    let read = || {
        let (at, id) = text.split_once('/')?;
        Some((Timestamp::from_microsecond(at.parse().ok()?).ok()?, id.to_owned()))
    };
    read().ok_or_else(|| TriageError::NoLetter(format!("page {text:?}")))
}
