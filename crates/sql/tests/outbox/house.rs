//! A store, its outbox as a relay has it, and events to append.

use std::time::Duration;

use chapar_core::port::{Checkpoint, Chunk, Lease, Outbox, OutboxError, Park};
use chapar_sql::{Append, SqlOutbox, Store, StoreOptions, Tables};
use chapar_testkit::servers;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn event(key: &str, n: usize) -> Append {
    Append {
        event_id: format!("{key}-{n}"),
        tenant: "acme".into(),
        topic: "t".into(),
        ordering_key: Some(key.into()),
        aggregate_type: String::new(),
        aggregate_id: key.into(),
        idempotency_key: None,
        payload_hash: Append::hash(b"same"),
        correlation_id: "c".into(),
        causation_id: None,
        headers: "[]".into(),
        body: n.to_string().into(),
    }
}

pub(crate) struct House {
    pub(crate) store: Store,
    pub(crate) outbox: SqlOutbox,
    _database: Option<servers::Database>,
    _folder: Option<tempfile::TempDir>,
}

impl House {
    pub(crate) async fn postgres(server: &servers::Postgres) -> House {
        let database = server.database("outbox").unwrap();
        let options = StoreOptions { max_connections: 20, ..Default::default() };
        let store = Store::open(database.url(), &options).await.unwrap();
        store.migrate().await.unwrap();
        House::over(store, database)
    }

    /// A store that has been opened and migrated in its own way.
    pub(crate) fn over(store: Store, database: servers::Database) -> House {
        let outbox = SqlOutbox::new(store.clone());
        House { store, outbox, _database: Some(database), _folder: None }
    }

    pub(crate) async fn sqlite() -> House {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let outbox = SqlOutbox::new(store.clone());
        House { store, outbox, _database: None, _folder: Some(folder) }
    }

    pub(crate) async fn append(&self, events: &[Append]) {
        let mut tx = self.store.begin("acme").await.unwrap();
        tx.outbox_rows().append(events).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) async fn lease(&self, owner: &str) -> Lease {
        self.outbox.lease(owner, None, MINUTE).await.unwrap()
    }

    /// Reads on from where the lease is, and writes progress.
    pub(crate) async fn advance(&self, lease: &mut Lease, limit: usize) -> Vec<String> {
        let chunk = self.outbox.read(lease.epoch, &lease.tracks, limit).await.unwrap();
        self.write(lease, &chunk, Vec::new()).await.unwrap();
        chunk.rows.iter().map(|row| row.event_id.to_string()).collect()
    }

    pub(crate) async fn write(
        &self,
        lease: &mut Lease,
        chunk: &Chunk,
        parks: Vec<Park>,
    ) -> Result<(), OutboxError> {
        lease.tracks.clone_from(&chunk.tracks);
        let checkpoint =
            Checkpoint { tracks: chunk.tracks.clone(), parks, ..Checkpoint::default() };
        self.outbox.checkpoint(lease.epoch, &checkpoint).await
    }
}
