//! The bypass of the gate: approved by a lead, with a reason, and recorded in the audit log.

use anyhow::{Context, Result, ensure};
use chapar::StoreError;
use chapar::ops::{Operator, Versions};
use chapar_catalog::gate::Gate;
use chapar_compat::Severity;
use serde_json::{Value, json};

use super::Check;
use crate::output::red;
use crate::store;

/// Who approves the change, and why.
pub(super) struct Bypass<'a> {
    lead: &'a str,
    incident: &'a str,
    store: &'a str,
}

impl<'a> Bypass<'a> {
    /// Reads the options; a bypass without a store to record it is refused.
    pub(super) fn asked(args: &'a Check) -> Result<Option<Bypass<'a>>> {
        let (Some(lead), Some(incident)) = (&args.bypass_lead, &args.bypass_incident) else {
            return Ok(None);
        };
        let (lead, incident) = (lead.trim(), incident.trim());
        ensure!(
            !lead.is_empty() && !incident.is_empty(),
            "a bypass names its lead and its incident"
        );
        let store = args.store.as_deref().context(
            "the bypass is refused: it must be recorded in the audit log of a store; \
             name it with --store",
        )?;
        Ok(Some(Bypass { lead, incident, store }))
    }

    /// Writes it to the audit log; only then does it count.
    pub(super) fn record(&self, args: &Check, gate: &Gate) -> Result<()> {
        let broken = gate.findings.iter().filter(|finding| finding.severity != Severity::Note);
        let broken: Vec<Value> = broken
            .map(|finding| {
                json!({
                    "rule": finding.rule,
                    "subject": finding.subject,
                    "pointer": finding.pointer,
                })
            })
            .collect();
        let detail = json!({
            "against": args.against,
            "verdict": gate.verdict,
            "findings": broken,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let recorded = runtime.block_on(async {
            let store = store::open(self.store).await?;
            let by = Operator { name: self.lead, reason: self.incident };
            Versions::of(&store).record_bypass(&args.system, &detail, by).await?;
            let url = store.url().to_owned();
            store.close().await;
            Ok::<String, StoreError>(url)
        });
        let url = recorded.context("the bypass could not be recorded, so it is refused")?;
        eprintln!("{}", red("BYPASS: the contracts are broken, and the change is accepted"));
        eprintln!("{}", red(&format!("  by        {}", self.lead)));
        eprintln!("{}", red(&format!("  because   {}", self.incident)));
        eprintln!("  recorded  in the audit log of {url}");
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "lead": self.lead, "incident": self.incident })
    }

    pub(super) fn sentence(&self) -> String {
        format!("bypassed by {} because of {}", self.lead, self.incident)
    }
}
