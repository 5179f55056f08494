//! The contents of a store, for tests that check whether a step changed anything.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Row as _};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::tables::Surveys;

/// Our own tables that handlers write to. The others hold cursors and other progress.
const OURS: [&str; 5] =
    ["chapar_effects", "chapar_outbox", "chapar_saga_history", "chapar_sagas", "chapar_timers"];

impl Surveys<'_> {
    /// Every row that handlers have written to a SQLite store, as text, by table: the user's
    /// tables, events, sagas, timers and effects. Empty on PostgreSQL, where row-level security
    /// would hide a part of it.
    pub async fn contents(&mut self) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
        const TABLES: &str = "select name from sqlite_master where type = 'table' \
             and name not like 'sqlite\\_%' escape '\\'";
        let mut contents = BTreeMap::new();
        let Conn::Sqlite(conn) = &mut self.0 else { return Ok(contents) };
        for table in sqlx::query(TABLES).fetch_all(&mut **conn).await? {
            let table: String = table.try_get(0)?;
            if table.starts_with("chapar") && !OURS.contains(&table.as_str()) {
                continue;
            }
            let columns = sqlx::query("select name from pragma_table_info($1)").bind(&table);
            let columns = columns.fetch_all(&mut **conn).await?;
            let columns = columns.iter().map(|row| row.try_get::<String, _>(0));
            let quoted = columns.map(|name| Ok(format!("quote({})", named(&name?))));
            let quoted = quoted.collect::<Result<Vec<_>, StoreError>>()?.join(" || ', ' || ");
            // Table names cannot be parameters; these come from the database itself.
            let rows = format!("select {quoted} from {} order by 1", named(&table));
            let rows = sqlx::query(AssertSqlSafe(rows)).fetch_all(&mut **conn).await?;
            let rows = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, sqlx::Error>>()?;
            contents.insert(table, rows);
        }
        Ok(contents)
    }
}

fn named(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
