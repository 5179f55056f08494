//! Read models: documents by key, in builds of which one is served.

use std::collections::BTreeMap;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

impl Conn<'_> {
    /// How far a read model had come in each partition when its last snapshot was taken.
    pub async fn snapshot_marks(
        &mut self,
        projection: &str,
    ) -> Result<Option<BTreeMap<u32, u64>>, StoreError> {
        static MARKS: Statement =
            Statement::new("select marks from chapar.projection_snapshots where projection = $1");
        let rows = self.query(&MARKS, vec![projection.into()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(serde_json::from_str(&row.get::<String>(0)?).ok())
    }
}
