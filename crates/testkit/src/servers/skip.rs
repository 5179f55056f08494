//! A test without its server is skipped by name, never silently, and never in CI.

use std::io::Write;

use super::ServerError;
use super::keeper::{self, Skip};

/// The server, or the end of the test: skipped by name where this machine cannot have it, failed where it is broken or
/// where `CI=true`.
///
/// Works in functions that return `()` or `Result<(), E>`, asynchronous ones too.
///
/// ```no_run
/// use chapar_testkit::{need, servers};
///
/// # fn example() {
/// let nats = need!(servers::nats());
/// println!("{} {}", nats.url(), nats.version());
/// # }
/// ```
#[macro_export]
macro_rules! need {
    ($server:expr) => {
        match $server {
            Ok(server) => server,
            Err(error) => {
                fn here() {}
                $crate::servers::skip(::std::any::type_name_of_val(&here), &error);
                return $crate::servers::Outcome::skipped();
            }
        }
    };
}

/// What a skipped test returns. [`need!`](crate::need) uses it.
pub trait Outcome {
    /// The value of a test that found nothing wrong.
    fn skipped() -> Self;
}

impl Outcome for () {
    fn skipped() {}
}

impl<E> Outcome for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}

/// Records that the test around `place` is skipped. [`need!`](crate::need) calls it.
///
/// # Panics
///
/// Fails the test where the server is there and broken, and where `CI=true`.
#[track_caller]
pub fn skip(place: &str, error: &ServerError) {
    let test = test_name(place);
    if let ServerError::Broken { .. } = error {
        panic!("{error}");
    }
    if std::env::var("CI").is_ok_and(|ci| ci == "true") {
        panic!("{error} (CI=true allows no skipped test)");
    }
    let skip = Skip { test, reason: error.to_string() };
    if !keeper::report_skip(&skip) {
        // Past libtest's capture, which would hide it under plain `cargo test`.
        let _ = writeln!(std::io::stderr(), "skipped {}: {}", skip.test, skip.reason);
    }
}

/// `krate::module::test` out of the path of an item inside it.
fn test_name(place: &str) -> String {
    let test = place.strip_suffix("::here").unwrap_or(place);
    test.split("::").filter(|part| *part != "{{closure}}").collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Kind;

    #[test]
    fn an_asynchronous_test_has_the_name_of_its_function() {
        assert_eq!(test_name("orders::a_test::{{closure}}::here"), "orders::a_test");
    }

    #[test]
    #[should_panic(expected = "does not work")]
    fn a_broken_server_fails_the_test() {
        skip("orders::a_test::here", &ServerError::broken(Kind::Nats, "no"));
    }
}
