//! Where a bundle lies: on a disk, behind HTTP, or in object storage.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The largest bundle, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The time limit of a fetch. A consumer that waits for a bundle delays the events behind.
const PATIENCE: Duration = Duration::from_secs(10);

/// The place of a released bundle: a file, `https://…`, `gs://bucket/object` or
/// `s3://bucket/object`.
///
/// Object storage is read by a plain `GET` of its public address; requests are not signed. Give
/// a [`BearerToken`] where it asks for one, or a pre-signed `https://` address.
///
/// ```
/// use chapar::BundleSource;
/// let source: BundleSource = "gs://contracts/hotel.json".parse()?;
/// assert_eq!(source.to_string(), "https://storage.googleapis.com/contracts/hotel.json");
/// # Ok::<(), chapar::FetchError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct BundleSource {
    place: Place,
    token: Option<BearerToken>,
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Web(String),
}

/// What proves that a bundle may be read: a bearer token.
#[derive(Clone, PartialEq, Eq)]
pub enum BearerToken {
    /// The token itself.
    Text(String),
    /// A file that holds it, read at each fetch, as tokens change.
    File(PathBuf),
}

/// Why a bundle did not come.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No place is named like this.
    #[error("{place:?} is no place for a bundle: {reason}")]
    Place {
        /// As it was given.
        place: String,
        /// What to write instead.
        reason: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {path}", path = .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// The server did not answer, or not with a bundle.
    #[error("{url}: {reason}")]
    Web {
        /// What was asked for.
        url: String,
        /// What came instead.
        reason: String,
    },
}

impl FromStr for BundleSource {
    type Err = FetchError;

    fn from_str(text: &str) -> Result<Self, FetchError> {
        let wrong = |reason| FetchError::Place { place: without_secrets(text), reason };
        let place = match text.split_once("://") {
            None if text.is_empty() => return Err(wrong("it is empty")),
            None => Place::File(text.into()),
            Some(("file", path)) => Place::File(path.into()),
            Some(("http" | "https", _)) => Place::Web(text.to_owned()),
            Some(("gs", object)) => {
                let (bucket, object) = split(object).ok_or_else(|| wrong(OBJECT))?;
                Place::Web(format!("https://storage.googleapis.com/{bucket}/{object}"))
            }
            Some(("s3", object)) => {
                let (bucket, object) = split(object).ok_or_else(|| wrong(OBJECT))?;
                // The certificate is for one name before the domain.
                if bucket.contains('.') {
                    return Err(wrong("a bucket with a dot needs its https address"));
                }
                Place::Web(format!("https://{bucket}.s3.amazonaws.com/{object}"))
            }
            Some(_) => return Err(wrong("write a path, https://, gs:// or s3://")),
        };
        Ok(BundleSource { place, token: None })
    }
}

const OBJECT: &str = "name the bucket and the object, as in gs://bucket/object";

fn split(object: &str) -> Option<(&str, &str)> {
    object.split_once('/').filter(|(bucket, object)| !bucket.is_empty() && !object.is_empty())
}

impl BundleSource {
    /// Shows a token to the server. It is sent over TLS only, or to this machine itself.
    pub fn token(mut self, token: BearerToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Shows the token in `CHAPAR_CONTRACTS_TOKEN`, or in the file that
    /// `CHAPAR_CONTRACTS_TOKEN_FILE` names, where one of them is set.
    pub fn token_from_env(self) -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(file) = set("CHAPAR_CONTRACTS_TOKEN_FILE") {
            return self.token(BearerToken::File(file.into()));
        }
        match set("CHAPAR_CONTRACTS_TOKEN").and_then(|token| token.into_string().ok()) {
            Some(token) => self.token(BearerToken::Text(token)),
            None => self,
        }
    }

    /// The text that lies there now.
    pub(super) async fn fetch(&self) -> Result<String, FetchError> {
        let source = self.clone();
        // Files and the client block.
        let fetched = tokio::task::spawn_blocking(move || source.read()).await;
        fetched.unwrap_or_else(|error| Err(self.web(error.to_string())))
    }

    fn read(&self) -> Result<String, FetchError> {
        match &self.place {
            Place::File(path) => read_file(path),
            Place::Web(url) => self.get(url),
        }
    }

    fn get(&self, url: &str) -> Result<String, FetchError> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .user_agent(concat!("chapar/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut request = agent.get(url);
        if let Some(token) = self.secret()? {
            if !url.starts_with("https://") && !is_local(url) {
                return Err(self.web("a token is not sent without TLS; use https://".into()));
            }
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut answer = request.call().map_err(|error| self.web(self.said(url, &error)))?;
        let body = answer.body_mut().with_config().limit(LARGEST).read_to_string();
        body.map_err(|error| self.web(error.to_string()))
    }

    fn secret(&self) -> Result<Option<String>, FetchError> {
        match &self.token {
            None => Ok(None),
            Some(BearerToken::Text(token)) => Ok(Some(token.clone())),
            Some(BearerToken::File(path)) => Ok(Some(read_file(path)?.trim().to_owned())),
        }
    }

    /// What the client says; it may quote the address.
    fn said(&self, url: &str, error: &ureq::Error) -> String {
        error.to_string().replace(url, &without_secrets(url))
    }

    fn web(&self, reason: String) -> FetchError {
        FetchError::Web { url: self.to_string(), reason }
    }
}

fn read_file(path: &PathBuf) -> Result<String, FetchError> {
    std::fs::read_to_string(path).map_err(|error| FetchError::File(path.clone(), error))
}

fn is_local(url: &str) -> bool {
    let host = url.strip_prefix("http://").and_then(|rest| rest.split(['/', '?', '#']).next());
    // A name before the host could look like one.
    let host = host.filter(|host| !host.contains('@'));
    let host = host.map(|host| host.rsplit_once(':').map_or(host, |(name, _)| name));
    matches!(host, Some("127.0.0.1" | "localhost" | "[::1]"))
}

impl fmt::Display for BundleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path) => path.display().fmt(f),
            Place::Web(url) => f.write_str(&without_secrets(url)),
        }
    }
}

impl fmt::Debug for BundleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.to_string();
        f.debug_struct("BundleSource").field("place", &place).field("token", &self.token).finish()
    }
}

/// An address without a login, and without what follows the path, which may be a signature.
fn without_secrets(url: &str) -> String {
    let url = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    };
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BearerToken::Text(_) => f.write_str("Text(…)"),
            BearerToken::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_place_is_understood() {
        for (given, meant) in [
            ("contracts.json", "contracts.json"),
            ("file:///etc/contracts.json", "/etc/contracts.json"),
            ("https://a.org/b.json?signature=secret", "https://a.org/b.json"),
            ("https://me:secret@a.org/b.json", "https://a.org/b.json"),
            ("gs://bucket/a/b.json", "https://storage.googleapis.com/bucket/a/b.json"),
            ("s3://bucket/a/b.json", "https://bucket.s3.amazonaws.com/a/b.json"),
        ] {
            assert_eq!(given.parse::<BundleSource>().unwrap().to_string(), meant);
        }
        for wrong in ["", "ftp://a/b", "gs://bucket", "s3:///b", "s3://a.b/c"] {
            assert!(wrong.parse::<BundleSource>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_not_sent_in_the_open_nor_printed() {
        let source: BundleSource = "http://contracts.example.org/a.json".parse().unwrap();
        let source = source.token(BearerToken::Text("secret".into()));
        assert!(source.read().unwrap_err().to_string().contains("use https://"));
        assert!(!format!("{source:?}").contains("secret"));
        let login: BundleSource = "http://me:secret@127.0.0.1:1/a?key=secret".parse().unwrap();
        let said = login.read().unwrap_err().to_string();
        assert!(!said.contains("secret") && !format!("{login:?}").contains("secret"), "{said}");
        let wrong = "ftp://me:secret@a.org/b".parse::<BundleSource>().unwrap_err().to_string();
        assert!(!wrong.contains("secret"), "{wrong}");
        assert!(is_local("http://127.0.0.1:80/a") && is_local("http://localhost/a"));
        assert!(!is_local("http://localhost.example.org/a") && !is_local("http://127.0.0.1.a/"));
        assert!(!is_local("http://127.0.0.1:1@evil.org/a"));
    }
}
