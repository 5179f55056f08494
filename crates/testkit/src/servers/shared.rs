//! The server that all tests of a run share.

use std::sync::OnceLock;

use super::{Endpoint, Instance, Kind, Launch, ServerError, keeper};

/// The shared server of that kind, started now if it was not requested before.
///
/// It is, in this order: the one that [`Kind::variable`] names; the one of the run's [`Keeper`](super::Keeper); one that
/// this process starts and that ends with it.
pub fn shared(kind: Kind) -> Result<Endpoint, ServerError> {
    if let Some(endpoint) = given(kind) {
        let endpoint = endpoint?;
        keeper::report_use(&endpoint);
        return Ok(endpoint);
    }
    if let Some(answer) = keeper::ask(kind) {
        return answer;
    }
    static OWN: Shelf = Shelf::new();
    OWN.get(kind)
}

/// The server that the environment names, checked to answer.
pub(super) fn given(kind: Kind) -> Option<Result<Endpoint, ServerError>> {
    let url = std::env::var(kind.variable()).ok().filter(|url| !url.is_empty())?;
    Some(match kind.recipe().probe(&url) {
        Ok(version) => {
            let version = version.unwrap_or_else(|| "unknown".to_owned());
            Ok(Endpoint { kind, url, version, given: true })
        }
        Err(reason) => {
            let variable = kind.variable();
            Err(ServerError::broken(kind, format!("{variable}={url} does not answer: {reason}")))
        }
    })
}

/// One lazily started server of each kind.
#[derive(Debug)]
pub(super) struct Shelf([OnceLock<Result<Instance, ServerError>>; Kind::ALL.len()]);

impl Shelf {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; Kind::ALL.len()])
    }

    /// Waits for a start in progress; a failed start is not tried again, so that every test names the same cause.
    pub(super) fn get(&self, kind: Kind) -> Result<Endpoint, ServerError> {
        self.0[kind as usize]
            .get_or_init(|| Launch::of(kind).start())
            .as_ref()
            .map(|instance| instance.endpoint().clone())
            .map_err(Clone::clone)
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().filter_map(|cell| cell.get()?.as_ref().ok()).map(Instance::endpoint)
    }
}
