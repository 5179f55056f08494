//! Logging in to PostgreSQL: certificates and passwords from the URL, and hints when the server
//! refuses the login.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;

use percent_encoding::percent_decode_str;
use rustls::CertificateError;
use sqlx::postgres::PgConnectOptions;

/// The login data, read again for new connections.
pub(crate) struct Login {
    options: Mutex<PgConnectOptions>,
    password_file: Option<PathBuf>,
}

/// The parameters of a URL: ours, and those of sqlx.
const PARAMETERS: [&str; 19] = [
    "password_file",
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

impl Login {
    /// Reads a URL. Errors name the setting, never its value if that is a secret.
    pub(crate) fn of(url: &str) -> Result<Self, String> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut rest, mut password_file) = (Vec::new(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            // sqlx would log the value of a parameter that it does not know, which may be a password.
            if !PARAMETERS.contains(&name) && !name.starts_with("options[") {
                return Err(format!(
                    "the parameter {name} of the URL is not known; use {}",
                    PARAMETERS.join(", ")
                ));
            }
            match name {
                "password_file" => password_file = Some(PathBuf::from(value)),
                _ => {
                    // sqlx would report that a file was not found, but not which one.
                    if let "sslrootcert" | "sslcert" | "sslkey" = name {
                        fs::File::open(&value)
                            .map_err(|error| format!("{name} {value} cannot be read: {error}"))?;
                    }
                    rest.push(pair);
                }
            }
        }
        let options = PgConnectOptions::from_str(&format!("{address}?{}", rest.join("&")))
            .map_err(|error| error.to_string())?;
        Ok(Login { options: Mutex::new(options), password_file })
    }

    /// The options, with the current content of the password file.
    pub(crate) fn read(&self) -> Result<PgConnectOptions, String> {
        if self.is_from_file() {
            self.password()?;
        }
        Ok(self.last())
    }

    /// The current content of the password file.
    pub(crate) fn password(&self) -> Result<String, String> {
        let file = self.password_file.clone().unwrap_or_default();
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("password_file {} cannot be read: {error}", file.display()))?;
        let password = text.trim_end_matches(['\r', '\n']);
        let mut options = self.options.lock().unwrap_or_else(|e| e.into_inner());
        *options = options.clone().password(password);
        Ok(password.to_owned())
    }

    /// The options as they were last read.
    pub(crate) fn last(&self) -> PgConnectOptions {
        self.options.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    pub(crate) fn is_from_file(&self) -> bool {
        self.password_file.is_some()
    }
}

/// Whether the server refused the password.
pub(crate) fn is_refused(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().as_deref() == Some("28P01"))
}

/// What to check when a connection is refused for a security reason.
pub(crate) fn advice(error: &sqlx::Error) -> Option<String> {
    if let sqlx::Error::Database(said) = error {
        return match said.code().as_deref() {
            Some("28P01") => Some(format!("{error}; check user and password")),
            Some("28000") => Some(format!(
                "{error}; check user and password, sslmode, sslcert, and the server's pg_hba.conf"
            )),
            _ => None,
        };
    }
    let error = tls_error(error)?;
    let check = match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate is for another host; check the host in the URL, or sslmode",
        rustls::Error::InvalidCertificate(_) => {
            "the server's certificate is not trusted; check sslrootcert"
        }
        rustls::Error::AlertReceived(_) => {
            "the server refuses this client's certificate; check sslcert and sslkey"
        }
        _ => "no secure connection; check sslmode, sslrootcert, sslcert and sslkey",
    };
    Some(format!("{error}: {check}"))
}

/// The TLS error, however deep it is nested. An I/O error does not expose its inner error as its
/// source.
fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    if let Some(inner) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        return tls_error(inner);
    }
    match error.downcast_ref::<sqlx::Error>() {
        Some(sqlx::Error::Tls(inner)) => tls_error(&**inner),
        Some(sqlx::Error::Io(inner)) => tls_error(inner),
        _ => tls_error(error.source()?),
    }
}
