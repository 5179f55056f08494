//! Logging in to a NATS server: certificates, passwords, tokens, nkeys and credentials files.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_nats::rustls::{self, CertificateError};
use async_nats::{Auth, AuthError, ConnectErrorKind, ConnectOptions, ToServerAddrs};
use chapar_core::port::TransportError;
use nkeys::KeyPair;
use percent_encoding::percent_decode_str;

use super::{setup, unavailable};
use crate::open::is_loopback;

/// Secrets and certificates, each in a file that is read again for every connection, so that a
/// new one is used from the next reconnection on.
///
/// A user and password, or a token, may also be given in the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NatsLogin {
    /// The certificate authority of the server's certificate. Default: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate, where the server asks for one.
    pub cert_file: Option<PathBuf>,
    /// The key of the client's certificate.
    pub key_file: Option<PathBuf>,
    /// Credentials as `nsc` writes them: a JWT and its seed.
    pub credentials_file: Option<PathBuf>,
    /// The seed of an nkey.
    pub nkey_file: Option<PathBuf>,
    /// The user whose password is in `password_file`.
    pub user: Option<String>,
    /// A password.
    pub password_file: Option<PathBuf>,
    /// A token.
    pub token_file: Option<PathBuf>,
    /// Whether a password or a token may be sent without TLS to another machine. Default false.
    pub without_tls: bool,
}

impl NatsLogin {
    /// The connection options for TLS and authentication.
    pub(super) fn options(&self, url: &str) -> Result<ConnectOptions, TransportError> {
        self.check()?;
        let mut options = match self.secret() {
            None => from_address(url)?,
            Some(_) => {
                let login = self.clone();
                ConnectOptions::with_auth_callback(move |nonce| {
                    let auth = login.auth(&nonce).map_err(AuthError::new);
                    async move { auth }
                })
            }
        };
        if self.needs_tls(url) {
            options = options.require_tls(true);
        }
        if let Some(file) = &self.ca_file {
            options = options.add_root_certificates(file.clone()).require_tls(true);
        }
        if let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) {
            options = options.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
        }
        Ok(options)
    }

    /// Whether the server is sent a secret itself, and not only the proof that this client has it.
    fn sends_secret(&self, url: &str) -> bool {
        match self.secret() {
            Some((setting, _)) => matches!(setting, "password_file" | "token_file"),
            None => url.contains('@'),
        }
    }

    /// Whether TLS is required although the address does not ask for it.
    fn needs_tls(&self, url: &str) -> bool {
        let asked = url.starts_with("tls://") || self.ca_file.is_some() || self.cert_file.is_some();
        self.sends_secret(url) && !asked && !self.without_tls && !is_this_machine(url)
    }

    /// The setting that holds the secret.
    fn secret(&self) -> Option<(&'static str, &PathBuf)> {
        self.files()[3..].iter().find_map(|(name, file)| Some((*name, file.as_ref()?)))
    }

    fn files(&self) -> [(&'static str, &Option<PathBuf>); 7] {
        [
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
            ("credentials_file", &self.credentials_file),
            ("nkey_file", &self.nkey_file),
            ("password_file", &self.password_file),
            ("token_file", &self.token_file),
        ]
    }

    fn check(&self) -> Result<(), TransportError> {
        for (name, file) in self.files() {
            if let Some(file) = file {
                read(file).map_err(|error| setup(format!("{name}: {error}")))?;
            }
        }
        let secrets: Vec<_> =
            self.files()[3..].iter().filter(|(_, file)| file.is_some()).map(|(n, _)| *n).collect();
        if secrets.len() > 1 {
            return Err(setup(format!("{} are given; give one", secrets.join(" and "))));
        }
        match (&self.cert_file, &self.key_file, &self.user, &self.password_file) {
            (Some(_), None, ..) => Err(setup("cert_file needs key_file".into())),
            (None, Some(_), ..) => Err(setup("key_file needs cert_file".into())),
            (_, _, None, Some(_)) => Err(setup("password_file needs user".into())),
            (_, _, Some(_), None) => Err(setup("user needs password_file".into())),
            _ => self.auth(b"nonce").map(drop).map_err(setup),
        }
    }

    /// The credentials, read now. Errors name the setting and the file, never its content.
    fn auth(&self, nonce: &[u8]) -> Result<Auth, String> {
        let mut auth = Auth::new();
        let Some((setting, file)) = self.secret() else { return Ok(auth) };
        let text = read(file).map_err(|error| format!("{setting}: {error}"))?;
        let sign = |seed: &str| -> Result<(String, Vec<u8>), String> {
            let odd = |_| format!("{setting}: {} holds no good seed", file.display());
            let pair = KeyPair::from_seed(seed.trim()).map_err(odd)?;
            Ok((pair.public_key(), pair.sign(nonce).map_err(odd)?))
        };
        match setting {
            "credentials_file" => {
                let part = |name: &str| {
                    between(&text, name)
                        .ok_or_else(|| format!("{setting}: {} has no part {name}", file.display()))
                };
                auth.jwt = Some(part("NATS USER JWT")?);
                auth.signature = Some(sign(&part("USER NKEY SEED")?)?.1);
            }
            "nkey_file" => {
                let (key, signature) = sign(&text)?;
                (auth.nkey, auth.signature) = (Some(key), Some(signature));
            }
            "password_file" => {
                auth.username.clone_from(&self.user);
                auth.password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            _ => auth.token = Some(text.trim().to_owned()),
        }
        Ok(auth)
    }

    /// Why there is no connection, with the setting to look at.
    pub(super) fn explain(&self, url: &str, error: &async_nats::ConnectError) -> TransportError {
        if self.needs_tls(url)
            && (error.kind() == ConnectErrorKind::Tls || tls_error(error).is_some())
        {
            return setup(format!(
                "no TLS with the NATS server ({error}), and without it the password or token \
                 would be readable on the network; set up TLS, or allow it with \
                 `without_tls = true` under [nats]"
            ));
        }
        let secret = self.secret().map_or("user and password", |(setting, _)| setting);
        match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                setup(format!("the NATS server refuses the credentials; check {secret}"))
            }
            _ => match tls_error(error) {
                Some(error) => setup(format!("{error}: {}", advice(error))),
                None => unavailable(error),
            },
        }
    }
}

fn advice(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the certificate of the NATS server is for another host; check the address",
        rustls::Error::InvalidCertificate(_) => {
            "the certificate of the NATS server is not trusted; check ca_file"
        }
        rustls::Error::AlertReceived(_) => {
            "the NATS server refuses this client's certificate; check cert_file and key_file"
        }
        _ => "no secure connection; check ca_file, cert_file and key_file",
    }
}

/// The TLS error in a chain of sources. An I/O error does not return its inner error as its source.
fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match inner {
        Some(inner) => tls_error(inner),
        None => tls_error(error.source()?),
    }
}

/// The credentials of the address, for the client.
fn from_address(url: &str) -> Result<ConnectOptions, TransportError> {
    let odd = |_| setup("not a NATS address; give nats://host:port".into());
    let servers = url.to_server_addrs().map_err(odd)?;
    let text = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let server = servers.into_iter().find(|server| server.has_user_pass());
    let options = ConnectOptions::new();
    Ok(match server.as_ref().map(|server| (server.username(), server.password())) {
        Some((Some(user), Some(password))) => options.user_and_password(text(user), text(password)),
        Some((Some(token), None)) => options.token(text(token)),
        _ => options,
    })
}

/// Whether every server of the address is this machine.
fn is_this_machine(url: &str) -> bool {
    url.split(',').all(|server| {
        let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        is_loopback(host)
    })
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
}

/// The text between the lines that begin and end a section.
fn between(text: &str, part: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.contains(&format!("BEGIN {part}")))?;
    let inside: Vec<&str> =
        lines.take_while(|line| !line.contains(&format!("END {part}"))).collect();
    let inside = inside.concat();
    (!inside.is_empty()).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_or_token_for_another_machine_needs_tls_unless_that_is_waived() {
        let plain = NatsLogin::default();
        for url in ["nats://me:x@nats:4222", "nats://token@10.0.0.1", "nats://a:x@localhost,nats"] {
            assert!(plain.needs_tls(url), "{url}");
            let waived = NatsLogin { without_tls: true, ..NatsLogin::default() };
            assert!(!waived.needs_tls(url), "{url}");
        }
        for url in ["nats://nats:4222", "nats://me:x@127.0.0.1:4222", "tls://me:x@nats:4222"] {
            assert!(!plain.needs_tls(url), "{url}");
        }
        let file = Some(PathBuf::from("x"));
        let password = NatsLogin { password_file: file.clone(), ..NatsLogin::default() };
        assert!(password.needs_tls("nats://nats:4222"));
        // A key signs a challenge and is not sent.
        let key = NatsLogin { nkey_file: file, ..NatsLogin::default() };
        assert!(!key.needs_tls("nats://nats:4222"));
    }
}
