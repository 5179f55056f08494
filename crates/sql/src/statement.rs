use std::sync::OnceLock;

use crate::store::Backend;

/// A statement in PostgreSQL's spelling, converted for SQLite by a few fixed rewrites.
///
/// | PostgreSQL | SQLite |
/// | --- | --- |
/// | `chapar.outbox` | `chapar_outbox` |
/// | `clock_timestamp()` | microseconds since 1970 |
/// | `$1 * interval '1 microsecond'` | `$1` |
/// | `= any($1)` | `in (select value from json_each($1))` |
/// | `json_build_array(…)::text` | `json_array(…)` |
/// | `for update`, `for share`, `skip locked` | nothing: there is one writer |
#[derive(Debug)]
pub struct Statement {
    postgres: &'static str,
    sqlite: OnceLock<&'static str>,
}

impl Statement {
    /// A statement, given in PostgreSQL's spelling.
    pub const fn new(postgres: &'static str) -> Self {
        Statement { postgres, sqlite: OnceLock::new() }
    }

    /// The text for a database.
    pub fn on(&self, backend: Backend) -> &'static str {
        match backend {
            Backend::Postgres => self.postgres,
            // Leaked once per statement and process: the statement cache needs a static text.
            Backend::Sqlite => self.sqlite.get_or_init(|| to_sqlite(self.postgres).leak()),
        }
    }
}

pub(crate) const SQLITE_NOW: &str = "cast(unixepoch('subsec') * 1000000 as integer)";

fn to_sqlite(postgres: &str) -> String {
    let text = postgres
        .replace("chapar.", "chapar_")
        .replace("clock_timestamp()", SQLITE_NOW)
        .replace(" * interval '1 microsecond'", "")
        .replace("json_build_array(", "json_array(")
        .replace("::text", "")
        .replace(" for update skip locked", "")
        .replace(" for update", "")
        .replace(" for share", "");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("= any(") {
        let (parameter, after) = after.split_once(')').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str("in (select value from json_each(");
        out.push_str(parameter);
        out.push_str("))");
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sqlite_form_says_the_same_in_other_words() {
        static READ: Statement = Statement::new(
            "select seq from chapar.outbox where shard = any($1) and due_at < \
             clock_timestamp() + $2 * interval '1 microsecond' for update skip locked",
        );
        let expected = "select seq from chapar_outbox where shard in (select value from \
             json_each($1)) and due_at < cast(unixepoch('subsec') * 1000000 as integer) + $2";
        assert_eq!(READ.on(Backend::Sqlite), expected);
    }
}
