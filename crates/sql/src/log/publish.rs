//! Writing to the log: dense offsets that become visible in order.

use std::collections::{BTreeSet, HashMap};

use chapar_core::port::{Outgoing, Position, Receipt};
use serde_json::json;

use super::position;
use crate::append::{Append, hex};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::to_json_pairs;
use crate::statement::Statement;

pub(super) async fn publish(
    conn: &mut Conn<'_>,
    batch: &[Outgoing],
) -> Result<Vec<Receipt>, StoreError> {
    static HEADS: Statement = Statement::new(
        "select log_partition, next_offset from chapar.log_heads order by log_partition",
    );
    static LOCK: Statement = Statement::new(
        "select log_partition, next_offset from chapar.log_heads where log_partition = any($1) \
         order by log_partition for update",
    );
    static KNOWN: Statement = Statement::new(
        "select event_id, tenant, log_partition, log_offset from chapar.log where event_id = any($1)",
    );
    static MOVE: Statement =
        Statement::new("update chapar.log_heads set next_offset = $2 where log_partition = $1");
    let partitions = conn.query(&HEADS, vec![]).await?.len() as u32;
    let home = |message: &Outgoing| {
        let key = message.key.clone().unwrap_or_else(|| message.id.to_string());
        u32::from(Append::shard(&key)) % partitions.max(1)
    };
    // Locks are taken in ascending order, so that two relays cannot deadlock.
    let touched: BTreeSet<u32> = batch.iter().map(home).collect();
    let touched: Vec<i64> = touched.into_iter().map(i64::from).collect();
    let mut heads = HashMap::new();
    for row in conn.query(&LOCK, vec![touched.into()]).await? {
        let head = position(&row, 0)?;
        heads.insert(head.partition, head.offset);
    }
    let ids = batch.iter().map(|message| message.id.to_string()).collect::<Vec<_>>();
    // By id and tenant: producers choose ids.
    let mut known: HashMap<(String, String), Position> = HashMap::new();
    for row in conn.query(&KNOWN, vec![ids.clone().into()]).await? {
        known.insert((row.get(0)?, row.get(1)?), position(&row, 2)?);
    }
    let mut receipts = Vec::with_capacity(batch.len());
    let mut fresh = Vec::new();
    for (message, id) in batch.iter().zip(ids) {
        let named = (id.clone(), message.tenant.clone());
        if let Some(position) = known.get(&named) {
            receipts.push(Receipt { position: *position, duplicate: true });
            continue;
        }
        let partition = home(message);
        let head = heads.get_mut(&partition).expect("every touched partition is locked");
        let position = Position { partition, offset: *head };
        *head += 1;
        known.insert(named, position);
        fresh.push((id, message, position));
        receipts.push(Receipt { position, duplicate: false });
    }
    insert(conn, &fresh).await?;
    for (partition, head) in heads {
        conn.run(&MOVE, vec![partition.into(), (head as i64).into()]).await?;
    }
    Ok(receipts)
}

async fn insert(
    conn: &mut Conn<'_>,
    fresh: &[(String, &Outgoing, Position)],
) -> Result<(), StoreError> {
    const POSTGRES: &str = "insert into chapar.log (log_partition, log_offset, event_id, tenant, topic, \
         ordering_key, headers, body) select * from unnest($1::int[], $2::bigint[], $3::text[], \
         $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])";
    static SQLITE: Statement = Statement::new(
        "insert into chapar.log (log_partition, log_offset, event_id, tenant, topic, ordering_key, \
         headers, body, published_at) select e.value ->> 0, e.value ->> 1, e.value ->> 2, \
         e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, unhex(e.value ->> 7), \
         clock_timestamp() from json_each($1) e",
    );
    if let Conn::Postgres(conn) = conn {
        let column = |get: &dyn Fn(&(String, &Outgoing, Position)) -> String| {
            fresh.iter().map(get).collect::<Vec<String>>()
        };
        sqlx::query(POSTGRES)
            .bind(fresh.iter().map(|(_, _, p)| p.partition as i32).collect::<Vec<_>>())
            .bind(fresh.iter().map(|(_, _, p)| p.offset as i64).collect::<Vec<_>>())
            .bind(column(&|(id, _, _)| id.clone()))
            .bind(column(&|(_, m, _)| m.tenant.clone()))
            .bind(column(&|(_, m, _)| m.topic.clone()))
            .bind(fresh.iter().map(|(_, m, _)| m.key.clone()).collect::<Vec<_>>())
            .bind(column(&|(_, m, _)| to_json_pairs(&m.headers)))
            .bind(fresh.iter().map(|(_, m, _)| m.body.to_vec()).collect::<Vec<_>>())
            .execute(&mut **conn)
            .await?;
        return Ok(());
    }
    let row = |(id, message, position): &(String, &Outgoing, Position)| {
        json!([
            position.partition,
            position.offset,
            id,
            message.tenant,
            message.topic,
            message.key,
            to_json_pairs(&message.headers),
            hex(&message.body),
        ])
    };
    let rows: Vec<_> = fresh.iter().map(row).collect();
    conn.run(&SQLITE, vec![serde_json::Value::from(rows).to_string().into()]).await?;
    Ok(())
}
