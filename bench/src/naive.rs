//! The relay as the seeds write it: rows by their time, locked and skipped, published one after
//! the other, marked one by one. Kept to be compared with.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use sqlx::{Connection, PgConnection, Row};

const BATCH: i64 = 256;
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

/// Relays for a while; returns events per second. With a `tick` it sleeps between batches.
pub(crate) async fn relay(
    store: &str,
    context: &Context,
    time: Duration,
    tick: Option<Duration>,
) -> Result<f64> {
    const READ: &str = "select id::text, ordering_key, envelope::text, tenant_id from naive.outbox \
        where published_at is null order by occurred_at limit $1 for update skip locked";
    const MARK: &str = "update naive.outbox set published_at = now() where id = $1::text::uuid";
    let stream = async_nats::jetstream::stream::Config {
        name: "NAIVE".into(),
        subjects: vec![SUBJECT.into()],
        ..Default::default()
    };
    let _ = context.delete_stream("NAIVE").await;
    context.create_stream(stream).await?;
    let mut conn = PgConnection::connect(store).await?;
    let began = Instant::now();
    let mut published = 0u64;
    while began.elapsed() < time {
        let mut tx = conn.begin().await?;
        let rows = sqlx::query(READ).bind(BATCH).fetch_all(&mut *tx).await?;
        anyhow::ensure!(!rows.is_empty(), "the naive relay has run out of rows");
        for row in rows {
            let id: String = row.try_get(0)?;
            let envelope: String = row.try_get(2)?;
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", id.as_str());
            headers.insert("tenantId", row.try_get::<&str, _>(3)?);
            headers.insert("orderingKey", row.try_get::<&str, _>(1)?);
            let sent = context.publish_with_headers(SUBJECT, headers, envelope.into()).await?;
            sent.await.context("the broker did not acknowledge")?;
            sqlx::query(MARK).bind(id).execute(&mut *tx).await?;
            published += 1;
        }
        tx.commit().await?;
        if let Some(tick) = tick {
            tokio::time::sleep(tick).await;
        }
    }
    let rate = published as f64 / began.elapsed().as_secs_f64();
    conn.close().await?;
    Ok(rate)
}
