//! A throw-away authority for certificates, so that tests of TLS need none of anybody's.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

use crate::servers::give_to_server_user;

/// Signs certificates; its files are deleted when it is dropped.
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key, which only its owner may read.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority, which no system trusts.
    ///
    /// # Panics
    ///
    /// Fails the test where the machine has no randomness or no room for its files.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder for certificates");
        // Servers may run as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a folder");
        let mut params = params("a throw-away authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        fs::write(folder.path().join("ca.pem"), cert.pem()).expect("a file for the authority");
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    /// Its own certificate, which those who trust it are given.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// For a server at 127.0.0.1 and localhost.
    pub fn server(&self) -> Certified {
        let mut params = params("localhost");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let named = CertificateParams::new(names).expect("two good names");
        params.subject_alt_names = named.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params, "server")
    }

    /// For a client of this name.
    pub fn client(&self, name: &str) -> Certified {
        let mut params = params(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, name)
    }

    /// For a client whose time is over.
    pub fn expired_client(&self, name: &str) -> Certified {
        let mut params = params(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(&params, &format!("{name}-expired"))
    }

    fn sign(&self, params: &CertificateParams, file: &str) -> Certified {
        use std::os::unix::fs::PermissionsExt;
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let at = |ending: &str| self.folder.path().join(format!("{file}.{ending}"));
        let files = Certified { cert: at("pem"), key: at("key") };
        fs::write(&files.cert, cert.pem()).expect("a file for the certificate");
        fs::write(&files.key, key.serialize_pem()).expect("a file for the key");
        // PostgreSQL refuses a key that others may read.
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("a private key");
        give_to_server_user(&files.key).expect("a key that a server can read");
        files
    }

    /// Where its files lie, for others that a test needs beside them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
