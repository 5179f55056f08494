//! PostgreSQL over TLS, with passwords and certificates that are right, wrong and out of date.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::time::Duration;

use chapar_sql::{Store, StoreError, StoreOptions};
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError};
use chapar_testkit::{Authority, need};

/// A server that talks to `guest` over TLS with a password and to `machine` only by certificate.
struct Locked {
    authority: Authority,
    server: Instance,
}

impl Locked {
    fn start() -> Result<Self, ServerError> {
        let authority = Authority::new();
        let hba = authority.folder().join("pg_hba.conf");
        fs::write(
            &hba,
            "host all postgres 127.0.0.1/32 trust\n\
             hostssl all guest 127.0.0.1/32 scram-sha-256\n\
             hostssl all machine 127.0.0.1/32 cert\n",
        )
        .unwrap();
        let certified = authority.server();
        let path = |path: std::path::PathBuf| path.display().to_string();
        let server = Launch::of(Kind::Postgres)
            .setting("ssl", "on")
            .setting("ssl_cert_file", path(certified.cert))
            .setting("ssl_key_file", path(certified.key))
            .setting("ssl_ca_file", path(authority.file()))
            .setting("hba_file", path(hba))
            .start()?;
        Ok(Locked { authority, server })
    }

    fn url(&self, login: &str, settings: &str) -> String {
        let url = self.server.url().replace("postgres:postgres@", &format!("{login}@"));
        format!("{url}?{settings}")
    }

    /// Settings that trust the authority.
    fn trusted(&self, more: &str) -> String {
        format!("sslmode=verify-full&sslrootcert={}{more}", self.authority.file().display())
    }

    async fn admin(&self) -> Store {
        Store::open(self.server.url(), &options()).await.unwrap()
    }
}

fn options() -> StoreOptions {
    StoreOptions { timeout: Duration::from_secs(5), ..StoreOptions::default() }
}

async fn who(store: &Store) -> Result<String, StoreError> {
    let mut tx = store.begin_raw().await?;
    let ask = "select current_user || case when ssl then ' secured' else ' in the open' end \
               from pg_stat_ssl where pid = pg_backend_pid()";
    tx.fetch(ask, vec![]).await?[0].get(0)
}

async fn refused(url: &str) -> String {
    let error = Store::open(url, &options()).await.unwrap_err();
    let said = error.to_string();
    for secret in ["s3cret", "wr0ng"] {
        assert!(!said.contains(secret) && !format!("{error:?}").contains(secret), "{said}");
    }
    said
}

#[tokio::test]
async fn postgres_is_reached_over_tls_and_what_is_wrong_is_named() {
    let locked = need!(Locked::start());
    let admin = locked.admin().await;
    let mut tx = admin.begin_raw().await.unwrap();
    tx.execute("create role guest login password 's3cret'", vec![]).await.unwrap();
    tx.execute("create role machine login", vec![]).await.unwrap();
    tx.commit().await.unwrap();

    let guest = locked.url("guest:s3cret", &locked.trusted(""));
    let store = Store::open(&guest, &options()).await.unwrap();
    assert_eq!(who(&store).await.unwrap(), "guest secured");
    assert!(!format!("{store:?}").contains("s3cret"), "{store:?}");

    let said = refused(&locked.url("guest:wr0ng", &locked.trusted(""))).await;
    assert!(said.contains("check user and password"), "{said}");
    let stranger = Authority::new();
    let other = format!("sslmode=verify-full&sslrootcert={}", stranger.file().display());
    let said = refused(&locked.url("guest:s3cret", &other)).await;
    assert!(said.contains("not trusted; check sslrootcert"), "{said}");
    let missing = "sslmode=verify-full&sslrootcert=/nowhere/ca.pem";
    let said = refused(&locked.url("guest:s3cret", missing)).await;
    assert!(said.contains("sslrootcert /nowhere/ca.pem cannot be read"), "{said}");
    let said = refused(&locked.url("guest:s3cret", "sslmode=disable")).await;
    assert!(said.contains("sslmode") && said.contains("pg_hba.conf"), "{said}");

    let by = |certified: &chapar_testkit::Certified| {
        let (cert, key) = (certified.cert.display(), certified.key.display());
        locked.url("machine", &locked.trusted(&format!("&sslcert={cert}&sslkey={key}")))
    };
    let certified = locked.authority.client("machine");
    let store = Store::open(&by(&certified), &options()).await.unwrap();
    assert_eq!(who(&store).await.unwrap(), "machine secured");
    for wrong in [locked.authority.expired_client("machine"), stranger.client("machine")] {
        let said = refused(&by(&wrong)).await;
        assert!(said.contains("check sslcert and sslkey"), "{said}");
    }
    let said = refused(&by(&locked.authority.client("guest"))).await;
    assert!(said.contains("sslcert"), "{said}");
    let said = refused(&locked.url("machine", &locked.trusted(""))).await;
    assert!(said.contains("sslcert"), "{said}");
}

#[tokio::test]
async fn a_password_is_read_again_when_the_old_one_is_refused() {
    let locked = need!(Locked::start());
    let admin = locked.admin().await;
    let run = async |sql: &'static str| {
        let mut tx = admin.begin_raw().await.unwrap();
        tx.execute(sql, vec![]).await.unwrap();
        tx.commit().await.unwrap();
    };
    run("create role guest login password 's3cret'").await;
    let file = locked.authority.folder().join("password");
    fs::write(&file, "s3cret\n").unwrap();
    let settings = locked.trusted(&format!("&password_file={}", file.display()));
    let store = Store::open(&locked.url("guest", &settings), &options()).await.unwrap();
    assert_eq!(who(&store).await.unwrap(), "guest secured");

    run("alter role guest password 'n3w'").await;
    fs::write(&file, "n3w\n").unwrap();
    run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'guest'").await;
    assert_eq!(who(&store).await.unwrap(), "guest secured");
    assert!(!format!("{store:?}").contains("n3w"));

    fs::write(&file, "wr0ng").unwrap();
    let said = refused(&locked.url("guest", &settings)).await;
    assert!(said.contains("check user and password"), "{said}");
    fs::remove_file(&file).unwrap();
    let said = refused(&locked.url("guest", &settings)).await;
    assert!(said.contains("password_file") && said.contains("cannot be read"), "{said}");
}

#[tokio::test]
async fn an_address_that_is_none_is_shown_without_its_secret() {
    let said = refused("mysql://guest:s3cret@host/db").await;
    assert!(said.contains("mysql://guest@host/db"), "{said}");
}
