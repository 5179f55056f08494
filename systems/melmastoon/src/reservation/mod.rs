//! `reservation-service`: the front desk and the booking saga.

mod saga;

use std::time::Duration;

use chapar::core::port::{Ids, SystemIds};
use chapar::core::{Actor, ActorKind, Cause, IdKind};
use chapar::saga::Saga;
use chapar::{App, Chapar, Cx, Failure, Id, Tenant};
use jiff::Timestamp;
use jiff::civil::Date;

use crate::Config;
use crate::events::{BookingHeld, Guest, Price, Rail, Stay};

/// The service's name.
pub const SERVICE: &str = "reservation-service";

/// Registers the booking saga.
pub fn register(app: App, config: &Config) -> App {
    let app = saga::register_answers(app, config);
    register_deadlines(app)
}

/// Registers only the deadline of the saga, for a process of its own that watches it.
pub fn register_deadlines(app: App) -> App {
    saga::register_deadlines(app)
}

/// Where guests come in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Desk {
    chapar: Chapar,
    allocation_deadline: Duration,
    hold_ttl: Duration,
}

/// A guest's wish.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct HoldRequest {
    /// An id of the caller's own makes it harmless to ask again after a broken connection.
    pub reservation: Option<String>,
    pub tenant: Tenant,
    pub property: String,
    pub room: String,
    pub check_in: Date,
    pub nights: u32,
    pub guest: Guest,
    pub amount_minor: i64,
    pub currency: String,
    pub rail: Rail,
}

impl Desk {
    /// A desk on a backbone.
    pub fn new(chapar: &Chapar, config: &Config) -> Self {
        Desk {
            chapar: chapar.for_service(SERVICE),
            allocation_deadline: config.allocation_deadline,
            hold_ttl: config.hold_ttl,
        }
    }

    /// Holds a room for a guest and returns the reservation's id.
    ///
    /// The row, the saga with its deadline and the event commit together.
    pub async fn hold(&self, request: HoldRequest) -> Result<String, Failure> {
        const INSERT: &str = "insert into reservations (tenant, id, property, room, first_night, \
            nights, guest, locale, amount_minor, currency, rail, state, held_at) \
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'held', $12) on conflict do nothing";
        if request.nights == 0 || request.amount_minor <= 0 {
            return Err(Failure::rule("a booking has at least one night and costs something"));
        }
        let reservation = request.reservation.unwrap_or_else(|| format!("res_{}", new_ulid()));
        let cause = Cause {
            tenant: request.tenant,
            correlation: new_ulid(),
            causation: None,
            actor: Some(Actor { kind: ActorKind::User, id: request.guest.guest_id.clone() }),
            trace: None,
        };
        let booking = saga::Booking {
            stay: Stay {
                property_id: request.property,
                room_id: request.room,
                check_in: request.check_in,
                nights: request.nights.into(),
            },
            guest: request.guest,
            price: Price { amount_minor: request.amount_minor, currency: request.currency },
        };
        let mut cx = Cx::begin(&self.chapar, cause).await?;
        let now = cx.now();
        let args = vec![
            cx.tenant().as_str().into(),
            (&reservation).into(),
            (&booking.stay.property_id).into(),
            (&booking.stay.room_id).into(),
            booking.stay.first_night().into(),
            booking.stay.nights.into(),
            (&booking.guest.guest_id).into(),
            (&booking.guest.locale).into(),
            booking.price.amount_minor.into(),
            (&booking.price.currency).into(),
            request.rail.as_str().into(),
            now.as_microsecond().into(),
        ];
        if cx.tx().execute(INSERT, args).await? == 0 {
            return Ok(reservation);
        }
        let saga::Booking { stay, guest, price } = booking.clone();
        cx.emit(BookingHeld::new(
            reservation.clone(),
            stay.property_id,
            stay.room_id,
            stay.check_in,
            stay.nights,
            guest,
            price.amount_minor,
            price.currency,
            request.rail,
            now.saturating_add(self.hold_ttl).unwrap_or(Timestamp::MAX),
        ))
        .await?;
        let mut saga =
            Saga::start(&mut cx, saga::BOOKING, &reservation, saga::HELD, booking).await?;
        saga.arm(&mut cx, saga::ALLOCATION_DEADLINE, self.allocation_deadline).await?;
        cx.commit().await?;
        Ok(reservation)
    }
}

fn new_ulid() -> Id {
    SystemIds.next(IdKind::Ulid, Timestamp::now())
}
