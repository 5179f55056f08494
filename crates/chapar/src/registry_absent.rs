//! The registry of a program that is built without the feature `contracts`: there is none, so no
//! method of it is ever called.

use std::sync::Arc;

use chapar_core::bundle::Contract;
use chapar_core::{Envelope, Payload, Violations};

#[derive(Debug)]
pub(crate) enum Registry {}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) contract: Contract,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) enum SchemaRefusal {
    Invalid(String),
    #[allow(dead_code, reason = "a registry makes it")]
    UnknownSchema(String),
}

impl Registry {
    pub(crate) fn contains(&self, _: &str) -> bool {
        match *self {}
    }

    pub(crate) fn may_publish(&self, _: &str, _: Option<&str>) -> Result<Arc<Entry>, Violations> {
        match *self {}
    }

    pub(crate) fn check_written(&self, _: &str, _: &Payload) -> Result<(), Violations> {
        match *self {}
    }

    pub(crate) fn check_read(&self, _: &str, _: &Envelope) -> Result<(), SchemaRefusal> {
        match *self {}
    }

    pub(crate) fn check_message(&self, _: &str, _: &[u8]) -> Result<(), String> {
        match *self {}
    }

    pub(crate) async fn learn(&self, _: &str, _: &str) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn known(&self) -> Vec<chapar_sql::KnownSubject> {
        match *self {}
    }

    pub(crate) fn stamped(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn entry(&self, _: &str) -> Option<Arc<Entry>> {
        match *self {}
    }

    pub(crate) fn older(
        &self,
        _: &Contract,
        _: &Payload,
    ) -> Result<Option<(Arc<Entry>, Payload)>, Violations> {
        match *self {}
    }
}
