use serde_json::Value;

use crate::envelope::Tenant;
use crate::port::BoxFuture;

/// A call to the outside that a handler asked for and that the engine carries out later.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// What kind of call, such as `payment.capture`.
    pub kind: String,
    /// The same for every attempt of the same intent; vendors dedupe by it.
    pub idempotency_key: String,
    /// On whose behalf.
    pub tenant: Tenant,
    /// What the call needs.
    pub request: Value,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// Why an effect did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EffectError {
    /// It may work later: a timeout, a 503, a broken connection.
    #[error("{0}")]
    Retryable(String),
    /// It will never work: a refused card, an invalid request.
    #[error("{0}")]
    Terminal(String),
}

/// Carries out effects outside of any transaction.
///
/// # Contract
/// - May be called again with the same idempotency key, also when an earlier call succeeded
///   and its answer was lost: the vendor must dedupe by the key, or the call must be harmless.
/// - Never runs while a database transaction of the engine is open.
/// - The answer re-enters the road as an event; it is recorded at most once.
pub trait Effects: Send + Sync {
    /// Carries out one attempt.
    fn run<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, EffectError>>;
}
