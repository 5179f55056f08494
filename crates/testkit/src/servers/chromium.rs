//! Chromium and chromedriver, from the distribution's packages. The server is chromedriver; it starts a browser per
//! session, with a fresh profile, and ends it with the session or with itself.

use std::process::Command;

use super::recipe::{self, Found, Missing, Site, on_path, version_of};
use crate::http;

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let missing = || Missing {
            reason: "no `chromium` and `chromedriver` in PATH".into(),
            // Without a font a page has no letters to show.
            packages: vec!["chromium", "chromium-driver", "fonts-dejavu-core"],
        };
        on_path("chromium").ok_or_else(missing)?;
        let path = on_path("chromedriver").ok_or_else(missing)?;
        let version = version_of(&path).ok_or_else(missing)?;
        Ok(Found { version, path })
    }

    fn command(&self, site: &Site) -> Command {
        let mut command = Command::new(&site.found.path);
        command.arg(format!("--port={}", site.port()));
        // Profiles, crash reports and caches belong to the instance and go with it.
        for variable in ["TMPDIR", "HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            command.env(variable, &site.dir);
        }
        command
    }

    fn url(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}")
    }

    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        let status =
            http("GET", &format!("{url}/status"), None).map_err(|error| error.to_string())?.json();
        if status["value"]["ready"] != true {
            return Err(format!("chromedriver is not ready: {status}"));
        }
        let version = status["value"]["build"]["version"].as_str().and_then(recipe::first_version);
        Ok(version.map(str::to_owned))
    }
}
