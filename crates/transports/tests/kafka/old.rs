//! A broker that is too old.

use chapar_core::port::TransportError;
use chapar_testkit::need;
use chapar_testkit::servers::Launch;
use chapar_transports::kafka::Kafka;

use crate::specifics::options;

/// Not when the first event is published, and not as an outage that is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_too_old_is_refused_with_what_to_use() {
    let server = need!(need!(Launch::old_kafka()).start());
    let url = format!("kafka://{}", server.url());
    let error = Kafka::connect(&url, options("a")).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, TransportError::Setup(_)), "{said}");
    for text in ["too old", "2.4 or newer", "address"] {
        assert!(said.contains(text), "{said}");
    }
}
