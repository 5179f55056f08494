//! A Kafka of 2018 with its ZooKeeper, to see what is said of a broker that is too old.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::instance::Launch;
use super::kafka;
use super::kafka_tools::jars;
use super::recipe::{self, Found, Missing, Site};
use super::{Kind, ServerError};

/// It knows neither producer ids nor headers.
const VERSION: &str = "0.10.2.2";

/// Newer machines for Java have no XML binding any more, which this broker makes its ids with.
const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>chapar</groupId>
  <artifactId>old-kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.11</artifactId><version>@VERSION@</version></dependency>
    <dependency><groupId>javax.xml.bind</groupId><artifactId>jaxb-api</artifactId><version>2.3.1</version></dependency>
  </dependencies>
</project>
"#;

const LOG: &str = "\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.SimpleLayout
";

impl Launch {
    /// A Kafka broker that is too old for us, as [`Kind::Kafka`] otherwise. Fetched the first time.
    pub fn old_kafka() -> Result<Self, ServerError> {
        jars(&folder(), &POM.replace("@VERSION@", VERSION))?;
        let mut launch = Launch::of(Kind::Kafka);
        launch.recipe = &Recipe;
        Ok(launch)
    }
}

struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let path = super::cache_dir().join(folder()).join("libs");
        let reason = format!("the jars of Kafka {VERSION} are not in the cache");
        let missing = || Missing { reason, packages: vec!["maven"] };
        path.is_dir()
            .then(|| Found { version: VERSION.into(), path: path.clone() })
            .ok_or_else(missing)
    }

    fn ports(&self) -> usize {
        2
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let (dir, broker, keeper) = (site.dir.display(), site.ports[0], site.ports[1]);
        let files = [
            ("log4j.properties", LOG.to_owned()),
            (
                "keeper.properties",
                format!("dataDir={dir}/keeper\nclientPort={keeper}\nclientPortAddress=127.0.0.1\n"),
            ),
            (
                "server.properties",
                format!(
                    "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{broker}\n\
                     zookeeper.connect=127.0.0.1:{keeper}\n\
                     zookeeper.connection.timeout.ms=60000\nlog.dirs={dir}/data\n\
                     offsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n\
                     log.cleaner.dedupe.buffer.size=8388608\n"
                ),
            ),
        ];
        let write = |(name, text): (&str, String)| fs::write(site.dir.join(name), text);
        files.into_iter().try_for_each(write).map_err(|error| error.to_string())
    }

    /// The keeper in the background: it goes with the group.
    fn command(&self, site: &Site) -> Command {
        const BOTH: &str = r#"
            java="java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
            java="$java -Dlog4j.configuration=file:log4j.properties -Djava.io.tmpdir=$PWD -XX:-UsePerfData"
            $java -cp "$0" org.apache.zookeeper.server.quorum.QuorumPeerMain keeper.properties &
            exec $java -cp "$0" kafka.Kafka server.properties
        "#;
        let jars: PathBuf = site.found.path.join("*");
        let mut command = Command::new("sh");
        command.args(["-c", BOTH]).arg(jars);
        command
    }

    fn url(&self, port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        kafka::Recipe.probe(url)
    }
}

fn folder() -> String {
    format!("kafka-{VERSION}")
}
