//! `inventory-service`: sells each room at most once per night.

use chapar::StoreError;
use chapar::prelude::*;

use crate::Config;
use crate::events::{
    AllocationCommitted, AllocationReleased, AllocationReleasedRequired, BookingCancelled,
    BookingHeld, OversellBlocked, OversellBlockedRequired,
};

/// The service's name.
pub const SERVICE: &str = "inventory-service";

/// The service, which allocates rooms to held bookings and releases them of cancelled ones.
pub fn service(config: &Config) -> Service {
    // Lanes may well try for the same room at once: the primary key of the allocations decides,
    // and the loser waits for the winner's commit.
    let bookings = config.consumer("booking-held").on(allocate).on(release);
    Service::new(SERVICE).consumer(bookings.lanes(2))
}

/// Gives a property rooms, named `1` to `count`; those it has already are left alone.
pub async fn add_rooms(
    chapar: &Chapar,
    tenant: &Tenant,
    property: &str,
    count: u32,
) -> Result<(), StoreError> {
    const ADD: &str = "with recursive room(n) as \
        (select 1 union all select n + 1 from room where n < $3) \
        insert into inventory_rooms (tenant, property, room) \
        select $1, $2, cast(n as text) from room where true on conflict do nothing";
    let mut tx = chapar.begin(tenant).await?;
    tx.execute(ADD, params![tenant.as_str(), property, count]).await?;
    chapar.commit(tx).await
}

async fn allocate(held: BookingHeld, cx: &mut Cx) -> Handled {
    const CANCELLED: &str =
        "select 1 from inventory_cancelled where tenant = :tenant and reservation = $1";
    const SOLD: &str = "insert into inventory_allocation_log \
        (tenant, property, room, night, reservation, change) \
        select tenant, property, room, night, reservation, 1 \
        from inventory_allocations where tenant = :tenant and reservation = $1";
    let reservation = params![held.reservation_id];
    // The order of the key makes this impossible; a replayed dead letter would not.
    if cx.fetch_optional::<i64>(CANCELLED, reservation.clone()).await?.is_some() {
        return cx.noop();
    }
    let taken = take_nights(&held, cx).await?;
    let BookingHeld { reservation_id, property_id, room_id, check_in, nights, .. } = held;
    if let Err(reason) = taken {
        let reason = reason.to_owned();
        let blocked = OversellBlockedRequired {
            reservation_id,
            property_id,
            room_id,
            check_in,
            nights,
            reason,
        };
        return cx.emit(OversellBlocked::from(blocked)).await;
    }
    cx.execute(SOLD, reservation).await?;
    let allocation_id = allocation_id(&reservation_id);
    cx.emit(AllocationCommitted {
        reservation_id,
        allocation_id,
        property_id,
        room_id,
        check_in,
        nights,
    })
    .await
}

/// Takes all nights or none. A conflict is an answer, not a database error, which would end the
/// transaction.
async fn take_nights(held: &BookingHeld, cx: &mut Cx) -> Result<Result<(), &'static str>, Failure> {
    const ROOM: &str =
        "select 1 from inventory_rooms where tenant = :tenant and property = $1 and room = $2";
    const TAKE: &str = "with recursive night(n) as \
        (select 0 union all select n + 1 from night where n + 1 < $4) \
        insert into inventory_allocations (tenant, property, room, night, reservation) \
        select :tenant, $1, $2, $3 + n, $5 from night where true on conflict do nothing";
    let BookingHeld { reservation_id, property_id, room_id, nights, .. } = held;
    let room = params![property_id, room_id];
    if cx.fetch_optional::<i64>(ROOM, room).await?.is_none() {
        return Ok(Err("there is no such room"));
    }
    let first = held.stay().first_night();
    let taken =
        cx.execute(TAKE, params![property_id, room_id, first, nights, reservation_id]).await?;
    if i64::try_from(taken) == Ok(*nights) {
        return Ok(Ok(()));
    }
    cx.execute(GIVE_BACK, params![reservation_id]).await?;
    Ok(Err("the room is taken for one of the nights"))
}

const GIVE_BACK: &str =
    "delete from inventory_allocations where tenant = :tenant and reservation = $1";

async fn release(cancelled: BookingCancelled, cx: &mut Cx) -> Handled {
    const TOMBSTONE: &str = "insert into inventory_cancelled (tenant, reservation) \
        values (:tenant, $1) on conflict do nothing";
    const GIVEN_BACK: &str = "insert into inventory_allocation_log \
        (tenant, property, room, night, reservation, change) \
        select tenant, property, room, night, reservation, -1 \
        from inventory_allocations where tenant = :tenant and reservation = $1";
    let BookingCancelled { reservation_id, reason, .. } = cancelled;
    cx.execute(TOMBSTONE, params![reservation_id]).await?;
    cx.execute(GIVEN_BACK, params![reservation_id]).await?;
    let nights_released = cx.execute(GIVE_BACK, params![reservation_id]).await?.try_into()?;
    if nights_released == 0 {
        return cx.noop();
    }
    let released = AllocationReleasedRequired {
        allocation_id: allocation_id(&reservation_id),
        reservation_id,
        nights_released,
        reason: reason.into(),
    };
    cx.emit(AllocationReleased::from(released)).await
}

/// There is one allocation per booking.
fn allocation_id(reservation: &str) -> String {
    format!("alloc_{reservation}")
}
