//! Google credentials. The content of a credentials file never appears in an error or log.

use chapar_core::port::TransportError;
use google_cloud_auth::credentials::{
    Builder, Credentials, anonymous, external_account, impersonated, service_account, user_account,
};
use serde_json::Value;

use super::setup;
use super::url::Address;

/// Where Google's clients look for a file.
const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// The credentials for an address, and the identity that they belong to.
pub(super) fn find(address: &Address) -> Result<(Credentials, String), TransportError> {
    if address.emulator {
        return Ok((anonymous::Builder::new().build(), "no identity (emulator)".into()));
    }
    let variable = std::env::var(VARIABLE).ok().filter(|file| !file.is_empty());
    match (&address.credentials, variable) {
        (Some(file), _) => read("?credentials", file),
        (None, Some(file)) => read(VARIABLE, &file),
        (None, None) => {
            let found = Builder::default().build().map_err(|_| {
                setup(format!(
                    "there are no default credentials of Google; set {VARIABLE} or add \
                     ?credentials=FILE to the address"
                ))
            })?;
            Ok((found, "the default credentials".into()))
        }
    }
}

fn read(setting: &str, file: &str) -> Result<(Credentials, String), TransportError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| setup(format!("{setting}={file} cannot be read: {error}")))?;
    // Leave out the parser's error, which could quote the file.
    let json: Value = serde_json::from_str(&text)
        .map_err(|_| setup(format!("{setting}={file} is not JSON; download the key again")))?;
    let kind = json["type"].as_str().unwrap_or("none").to_owned();
    let email = json["client_email"].as_str().map(str::to_owned);
    let built = match kind.as_str() {
        "service_account" => service_account::Builder::new(json).build(),
        "authorized_user" => user_account::Builder::new(json).build(),
        "external_account" => external_account::Builder::new(json).build(),
        "impersonated_service_account" => impersonated::Builder::new(json).build(),
        _ => {
            return Err(setup(format!(
                "{setting}={file} has no \"type\" of credentials, such as service_account"
            )));
        }
    };
    let built = built.map_err(|_| {
        setup(format!("{setting}={file} is not a complete {kind}; download it again"))
    })?;
    Ok((built, email.unwrap_or_else(|| format!("{setting}={file}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(content: Option<&str>) -> String {
        let file = std::env::temp_dir().join(format!("chapar-credentials-{:x}", fastrand::u64(..)));
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let said = read("?credentials", &file.display().to_string()).unwrap_err().to_string();
        let _ = std::fs::remove_file(&file);
        assert!(said.contains("?credentials="), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
        said
    }

    #[test]
    fn a_wrong_file_is_named_and_not_quoted() {
        assert!(said(None).contains("cannot be read"));
        assert!(said(Some("s3cret")).contains("not JSON"));
        assert!(said(Some("{\"private_key\": \"s3cret\"}")).contains("service_account"));
        let half = "{\"type\": \"service_account\", \"private_key\": \"s3cret\"}";
        assert!(said(Some(half)).contains("not a complete service_account"));
    }
}
