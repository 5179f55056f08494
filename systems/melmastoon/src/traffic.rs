//! Guests for a demonstration or a load test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chapar::{Chapar, Failure, StoreError, Tenant};
use jiff::ToSpan;
use jiff::civil::Date;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Config;
use crate::events::{Guest, GuestRequired, Rail};
use crate::inventory;
use crate::reservation::{Desk, HoldRequest};
use crate::vendor::hash;

/// Makes bookings, the same ones for the same seed, by the commands that a front desk uses.
///
/// Bookings go round the rooms and then on to later nights, so that they fit for years; one in
/// a hundred wants a room that was just taken. The very first guest of an empty database
/// speaks a language that has no template yet, so that the dead letters have something to show.
#[derive(Debug, Clone)]
pub struct Generator {
    chapar: Chapar,
    desk: Desk,
    seed: u64,
    tally: Arc<Tally>,
}

/// How many bookings a [`Generator`] has made.
#[derive(Debug, Default)]
pub struct Tally {
    held: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    /// Bookings that were held.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Bookings that the store refused, or never answered.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
}

const HOTELS: [&str; 5] =
    ["pamir-kabul", "harirud-herat", "oxus-mazar", "two-lakes-bamyan", "orange-jalalabad"];
const PROPERTIES: u64 = 2;
const ROOMS: u64 = 500;
const NIGHTS_APART: u64 = 3;
const OPENING: Date = Date::constant(2027, 1, 1);
const LANGUAGES: [&str; 4] = ["ps", "fa", "en", "ar"];
const UNTRANSLATED: &str = "is";
const CASH_SHARE: u64 = 20;
const CONFLICT_SHARE: u64 = 1;
const AT_ONCE: usize = 16;

impl Generator {
    /// A generator on a backbone.
    pub fn new(chapar: &Chapar, config: &Config, seed: u64) -> Self {
        let desk = Desk::new(chapar, config);
        Generator { chapar: chapar.clone(), desk, seed, tally: Arc::default() }
    }

    /// What it has made so far.
    pub fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// Gives every hotel its rooms.
    pub async fn add_rooms(&self) -> Result<(), Failure> {
        for tenant in HOTELS {
            for property in 0..PROPERTIES {
                let tenant: Tenant = tenant.parse()?;
                let property = property_name(property);
                inventory::add_rooms(&self.chapar, &tenant, &property, ROOMS as u32).await?;
            }
        }
        Ok(())
    }

    /// Makes `rate` bookings per second until it is told to stop, going on where the last
    /// run on this database ended. If the store cannot keep up, it makes fewer; it never queues.
    pub async fn run(&self, rate: f64, stop: CancellationToken) -> Result<(), Failure> {
        self.add_rooms().await?;
        let mut next = self.made_before().await?;
        let pause = Duration::from_secs_f64(1.0 / rate.clamp(0.001, 100_000.0));
        let mut ticks = tokio::time::interval_at(Instant::now(), pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                due = ticks.tick() => {
                    // A moment's delay is made up for, a stall is not.
                    if due.elapsed() > Duration::from_secs(1) {
                        ticks.reset();
                    }
                }
                () = stop.cancelled() => break,
            }
            while under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            while under_way.try_join_next().is_some() {}
            let generator = self.clone();
            under_way.spawn(async move { generator.book(next).await });
            next += 1;
        }
        while under_way.join_next().await.is_some() {}
        Ok(())
    }

    /// Makes exactly this many bookings, as fast as the store takes them.
    pub async fn make(&self, bookings: u64) -> Result<(), Failure> {
        self.add_rooms().await?;
        let first = self.made_before().await?;
        let mut under_way = JoinSet::new();
        for n in first..first + bookings {
            while under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            let generator = self.clone();
            under_way.spawn(async move { generator.book(n).await });
        }
        while under_way.join_next().await.is_some() {}
        Ok(())
    }

    async fn book(&self, n: u64) {
        match self.desk.hold(self.wish(n)).await {
            Ok(_) => self.tally.held.fetch_add(1, Relaxed),
            Err(failure) => {
                warn!(%failure, booking = n, "booking failed");
                self.tally.failed.fetch_add(1, Relaxed)
            }
        };
    }

    /// The wish of guest number `n`.
    fn wish(&self, n: u64) -> HoldRequest {
        let dice = hash(self.seed, &format!("guest {n}"));
        let percent = |shift: u32, share: u64| (dice >> shift) % 100 < share;
        // A conflict is a place that was given out shortly before.
        let place = if percent(0, CONFLICT_SHARE) { n.saturating_sub(1 + dice % 40) } else { n };
        let hotels = HOTELS.len() as u64;
        let (hotel, place) = (place % hotels, place / hotels);
        let (property, place) = (place % PROPERTIES, place / PROPERTIES);
        let (room, turn) = (place % ROOMS, place / ROOMS);
        let nights = 1 + (dice >> 16) % NIGHTS_APART;
        let locale = match n {
            0 => UNTRANSLATED,
            _ => LANGUAGES[(dice >> 24) as usize % LANGUAGES.len()],
        };
        let day = i64::try_from(turn * NIGHTS_APART).unwrap_or(i64::MAX);
        HoldRequest {
            reservation: Some(format!("res_{:x}_{n:06}", self.seed)),
            tenant: HOTELS[hotel as usize].parse().expect("hotels are named well"),
            property: property_name(property),
            room: (room + 1).to_string(),
            check_in: OPENING.saturating_add(day.min(2_900_000).days()),
            nights: nights as u32,
            guest: guest(n, locale),
            amount_minor: (40 + (dice >> 40) as i64 % 160) * 100 * nights as i64,
            currency: "USD".to_owned(),
            rail: if percent(32, CASH_SHARE) { Rail::Cash } else { Rail::Card },
        }
    }

    async fn made_before(&self) -> Result<u64, StoreError> {
        const COUNT: &str = "select count(*) from reservations";
        let mut tx = self.chapar.store().begin_report().await?;
        let row = tx.fetch_optional(COUNT, vec![]).await?;
        tx.rollback().await?;
        let made: i64 = row.map_or(Ok(0), |row| row.get(0))?;
        Ok(made.unsigned_abs())
    }
}

fn guest(n: u64, locale: &str) -> Guest {
    GuestRequired { guest_id: format!("guest_{n:06}"), locale: locale.to_owned() }.into()
}

fn property_name(n: u64) -> String {
    format!("house-{}", n + 1)
}
