//! Prometheus, from the distribution's package.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::recipe::{self, Found, Missing, Site, on_path, version_of};
use crate::http;

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let missing =
            || Missing { reason: "no `prometheus` in PATH".into(), packages: vec!["prometheus"] };
        let path = on_path("prometheus").ok_or_else(missing)?;
        let version = version_of(&path).ok_or_else(missing)?;
        Ok(Found { version, path })
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let mut config = String::from(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\nscrape_configs:\n",
        );
        let own = ("prometheus".to_owned(), format!("127.0.0.1:{}", site.port()));
        for (job, target) in std::iter::once(&own).chain(&site.settings) {
            let _ = write!(
                config,
                "- job_name: '{job}'\n  static_configs:\n  - targets: ['{target}']\n"
            );
        }
        fs::write(site.dir.join("prometheus.yml"), config).map_err(|error| error.to_string())
    }

    fn command(&self, site: &Site) -> Command {
        let mut command = Command::new(&site.found.path);
        command
            .arg(format!("--config.file={}", site.dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", site.dir.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", site.port()));
        command
    }

    fn url(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}")
    }

    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        let get = |path: &str| {
            http("GET", &format!("{url}{path}"), None).map_err(|error| error.to_string())
        };
        let ready = get("/-/ready")?;
        if ready.status != 200 {
            return Err(ready.text());
        }
        Ok(get("/api/v1/status/buildinfo")?.json()["data"]["version"].as_str().map(str::to_owned))
    }
}
