//! Calls to the outside: which are open, and setting one going again.

use chapar_sql::{AuditEntry, EffectCard, Store, StoreError, Tables};
use jiff::Timestamp;

use super::Operator;

/// Filter; `None` matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectFilter {
    /// Their status: `pending`, `done`, `failed` or `stuck`.
    pub status: Option<String>,
    /// Their kind.
    pub kind: Option<String>,
    /// Their tenant.
    pub tenant: Option<String>,
}

/// The oldest effects that a filter means.
pub async fn list_effects(
    store: &Store,
    filter: &EffectFilter,
    limit: i64,
) -> Result<Vec<EffectCard>, StoreError> {
    let EffectFilter { status, kind, tenant } = filter;
    let mut tx = store.begin_read().await?;
    let cards =
        tx.effects().list(status.as_deref(), kind.as_deref(), tenant.as_deref(), limit).await?;
    tx.rollback().await?;
    Ok(cards)
}

/// Records the outcomes again of effects that are stuck; their calls are not made again. Returns
/// how many there were.
pub async fn retry_stuck_effects(
    store: &Store,
    filter: &EffectFilter,
    operator: Operator<'_>,
) -> Result<u64, StoreError> {
    let mut retried = 0;
    loop {
        let mut tx = store.begin_engine().await?;
        let (kind, tenant) = (filter.kind.as_deref(), filter.tenant.as_deref());
        let stuck = tx.effects().list(Some("stuck"), kind, tenant, AT_ONCE).await?;
        for effect in &stuck {
            if tx.effects().hurry(effect.id, Timestamp::now()).await? {
                audit(&mut tx, effect, operator).await?;
                retried += 1;
            }
        }
        tx.commit().await?;
        if (stuck.len() as i64) < AT_ONCE {
            store.nudge();
            return Ok(retried);
        }
    }
}

/// Retries one stuck or waiting effect; returns a description.
/// None if there is no such effect, it has ended, or a worker has it.
pub async fn retry_effect(
    store: &Store,
    id: i64,
    operator: Operator<'_>,
) -> Result<Option<String>, StoreError> {
    let mut tx = store.begin_engine().await?;
    let Some(effect) = tx.effects().card(id).await? else { return Ok(None) };
    if !tx.effects().hurry(id, Timestamp::now()).await? {
        return Ok(None);
    }
    audit(&mut tx, &effect, operator).await?;
    tx.commit().await?;
    store.nudge();
    Ok(Some(set_going(&effect)))
}

const AT_ONCE: i64 = 500;

pub(super) fn set_going(effect: &EffectCard) -> String {
    let EffectCard { kind, key, answered, .. } = effect;
    match answered {
        true => format!("the outcome of {kind} {key} is recorded now, without another call"),
        false => format!("{kind} {key} is called now"),
    }
}

async fn audit(
    tx: &mut chapar_sql::Tx,
    effect: &EffectCard,
    Operator { name, reason }: Operator<'_>,
) -> Result<(), StoreError> {
    let target = format!("effect/{}", effect.id);
    let detail = serde_json::json!({
        "tenant": effect.tenant, "kind": effect.kind, "key": effect.key, "status": effect.status,
    });
    let (action, detail) = ("effect.retry", detail.to_string());
    let entry = AuditEntry { actor: name, action, target: &target, reason, detail: &detail };
    tx.audit_log().record(&entry).await
}
