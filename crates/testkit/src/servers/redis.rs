//! Redis, from the distribution's package.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::recipe::{self, Found, Missing, Site, on_path, version_of};

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let missing = || Missing {
            reason: "no `redis-server` in PATH".into(),
            packages: vec!["redis-server"],
        };
        let path = on_path("redis-server").ok_or_else(missing)?;
        let version = version_of(&path).ok_or_else(missing)?;
        Ok(Found { version, path })
    }

    fn command(&self, site: &Site) -> Command {
        let mut command = Command::new(&site.found.path);
        command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
        command.arg("--port").arg(site.port().to_string()).arg("--dir").arg(&site.dir);
        for (name, value) in &site.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        command
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }

    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        let address = url.trim_start_matches("redis://").split('/').next().unwrap_or_default();
        let talk = || -> std::io::Result<Option<String>> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"PING\r\nINFO server\r\nQUIT\r\n")?;
            let mut lines = BufReader::new(stream).lines();
            let pong = lines.next().transpose()?;
            if pong.as_deref() != Some("+PONG") {
                return Err(std::io::Error::other(format!("{pong:?} instead of PONG")));
            }
            Ok(lines
                .map_while(Result::ok)
                .find_map(|line| Some(line.strip_prefix("redis_version:")?.trim().to_owned())))
        };
        talk().map_err(|error| error.to_string())
    }
}
