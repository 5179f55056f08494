//! The relays in the original code of two systems, kept for comparison. Both read rows by their time and publish them
//! one after the other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use sqlx::{Connection, PgConnection, Row};

/// Whose relay it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seed {
    /// The hotel's: 256 rows, locked and skipped, each marked when it is acknowledged; it never
    /// waits.
    Hotel,
    /// The bank's: every 100 ms, 100 rows, marked together.
    Bank,
}

/// The polling interval of the bank's relay.
const TICK: Duration = Duration::from_millis(100);
const SUBJECT: &str = "naive.event";

/// Makes its table and puts `rows` events of `body` into it.
pub(crate) async fn prepare(store: &str, rows: i64, body: &str) -> Result<()> {
    const TABLE: &str = "create schema if not exists naive; \
        drop table if exists naive.outbox; \
        create table naive.outbox (id uuid primary key default gen_random_uuid(), \
            tenant_id text not null, topic text not null, ordering_key text, \
            envelope jsonb not null, occurred_at timestamptz not null default clock_timestamp(), \
            published_at timestamptz, attempts int not null default 0, last_error text); \
        create index on naive.outbox (occurred_at) where published_at is null";
    let mut conn = PgConnection::connect(store).await?;
    sqlx::raw_sql(TABLE).execute(&mut conn).await?;
    sqlx::query(
        "insert into naive.outbox (tenant_id, topic, ordering_key, envelope) \
         select 't' || n % 20, $2, 'k' || n % 10000, $3::text::jsonb from generate_series(1, $1) n",
    )
    .bind(rows)
    .bind(SUBJECT)
    .bind(body)
    .execute(&mut conn)
    .await?;
    sqlx::raw_sql("analyze naive.outbox").execute(&mut conn).await?;
    conn.close().await?;
    Ok(())
}

/// Relays for a while; returns events per second.
pub(crate) async fn relay(
    store: &str,
    context: &Context,
    time: Duration,
    seed: Seed,
) -> Result<f64> {
    const READ: &str = "select id::text, ordering_key, envelope::text, tenant_id from naive.outbox \
        where published_at is null order by occurred_at limit $1 for update skip locked";
    const MARK: &str = "update naive.outbox set published_at = now() \
        where id = any($1::text[]::uuid[])";
    let stream = async_nats::jetstream::stream::Config {
        name: "NAIVE".into(),
        subjects: vec![SUBJECT.into()],
        ..Default::default()
    };
    let _ = context.delete_stream("NAIVE").await;
    context.create_stream(stream).await?;
    let mut conn = PgConnection::connect(store).await?;
    // It keeps ticking while a batch is published, as a ticker does.
    let mut ticks = tokio::time::interval(TICK);
    let began = Instant::now();
    let mut published = 0u64;
    while began.elapsed() < time {
        let (batch, marked_together) = match seed {
            Seed::Hotel => (256i64, false),
            Seed::Bank => {
                ticks.tick().await;
                (100, true)
            }
        };
        let mut tx = conn.begin().await?;
        let rows = sqlx::query(READ).bind(batch).fetch_all(&mut *tx).await?;
        anyhow::ensure!(!rows.is_empty(), "the naive relay has run out of rows");
        let mut unmarked: Vec<String> = Vec::new();
        for row in rows {
            let id: String = row.try_get(0)?;
            let envelope: String = row.try_get(2)?;
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", id.as_str());
            headers.insert("tenantId", row.try_get::<&str, _>(3)?);
            headers.insert("orderingKey", row.try_get::<&str, _>(1)?);
            let sent = context.publish_with_headers(SUBJECT, headers, envelope.into()).await?;
            sent.await.context("the broker did not acknowledge")?;
            published += 1;
            unmarked.push(id);
            if !marked_together {
                sqlx::query(MARK).bind(&unmarked).execute(&mut *tx).await?;
                unmarked.clear();
            }
        }
        if marked_together {
            sqlx::query(MARK).bind(&unmarked).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    let rate = published as f64 / began.elapsed().as_secs_f64();
    conn.close().await?;
    Ok(rate)
}
