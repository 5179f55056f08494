use std::sync::Arc;
use std::time::Duration;

use chapar_server::{Expected, PushAnswer, PushEndpoint};
use chapar_transports::pubsub::{Handed, PubSub, Pushed};

/// The transport for the app of the service: pushed messages in, its own events out.
pub(crate) fn transport(pubsub: PubSub) -> Pushed {
    Pushed::over(Arc::new(pubsub), Some("melmastoon"), Duration::from_secs(55))
}

/// The route that Pub/Sub pushes to. A message is applied before it is answered.
pub(crate) fn endpoint(pushed: Pushed, expected: Expected, keys: &str) -> PushEndpoint {
    PushEndpoint::new(expected, keys, move |topic, body| {
        let pushed = pushed.clone();
        async move {
            match pushed.deliver(&topic, &body).await {
                Handed::Done => PushAnswer { status: 204, said: String::new() },
                Handed::Again => PushAnswer { status: 503, said: "again".into() },
                Handed::Unknown => PushAnswer { status: 404, said: "no consumer".into() },
                Handed::Malformed(why) => PushAnswer { status: 400, said: why },
            }
        }
    })
}
