//! The hotel and the relay on Kafka, and what they say when Kafka is not as it should be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::process::Command;
use std::time::{Duration, Instant};

use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{self, Instance, Kind, Launch, free_port};
use chapar_testkit::{Authority, need};
use hotel::Hotel;

fn kafka() -> Result<Instance, servers::ServerError> {
    Launch::of(Kind::Kafka).start()
}

fn url(kafka: &Instance) -> String {
    format!("kafka://{}?session_seconds=2", kafka.url())
}

fn short_run(hotel: &Hotel, kafka: &Instance) {
    let url = url(kafka);
    let args = ["--transport", &url, "--rate", "20", "--for", "10s", "--format", "json"];
    let report = hotel.start(&args).report();
    assert_eq!((&report["lost"], &report["applied_twice"]), (&0.into(), &0.into()), "{report:#}");
    hotel.arrives(&report, &url);
    assert_eq!(report["dead_letters"], 1, "one delivery fails on purpose: {report:#}");
    assert!(report["events_published"].as_i64().unwrap() > 500, "{report:#}");
    assert!(report["events_applied"].as_i64() > report["events_published"].as_i64());
    assert!(report["sagas"]["confirmed"].as_i64().unwrap() > 50, "{report:#}");
    hotel.books().check();
}

/// Whatever happened before, everything arrives, however long that takes.
fn ends_well(hotel: &Hotel, url: &str) {
    let report = hotel.finish_with(&["--transport", url]);
    let wrong = ["in_flight", "lost", "applied_twice"].map(|what| report[what].as_i64());
    assert_eq!(wrong, [Some(0); 3], "{report:#}");
    hotel.books().check();
}

#[test]
fn the_hotel_runs_on_sqlite_and_kafka() {
    short_run(&Hotel::on_sqlite(), &need!(kafka()));
}

/// Two processes of the hotel; bookings are confirmed with the broker, without it, and with it again.
#[test]
fn the_hotel_goes_on_when_one_of_three_brokers_is_killed() {
    let server = need!(servers::postgres());
    let mut cluster = need!(servers::kafka_cluster(3));
    let brokers: Vec<&str> = cluster.iter().map(Instance::url).collect();
    let url = format!("kafka://{}?session_seconds=2", brokers.join(","));
    let hotel = Hotel::on_postgres(&server);
    let start = |seed: &str| {
        let args = ["--transport", &url, "--rate", "5", "--seed", seed, "--format", "json"];
        let mut running = hotel.start(&args);
        running.wait_until_ready();
        running
    };
    let running = [start("1"), start("2")];
    let confirmed = || {
        let counted = "select count(*) from reservations where state like 'confirmed%'";
        hotel.books().ask(counted).parse::<i64>().unwrap()
    };
    let go_on = |when: &str| {
        let (limit, before) = (Instant::now() + Duration::from_secs(120), confirmed());
        while confirmed() < before + 30 {
            assert!(Instant::now() < limit, "bookings are not confirmed {when}");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    go_on("at first");
    cluster[0].kill();
    go_on("with two brokers");
    cluster[0].restart().unwrap();
    go_on("with three again");
    for running in running {
        let report = running.interrupt();
        assert_eq!(
            (&report["lost"], &report["applied_twice"]),
            (&0.into(), &0.into()),
            "{report:#}"
        );
    }
    ends_well(&hotel, &url);
}

#[test]
fn the_hotel_runs_on_postgres_and_kafka_and_goes_on_after_a_crash() {
    let (server, kafka) = (need!(servers::postgres()), need!(kafka()));
    let hotel = Hotel::on_postgres(&server);
    let url = url(&kafka);
    let mut running = hotel.start(&["--transport", &url, "--rate", "40"]);
    running.wait_until_ready();
    hotel.wait_for_more(80);
    running.kill();
    ends_well(&hotel, &url);
}

#[test]
fn the_hotel_goes_on_after_kafka_was_killed_and_started_again() {
    let (server, mut kafka) = (need!(servers::postgres()), need!(kafka()));
    let hotel = Hotel::on_postgres(&server);
    let url = url(&kafka);
    let mut running = hotel.start(&["--transport", &url, "--rate", "20"]);
    running.wait_until_ready();
    hotel.wait_for_more(80);
    kafka.kill();
    kafka.restart().unwrap();
    hotel.wait_for_more(80);
    running.kill();
    ends_well(&hotel, &url);
}

/// Everything that clients say or hear goes through a proxy, which breaks the network in each of its
/// ways while the hotel works.
#[test]
fn the_hotel_outlives_a_broken_network() {
    let postgres = need!(servers::postgres());
    let port = free_port().unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{port}")).unwrap();
    let listener = format!("PROXIED PLAINTEXT {port} {}", proxy.address().port());
    let kafka = need!(Launch::of(Kind::Kafka).setting("+listener", listener).start());
    let hotel = Hotel::on_postgres(&postgres);
    let url = format!("kafka://{}?session_seconds=2&timeout_seconds=2", proxy.address());
    let mut running = hotel.start(&["--transport", &url, "--rate", "20"]);
    running.wait_until_ready();
    hotel.wait_for_more(80);
    for fault in [Proxy::cut, Proxy::half_open, Proxy::lose_answers] {
        assert!(fault(&proxy) > 0, "the fault meets connections");
        // Longer than a session and than the patience of a publish.
        std::thread::sleep(Duration::from_secs(3));
        proxy.heal();
        hotel.wait_for_more(40);
    }
    running.kill();
    // What failed to be published waits for its next attempt, perhaps for longer than one run.
    let direct = format!("kafka://{}?session_seconds=2", kafka.url());
    ends_well(&hotel, &direct);
}

#[test]
fn the_adapter_is_measured_against_the_bare_client() {
    let kafka = need!(kafka());
    let url = format!("kafka://{}", kafka.url());
    let output = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .args(["bench", "transport", "--transport", &url, "--rounds", "1", "--turn-ms", "200"])
        .args(["--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for figure in ["publish_ratio", "subscribe_ratio", "publish_per_s", "subscribe_per_s"] {
        assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{report}");
    }
}

#[test]
fn the_topics_of_the_catalog_are_planned_made_and_then_as_they_should_be() {
    let kafka = need!(kafka());
    let url = format!("kafka://{}", kafka.url());
    let run = |command: &str| {
        let mut chapar = Command::new(env!("CARGO_BIN_EXE_chapar"));
        chapar.args(["topology", command, "--system", "meridian", "--transport", &url]);
        chapar.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let output = chapar.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = run("plan");
    assert_eq!(code, Some(1), "{err}");
    assert!(out.contains("+ topic ") && out.contains("retention.ms"), "{out}");
    let (code, _, err) = run("apply");
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run("plan");
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
}

/// Runs a wrong call; returns what it said.
fn refused(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    let output = command.args(args).env_remove("CHAPAR_TRANSPORT").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// Starts the hotel with a transport that must be refused with these words.
fn says(transport: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db").display().to_string();
    let up = ["up", "--file", &file, "--listen", "127.0.0.1:0", "--for", "1s", "--transport"];
    let said = refused(&[&up[..], &[transport]].concat());
    for text in expected {
        assert!(said.contains(text), "{transport} said: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_wrong_address_is_refused_with_the_setting_that_is_wrong() {
    says("kafka://", &["--transport", "give kafka://host:port"]);
    says("kafka://a?password=hunter2", &["--transport", "has no option", "password_file"]);
    says("kafka://me:hunter2@a?sasl=KERBEROS", &["sasl=KERBEROS", "SCRAM-SHA-256"]);
    let free = format!("127.0.0.1:{}", free_port().unwrap());
    let unused = format!("kafka://{free}?timeout_seconds=2");
    says(&unused, &["--transport", &free, "refused"]);
    let missing = format!("kafka://{free}?ca=/no/such/ca.pem");
    says(&missing, &["option ca", "/no/such/ca.pem"]);
}

#[test]
fn refused_credentials_and_a_certificate_of_nobody_are_said_by_the_setting() {
    let (ours, strangers) = (Authority::new(), Authority::new());
    let broker = ours.server();
    let file = |name: &str| ours.folder().join(name).display().to_string();
    let pem = [&broker.key, &broker.cert].map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(file("both.pem"), pem.concat()).unwrap();
    std::fs::write(file("password"), "hunter2").unwrap();
    std::fs::write(file("wrong"), "hunter22").unwrap();
    let port = free_port().unwrap();
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let launch = Launch::of(Kind::Kafka)
        .setting("+listener", format!("GUARDED SASL_SSL {port} {port}"))
        .setting("ssl.keystore.type", "PEM")
        .setting("ssl.keystore.location", file("both.pem"))
        .setting("sasl.enabled.mechanisms", "PLAIN")
        .setting(
            "listener.name.guarded.plain.sasl.jaas.config",
            format!("{module} user_clerk=\"hunter2\";"),
        );
    let _kafka = need!(launch.start());
    let url = |ca: &Authority, password: &str| {
        let (ca, password) = (ca.file().display().to_string(), file(password));
        format!("kafka://127.0.0.1:{port}?ca={ca}&sasl=PLAIN&user=clerk&password_file={password}")
    };
    says(&url(&ours, "wrong"), &["--transport", "refuses the credentials", "password_file"]);
    says(&url(&strangers, "password"), &["--transport", "check tls, ca, cert and key"]);
    let (hotel, good) = (Hotel::on_sqlite(), url(&ours, "password"));
    let args = ["--transport", &good, "--rate", "5", "--for", "3s", "--format", "json"];
    let report = hotel.start(&args).report();
    assert!(report["events_published"].as_i64().unwrap() > 10, "{report:#}");
}

#[test]
fn a_broker_that_is_too_old_is_refused_with_what_to_use() {
    let kafka = need!(need!(Launch::old_kafka()).start());
    says(&format!("kafka://{}", kafka.url()), &["--transport", "too old", "2.4 or newer"]);
}
