//! `reservation-service`: the front desk and the booking saga.

mod facts;
mod saga;

use std::time::Duration;

use chapar::prelude::*;
use chapar::{Actor, ActorKind};
use jiff::Timestamp;
use jiff::civil::Date;

use crate::Config;
use crate::events::{Guest, Price, Rail, Stay};
use saga::{Booking, State, Timer};

/// The service's name.
pub const SERVICE: &str = "reservation-service";

/// The service, with the booking saga.
pub fn service(config: &Config) -> Service {
    Service::new(SERVICE).saga(saga::booking(config))
}

/// Only the deadlines of the saga, for a process of its own that watches them.
pub fn deadlines() -> Service {
    Service::new(SERVICE).saga(saga::deadlines())
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
    /// The row, the saga with its timers and the event commit together.
    pub async fn hold(&self, request: HoldRequest) -> Result<String, Failure> {
        if request.nights == 0 || request.amount_minor <= 0 {
            return Err(Failure::terminal("a booking has at least one night and costs something"));
        }
        let HoldRequest { reservation, tenant, guest, rail, .. } = request;
        let reservation = reservation.unwrap_or_else(|| format!("res_{}", self.chapar.new_id()));
        let actor = Actor { kind: ActorKind::User, id: guest.guest_id.clone() };
        let booking = Booking {
            reservation: reservation.clone(),
            stay: Stay {
                property_id: request.property,
                room_id: request.room,
                check_in: request.check_in,
                nights: request.nights.into(),
            },
            guest,
            price: Price { amount_minor: request.amount_minor, currency: request.currency },
            allocation: None,
        };
        let command = self.chapar.command(&tenant).by(actor);
        command.run(async |cx| self.record(booking, rail, cx).await).await?;
        Ok(reservation)
    }

    async fn record(&self, booking: Booking, rail: Rail, cx: &mut Cx) -> Handled {
        const INSERT: &str = "insert into reservations (tenant, id, property, room, first_night, \
            nights, guest, locale, amount_minor, currency, rail, state, held_at) values (:tenant, \
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) on conflict do nothing";
        let Booking { reservation, stay, guest, price, .. } = &booking;
        let now = cx.now();
        let row = params![
            reservation,
            stay.property_id,
            stay.room_id,
            stay.first_night(),
            stay.nights,
            guest.guest_id,
            guest.locale,
            price.amount_minor,
            price.currency,
            rail,
            State::Held,
            now.as_microsecond(),
        ];
        if cx.execute(INSERT, row).await? == 0 {
            // Asked for before, by the same caller.
            return applied();
        }
        let expires_at = now.saturating_add(self.hold_ttl).unwrap_or(Timestamp::MAX);
        cx.emit(booking.held(rail, expires_at)).await?;
        cx.start(booking, State::Held)
            .arm_after(Timer::Allocation, self.allocation_deadline)
            .arm_after(Timer::Hold, self.hold_ttl)
            .await
    }
}
