//! `chapar catalog cutover`: a version is retired when no consumer reads it, and this is audited.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "gate/house.rs"]
#[allow(dead_code, reason = "shared with the gate's tests")]
mod house;

use chapar_sql::Tables;
use serde_json::Value;

use house::{House, QUOTE, QUOTES, audited};

/// A house with two versions of the quote's event, both travelling since long ago; and a store.
fn two_versions() -> (House, String) {
    let house = House::new();
    house.bump(true);
    // The second one's consumer takes nothing else; the first one's is still listed there.
    let file = house.read(QUOTES).replace("accepts = [1, 2]", "accepts = [2]");
    house.write(
        QUOTES,
        &file.replace("2027-01-31", "2020-01-01").replace("2027-02-14", "2020-02-01"),
    );
    house.write(
        "catalog.toml",
        &house.read("catalog.toml").replace("version = \"1\"", "version = \"3\""),
    );
    let store = format!("sqlite:{}", house.folder.path().join("store.db").display());
    assert!(house.chapar(&["migrate", "apply", "--store", &store]).status.success());
    (house, store)
}

/// Takes the analytics off the first version.
fn cut_over(house: &House) {
    let file = house.read(QUOTES);
    house.write(QUOTES, &file.replacen("\"analytics-service\"", "\"billing-service\"", 1));
}

/// The first version has no consumers, so it is a domain event.
fn all_gone(house: &House) {
    let file = house.read(QUOTES).replacen("\"integration\"", "\"domain\"", 1);
    house.write(QUOTES, &file.replacen("consumers = [\"analytics-service\"]", "consumers = []", 1));
}

fn run(house: &House, args: &[&str]) -> (i32, String, String) {
    let output = house.chapar(&[&["catalog", "cutover"], args].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn blockers(house: &House, args: &[&str]) -> Vec<String> {
    let (code, out, err) = run(house, &[&["--format", "json"], args].concat());
    assert_eq!(code, 0, "{out}{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found[0]["subject"], QUOTE, "{out}");
    let said = found[0]["blockers"].as_array().unwrap().iter();
    said.map(|blocker| blocker.as_str().unwrap().to_owned()).collect()
}

/// Lets a subscription have been attached some days ago.
fn attached(store: &str, service: &str, days_ago: i64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = chapar_sql::Store::open(store, &Default::default()).await.unwrap();
        let mut tx = store.begin_engine().await.unwrap();
        let name = format!("{service}.quotes");
        tx.consumers().note_reader(&name, service, &[QUOTE.to_owned()]).await.unwrap();
        let sql = "update chapar_topic_readers set last_seen = last_seen - $1 * 86400000000 \
                   where subscription = $2";
        tx.execute(sql, vec![days_ago.into(), name.into()]).await.unwrap();
        tx.commit().await.unwrap();
        store.close().await;
    });
}

#[test]
fn a_version_is_retired_only_after_its_readers_its_window_and_seven_silent_days() {
    let (house, store) = two_versions();
    let kept = ["--store", store.as_str()];
    let retire = ["--by", "A. Lead", "--retire", QUOTE];
    let listed = format!("analytics-service is registered for {QUOTE}");
    assert_eq!(blockers(&house, &kept), [listed.as_str()]);
    let (code, out, err) = run(&house, &[kept.as_slice(), &retire].concat());
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains(&listed) && err.contains("is not retired"), "{out}{err}");

    all_gone(&house);
    attached(&store, "analytics-service", 6);
    let (code, out, _) = run(&house, &[kept.as_slice(), &retire].concat());
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("analytics-service.quotes") && out.contains("7 days without activity"),
        "{out}"
    );
    assert!(audited(&store).is_empty(), "what is refused is not recorded as done");

    attached(&store, "analytics-service", 8);
    let (code, out, err) = run(&house, &[kept.as_slice(), &retire].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        out.contains("may be retired") && err.contains("remove dual_publish from"),
        "{out}{err}"
    );
    let entries = audited(&store);
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0][..3], ["A. Lead", "catalog.retire", QUOTE]);
}

#[test]
fn the_window_and_a_full_release_come_first() {
    let (house, store) = two_versions();
    all_gone(&house);
    let kept = ["--store", store.as_str()];
    assert_eq!(blockers(&house, &kept), [] as [&str; 0]);
    assert!(blockers(&house, &[])[0].contains("active subscriptions are unknown"));
    let file = house.read(QUOTES);
    house.write(QUOTES, &file.replace("until = 2020-02-01", "until = 2999-01-01"));
    assert_eq!(blockers(&house, &kept), ["both versions are published until 2999-01-01"]);
    house.write(QUOTES, &file.replace("release = \"2\"", "release = \"3\""));
    assert!(blockers(&house, &kept)[0].contains("3 is not later than 3"));
    house.write(QUOTES, &file.replace("accepts = [2]", "accepts = [1, 2]"));
    assert!(blockers(&house, &kept)[0].contains("analytics-service accepts v1"));
    // A contract of a consumer counts as much as its place in the list.
    house.write(QUOTES, &file);
    let contract = "service = \"analytics-service\"\n[[reads]]\nsubject = \"melmastoon.pricing.quote.expired.v1\"\n\
                    fields = [\"/quoteId\"]\nexamples = [\"quote.json\"]\n";
    house.write("consumers/analytics-service.toml", contract);
    house.write("consumers/quote.json", "{\"quoteId\": \"q\"}");
    let (code, out, err) = run(&house, &kept);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("not listed as a consumer"), "the catalog itself is at odds: {err}");
}

#[test]
fn each_consumer_that_has_cut_over_is_recorded_once() {
    let (house, store) = two_versions();
    cut_over(&house);
    let args = ["--store", store.as_str(), "--by", "A. Lead"];
    attached(&store, "analytics-service", 0);
    let (code, out, err) = run(&house, &args);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(audited(&store).is_empty(), "it is still attached");
    attached(&store, "analytics-service", 1);
    for round in 0..2 {
        let (code, out, err) = run(&house, &args);
        assert_eq!(code, 0, "{out}{err}");
        let line = out.lines().find(|line| line.starts_with("analytics-service")).unwrap();
        assert!(line.contains("new") && line.ends_with("yes"), "{out}");
        assert_eq!(err.contains("recorded: analytics-service has left"), round == 0, "{err}");
    }
    let entries = audited(&store);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0][..3], ["A. Lead", "catalog.cutover", QUOTE]);
    assert!(entries[0][4].contains("analytics-service"), "{entries:?}");
    // Without a name nothing is recorded, and nothing is retired.
    assert_eq!(run(&house, &["--retire", QUOTE, "--store", &store]).0, 2);
    assert_eq!(run(&house, &["--retire", QUOTE, "--by", "A. Lead"]).0, 2);
    let (code, _, err) = run(&house, &[&args[..], &["--retire", "no.such.v1"]].concat());
    assert!(code == 2 && err.contains("cannot be retired"), "{err}");
    // A store without tables, or none at all, is no proof that there are no readers.
    let empty = format!("sqlite:{}", house.folder.path().join("empty.db").display());
    let (code, _, err) = run(&house, &["--store", &empty]);
    assert!(code == 2 && err.contains("migrate"), "{err}");
}
