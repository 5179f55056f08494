//! The endpoint of a program that is built without the feature `push`: there is none, so it is
//! never called.

use std::time::Duration;

use chapar_core::Profile;
use chapar_core::port::Clock;
use chapar_sql::Arrival;

use crate::failure::Failure;

#[derive(Debug, Clone)]
pub(crate) enum Endpoint {}

impl Endpoint {
    pub(crate) async fn call(
        &self,
        _: &Profile,
        _: &dyn Clock,
        _: &str,
        _: &Arrival,
        _: Duration,
    ) -> Result<(), Failure> {
        match *self {}
    }
}
