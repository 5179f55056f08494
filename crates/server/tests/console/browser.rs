use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chapar::{App, Chapar, Consumer, Cx, Event, Failure, Service, Tenant};
use chapar_server::{Console, Facts};
use chapar_sql::SqlTransport;
use chapar_testkit::servers::Endpoint;
use chapar_testkit::{Browser, need, servers};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::harness::{backbone, bury, start_saga};
use crate::inspector::Inspector;

#[derive(Serialize, Deserialize)]
struct BookingHeld {
    reservation: String,
}

impl Event for BookingHeld {
    const SUBJECT: &'static str = "melmastoon.reservation.booking.held.v1";
    const AGGREGATE: &'static str = "booking";
    fn aggregate_id(&self) -> String {
        self.reservation.clone()
    }
    fn intent(&self) -> Option<String> {
        Some(format!("{}:held", self.reservation))
    }
}

struct RoomsAreMissing(AtomicBool);

async fn allocate(held: BookingHeld, cx: &mut Cx) -> Result<(), Failure> {
    let missing = cx.state::<Arc<RoomsAreMissing>>()?.0.load(Ordering::Relaxed);
    if missing && held.reservation == "b-poison" {
        return Err(Failure::terminal("room 101 is not in the inventory"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_it_live_and_can_retry() {
    let chromium = need!(servers::chromium());
    let chapar = backbone("sqlite::memory:").await;
    let missing = Arc::new(RoomsAreMissing(AtomicBool::new(true)));
    let transport = Arc::new(SqlTransport::new(chapar.store().clone(), "test"));
    let running = App::new(chapar.clone(), transport, "test")
        .service(
            Service::new("inventory-service")
                .consumer(Consumer::named("inventory-service.booking-held").on(allocate)),
        )
        .state(missing.clone())
        .start()
        .await
        .unwrap();
    let facts = Facts::new("hotel bookings", "the database");
    let console = Console::new(chapar.clone(), running.metrics(), facts);
    let bound = console.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let url = bound.url();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(bound.serve(shutdown.clone()));

    let browser = Arc::new(Browser::open(&chromium).unwrap());
    let see = |selector: &'static str, text: &'static str| {
        let browser = browser.clone();
        async move {
            let seen = tokio::task::spawn_blocking(move || browser.wait_for_text(selector, text));
            seen.await.unwrap().unwrap();
        }
    };
    let page = url.clone();
    let window = browser.clone();
    tokio::task::spawn_blocking(move || window.goto(&page)).await.unwrap().unwrap();
    see("#connection", "Live").await;
    see("[data-f='figures.applied']", "0").await;

    hold(&chapar, "b-1").await;
    hold(&chapar, "b-poison").await;
    start_saga(chapar.store(), "b-1", "awaiting_payment", None).await;
    see("[data-f='figures.applied']", "1").await;
    see("#dead-letters tbody", "room 101 is not in the inventory").await;
    see(".alarm .big", "1").await;
    see(".levels", "Awaiting payment").await;

    missing.0.store(false, Ordering::Relaxed);
    let window = browser.clone();
    let click = move || window.click("#dead-letters button");
    tokio::task::spawn_blocking(click).await.unwrap().unwrap();
    see(".alarm .big", "0").await;
    see("#dead-letters .empty", "None.").await;
    see("[data-f='figures.applied']", "2").await;

    let window = browser.clone();
    let click = move || window.click("#sagas tbody a");
    tokio::task::spawn_blocking(click).await.unwrap().unwrap();
    see(".timeline", "room 101 allocated").await;

    furnish(&chapar).await;
    let address = url.clone();
    let pictures = move || take_pictures(&chromium, &address);
    tokio::task::spawn_blocking(pictures).await.unwrap();

    shutdown.cancel();
    server.await.unwrap().unwrap();
    running.stop(Duration::from_secs(5)).await;
}

async fn hold(chapar: &Chapar, reservation: &str) {
    let tenant: Tenant = "8d2e0c1a-5b7f-4a39-9c64-1f0b7e6d2a55".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    let held = BookingHeld { reservation: reservation.into() };
    chapar.append(&mut tx, &tenant, held).await.unwrap();
    chapar.commit(tx).await.unwrap();
}

/// Something of everything that a page can show.
async fn furnish(chapar: &Chapar) {
    let states = [
        ("held", None, 6),
        ("awaiting_payment", None, 9),
        ("confirmed", Some("completed"), 24),
        ("released", Some("compensated"), 4),
        ("compensating", Some("stuck"), 1),
    ];
    for (state, outcome, sagas) in states {
        for n in 0..sagas {
            start_saga(chapar.store(), &format!("b-{state}-{n}"), state, outcome).await;
        }
    }
    let long = "the payment service answered 422: card_declined, insufficient funds; \
        the booking cannot be confirmed until another card is given by the guest";
    bury(chapar.store(), "letter-1", long).await;
    bury(chapar.store(), "letter-2", "the room <b>101</b> is not in the inventory").await;
    for n in 0..40 {
        hold(chapar, &format!("b-more-{n}")).await;
    }
}

fn take_pictures(chromium: &Endpoint, url: &str) {
    let inspector = Inspector::open(chromium);
    inspector.goto(url);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let story = format!("{url}sagas/booking/b-1");
    for (name, address) in [("console", url), ("saga", story.as_str())] {
        for scheme in ["light", "dark"] {
            for width in [1280, 420] {
                inspector.scheme(scheme);
                inspector.goto(address);
                let picture = inspector.picture(width);
                assert!(!inspector.overflows(), "{name} at {width} is too wide");
                let file = folder.join(format!("{name}-{scheme}-{width}.png"));
                std::fs::write(file, picture).unwrap();
            }
        }
    }
    assert_eq!(inspector.log(), serde_json::json!([]), "the browser logs nothing");
}
