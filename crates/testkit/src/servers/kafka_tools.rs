//! Kafka's own command-line tools, from the jars on Maven Central.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::kafka::VERSION;
use super::obtain::{cache_dir, into_cache, missing};
use super::pins::check_jars;
use super::recipe::{Missing, on_path, run};
use super::{Kind, ServerError};

const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>chapar</groupId>
  <artifactId>kafka-tools-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>@VERSION@</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"#;

/// One of Kafka's tools by its class, such as `org.apache.kafka.tools.TopicCommand`, ready for arguments. Fetched the
/// first time.
pub fn kafka_tool(class: &str) -> Result<Command, ServerError> {
    let libs = jars(&format!("kafka-tools-{VERSION}"), &POM.replace("@VERSION@", VERSION))?;
    let mut command = Command::new("java");
    command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command.arg("-cp").arg(libs.join("*")).arg(class);
    Ok(command)
}

/// The folder with what a project needs to run, in the cache under this name. Fetched the first time.
pub(super) fn jars(name: &str, pom: &str) -> Result<PathBuf, ServerError> {
    let libs = cache_dir().join(name).join("libs");
    if !libs.is_dir() {
        if on_path("mvn").is_none() {
            let reason = format!("the jars of {name} are not in the cache");
            return Err(missing(Kind::Kafka, Missing { reason, packages: vec!["maven"] }));
        }
        let fetched = into_cache(name, |dir| {
            fs::write(dir.join("pom.xml"), pom).map_err(|error| error.to_string())?;
            let copy = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"];
            run(Command::new("mvn").args(copy).arg("-DoutputDirectory=libs").current_dir(dir))?;
            check_jars(name, &dir.join("libs"))
        });
        fetched.map_err(|reason| ServerError::broken(Kind::Kafka, reason))?;
    }
    Ok(libs)
}
