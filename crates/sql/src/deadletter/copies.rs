//! Dead letters that are to be copied to a broker.

use super::{DeadLetter, letter, letters};
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Letters;

impl Letters<'_> {
    /// Records, together with the letter, that a copy of it is to be published.
    pub async fn want_copy(&mut self, id: &str) -> Result<(), StoreError> {
        static WANT: Statement = Statement::new(
            "insert into chapar.dead_letter_copies (letter) select id from chapar.dead_letters \
             where id = $1 on conflict do nothing",
        );
        self.0.run(&WANT, vec![id.into()]).await?;
        Ok(())
    }

    /// The oldest letters that have not been copied yet.
    pub async fn to_copy(&mut self, limit: i64) -> Result<Vec<DeadLetter>, StoreError> {
        static TO_COPY: Statement = letters!(
            "0",
            "where id in (select letter from chapar.dead_letter_copies order by letter limit $1) \
             order by id"
        );
        self.0.query(&TO_COPY, vec![limit.into()]).await?.iter().map(letter).collect()
    }

    /// These letters are copied, or the broker refuses them for good.
    pub async fn copied(&mut self, ids: Vec<String>) -> Result<(), StoreError> {
        static COPIED: Statement =
            Statement::new("delete from chapar.dead_letter_copies where letter = any($1)");
        self.0.run(&COPIED, vec![ids.into()]).await?;
        Ok(())
    }
}
