use std::net::SocketAddr;

use chapar_testkit::{need, servers};

use crate::harness::{House, LETTER};

const RETRY: &str = "/dead-letters/01J9Z3/retry";

#[tokio::test]
async fn the_page_shows_what_the_store_holds() {
    let house = House::new().await;
    house.bury("no such room").await;
    house.start_saga("b-1/ü").await;
    let page = house.get("/").await;
    assert_eq!(page.status, 200);
    for shown in [
        "hotel bookings",
        "sqlite::memory:",
        "the database",
        "no such room",
        "Rule violation",
        "inventory-service.booking-held",
        "Awaiting payment",
        "href=\"/sagas/booking/b%2D1%2F%C3%BC\"",
        "data-n=\"1\"",
    ] {
        assert!(page.text.contains(shown), "{shown} in {}", page.text);
    }
    assert!(page.header("content-security-policy").contains("default-src 'self'"));
    assert!(page.header("content-security-policy").contains("frame-ancestors 'none'"));
    assert_eq!(page.header("x-content-type-options"), "nosniff");
}

#[tokio::test]
async fn an_empty_store_has_a_page_too() {
    let house = House::new().await;
    let page = house.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("No saga has started yet."));
}

#[tokio::test]
async fn hostile_text_is_only_text() {
    let house = House::new().await;
    house.bury("<script>alert(1)</script>\" onload=\"x").await;
    let page = house.get("/").await;
    assert!(!page.text.contains("<script>alert"), "{}", page.text);
    assert!(!page.text.contains("\" onload"), "{}", page.text);
    assert!(page.text.contains("&#60;script&#62;alert(1)"), "{}", page.text);
}

#[tokio::test]
async fn a_saga_tells_its_story() {
    let house = House::new().await;
    house.start_saga("b-1/ü").await;
    let page = house.get("/sagas/booking/b%2D1%2F%C3%BC").await;
    assert_eq!(page.status, 200);
    for shown in ["b-1/ü", "Held", "Awaiting payment", "room 101 allocated", "01J9Z3EVENT"] {
        assert!(page.text.contains(shown), "{shown} in {}", page.text);
    }
    assert_eq!(house.get("/sagas/booking/other").await.status, 404);
}

#[tokio::test]
async fn a_retry_marks_the_letter_and_is_audited() {
    let house = House::new().await;
    house.bury("no such room").await;
    let own = [("host", "localhost:8080"), ("origin", "http://localhost:8080")];
    let answer = house.ask("POST", RETRY, &own).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/#dead-letters"));
    assert_eq!(house.texts("select status from chapar_dead_letters").await, ["replay"]);
    let audited = "select actor || ' ' || action || ' ' || target from chapar_audit_log";
    assert_eq!(house.texts(audited).await, [format!("console dead_letter.retry {LETTER}")]);
    assert!(house.get("/").await.text.contains("Retrying…"));

    let json = [("host", "localhost:8080"), ("accept", "application/json")];
    let again = house.ask("POST", RETRY, &json).await;
    assert_eq!(again.status, 409);
    assert_eq!(again.header("content-type"), "application/problem+json");
    assert!(again.text.contains("\"status\":409"), "{}", again.text);
    assert_eq!(house.texts(audited).await.len(), 1, "what did not happen is not audited");
}

#[tokio::test]
async fn it_is_the_same_on_postgresql() {
    let server = need!(servers::postgres());
    let database = server.database("console").unwrap();
    let house = House::on(database.url()).await;
    house.bury("no such room").await;
    house.start_saga("b-1").await;
    let page = house.get("/").await;
    assert!(page.text.contains("no such room") && page.text.contains("Awaiting payment"));
    assert!(!page.text.contains("role=\"alert\">"), "the store answers");
    assert!(house.get("/sagas/booking/b-1").await.text.contains("room 101 allocated"));
    assert_eq!(house.ask("POST", RETRY, &[("host", "localhost:8080")]).await.status, 303);
    assert_eq!(house.texts("select status from chapar.dead_letters").await, ["replay"]);
    assert_eq!(house.texts("select target from chapar.audit_log").await, [LETTER]);
    house.chapar.store().close().await;
}

#[tokio::test]
async fn other_sites_are_refused() {
    let house = House::new().await;
    house.bury("no such room").await;
    let host = ("host", "127.0.0.1:8080");
    let foreign: [(&str, &[(&str, &str)]); 6] = [
        ("GET", &[("host", "evil.example")]),
        ("GET", &[("host", "localhost.evil.example:8080")]),
        ("POST", &[("host", "evil.example"), ("origin", "http://evil.example")]),
        ("POST", &[host, ("origin", "http://evil.example")]),
        ("POST", &[host, ("origin", "null")]),
        ("POST", &[host, ("sec-fetch-site", "cross-site")]),
    ];
    for (method, headers) in foreign {
        let path = if method == "GET" { "/snapshot" } else { RETRY };
        let answer = house.ask(method, path, headers).await;
        assert_eq!(answer.status, 403, "{method} {headers:?}");
    }
    assert_eq!(house.texts("select status from chapar_dead_letters").await, ["open"]);
}

#[tokio::test]
async fn what_is_not_there_has_a_page_with_a_way_home() {
    let house = House::new().await;
    let page = house.get("/nowhere").await;
    assert_eq!(page.status, 404);
    assert!(page.text.contains("href=\"/\""));
    let headers = [("host", "localhost"), ("accept", "application/json")];
    let problem = house.ask("GET", "/nowhere", &headers).await;
    assert_eq!(problem.header("content-type"), "application/problem+json");
    assert_eq!(house.get(RETRY).await.status, 405);
    assert_eq!(house.get("/healthz").await.text, "ok");
}

#[tokio::test]
async fn a_store_that_is_gone_is_said_without_its_words() {
    let house = House::new().await;
    house.chapar.store().close().await;
    let page = house.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("role=\"alert\">Cannot read the store."), "{}", page.text);
    let saga = house.get("/sagas/booking/b-1").await;
    assert_eq!(saga.status, 503);
    assert!(!saga.text.contains("pool"), "{}", saga.text);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let house = House::new().await;
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let bound = house.console.bind(anywhere).await.unwrap();
    assert_ne!(bound.address().port(), 0);
    let error = house.console.bind(bound.address()).await.unwrap_err().to_string();
    assert!(error.contains(&bound.address().to_string()), "{error}");
    assert!(error.contains("--listen"), "{error}");
}
