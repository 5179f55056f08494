//! PgBouncer in transaction mode, from the distribution's package: the pooler that Chapar must notice.
//!
//! The setting `upstream` is the port of the PostgreSQL behind it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::postgres::{give_to_server_user, unprivileged};
use super::recipe::{self, Found, Missing, Site, is_executable, on_path, run, version_of};

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let missing = || Missing {
            reason: "no `pgbouncer` in PATH or /usr/sbin".into(),
            packages: vec!["pgbouncer", "postgresql"],
        };
        let installed = PathBuf::from("/usr/sbin/pgbouncer");
        let path = on_path("pgbouncer").or_else(|| is_executable(&installed).then_some(installed));
        let path = path.ok_or_else(missing)?;
        let version = version_of(&path).ok_or_else(missing)?;
        Ok(Found { version, path })
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let upstream = site.settings.iter().find(|(name, _)| name == "upstream");
        let upstream = upstream.map_or("5432", |(_, port)| port.as_str());
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={upstream} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = any\nadmin_users = postgres\npool_mode = transaction\n\
             ignore_startup_parameters = extra_float_digits,options\n",
            site.port()
        );
        fs::write(configuration(site), config).map_err(|error| error.to_string())?;
        give_to_server_user(&site.dir)
    }

    fn command(&self, site: &Site) -> Command {
        let mut command = unprivileged(&site.found.path);
        command.arg(configuration(site)).current_dir("/");
        command
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}")
    }

    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        run(Command::new("psql").arg(format!("{url}/pgbouncer")).args(["-Atqc", "show version"]))?;
        Ok(None)
    }
}

fn configuration(site: &Site) -> PathBuf {
    site.dir.join("pgbouncer.ini")
}
