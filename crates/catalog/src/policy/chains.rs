//! Chains of synchronous calls: at most two hops.

use std::collections::BTreeMap;

use chapar_core::catalog::Catalog;

use super::{Found, Policy};

/// The most hops of a chain of calls.
const MOST: usize = 2;

pub(super) fn check(catalog: &Catalog, found: &mut Found) {
    let calls: BTreeMap<&str, &[String]> = catalog
        .services
        .iter()
        .map(|service| (service.name.as_str(), service.calls.names.as_slice()))
        .collect();
    for service in &catalog.services {
        // One chain per service is enough. A cycle counts as an endless chain.
        if let Some(chain) = longer(&calls, vec![&service.name]) {
            let message = format!(
                "{} waits over {} hops: {}; at most {MOST} are allowed, so let one of them go by \
                 events and a saga",
                service.name,
                chain.len() - 1,
                chain.join(" → ")
            );
            found.add(Policy::SynchronousChain, &service.calls.place, message);
        }
    }
}

fn longer<'c>(calls: &BTreeMap<&str, &'c [String]>, chain: Vec<&'c str>) -> Option<Vec<&'c str>> {
    if chain.len() > MOST + 1 {
        return Some(chain);
    }
    let next = chain.last().and_then(|last| calls.get(last))?;
    next.iter().find_map(|callee| {
        let mut chain = chain.clone();
        chain.push(callee);
        longer(calls, chain)
    })
}
