//! Statements of handlers: parameters, and the tenant and time that the engine binds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chapar_core::Tenant;
use chapar_sql::Value;
use jiff::Timestamp;

/// The parameters of a statement, each by reference: text, numbers, times, bytes, lists, options
/// and whatever implements [`Param`](crate::Param).
///
/// ```
/// use chapar::prelude::*;
///
/// let (room, nights) = (String::from("101"), 2);
/// let parameters = params![room, nights, Some("late arrival")];
/// assert_eq!(parameters.len(), 3);
/// assert_eq!(room, "101");
/// ```
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        ::std::vec![$($crate::Param::param(&$value)),*]
    };
}

/// What the engine binds by itself.
const NAMES: [&str; 2] = [":tenant", ":now"];

/// Replaces `:tenant` and `:now` by one more parameter each, where the statement has them.
pub(crate) fn bind(
    sql: &'static str,
    mut params: Vec<Value>,
    tenant: &Tenant,
    now: Timestamp,
) -> (&'static str, Vec<Value>) {
    if !NAMES.iter().any(|name| sql.contains(name)) {
        return (sql, params);
    }
    let (bound, used) = numbered(sql, params.len() + 1);
    if used[0] {
        params.push(tenant.as_str().into());
    }
    if used[1] {
        params.push(now.into());
    }
    (bound, params)
}

/// A statement with numbers in place of names, and which of the names it has.
type Numbered = (&'static str, [bool; 2]);

/// The statement with its names as `$n`, `$n+1`. Each text is made once per process and kept,
/// because statements are cached by their text and are constants of the program.
fn numbered(sql: &'static str, n: usize) -> Numbered {
    static MADE: Mutex<Option<HashMap<(&'static str, usize), Numbered>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    *made.entry((sql, n)).or_insert_with(|| {
        let used = NAMES.map(|name| replaced(sql, name, n) != sql);
        let bound = if used[0] { replaced(sql, NAMES[0], n) } else { sql.to_owned() };
        let bound = replaced(&bound, NAMES[1], n + usize::from(used[0]));
        (bound.leak(), used)
    })
}

/// Replaces outside of quotes and comments; `::tenant` is a cast and stays.
fn replaced(sql: &str, name: &str, n: usize) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '\'' | '"' => quoted(rest, next),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            ':' if rest.starts_with("::") => 2,
            ':' if begins_with(rest, name) => {
                out.push_str(&format!("${n}"));
                rest = &rest[name.len()..];
                continue;
            }
            other => other.len_utf8(),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

fn begins_with(text: &str, name: &str) -> bool {
    let after = text.strip_prefix(name);
    after.is_some_and(|after| {
        !after.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

fn quoted(text: &str, quote: char) -> usize {
    text[1..].find(quote).map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_and_time_are_one_more_parameter_each() {
        let tenant: Tenant = "acme".parse().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let bind = |sql, first: &str| bind(sql, vec![first.into()], &tenant, now);
        let sql = "insert into t (tenant, a) values (:tenant, $1) -- :tenant\n";
        let (bound, params) = bind(sql, "x");
        assert_eq!(bound, "insert into t (tenant, a) values ($2, $1) -- :tenant\n");
        assert_eq!(params, vec![Value::from("x"), Value::from("acme")]);
        assert!(std::ptr::eq(bound, bind(sql, "y").0), "made once");
        let (bound, params) = bind("values (:now, $1, ':now')", "x");
        assert_eq!(bound, "values ($2, $1, ':now')");
        assert_eq!(params, vec![Value::from("x"), Value::from(now)]);
        let (bound, params) = bind("values (:now, $1, :tenant, :now)", "x");
        assert_eq!(bound, "values ($3, $1, $2, $3)");
        assert_eq!(params, vec![Value::from("x"), Value::from("acme"), Value::from(now)]);
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        for sql in [
            "select ':tenant'",
            "select \":tenant\"",
            "select a::tenant",
            "select :tenants",
            "/* :tenant */ select 1",
            "select 'it''s :tenant'",
            "select ':tenant",
        ] {
            assert_eq!(replaced(sql, NAMES[0], 1), sql);
        }
        let sql = "where a=:tenant and b=:tenant";
        assert_eq!(replaced(sql, NAMES[0], 3), "where a=$3 and b=$3");
    }
}
