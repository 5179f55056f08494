//! Letters of which a broker gets a copy.

use super::{DeadLetter, letter, letters};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

impl Conn<'_> {
    /// Notes, with the letter itself, that the broker is to get a copy of it.
    pub async fn want_letter_copy(&mut self, id: &str) -> Result<(), StoreError> {
        static WANT: Statement = Statement::new(
            "insert into chapar.dead_letter_copies (letter) select id from chapar.dead_letters \
             where id = $1 on conflict do nothing",
        );
        self.run(&WANT, vec![id.into()]).await?;
        Ok(())
    }

    /// The first letters of which the broker has no copy yet.
    pub async fn letters_to_copy(&mut self, limit: i64) -> Result<Vec<DeadLetter>, StoreError> {
        static TO_COPY: Statement = letters!(
            "0",
            "where id in (select letter from chapar.dead_letter_copies order by letter limit $1) \
             order by id"
        );
        self.query(&TO_COPY, vec![limit.into()]).await?.iter().map(letter).collect()
    }

    /// The broker has copies of these, or will never take them.
    pub async fn letters_copied(&mut self, ids: Vec<String>) -> Result<(), StoreError> {
        static COPIED: Statement =
            Statement::new("delete from chapar.dead_letter_copies where letter = any($1)");
        self.run(&COPIED, vec![ids.into()]).await?;
        Ok(())
    }
}
