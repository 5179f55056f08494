//! Servers that ask who comes: certificates, passwords, tokens, nkeys and credentials that are
//! right, wrong and out of date.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chapar_core::port::{Transport, TransportError};
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError};
use chapar_testkit::{Authority, Certified, need};
use chapar_transports::nats::{Nats, NatsLogin, NatsOptions};
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::specifics::{message, options};
use super::topology::{CANCELLED, HELD};

async fn connect(url: &str, login: &NatsLogin) -> Result<Nats, TransportError> {
    let timeout = Duration::from_secs(3);
    let nats = Nats::connect(url, NatsOptions { login: login.clone(), timeout, ..options("a") });
    let nats = nats.await?;
    nats.publish(vec![message(HELD, "inn", "inn:1")]).await.remove(0).map(|_| nats)
}

async fn refused(url: &str, login: &NatsLogin) -> String {
    let error = connect(url, login).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, TransportError::Setup(_)), "trying again is no use: {said}");
    for secret in ["s3cret", "wr0ng", "SU"] {
        assert!(!said.contains(secret), "{said}");
    }
    said
}

fn secured(authority: &Authority, verify: bool) -> Result<Instance, ServerError> {
    let Certified { cert, key } = authority.server();
    let (cert, key, ca) = (cert.display(), key.display(), authority.file());
    let tls = format!(
        "{{cert_file: \"{cert}\", key_file: \"{key}\", ca_file: \"{}\", verify: {verify}}}",
        ca.display()
    );
    Launch::of(Kind::Nats).setting("tls", tls).start()
}

#[tokio::test]
async fn a_server_and_its_client_know_each_other_by_certificates() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = need!(secured(&authority, true));
    let by = |trusted: &Authority, certified: Certified| NatsLogin {
        ca_file: Some(trusted.file()),
        cert_file: Some(certified.cert),
        key_file: Some(certified.key),
        ..NatsLogin::default()
    };
    connect(server.url(), &by(&authority, authority.client("desk"))).await.unwrap();
    let secure = server.url().replace("nats://", "tls://");
    connect(&secure, &by(&authority, authority.client("desk"))).await.unwrap();

    let said = refused(server.url(), &by(&stranger, authority.client("desk"))).await;
    assert!(said.contains("not trusted; check ca_file"), "{said}");
    for wrong in [authority.expired_client("desk"), stranger.client("desk")] {
        let said = refused(server.url(), &by(&authority, wrong)).await;
        assert!(said.contains("check cert_file and key_file"), "{said}");
    }
    let none = NatsLogin { ca_file: Some(authority.file()), ..NatsLogin::default() };
    let said = refused(server.url(), &none).await;
    assert!(said.contains("check cert_file and key_file"), "{said}");
    let missing = NatsLogin { ca_file: Some("/nowhere/ca.pem".into()), ..NatsLogin::default() };
    let said = refused(server.url(), &missing).await;
    assert!(said.contains("ca_file: /nowhere/ca.pem cannot be read"), "{said}");
    let half = NatsLogin { key_file: None, ..by(&authority, authority.client("desk")) };
    assert!(refused(server.url(), &half).await.contains("cert_file needs key_file"));
}

#[tokio::test]
async fn tls_alone_asks_for_no_certificate_of_the_client() {
    let authority = Authority::new();
    let server = need!(secured(&authority, false));
    let login = NatsLogin { ca_file: Some(authority.file()), ..NatsLogin::default() };
    connect(server.url(), &login).await.unwrap();
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file
}

#[tokio::test]
async fn passwords_and_tokens_come_from_files_and_are_never_said() {
    let folder = tempfile::tempdir().unwrap();
    let right = file(folder.path(), "right", "s3cret\n");
    let wrong = file(folder.path(), "wrong", "wr0ng\n");
    let users = "{user: desk, password: s3cret}";
    let server = need!(Launch::of(Kind::Nats).setting("authorization", users).start());
    let by = |file: &PathBuf| NatsLogin {
        user: Some("desk".into()),
        password_file: Some(file.clone()),
        ..NatsLogin::default()
    };
    let nats = connect(server.url(), &by(&right)).await.unwrap();
    assert!(!format!("{nats:?}").contains("s3cret"));
    let said = refused(server.url(), &by(&wrong)).await;
    assert!(said.contains("refuses the credentials; check password_file"), "{said}");
    let url = server.url().replace("nats://", "nats://desk:s3cret@");
    let nats = connect(&url, &NatsLogin::default()).await.unwrap();
    assert!(!format!("{nats:?}").contains("s3cret"));
    let nobody = NatsLogin { user: None, ..by(&right) };
    assert!(refused(server.url(), &nobody).await.contains("password_file needs user"));
    let both = NatsLogin { token_file: Some(right.clone()), ..by(&right) };
    assert!(refused(server.url(), &both).await.contains("password_file and token_file are given"));

    let token = "{token: s3cret}";
    let server = need!(Launch::of(Kind::Nats).setting("authorization", token).start());
    let by = |file: &PathBuf| NatsLogin { token_file: Some(file.clone()), ..NatsLogin::default() };
    connect(server.url(), &by(&right)).await.unwrap();
    let said = refused(server.url(), &by(&wrong)).await;
    assert!(said.contains("check token_file"), "{said}");
}

#[tokio::test]
async fn an_nkey_that_is_replaced_counts_from_the_next_connection_on() {
    let (old, new) = (KeyPair::new_user(), KeyPair::new_user());
    let folder = tempfile::tempdir().unwrap();
    let seed = file(folder.path(), "seed", &old.seed().unwrap());
    // The old user may not publish what the new one may.
    let users = format!(
        "{{users: [{{nkey: {}, permissions: {{publish: {{deny: \"{CANCELLED}.>\"}}}}}}, {{nkey: {}}}]}}",
        old.public_key(),
        new.public_key()
    );
    let mut server = need!(Launch::of(Kind::Nats).setting("authorization", users).start());
    let login = NatsLogin { nkey_file: Some(seed), ..NatsLogin::default() };
    let nats = connect(server.url(), &login).await.unwrap();
    let publish = async || nats.publish(vec![message(CANCELLED, "inn", "inn:1")]).await.remove(0);
    assert!(publish().await.is_err(), "the old key may not");
    file(folder.path(), "seed", &format!("{}\n", new.seed().unwrap()));
    server.stop();
    server.restart().unwrap();
    let limit = Instant::now() + Duration::from_secs(30);
    while let Err(error) = publish().await {
        assert!(Instant::now() < limit, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let stranger = file(folder.path(), "stranger", &KeyPair::new_user().seed().unwrap());
    let said =
        refused(server.url(), &NatsLogin { nkey_file: Some(stranger), ..login.clone() }).await;
    assert!(said.contains("check nkey_file"), "{said}");
    let odd = file(folder.path(), "odd", "SUwr0ng");
    let said = refused(server.url(), &NatsLogin { nkey_file: Some(odd), ..login }).await;
    assert!(said.contains("holds no good seed"), "{said}");
}

/// A token as an operator or an account signs it.
fn signed(by: &KeyPair, subject: &str, name: &str, nats: Value) -> String {
    use base64::Engine as _;
    let part =
        |value: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": by.public_key(), "name": name, "sub": subject,
        "nats": nats,
    });
    let text = format!("{}.{}", part(json!({"typ": "JWT", "alg": "ed25519-nkey"})), part(claims));
    let signature = by.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn a_credentials_file_is_a_token_and_the_seed_that_proves_it() {
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let (user, other) = (KeyPair::new_user(), KeyPair::new_user());
    let limits = |stored: i64| {
        json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
            "conn": -1, "leaf": -1, "mem_storage": stored, "disk_storage": stored, "streams": stored, "consumer": stored,
        })
    };
    let of_operator =
        signed(&operator, &operator.public_key(), "op", json!({"type": "operator", "version": 2}));
    let system = KeyPair::new_account();
    let preload: Vec<String> = [(&account, "hotel", -1), (&system, "system", 0)]
        .map(|(account, name, stored)| {
            let claims = json!({"type": "account", "version": 2, "limits": limits(stored)});
            let token = signed(&operator, &account.public_key(), name, claims);
            format!("{}: \"{token}\"", account.public_key())
        })
        .to_vec();
    let of_user = signed(
        &account,
        &user.public_key(),
        "desk",
        json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}),
    );
    let server = need!(
        Launch::of(Kind::Nats)
            .setting("operator", format!("\"{of_operator}\""))
            .setting("resolver", "MEMORY")
            .setting("resolver_preload", format!("{{{}}}", preload.join(", ")))
            .setting("system_account", system.public_key())
            .start()
    );
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, pair: &KeyPair| NatsLogin {
        credentials_file: Some(file(
            folder.path(),
            name,
            &format!(
                "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
                pair.seed().unwrap()
            ),
        )),
        ..NatsLogin::default()
    };
    connect(server.url(), &written("good.creds", &user)).await.unwrap();
    let said = refused(server.url(), &written("stolen.creds", &other)).await;
    assert!(said.contains("check credentials_file"), "{said}");
    let empty = file(folder.path(), "empty.creds", "");
    let empty = NatsLogin { credentials_file: Some(empty), ..NatsLogin::default() };
    let said = refused(server.url(), &empty).await;
    assert!(said.contains("has no part NATS USER JWT"), "{said}");
}
