//! Apache Kafka in KRaft mode, broker and controller in one JVM, from the jars on Maven Central.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::instance::{Instance, Launch};
use super::obtain::{cache_dir, into_cache};
use super::pins::check_jars;
use super::ports::free_ports;
use super::recipe::{self, Found, Missing, Site, on_path, run};
use super::{Kind, ServerError};

pub(super) const VERSION: &str = "4.3.1";

/// A listener beside the plain one: its name, its protocol, the port that it has, and the port that clients are told,
/// which may be a proxy's.
const LISTENER: &str = "+listener";
/// A user: `SCRAM-SHA-256=[name=NAME,password=PASSWORD]`.
const SCRAM: &str = "+scram";
/// One of several nodes: its number from 1 on, the id of the cluster, and the ports of all controllers.
const NODE: &str = "+node";

/// Kafka alone brings no logger; without one a broker that fails says nothing.
const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>chapar</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>@VERSION@</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"#;

/// A cluster of its own, of nodes that are broker and controller each. Internal topics and, by their default, others
/// need all nodes but one; any one may be killed.
pub fn kafka_cluster(nodes: usize) -> Result<Vec<Instance>, ServerError> {
    let broken = |reason: String| ServerError::broken(Kind::Kafka, reason);
    let ports = free_ports(nodes).map_err(|error| broken(error.to_string()))?;
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let (id, ports) = (cluster_id().map_err(broken)?, ports.join(","));
    // Side by side: none is ready before most of them are.
    let cluster = thread::scope(|scope| {
        let launch = |node| {
            let mut launch = Launch::of(Kind::Kafka).setting(NODE, format!("{node} {id} {ports}"));
            for (name, value) in [
                ("offsets.topic.replication.factor", nodes),
                ("min.insync.replicas", nodes.saturating_sub(1).max(1)),
                // On a busy machine, one that is only slow must not be taken for dead.
                ("broker.session.timeout.ms", 6000),
            ] {
                launch = launch.setting(name, value.to_string());
            }
            scope.spawn(|| launch.start())
        };
        let starting: Vec<_> = (1..=nodes).map(launch).collect();
        let panicked = |_| Err(broken("its start panicked".into()));
        let started = starting.into_iter().map(|node| node.join().unwrap_or_else(panicked));
        started.collect::<Result<Vec<_>, _>>()
    })?;
    let limit = Instant::now() + Duration::from_secs(30);
    while cluster.iter().any(|node| !brokers(node.url()).is_ok_and(|all| all as usize == nodes)) {
        if Instant::now() > limit {
            return Err(broken(format!("the {nodes} nodes do not find each other")));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(cluster)
}

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let path = fetched();
        let has_jars = path.is_dir();
        let packages: Vec<_> = [
            (on_path("java").is_none()).then_some("default-jre-headless"),
            (!has_jars && on_path("mvn").is_none()).then_some("maven"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match (has_jars, packages.is_empty()) {
            (true, true) => Ok(Found { version: VERSION.into(), path }),
            (true, false) => Err(Missing { reason: "no `java` in PATH".into(), packages }),
            (false, _) => Err(Missing {
                reason: format!("the jars of Kafka {VERSION} are not in the cache"),
                packages,
            }),
        }
    }

    fn fetch(&self) -> Result<(), String> {
        into_cache(&format!("kafka-{VERSION}"), |dir| {
            fs::write(dir.join("pom.xml"), POM.replace("@VERSION@", VERSION))
                .map_err(|error| error.to_string())?;
            run(Command::new("mvn")
                .args([
                    "-q",
                    "-B",
                    "dependency:copy-dependencies",
                    "-DincludeScope=runtime",
                    "-DoutputDirectory=libs",
                ])
                .current_dir(dir))?;
            check_jars(&format!("kafka-{VERSION}"), &dir.join("libs"))
        })
    }

    fn ports(&self) -> usize {
        2
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let (nodes, settings): (Vec<_>, Vec<_>) =
            site.settings.iter().partition(|(name, _)| name == NODE);
        let node = match nodes.first() {
            None => Node { number: 1, cluster: cluster_id()?, controllers: vec![site.ports[1]] },
            Some((_, text)) => Node::parse(text)
                .ok_or_else(|| format!("{NODE} is {text:?}, not NUMBER CLUSTER PORT,PORT,…"))?,
        };
        let (broker, controller) = (site.ports[0], node.controllers[node.number - 1]);
        let (listeners, settings): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|(name, _)| name == LISTENER);
        let (users, settings): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|(name, _)| name == SCRAM);
        let (mut bound, mut advertised, mut protocols) =
            (String::new(), String::new(), String::new());
        for (_, listener) in listeners {
            let words: Vec<&str> = listener.split(' ').collect();
            let [name, protocol, port, seen_at] = words[..] else {
                return Err(format!("{LISTENER} is {listener:?}, not NAME PROTOCOL PORT PORT"));
            };
            bound += &format!(",{name}://127.0.0.1:{port}");
            advertised += &format!(",{name}://127.0.0.1:{seen_at}");
            protocols += &format!(",{name}:{protocol}");
        }
        // The session is short because a crashed broker is let in again only when its last session is over.
        let mut properties = format!(
            "process.roles=broker,controller\n\
             node.id={}\n\
             controller.quorum.voters={}\n\
             listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}{bound}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{broker}{advertised}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}\n\
             inter.broker.listener.name=PLAINTEXT\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=4\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=4\n\
             share.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             group.min.session.timeout.ms=500\n\
             broker.heartbeat.interval.ms=500\n\
             broker.session.timeout.ms=3000\n",
            node.number,
            node.voters(),
            site.dir.join("data").display(),
        );
        for (name, value) in settings {
            properties.push_str(&format!("{name}={value}\n"));
        }
        let file = properties_file(site);
        fs::write(&file, properties).map_err(|error| error.to_string())?;
        run(java(site)
            .args(["kafka.tools.StorageTool", "format", "-t"])
            .arg(node.cluster)
            .arg("-c")
            .arg(file)
            .args(users.iter().flat_map(|(_, user)| ["--add-scram", user])))?;
        Ok(())
    }

    fn command(&self, site: &Site) -> Command {
        let mut command = java(site);
        command.arg("kafka.Kafka").arg(properties_file(site));
        command
    }

    fn url(&self, port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    /// A broker that the controller has let in lists itself.
    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        match brokers(url).map_err(|error| error.to_string())? {
            0 => Err("the broker is not yet part of its cluster".into()),
            _ => Ok(None),
        }
    }
}

struct Node {
    number: usize,
    cluster: String,
    controllers: Vec<u16>,
}

impl Node {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (number, cluster) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let controllers: Result<Vec<u16>, _> = words.next()?.split(',').map(str::parse).collect();
        let node = Node { number, cluster, controllers: controllers.ok()? };
        (1..=node.controllers.len()).contains(&number).then_some(node)
    }

    fn voters(&self) -> String {
        let voters = self.controllers.iter().zip(1..);
        let voters: Vec<_> =
            voters.map(|(port, number)| format!("{number}@127.0.0.1:{port}")).collect();
        voters.join(",")
    }
}

/// How many brokers one of them knows of: metadata, version 1, for no topic.
fn brokers(url: &str) -> std::io::Result<u32> {
    const METADATA: &[u8] = b"\0\x03\0\x01\0\0\0\x01\0\x05probe\0\0\0\0";
    let mut stream = TcpStream::connect(url.split(',').next().unwrap_or_default())?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&(METADATA.len() as u32).to_be_bytes())?;
    stream.write_all(METADATA)?;
    // Length, correlation id, number of brokers.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(u32::from_be_bytes([answer[8], answer[9], answer[10], answer[11]]))
}

fn java(site: &Site) -> Command {
    let mut command = Command::new("java");
    // A short life in a small heap: one compiler, one collector thread.
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    // What the JVM unpacks or maps goes away with the server's folder, also when it is killed.
    command.arg(format!("-Djava.io.tmpdir={}", site.dir.display())).arg("-XX:-UsePerfData");
    command
        .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(classpath(&site.found.path));
    command
}

fn classpath(libs: &Path) -> PathBuf {
    libs.join("*")
}

fn fetched() -> PathBuf {
    cache_dir().join(format!("kafka-{VERSION}/libs"))
}

fn properties_file(site: &Site) -> PathBuf {
    site.dir.join("server.properties")
}

/// A cluster id is a random UUID in URL-safe base64.
fn cluster_id() -> Result<String, String> {
    use base64::Engine as _;
    let mut random = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(|error| format!("no random bytes: {error}"))?;
    // A leading dash would read as an option of the storage tool.
    random[0] &= 0x7f;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random))
}
