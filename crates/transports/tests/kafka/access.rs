//! The generated topics and access lists, loaded into a real Kafka by its own tools: who is
//! refused what, and who is not.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use std::time::{Duration, Instant};

use chapar_catalog::{load, setup};
use chapar_core::port::{ReadFrom, SeekTo, Subscription, Transport, TransportError};
use chapar_testkit::need;
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError, free_port, kafka_tool};
use chapar_transports::kafka::{Kafka, KafkaOptions};

use crate::house::House;
use crate::specifics::{fetch, message, options, spec};

const HELD: &str = "melmastoon.reservation.booking.held.v1";
const INDEXED: &str = "melmastoon.search_aggregation.listing.indexed.v1";
const OPERATOR: &str = "ada";
const USERS: [&str; 6] = [
    OPERATOR,
    "audit-service",
    "bff-consumer-service",
    "inventory-service",
    "reservation-service",
    "search-aggregation-service",
];

/// A broker with an authorizer, on which each service is a user whose password is its name.
/// The anonymous user has all rights: the test administers the broker with it.
struct Locked {
    server: Instance,
    address: String,
    folder: tempfile::TempDir,
}

impl Locked {
    fn start() -> Result<Self, ServerError> {
        let port = free_port().unwrap();
        let users: String = USERS.iter().map(|name| format!(" user_{name}=\"{name}\"")).collect();
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        let server = Launch::of(Kind::Kafka)
            .setting("+listener", format!("SERVICES SASL_PLAINTEXT {port} {port}"))
            .setting(
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            )
            .setting("super.users", "User:ANONYMOUS")
            .setting("sasl.enabled.mechanisms", "PLAIN")
            .setting("listener.name.services.plain.sasl.jaas.config", format!("{module}{users};"))
            .start()?;
        let folder = tempfile::tempdir().unwrap();
        for name in USERS {
            let login = format!("{module} username=\"{name}\" password=\"{name}\";");
            let properties = format!(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n\
                 request.timeout.ms=10000\nmax.block.ms=10000\ndelivery.timeout.ms=15000\n"
            );
            fs::write(folder.path().join(name), properties).unwrap();
        }
        Ok(Locked { server, address: format!("127.0.0.1:{port}"), folder })
    }

    fn properties(&self, service: &str) -> PathBuf {
        self.folder.path().join(service)
    }

    async fn connect(&self, user: &str) -> Kafka {
        let url = format!("kafka://{user}:{user}@{}?sasl=PLAIN", self.address);
        let options = KafkaOptions { timeout: Duration::from_secs(5), ..options(user) };
        Kafka::connect(&url, options).await.unwrap()
    }

    /// Runs a generated script with Kafka's tools in its path.
    fn run(&self, script: &str) -> String {
        let file = self.folder.path().join("script.sh");
        fs::write(&file, script).unwrap();
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .arg(&file)
            .env("PATH", path)
            .env("BOOTSTRAP_SERVERS", self.server.url())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    fn writes(&self, service: &str, topic: &str) -> Result<(), String> {
        let mut tool = kafka_tool("org.apache.kafka.tools.ConsoleProducer").unwrap();
        let mut child = tool
            .args(["--bootstrap-server", &self.address, "--topic", topic, "--producer.config"])
            .arg(self.properties(service))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"an event\n").unwrap();
        judged(&child.wait_with_output().unwrap(), |_| true)
    }

    fn reads(&self, service: &str, topic: &str, group: &str) -> Result<(), String> {
        let mut tool = kafka_tool("org.apache.kafka.tools.consumer.ConsoleConsumer").unwrap();
        let output = tool
            .args(["--bootstrap-server", &self.address, "--topic", topic, "--group", group])
            .args(["--from-beginning", "--max-messages", "1", "--timeout-ms", "30000"])
            .arg("--consumer.config")
            .arg(self.properties(service))
            .output()
            .unwrap();
        judged(&output, |printed| printed.contains("an event"))
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn judged(output: &Output, works: impl Fn(&str) -> bool) -> Result<(), String> {
    let said = said(output);
    match said.contains("AuthorizationException") {
        true => Err(said),
        false => {
            assert!(output.status.success() && works(&said), "{said}");
            Ok(())
        }
    }
}

fn is_refused(outcome: Result<(), String>, what: &str) {
    let said = outcome.expect_err(what);
    assert!(said.contains(what), "{said}");
}

/// A tool under the name that it has in Kafka's own folder.
fn install(folder: &Path, name: &str, class: &str) -> Result<(), ServerError> {
    let tool = kafka_tool(class)?;
    let args: Vec<String> = tool.get_args().map(|a| format!("'{}'", a.to_str().unwrap())).collect();
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\nexec java {} \"$@\"\n", args.join(" "))).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_refuses_what_the_catalog_does_not_grant() {
    let locked = need!(Locked::start());
    let tools = locked.folder.path();
    need!(install(tools, "kafka-topics.sh", "org.apache.kafka.tools.TopicCommand"));
    need!(install(tools, "kafka-acls.sh", "org.apache.kafka.tools.AclCommand"));
    let house = House::new();
    let files = setup::kafka(&load(house.path()).unwrap(), 1, &[OPERATOR.into()]);
    locked.run(&files["topics.sh"]);
    locked.run(&files["acls.sh"]);
    let described = locked.run(&format!(
        "kafka-topics.sh --bootstrap-server \"$BOOTSTRAP_SERVERS\" --describe --topic {HELD}\n"
    ));
    for setting in ["PartitionCount: 3", "retention.ms=604800000", "cleanup.policy=delete"] {
        assert!(described.contains(setting), "{described}");
    }

    locked.writes("reservation-service", HELD).unwrap();
    locked.writes("search-aggregation-service", INDEXED).unwrap();
    is_refused(locked.writes("inventory-service", HELD), "TopicAuthorizationException");
    is_refused(locked.writes("audit-service", HELD), "TopicAuthorizationException");

    locked.reads("inventory-service", HELD, "inventory-service.stock").unwrap();
    is_refused(
        locked.reads("bff-consumer-service", HELD, "bff-consumer-service"),
        "TopicAuthorizationException",
    );
    is_refused(
        locked.reads("bff-consumer-service", INDEXED, "audit-service"),
        "GroupAuthorizationException",
    );
    for topic in [HELD, INDEXED] {
        locked.reads("audit-service", topic, "audit-service").unwrap();
    }
    locked.reads(OPERATOR, HELD, "inventory-service").unwrap();
    is_refused(locked.writes(OPERATOR, HELD), "TopicAuthorizationException");
    is_refused(locked.writes("inventory-service", "chapar.seeks"), "TopicAuthorizationException");
    a_service_is_moved_by_the_operator_alone(&locked).await;
}

/// With our own client on both sides: nothing is granted beyond the generated lists.
async fn a_service_is_moved_by_the_operator_alone(locked: &Locked) {
    let owner = locked.connect("reservation-service").await;
    for key in ["a", "b"] {
        owner.publish(vec![message(HELD, key)]).await.remove(0).unwrap();
    }
    let (service, operator) =
        (locked.connect("inventory-service").await, locked.connect(OPERATOR).await);
    let consumer = spec("inventory-service.stays", &[HELD]);
    // Two of ours, and one that Kafka's own tool wrote.
    let consume = async |reader: &dyn Subscription| {
        let got = fetch(reader, 3).await;
        assert_eq!(got.len(), 3);
        let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
        reader.ack(&tokens).await.unwrap();
    };
    let reader = service.subscribe(&consumer).await.unwrap();
    consume(&*reader).await;
    // A process outside of the group knows it by its committed offsets, which come a moment later.
    let limit = Instant::now() + Duration::from_secs(10);
    while let Err(error) = operator.seek(&consumer.name, SeekTo::Beginning).await {
        assert!(error.to_string().contains("there is no subscription"), "{error}");
        assert!(Instant::now() < limit, "{error}");
    }
    consume(&*reader).await;
    reader.close().await.unwrap();
    // The group has no members: the operator moves the group itself.
    operator.seek(&consumer.name, SeekTo::Beginning).await.unwrap();
    let reader = service.subscribe(&consumer).await.unwrap();
    consume(&*reader).await;

    let error = service.seek(&consumer.name, SeekTo::Beginning).await.unwrap_err();
    assert!(matches!(&error, TransportError::Setup(_)), "{error}");
    assert!(error.to_string().contains("chapar.seeks"), "{error}");
    let topics = [HELD.to_owned()];
    for user in [OPERATOR, "audit-service"] {
        let mut walk = locked.connect(user).await.read(&topics, ReadFrom::Beginning).await.unwrap();
        let mut seen = 0;
        while !walk.is_caught_up() {
            seen += walk.read(10, Duration::from_secs(10)).await.unwrap().len();
        }
        assert_eq!(seen, 2, "{user} sees what we wrote");
    }
}
