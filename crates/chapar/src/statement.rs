//! Statements of handlers: parameters, and the tenant that the engine binds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chapar_core::Tenant;
use chapar_sql::Value;

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

const TENANT: &str = ":tenant";

/// Replaces `:tenant` by one more parameter, where the statement has it.
pub(crate) fn bind_tenant(
    sql: &'static str,
    mut params: Vec<Value>,
    tenant: &Tenant,
) -> (&'static str, Vec<Value>) {
    if !sql.contains(TENANT) {
        return (sql, params);
    }
    let bound = numbered(sql, params.len() + 1);
    params.push(tenant.as_str().into());
    (bound, params)
}

/// The statement with `:tenant` as `$n`. Each text is made once per process and kept, because
/// statements are cached by their text and are constants of the program.
fn numbered(sql: &'static str, n: usize) -> &'static str {
    static MADE: Mutex<Option<HashMap<(&'static str, usize), &'static str>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    made.entry((sql, n)).or_insert_with(|| replaced(sql, n).leak())
}

/// Replaces outside of quotes and comments; `::tenant` is a cast and stays.
fn replaced(sql: &str, n: usize) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '\'' | '"' => quoted(rest, next),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            ':' if rest.starts_with("::") => 2,
            ':' if is_tenant(rest) => {
                out.push_str(&format!("${n}"));
                rest = &rest[TENANT.len()..];
                continue;
            }
            other => other.len_utf8(),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

fn is_tenant(text: &str) -> bool {
    let after = text.strip_prefix(TENANT);
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
    fn the_tenant_is_one_more_parameter() {
        let tenant: Tenant = "acme".parse().unwrap();
        let sql = "insert into t (tenant, a) values (:tenant, $1) -- :tenant\n";
        let (bound, params) = bind_tenant(sql, vec!["x".into()], &tenant);
        assert_eq!(bound, "insert into t (tenant, a) values ($2, $1) -- :tenant\n");
        assert_eq!(params, vec![Value::from("x"), Value::from("acme")]);
        assert!(std::ptr::eq(bound, bind_tenant(sql, vec!["y".into()], &tenant).0), "made once");
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
            assert_eq!(replaced(sql, 1), sql);
        }
        assert_eq!(replaced("where a=:tenant and b=:tenant", 3), "where a=$3 and b=$3");
    }
}
