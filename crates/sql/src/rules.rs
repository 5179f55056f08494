//! What the database knows of a system's rules, so that `chapar.emit` refuses early.

use chapar_core::profile::{IdempotencyRule, Pattern, Profile};
use chapar_core::rules::{MAX_METADATA, MAX_PAYLOAD};

use crate::conn::Tx;
use crate::error::StoreError;
use crate::store::{Backend, Store};
use crate::tables::Tables;

/// An event of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSubject {
    /// The versioned subject.
    pub subject: String,
    /// The only service that may publish it.
    pub owner: String,
    /// It may be larger than others.
    pub thin: bool,
}

impl Store {
    /// Writes the rules of a profile, and the events of a catalog where one is given. SQLite has no
    /// functions that would read them.
    pub async fn set_rules(
        &self,
        profile: &Profile,
        catalog: Option<&[KnownSubject]>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_engine().await?;
        write_rules(&mut tx, profile, catalog).await?;
        tx.commit().await
    }
}

/// What [`Store::set_rules`] does, in a transaction of the engine; says whether anything changed.
pub async fn write_rules(
    tx: &mut Tx,
    profile: &Profile,
    catalog: Option<&[KnownSubject]>,
) -> Result<bool, StoreError> {
    // A row that stays the same is not written: `chapar.emit` reads it at every call.
    const SET: &str = "update chapar.settings s set key_template = n.key_template, \
                 keys_checked = true, subject_pattern = n.pattern, subject_form = n.form, \
                 idempotency_required = n.required, platform_subjects = n.platform, \
                 ai_subjects = n.ai, tenant_fields = n.fields, max_payload = n.payload, \
                 max_metadata = n.metadata, has_catalog = s.has_catalog or n.catalog \
             from (select $1::text as key_template, $2::text as pattern, $3::text as form, \
                 $4::boolean as required, case when $5::boolean then $6::text[] end as platform, \
                 $7::text[] as ai, $8::text[] as fields, $9::bigint::integer as payload, \
                 $10::bigint::integer as metadata, $11::boolean as catalog) n \
             where (s.key_template, s.keys_checked, s.subject_pattern, s.subject_form, \
                 s.idempotency_required, s.platform_subjects, s.ai_subjects, s.tenant_fields, \
                 s.max_payload, s.max_metadata, s.has_catalog) is distinct from \
                 (n.key_template, true, n.pattern, n.form, n.required, n.platform, n.ai, n.fields, \
                 n.payload, n.metadata, s.has_catalog or n.catalog)";
    if tx.backend() == Backend::Sqlite {
        return Ok(false);
    }
    let texts = |patterns: &[Pattern]| -> Vec<String> {
        patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect()
    };
    let args = vec![
        profile.key_template.as_str().into(),
        profile.subject_pattern().into(),
        profile.grammar.form().into(),
        (profile.idempotency == IdempotencyRule::Required).into(),
        profile.fixed_tenant.is_none().into(),
        texts(&profile.platform_subjects).into(),
        texts(&profile.ai_subjects).into(),
        profile.payload_tenant_fields.clone().into(),
        (MAX_PAYLOAD as i64).into(),
        (MAX_METADATA as i64).into(),
        catalog.is_some().into(),
    ];
    let mut changed = tx.execute(SET, args).await?;
    if let Some(catalog) = catalog {
        changed += write_catalog(&mut tx.conn(), catalog).await?;
    }
    Ok(changed > 0)
}

async fn write_catalog(
    conn: &mut crate::conn::Conn<'_>,
    catalog: &[KnownSubject],
) -> Result<u64, StoreError> {
    const PUT: &str = "insert into chapar.subjects as s (subject, owner, thin) \
         select n.subject, n.owner, n.subject = any($3::text[]) \
         from unnest($1::text[], $2::text[]) n (subject, owner) order by n.subject \
         on conflict (subject) do update set owner = excluded.owner, thin = excluded.thin \
         where (s.owner, s.thin) is distinct from (excluded.owner, excluded.thin)";
    const DROP: &str = "delete from chapar.subjects where subject <> all($1::text[])";
    let column = |get: fn(&KnownSubject) -> &String| -> Vec<String> {
        catalog.iter().map(|known| get(known).clone()).collect()
    };
    let thin: Vec<String> =
        catalog.iter().filter(|known| known.thin).map(|known| known.subject.clone()).collect();
    let subjects = column(|known| &known.subject);
    let args = vec![subjects.clone().into(), column(|known| &known.owner).into(), thin.into()];
    let put = conn.execute(PUT, args).await?;
    let dropped = conn.execute(DROP, vec![subjects.into()]).await?;
    Ok(put + dropped)
}
