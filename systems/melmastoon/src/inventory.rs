//! `inventory-service`: sells each room at most once per night.

use chapar::sql::Value;
use chapar::{App, Chapar, Cx, Failure, StoreError, Tenant};

use crate::Config;
use crate::events::{
    AllocationCommitted, AllocationReleased, BookingCancelled, BookingHeld, OversellBlocked,
};

/// The service's name.
pub const SERVICE: &str = "inventory-service";

/// Registers what inventory does when a booking is held or cancelled.
pub fn register(app: App, config: &Config) -> App {
    // Lanes may well try for the same room at once: the primary key of the allocations decides,
    // and the loser waits for the winner's commit.
    let consumer =
        config.consumer("inventory-service.booking-held").on(allocate).on(release).lanes(2);
    app.consumer(SERVICE, consumer)
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
    tx.execute(ADD, vec![tenant.as_str().into(), property.into(), count.into()]).await?;
    chapar.commit(tx).await
}

async fn allocate(held: BookingHeld, cx: &mut Cx) -> Result<(), Failure> {
    const CANCELLED: &str =
        "select 1 from inventory_cancelled where tenant = $1 and reservation = $2";
    const SOLD: &str = "insert into inventory_allocation_log \
        (tenant, property, room, night, reservation, change) \
        select tenant, property, room, night, reservation, 1 \
        from inventory_allocations where tenant = $1 and reservation = $2";
    let booking = booking(cx, &held.reservation_id);
    // The order of the key makes this impossible; a replayed dead letter would not.
    if cx.tx().fetch_optional(CANCELLED, booking.clone()).await?.is_some() {
        cx.noop();
        return Ok(());
    }
    if let Err(reason) = take_nights(&held, cx).await? {
        let BookingHeld { reservation_id, property_id, room_id, check_in, nights, .. } = held;
        let reason = reason.to_owned();
        let blocked =
            OversellBlocked::new(reservation_id, property_id, room_id, check_in, nights, reason);
        return cx.emit(blocked).await;
    }
    cx.tx().execute(SOLD, booking).await?;
    let allocation = allocation_id(&held.reservation_id);
    let BookingHeld { reservation_id, property_id, room_id, check_in, nights, .. } = held;
    let committed = AllocationCommitted::new(
        reservation_id,
        allocation,
        property_id,
        room_id,
        check_in,
        nights,
    );
    cx.emit(committed).await
}

/// All nights or none; what stands in the way is not an error of the database, which would
/// end the transaction.
async fn take_nights(held: &BookingHeld, cx: &mut Cx) -> Result<Result<(), &'static str>, Failure> {
    const ROOM: &str =
        "select 1 from inventory_rooms where tenant = $1 and property = $2 and room = $3";
    const TAKE: &str = "with recursive night(n) as \
        (select 0 union all select n + 1 from night where n + 1 < $5) \
        insert into inventory_allocations (tenant, property, room, night, reservation) \
        select $1, $2, $3, $4 + n, $6 from night where true on conflict do nothing";
    const GIVE_BACK: &str =
        "delete from inventory_allocations where tenant = $1 and reservation = $2";
    let mut args: Vec<Value> =
        vec![cx.tenant().as_str().into(), (&held.property_id).into(), (&held.room_id).into()];
    if cx.tx().fetch_optional(ROOM, args.clone()).await?.is_none() {
        return Ok(Err("there is no such room"));
    }
    let first = held.stay().first_night();
    args.extend([first.into(), held.nights.into(), (&held.reservation_id).into()]);
    if i64::try_from(cx.tx().execute(TAKE, args).await?) == Ok(held.nights) {
        return Ok(Ok(()));
    }
    let booking = booking(cx, &held.reservation_id);
    cx.tx().execute(GIVE_BACK, booking).await?;
    Ok(Err("the room is taken for one of the nights"))
}

async fn release(cancelled: BookingCancelled, cx: &mut Cx) -> Result<(), Failure> {
    const TOMBSTONE: &str = "insert into inventory_cancelled (tenant, reservation) \
        values ($1, $2) on conflict do nothing";
    const GIVEN_BACK: &str = "insert into inventory_allocation_log \
        (tenant, property, room, night, reservation, change) \
        select tenant, property, room, night, reservation, -1 \
        from inventory_allocations where tenant = $1 and reservation = $2";
    const GIVE_BACK: &str =
        "delete from inventory_allocations where tenant = $1 and reservation = $2";
    let booking = booking(cx, &cancelled.reservation_id);
    cx.tx().execute(TOMBSTONE, booking.clone()).await?;
    cx.tx().execute(GIVEN_BACK, booking.clone()).await?;
    let nights = cx.tx().execute(GIVE_BACK, booking).await?;
    if nights == 0 {
        cx.noop();
        return Ok(());
    }
    let allocation = allocation_id(&cancelled.reservation_id);
    let (booking, reason) = (cancelled.reservation_id, cancelled.reason.into());
    cx.emit(AllocationReleased::new(booking, allocation, nights as i64, reason)).await
}

fn booking(cx: &Cx, reservation: &str) -> Vec<Value> {
    vec![cx.tenant().as_str().into(), reservation.into()]
}

/// There is one allocation per booking.
fn allocation_id(reservation: &str) -> String {
    format!("alloc_{reservation}")
}
