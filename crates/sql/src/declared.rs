//! What programs declare about themselves when they start, for operator commands.

use jiff::Timestamp;

use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::{Consumers, Timers};

/// A consumer as its program declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct DeclaredConsumer {
    pub consumer: String,
    pub service: String,
    /// Append-only: it never applies events again.
    pub append_only: bool,
    pub declared_at: Timestamp,
}

/// A timer of a saga that a program handles.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct DeclaredTimer {
    pub saga: String,
    pub name: String,
    pub service: String,
    /// What happens when it fires, as described by the program; may be empty.
    pub does: String,
}

impl Consumers<'_> {
    /// Stores a consumer's declaration.
    pub async fn declare(
        &mut self,
        consumer: &str,
        service: &str,
        append_only: bool,
    ) -> Result<(), StoreError> {
        static DECLARE: Statement = Statement::new(
            "insert into chapar.consumers (consumer, service, append_only, declared_at) \
             values ($1, $2, $3, clock_timestamp()) on conflict (consumer) do update \
             set service = excluded.service, append_only = excluded.append_only, \
             declared_at = excluded.declared_at",
        );
        let args = vec![consumer.into(), service.into(), append_only.into()];
        self.0.run(&DECLARE, args).await?;
        Ok(())
    }

    /// A consumer's declaration, if it ever ran.
    pub async fn declared(
        &mut self,
        consumer: &str,
    ) -> Result<Option<DeclaredConsumer>, StoreError> {
        static DECLARED: Statement = Statement::new(
            "select consumer, service, append_only, declared_at from chapar.consumers \
             where consumer = $1",
        );
        let rows = self.0.query(&DECLARED, vec![consumer.into()]).await?;
        let declared = |row: &crate::Row| {
            Ok(DeclaredConsumer {
                consumer: row.get(0)?,
                service: row.get(1)?,
                append_only: row.get(2)?,
                declared_at: row.get(3)?,
            })
        };
        rows.first().map(declared).transpose()
    }

    /// The topics that a consumer last read.
    pub async fn topics_of(&mut self, consumer: &str) -> Result<Vec<String>, StoreError> {
        static TOPICS: Statement = Statement::new(
            "select topic from chapar.topic_readers where subscription = $1 order by topic",
        );
        let rows = self.0.query(&TOPICS, vec![consumer.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// When a consumer was first active.
    pub async fn first_seen(&mut self, consumer: &str) -> Result<Option<Timestamp>, StoreError> {
        static FIRST: Statement = Statement::new(
            "select min(first_seen) from chapar.topic_readers where subscription = $1",
        );
        let rows = self.0.query(&FIRST, vec![consumer.into()]).await?;
        rows.first().map_or(Ok(None), |row| row.get(0))
    }

    /// The topics that are read by any consumer.
    pub async fn topics_read(&mut self) -> Result<Vec<String>, StoreError> {
        static TOPICS: Statement =
            Statement::new("select distinct topic from chapar.topic_readers order by topic");
        let rows = self.0.query(&TOPICS, vec![]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Timers<'_> {
    /// Stores which timers a program handles.
    pub async fn declare(&mut self, timers: &[DeclaredTimer]) -> Result<(), StoreError> {
        static DECLARE: Statement = Statement::new(
            "insert into chapar.saga_timers (saga, name, service, does, declared_at) \
             values ($1, $2, $3, $4, clock_timestamp()) on conflict (saga, name) do update \
             set service = excluded.service, does = excluded.does, \
             declared_at = excluded.declared_at",
        );
        for timer in timers {
            let DeclaredTimer { saga, name, service, does } = timer;
            let args = vec![saga.into(), name.into(), service.into(), does.into()];
            self.0.run(&DECLARE, args).await?;
        }
        Ok(())
    }

    /// The timers of a saga that programs handle.
    pub async fn declared(&mut self, saga: &str) -> Result<Vec<DeclaredTimer>, StoreError> {
        static DECLARED: Statement = Statement::new(
            "select saga, name, service, does from chapar.saga_timers where saga = $1 order by name",
        );
        let rows = self.0.query(&DECLARED, vec![saga.into()]).await?;
        let timer = |row: &crate::Row| {
            Ok(DeclaredTimer {
                saga: row.get(0)?,
                name: row.get(1)?,
                service: row.get(2)?,
                does: row.get(3)?,
            })
        };
        rows.iter().map(timer).collect()
    }
}
