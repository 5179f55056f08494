//! Named locks across processes, held until the transaction ends.

use sha2::{Digest, Sha256};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::tables::Inbox;

impl Inbox<'_> {
    /// Waits until these names are free, and holds them until this transaction ends. On SQLite the
    /// single writer holds them already.
    pub async fn lock_names(&mut self, names: &[String]) -> Result<(), StoreError> {
        const LOCK: &str =
            "select pg_advisory_xact_lock(name) from unnest($1::bigint[]) as t(name)";
        let Conn::Postgres(conn) = &mut self.0 else { return Ok(()) };
        let hash = |name: &String| {
            let digest = Sha256::digest(name.as_bytes());
            digest.iter().take(8).fold(0i64, |hash, byte| (hash << 8) | i64::from(*byte))
        };
        // Sorted, so that two processes with overlapping names lock in the same order.
        let mut hashes: Vec<i64> = names.iter().map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        sqlx::query(LOCK).bind(hashes).execute(&mut **conn).await?;
        Ok(())
    }
}
