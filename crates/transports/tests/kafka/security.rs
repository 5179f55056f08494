//! TLS, mutual TLS and SASL against a real broker, with a certificate authority for the day.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use chapar_core::port::{Transport, TransportError};
use chapar_testkit::need;
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError, free_port};
use chapar_transports::kafka::{Kafka, KafkaOptions};

use crate::specifics::{fetch, message, options, spec, topic};

/// Runs a script in a folder.
fn sh(folder: &Path, script: &str) {
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, a broker's certificate for 127.0.0.1, a client's, and another authority that
/// signed nothing.
const CERTIFICATES: &str = r#"
ca() { openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem"; }
signed() {
    openssl req -newkey rsa:2048 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
    printf 'subjectAltName=IP:127.0.0.1' > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "$1.ext" -out "$1.pem"
}
ca ca; ca stranger; signed broker; signed clerk
cat broker.key broker.pem > broker.both.pem
printf 'hunter2\n' > password; printf 'wrong\n' > wrong
"#;

/// A broker with a listener of each kind; everything about it is in a folder.
struct Vault {
    server: Instance,
    folder: tempfile::TempDir,
    tls: u16,
    mutual: u16,
    scram: u16,
    plain: u16,
}

impl Vault {
    fn open() -> Result<Self, ServerError> {
        let folder = tempfile::tempdir().unwrap();
        sh(folder.path(), CERTIFICATES);
        let file = |name: &str| folder.path().join(name).display().to_string();
        let [tls, mutual, scram, plain] = [(); 4].map(|()| free_port().unwrap());
        let listener = |name: &str, protocol: &str, port: u16| {
            ("+listener".to_owned(), format!("{name} {protocol} {port} {port}"))
        };
        let module = "org.apache.kafka.common.security";
        let mut launch = Launch::of(Kind::Kafka);
        for (name, value) in [
            listener("TLS", "SSL", tls),
            listener("MUTUAL", "SSL", mutual),
            listener("SCRAM", "SASL_SSL", scram),
            listener("PLAIN", "SASL_SSL", plain),
            ("+scram".into(), "SCRAM-SHA-256=[name=clerk,password=hunter2]".into()),
            ("ssl.keystore.type".into(), "PEM".into()),
            ("ssl.keystore.location".into(), file("broker.both.pem")),
            ("ssl.truststore.type".into(), "PEM".into()),
            ("ssl.truststore.location".into(), file("ca.pem")),
            ("listener.name.mutual.ssl.client.auth".into(), "required".into()),
            ("listener.name.scram.sasl.enabled.mechanisms".into(), "SCRAM-SHA-256".into()),
            (
                "listener.name.scram.scram-sha-256.sasl.jaas.config".into(),
                format!("{module}.scram.ScramLoginModule required;"),
            ),
            ("listener.name.plain.sasl.enabled.mechanisms".into(), "PLAIN".into()),
            (
                "listener.name.plain.plain.sasl.jaas.config".into(),
                format!("{module}.plain.PlainLoginModule required user_clerk=\"hunter2\";"),
            ),
        ] {
            launch = launch.setting(name, value);
        }
        Ok(Vault { server: launch.start()?, folder, tls, mutual, scram, plain })
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// An address with `NAME` in its options standing for the file of that name.
    fn url(&self, port: u16, options: &str) -> String {
        let mut url = format!("kafka://127.0.0.1:{port}?{options}");
        for name in
            ["ca.pem", "stranger.pem", "clerk.pem", "clerk.key", "=password", "=wrong", "=nowhere"]
        {
            let path = self.file(name.trim_start_matches('='));
            let path = if name.starts_with('=') { format!("={path}") } else { path };
            url = url.replace(name, &path);
        }
        url
    }
}

fn patient() -> KafkaOptions {
    KafkaOptions { timeout: Duration::from_secs(10), ..options("a") }
}

async fn works(url: &str) {
    let kafka = Kafka::connect(url, patient()).await.unwrap_or_else(|e| panic!("{url}: {e}"));
    let topic = topic();
    let sent = message(&topic, "a");
    kafka.publish(vec![sent.clone()]).await.remove(0).unwrap();
    let reader = kafka.subscribe(&spec(&format!("desk-{topic}"), &[&topic])).await.unwrap();
    assert_eq!(fetch(&*reader, 1).await[0].body, sent.body);
    reader.close().await.unwrap();
}

async fn refused(url: &str, expected: &[&str]) {
    let since = Instant::now();
    let error = Kafka::connect(url, patient()).await.map(drop).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, TransportError::Setup(_)), "{url}: {said}");
    for text in expected {
        assert!(said.contains(text), "{url} said: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    assert!(since.elapsed() < Duration::from_secs(9), "it is noticed before the time is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_secured_by_the_options_of_the_address() {
    let vault = need!(Vault::open());
    let clerk = "ca=ca.pem&sasl=SCRAM-SHA-256&user=clerk&password_file";
    works(&vault.url(vault.tls, "ca=ca.pem")).await;
    works(&vault.url(vault.mutual, "ca=ca.pem&cert=clerk.pem&key=clerk.key")).await;
    works(&vault.url(vault.scram, &format!("{clerk}=password"))).await;
    works(&vault.url(vault.plain, "ca=ca.pem&sasl=PLAIN&user=clerk&password_file=password")).await;
    let given = vault.url(vault.plain, "ca=ca.pem&sasl=PLAIN").replace("//", "//clerk:hunter2@");
    works(&given).await;

    let certificate = ["check tls, ca, cert and key"];
    refused(&vault.url(vault.tls, "ca=stranger.pem"), &certificate).await;
    let anonymous = Kafka::connect(&vault.url(vault.mutual, "ca=ca.pem"), options("a")).await;
    let said = anonymous.map(drop).unwrap_err().to_string();
    assert!(said.contains("check tls, ca, cert and key"), "{said}");
    let credentials = ["refuses the credentials", "password_file"];
    refused(&vault.url(vault.scram, &format!("{clerk}=wrong")), &credentials).await;
    refused(
        &vault.url(vault.plain, "ca=ca.pem&sasl=PLAIN&user=clerk&password_file=wrong"),
        &credentials,
    )
    .await;
    refused(&vault.url(vault.scram, &format!("{clerk}=nowhere")), &["nowhere"]).await;

    rotated(&vault, &format!("{clerk}=rotating")).await;
}

/// A consumer that is refused reads its password again, and goes on once it is right.
async fn rotated(vault: &Vault, options: &str) {
    let password = vault.folder.path().join("rotating");
    let url = vault.url(vault.scram, options).replace("rotating", &password.display().to_string());
    std::fs::write(&password, "hunter2").unwrap();
    let kafka = Kafka::connect(&url, patient()).await.unwrap();
    let topic = topic();
    let sent = message(&topic, "a");
    kafka.publish(vec![sent.clone()]).await.remove(0).unwrap();
    std::fs::write(&password, "not yet").unwrap();
    let reader = kafka.subscribe(&spec(&format!("desk-{topic}"), &[&topic])).await.unwrap();
    let limit = Instant::now() + Duration::from_secs(20);
    let said = loop {
        match reader.fetch(1, Duration::from_millis(100)).await {
            Ok(got) => assert!(got.is_empty(), "delivered with a wrong password"),
            Err(error) => break error.to_string(),
        }
        assert!(Instant::now() < limit, "a refused consumer says nothing");
    };
    assert!(said.contains("password_file") && !said.contains("not yet"), "{said}");
    std::fs::write(&password, "hunter2").unwrap();
    loop {
        if let Ok(got) = reader.fetch(1, Duration::from_millis(100)).await
            && let Some(got) = got.first()
        {
            assert_eq!(got.body, sent.body);
            return;
        }
        assert!(Instant::now() < limit, "the new password is not read");
    }
}

/// Who comes otherwise than the listener asks is told which options to look at, whether the broker
/// says something or just hangs up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_said_by_the_names_of_the_options() {
    let vault = need!(Vault::open());
    let (_, plaintext) = vault.server.url().rsplit_once(':').unwrap();
    let plaintext: u16 = plaintext.parse().unwrap();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = stranger.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for caller in stranger.incoming().flatten() {
            let _ = (&caller).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let says = async |url: &str, expected: &[&str]| {
        let error = Kafka::connect(url, options("a")).await.map(drop).unwrap_err();
        let said = error.to_string();
        for text in expected {
            assert!(said.contains(text), "{url} said: {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
        matches!(error, TransportError::Setup(_))
    };
    let clerk = "sasl=SCRAM-SHA-256&user=clerk&password_file=password";
    let hung_up = [
        (vault.url(vault.tls, ""), &["check host, port, tls, sasl and user"][..]),
        (vault.url(plaintext, "ca=ca.pem"), &["check tls, ca, cert and key", "host, port"]),
        (vault.url(vault.scram, "ca=ca.pem"), &["check host, port, sasl and user"]),
        (vault.url(vault.scram, clerk), &["check host, port, tls"]),
        (format!("kafka://127.0.0.1:{elsewhere}"), &["check host, port"]),
        ("kafka://nobody.invalid:9092".into(), &["nobody.invalid", "check host, port"]),
    ];
    for (url, expected) in hung_up {
        assert!(!says(&url, expected).await, "{url} may be an outage");
    }
    let plain = clerk.replace("SCRAM-SHA-256", "PLAIN");
    let localhost = vault.url(vault.tls, "ca=ca.pem").replace("127.0.0.1", "localhost");
    let no_pem = vault.url(vault.tls, "").replace('?', &format!("?ca={}", vault.file("password")));
    let refused = [
        (vault.url(vault.tls, "tls=true"), &["check tls, ca, cert and key"][..]),
        (localhost, &["its certificate is for the host of the address"]),
        (no_pem, &["the file of ca"]),
        (vault.url(vault.scram, &format!("ca=ca.pem&{plain}")), &["check sasl", "SCRAM-SHA-256"]),
        (vault.url(plaintext, clerk), &["check sasl, user"]),
        (
            vault.url(vault.scram, &format!("ca=ca.pem&{clerk}").replace("clerk&", "nobody&")),
            &["user"],
        ),
    ];
    for (url, expected) in refused {
        assert!(says(&url, expected).await, "trying {url} again is no use");
    }
}
