//! An independent look at what the services have done, by plain SQL over their tables.

use std::collections::BTreeMap;

use chapar::{Statement, Store, StoreError, Tx};
use serde::Serialize;

/// What the audit found. Everything but the bookings by state should be zero once nothing is
/// on its way; while traffic flows, what has not ended yet may show for a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub struct Audit {
    /// How many bookings are in each state.
    pub bookings: BTreeMap<String, i64>,
    /// Nights of a room that were sold again without having been given back.
    pub rooms_sold_twice: i64,
    /// Nights of a room that two confirmed bookings share.
    pub nights_shared: i64,
    /// Confirmed bookings that do not have their room for all nights.
    pub confirmed_without_room: i64,
    /// Cancelled bookings that still have a room.
    pub cancelled_with_room: i64,
    /// Bookings whose payment was captured more than once.
    pub captured_twice: i64,
    /// Cancelled bookings whose money was not given back.
    pub cancelled_with_money: i64,
    /// Paid bookings without a captured payment.
    pub confirmed_without_money: i64,
    /// Folios whose entries do not add up to zero.
    pub folios_unbalanced: i64,
    /// Confirmed bookings without exactly one folio.
    pub folios_missing: i64,
    /// Bookings that were given a key more than once.
    pub keys_issued_twice: i64,
    /// Paid bookings with neither a key nor a place in the queue of the front desk, or both.
    pub keys_missing: i64,
    /// Events that a consumer applied more than once.
    pub applied_twice: i64,
    /// Sagas that have not ended.
    pub sagas_open: i64,
    /// Sagas that ended otherwise than their booking.
    pub sagas_astray: i64,
}

impl Audit {
    /// What must never be, not even for a moment while everything runs.
    pub fn violations(&self) -> i64 {
        self.rooms_sold_twice
            + self.nights_shared
            + self.confirmed_without_room
            + self.captured_twice
            + self.confirmed_without_money
            + self.folios_unbalanced
            + self.keys_issued_twice
            + self.applied_twice
            + self.sagas_astray
    }

    /// What may be for a moment, and must be over once nothing is on its way.
    pub fn unsettled(&self) -> i64 {
        self.cancelled_with_room
            + self.cancelled_with_money
            + self.folios_missing
            + self.keys_missing
            + self.sagas_open
    }

    /// Whether all is well and done.
    pub fn is_clean(&self) -> bool {
        self.violations() == 0 && self.unsettled() == 0
    }
}

/// Looks at everything. Each check is one statement, so it sees one moment.
pub async fn audit(store: &Store) -> Result<Audit, StoreError> {
    let mut tx = store.begin_report().await?;
    let found = Audit {
        bookings: bookings(&mut tx).await?,
        rooms_sold_twice: count(&mut tx, &ROOMS_SOLD_TWICE).await?,
        nights_shared: count(&mut tx, &NIGHTS_SHARED).await?,
        confirmed_without_room: count(&mut tx, &CONFIRMED_WITHOUT_ROOM).await?,
        cancelled_with_room: count(&mut tx, &CANCELLED_WITH_ROOM).await?,
        captured_twice: count(&mut tx, &CAPTURED_TWICE).await?,
        cancelled_with_money: count(&mut tx, &CANCELLED_WITH_MONEY).await?,
        confirmed_without_money: count(&mut tx, &CONFIRMED_WITHOUT_MONEY).await?,
        folios_unbalanced: count(&mut tx, &FOLIOS_UNBALANCED).await?,
        folios_missing: count(&mut tx, &FOLIOS_MISSING).await?,
        keys_issued_twice: count(&mut tx, &KEYS_ISSUED_TWICE).await?,
        keys_missing: count(&mut tx, &KEYS_MISSING).await?,
        applied_twice: count(&mut tx, &APPLIED_TWICE).await?,
        sagas_open: count(&mut tx, &SAGAS_OPEN).await?,
        sagas_astray: count(&mut tx, &SAGAS_ASTRAY).await?,
    };
    tx.rollback().await?;
    Ok(found)
}

static ROOMS_SOLD_TWICE: Statement = Statement::new(
    "select count(*) from (select 1 from inventory_allocation_log \
     group by tenant, property, room, night having sum(change) > 1) as sold",
);

static NIGHTS_SHARED: Statement = Statement::new(
    "with recursive later(n) as (select 0 union all select n + 1 from later \
     where n + 1 < (select max(nights) from reservations)) \
     select count(*) from (select 1 from reservations r join later on later.n < r.nights \
     where r.state in ('confirmed', 'confirmed_cash_pending') \
     group by r.tenant, r.property, r.room, r.first_night + later.n having count(*) > 1) as shared",
);

static CONFIRMED_WITHOUT_ROOM: Statement = Statement::new(
    "select count(*) from reservations r \
     where r.state in ('confirmed', 'confirmed_cash_pending') and r.nights <> \
     (select count(*) from inventory_allocations a where a.tenant = r.tenant \
      and a.reservation = r.id and a.property = r.property and a.room = r.room \
      and a.night >= r.first_night and a.night < r.first_night + r.nights)",
);

static CANCELLED_WITH_ROOM: Statement = Statement::new(
    "select count(*) from reservations r where r.state = 'cancelled' and exists \
     (select 1 from inventory_allocations a where a.tenant = r.tenant and a.reservation = r.id)",
);

static CAPTURED_TWICE: Statement = Statement::new(
    "select count(*) from (select 1 from payment_captures \
     group by tenant, reservation having count(*) > 1) as captured",
);

static CANCELLED_WITH_MONEY: Statement = Statement::new(
    "select count(*) from reservations r join payment_intents p \
     on p.tenant = r.tenant and p.reservation = r.id \
     where r.state = 'cancelled' and p.state in ('captured', 'refunding', 'refund_failed')",
);

static CONFIRMED_WITHOUT_MONEY: Statement = Statement::new(
    "select count(*) from reservations r left join \
     (select tenant, reservation, sum(amount_minor) as amount from payment_captures \
      group by tenant, reservation) c on c.tenant = r.tenant and c.reservation = r.id \
     where r.state = 'confirmed' and (c.amount is null or c.amount <> r.amount_minor)",
);

static FOLIOS_UNBALANCED: Statement = Statement::new(
    "select count(*) from (select 1 from billing_ledger \
     group by tenant, folio having sum(amount_minor) <> 0) as unbalanced",
);

static FOLIOS_MISSING: Statement = Statement::new(
    "select count(*) from reservations r left join \
     (select tenant, reservation, count(*) as folios from billing_folios \
      group by tenant, reservation) f on f.tenant = r.tenant and f.reservation = r.id \
     where r.state in ('confirmed', 'confirmed_cash_pending') and coalesce(f.folios, 0) <> 1",
);

static KEYS_ISSUED_TWICE: Statement = Statement::new(
    "select count(*) from (select 1 from lock_keys \
     group by tenant, reservation having count(*) > 1) as issued",
);

static KEYS_MISSING: Statement = Statement::new(
    "select count(*) from reservations r left join \
     (select tenant, reservation, count(*) as keys from \
      (select tenant, reservation from lock_keys \
       union all select tenant, reservation from manual_key_queue) as every \
      group by tenant, reservation) k on k.tenant = r.tenant and k.reservation = r.id \
     where r.state = 'confirmed' and coalesce(k.keys, 0) <> 1",
);

static APPLIED_TWICE: Statement = Statement::new(
    "select count(*) from (select 1 from analytics_facts \
     group by event_id having count(*) > 1) as facts",
);

static SAGAS_OPEN: Statement =
    Statement::new("select count(*) from chapar.sagas where saga = 'booking' and outcome is null");

static SAGAS_ASTRAY: Statement = Statement::new(
    "select count(*) from reservations r left join chapar.sagas s \
     on s.saga = 'booking' and s.key = r.id \
     where s.key is null or (s.outcome is null and r.state <> 'held') \
     or (s.outcome = 'completed' and r.state not in ('confirmed', 'confirmed_cash_pending')) \
     or (s.outcome = 'compensated' and r.state <> 'cancelled') \
     or s.outcome not in ('completed', 'compensated')",
);

async fn bookings(tx: &mut Tx) -> Result<BTreeMap<String, i64>, StoreError> {
    const BOOKINGS: &str = "select state, count(*) from reservations group by state";
    let rows = tx.fetch(BOOKINGS, vec![]).await?;
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

async fn count(tx: &mut Tx, statement: &Statement) -> Result<i64, StoreError> {
    let sql = statement.on(tx.backend());
    tx.fetch_optional(sql, vec![]).await?.map_or(Ok(0), |row| row.get(0))
}
