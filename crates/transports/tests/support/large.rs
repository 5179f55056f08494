//! Messages of which few are much memory.

use std::time::{Duration, Instant};

use chapar_core::port::{Outgoing, SubscriptionSpec, Transport};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const ROUNDS: u8 = 100;

/// The memory of this process, in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

/// What a consumer does not take stays with the broker, and comes in its order.
pub(crate) async fn are_not_all_read_ahead(
    transport: &dyn Transport,
    spec: &SubscriptionSpec,
    message: impl Fn(&str) -> Outgoing,
) {
    for round in 0..ROUNDS {
        let large = |key| Outgoing { body: vec![round; 900_000].into(), ..message(key) };
        let (batch, limit) = (KEYS.map(large), Instant::now() + Duration::from_secs(60));
        // A disk may be slow for a while; then a relay publishes again, and so do we.
        while let Some(Err(error)) =
            transport.publish(batch.to_vec()).await.into_iter().find(Result::is_err)
        {
            assert!(error.is_retryable() && Instant::now() < limit, "{error}");
        }
    }
    let before = resident();
    let reader = transport.subscribe(spec).await.unwrap();
    let (mut got, limit) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while got.is_empty() {
        assert!(Instant::now() < limit, "nothing arrives");
        got = reader.fetch(1, Duration::from_millis(200)).await.unwrap();
    }
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        // 360 MB of messages. Other tests run beside this one, and take some memory as well.
        let more = resident().saturating_sub(before);
        assert!(more < 220, "{more} MiB more than before");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut rounds = vec![Vec::new(); KEYS.len()];
    let limit = Instant::now() + Duration::from_secs(60);
    while rounds.iter().any(|of_key| of_key.len() < usize::from(ROUNDS)) {
        assert!(Instant::now() < limit, "{:?}", rounds.iter().map(Vec::len).collect::<Vec<_>>());
        let mut tokens = Vec::new();
        for delivery in got {
            let key = KEYS.iter().position(|key| delivery.key.as_deref() == Some(key)).unwrap();
            rounds[key].push(delivery.body[0]);
            tokens.push(delivery.token);
        }
        reader.ack(&tokens).await.unwrap();
        got = reader.fetch(16, Duration::from_millis(200)).await.unwrap();
    }
    assert!(rounds.iter().all(|of_key| of_key.iter().copied().eq(0..ROUNDS)), "{rounds:?}");
}
