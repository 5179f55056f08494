//! The registry: what a system's events must look like, at run time.

mod source;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use chapar_core::bundle::{Bundle, Contract};
use chapar_core::constraint::Constraints;
use chapar_core::schema::{self, MANY, NAMED, ONE};
use chapar_core::{Code, Envelope, Payload, Violations};
use chapar_sql::KnownSubject;
use jsonschema::{Draft, Validator};
use prost_reflect::DescriptorPool;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

pub use source::{BearerToken, BundleSource, FetchError};

/// How long a registry waits before it fetches its bundle again, by default.
const PATIENCE: Duration = Duration::from_secs(60);

/// The contracts of a system, from a released [bundle](Bundle).
///
/// What a service publishes must be registered and its own, and the payload must fit a *closed*
/// copy of its schema: an undeclared field is a mistake of the producer. What a
/// consumer reads must fit an *open* copy, which ignores undeclared fields: a newer producer may
/// have added them. Both copies are those of the gate ([`chapar_core::schema`]).
///
/// A registry that was [opened](Registry::open) knows where its bundle lies. An event that names
/// a schema which the bundle does not have makes it fetch the bundle again, at most once a
/// minute; what is still unknown then is refused. A registry [made from a
/// text](Registry::from_bundle) has nothing to fetch, and checks by the schema it has.
#[derive(Debug)]
pub struct Registry {
    current: RwLock<Contracts>,
    origin: Option<Origin>,
}

/// Where a bundle comes from, and when it was last fetched again.
#[derive(Debug)]
struct Origin {
    source: BundleSource,
    patience: Duration,
    /// Held while fetching, so that a hundred events of a new schema fetch it once.
    fetched: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Contracts(HashMap<String, Arc<Entry>>);

/// One contract with what was made of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) contract: Contract,
    compiled: OnceLock<Compiled>,
}

#[derive(Debug)]
enum Compiled {
    Json { reader: Box<Validator>, writer: Box<Validator> },
    Message(Constraints),
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Fetching the bundle failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It is not a bundle.
    #[error("the bundle cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a form that this program does not know.
    #[error("the bundle has form {0}, this program reads {known}; use a newer chapar", known = Bundle::FORMAT)]
    Format(u32),
    /// A schema is not what its hash says.
    #[error("the schema of {0} does not have the hash in its address; the bundle was altered")]
    Hash(String),
    /// A schema does not compile.
    #[error("the schema of {subject} does not compile: {reason}")]
    Schema {
        /// The event.
        subject: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why an event that came in is not given to a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaRefusal {
    /// It does not fit its schema.
    Invalid(String),
    /// It names a schema that the registry does not have; the address, with its hash.
    UnknownSchema(String),
}

impl Registry {
    /// Reads a bundle and checks every hash. Schemas are compiled when they are first used.
    pub fn from_bundle(json: &str) -> Result<Self, RegistryError> {
        Ok(Registry { current: RwLock::new(Contracts::read(json)?), origin: None })
    }

    /// Fetches a bundle, compiles every schema of it, and remembers where to fetch it again.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), chapar::RegistryError> {
    /// use chapar::{BundleSource, Registry};
    /// let source: BundleSource = "https://contracts.example.org/hotel.json".parse()?;
    /// let registry = Registry::open(source).await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(source: BundleSource) -> Result<Self, RegistryError> {
        let contracts = Contracts::read(&source.fetch().await?)?;
        contracts.compile()?;
        let origin = Origin { source, patience: PATIENCE, fetched: Mutex::new(None) };
        Ok(Registry { current: RwLock::new(contracts), origin: Some(origin) })
    }

    /// How long to wait before the bundle is fetched again for an event of an unknown schema.
    /// Default 60 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        if let Some(origin) = &mut self.origin {
            origin.patience = patience;
        }
        self
    }

    /// Compiles every schema, so that a bad one is found at the start and not at the first event.
    pub fn compile(&self) -> Result<(), RegistryError> {
        self.contracts().compile()
    }

    /// Whether there is a contract for a subject.
    pub fn contains(&self, subject: &str) -> bool {
        self.contracts().0.contains_key(subject)
    }

    /// The contract under which a service publishes a subject. Without a service only the
    /// registration is asked for.
    pub(crate) fn may_publish(
        &self,
        subject: &str,
        service: Option<&str>,
    ) -> Result<Arc<Entry>, Violations> {
        let contracts = self.contracts();
        let Some(entry) = contracts.0.get(subject) else {
            let reason = format!("{subject} is not registered; add it to its owner's catalog file");
            return Err(Violations::one(Code::Unregistered, reason));
        };
        let owner = &entry.contract.owner;
        match service {
            Some(service) if service != owner => {
                let reason = format!("{subject} belongs to {owner}, and {service} publishes it");
                Err(Violations::one(Code::NotOwner, reason))
            }
            _ => Ok(entry.clone()),
        }
    }

    /// Checks what is about to be published, against the closed copy.
    pub fn check_written(&self, subject: &str, payload: &Payload) -> Result<(), Violations> {
        match self.contracts().0.get(subject) {
            Some(entry) => entry
                .check(payload, Side::Writer)
                .map_err(|reason| Violations::one(Code::SchemaInvalid, reason)),
            None => Ok(()),
        }
    }

    /// Checks what has come in, against the open copy.
    pub fn check_read(&self, subject: &str, envelope: &Envelope) -> Result<(), SchemaRefusal> {
        let contracts = self.contracts();
        let Some(entry) = contracts.0.get(subject) else { return Ok(()) };
        if self.origin.is_some()
            && let Some(uri) = &envelope.schema
            && !entry.contract.knows(uri)
        {
            return Err(SchemaRefusal::UnknownSchema(uri.clone()));
        }
        entry.check(&envelope.payload, Side::Reader).map_err(SchemaRefusal::Invalid)
    }

    /// Checks a message of Protobuf as it is on the wire, envelope and all, against the
    /// constraints of its fields. Events in JSON have none.
    pub fn check_message(&self, subject: &str, body: &[u8]) -> Result<(), String> {
        let contracts = self.contracts();
        let Some(entry) = contracts.0.get(subject) else { return Ok(()) };
        match entry.compiled().map_err(|error| error.to_string())? {
            Compiled::Json { .. } => Ok(()),
            Compiled::Message(constraints) => {
                constraints.check(body).map_err(|broken| format!("{subject}: {broken}"))
            }
        }
    }

    /// Fetches the bundle again for the sake of a schema that it does not have, unless that was
    /// done a moment ago. The error says why the schema is still unknown.
    pub(crate) async fn learn(&self, subject: &str, uri: &str) -> Result<(), String> {
        let knows = || {
            let contracts = self.contracts();
            contracts.0.get(subject).is_some_and(|entry| entry.contract.knows(uri))
        };
        let Some(origin) = &self.origin else { return Err("there is no bundle to fetch".into()) };
        let mut fetched = origin.fetched.lock().await;
        if knows() {
            return Ok(());
        }
        let (source, patience) = (&origin.source, origin.patience);
        if let Some(at) = *fetched
            && at.elapsed() < patience
        {
            let ago = at.elapsed().as_secs();
            return Err(format!(
                "the bundle at {source} was fetched {ago} s ago and does not have it; \
                 it is fetched at most every {} s",
                patience.as_secs_f64()
            ));
        }
        *fetched = Some(Instant::now());
        match self.reload(source).await {
            Ok(version) => info!(%source, version, "the bundle was fetched again"),
            Err(error) => {
                warn!(%source, %error, "the bundle cannot be used; keeping the previous one");
                return Err(format!("the bundle at {source} could not be fetched again: {error}"));
            }
        }
        if knows() {
            return Ok(());
        }
        Err(format!("the bundle at {source} was fetched again and does not have it either"))
    }

    /// Replaces the contracts by those of the bundle as it is now, if all of it can be used.
    async fn reload(&self, source: &BundleSource) -> Result<String, RegistryError> {
        let text = source.fetch().await?;
        let bundle = Contracts::parse(&text)?;
        let version = bundle.version.clone();
        let mut contracts = Contracts::of(bundle)?;
        {
            // Unchanged schemas keep their validators.
            let current = self.contracts();
            for (subject, entry) in &mut contracts.0 {
                if let Some(known) = current.0.get(subject)
                    && known.contract == entry.contract
                {
                    *entry = known.clone();
                }
            }
        }
        contracts.compile()?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = contracts;
        Ok(version)
    }

    fn contracts(&self) -> RwLockReadGuard<'_, Contracts> {
        // Contracts are replaced as a whole: a panic leaves nothing half done.
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contracts {
    fn read(json: &str) -> Result<Self, RegistryError> {
        Self::of(Self::parse(json)?)
    }

    fn parse(json: &str) -> Result<Bundle, RegistryError> {
        let bundle: Bundle = serde_json::from_str(json)?;
        if bundle.format != Bundle::FORMAT {
            return Err(RegistryError::Format(bundle.format));
        }
        Ok(bundle)
    }

    fn of(bundle: Bundle) -> Result<Self, RegistryError> {
        let mut contracts = HashMap::new();
        for contract in bundle.contracts {
            let hash: String = Sha256::digest(contract.schema.as_bytes())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            if !contract.uri.ends_with(&format!("#sha256-{hash}")) {
                return Err(RegistryError::Hash(contract.subject));
            }
            let subject = contract.subject.clone();
            contracts.insert(subject, Arc::new(Entry { contract, compiled: OnceLock::new() }));
        }
        Ok(Contracts(contracts))
    }

    fn compile(&self) -> Result<(), RegistryError> {
        for entry in self.0.values() {
            entry.compiled()?;
        }
        Ok(())
    }
}

impl fmt::Display for SchemaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaRefusal::Invalid(reason) => f.write_str(reason),
            SchemaRefusal::UnknownSchema(uri) => write!(f, "the registry does not know {uri}"),
        }
    }
}

impl std::error::Error for SchemaRefusal {}

impl Registry {
    /// The subjects whose order among those of their key matters to a consumer.
    pub(crate) fn stamped(&self) -> Vec<String> {
        let contracts = self.contracts();
        let stamped = contracts.0.iter().filter(|(_, entry)| entry.contract.stamped);
        stamped.map(|(subject, _)| subject.clone()).collect()
    }

    /// What the database knows of each event.
    pub(crate) fn known(&self) -> Vec<KnownSubject> {
        let contracts = self.contracts();
        let known = contracts.0.values().map(|entry| KnownSubject {
            subject: entry.contract.subject.clone(),
            owner: entry.contract.owner.clone(),
            thin: entry.contract.thin,
        });
        known.collect()
    }

    /// The contract of a subject.
    pub(crate) fn entry(&self, subject: &str) -> Option<Arc<Entry>> {
        self.contracts().0.get(subject).cloned()
    }

    /// The older version that a payload is published in as well: its contract, and the payload
    /// in its form. None where one version travels alone.
    pub(crate) fn older(
        &self,
        contract: &Contract,
        payload: &Payload,
    ) -> Result<Option<(Arc<Entry>, Payload)>, Violations> {
        let (Some(dual), Payload::Json(raw)) = (&contract.dual_publish, payload) else {
            return Ok(None);
        };
        let subject = &dual.subject;
        let fail = |reason: String| {
            let reason = format!("it cannot be published as {subject}, too: {reason}");
            Violations::one(Code::NotConvertible, reason)
        };
        let older = self.entry(subject).ok_or_else(|| fail("that is not registered".to_owned()))?;
        let value: Value = serde_json::from_str(raw.get()).map_err(|e| fail(e.to_string()))?;
        let value = dual.convert.apply(&value).map_err(|error| fail(error.to_string()))?;
        let payload = Payload::json(&value).map_err(|error| fail(error.to_string()))?;
        older.check(&payload, Side::Writer).map_err(fail)?;
        Ok(Some((older, payload)))
    }
}

impl Entry {
    fn check(&self, payload: &Payload, side: Side) -> Result<(), String> {
        let Payload::Json(raw) = payload else { return Ok(()) };
        let compiled = self.compiled().map_err(|error| error.to_string())?;
        // A message is checked as a whole, once it is written.
        let Compiled::Json { reader, writer } = compiled else { return Ok(()) };
        let value: Value = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
        let validator = match side {
            Side::Reader => reader,
            Side::Writer => writer,
        };
        // Fast path: `is_valid` is cheaper than collecting errors.
        if validator.is_valid(&value) {
            return Ok(());
        }
        let Some(error) = validator.iter_errors(&value).next() else { return Ok(()) };
        let pointer = match error.instance_path().as_str() {
            "" => "the payload".to_owned(),
            pointer => pointer.to_owned(),
        };
        // The message goes to logs, where values of the payload do not belong.
        Err(format!("{}: {pointer}: {}", self.contract.subject, error.masked()))
    }

    fn compiled(&self) -> Result<&Compiled, RegistryError> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let fail = |reason: String| RegistryError::Schema {
            subject: self.contract.subject.clone(),
            reason,
        };
        if let Some(name) = &self.contract.message {
            let constraints = constraints(name, &self.contract.schema).map_err(fail)?;
            return Ok(self.compiled.get_or_init(|| Compiled::Message(constraints)));
        }
        let written: Value =
            serde_json::from_str(&self.contract.schema).map_err(|error| fail(error.to_string()))?;
        let (open, mut closed) = (schema::open(&written), schema::closed(&written));
        speed_up(&mut closed);
        let compile = |schema: &Value| {
            let options = jsonschema::options().with_draft(Draft::Draft202012);
            options
                .should_validate_formats(true)
                .build(schema)
                .map_err(|error| fail(error.to_string()))
        };
        let (reader, writer) = (Box::new(compile(&open)?), Box::new(compile(&closed)?));
        let compiled = Compiled::Json { reader, writer };
        Ok(self.compiled.get_or_init(|| compiled))
    }
}

/// Who checks: a reader is open, a writer closed.
#[derive(Debug, Clone, Copy)]
enum Side {
    Reader,
    Writer,
}

/// The constraints of a message, from the descriptors in a bundle.
fn constraints(message: &str, schema: &str) -> Result<Constraints, String> {
    let set = BASE64_STANDARD.decode(schema).map_err(|error| error.to_string())?;
    let pool = DescriptorPool::decode(set.as_slice()).map_err(|error| error.to_string())?;
    let message = pool
        .get_message_by_name(message)
        .ok_or_else(|| format!("its descriptors have no message {message}"))?;
    Constraints::of(&message).map_err(|unsupported| unsupported.to_string())
}

/// Spells `unevaluatedProperties: false` as `additionalProperties: false` where nothing beside it
/// declares fields too: both mean the same there, and the second is much cheaper because it need
/// not remember what was evaluated.
fn speed_up(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for (name, part) in fields.iter_mut() {
        match part {
            Value::Object(parts) if NAMED.contains(&name.as_str()) => {
                parts.values_mut().for_each(speed_up);
            }
            Value::Array(parts) if MANY.contains(&name.as_str()) => {
                parts.iter_mut().for_each(speed_up);
            }
            part if ONE.contains(&name.as_str()) => speed_up(part),
            _ => {}
        }
    }
    let composed = |keyword: &String| IN_PLACE.contains(&keyword.as_str());
    if fields.get("unevaluatedProperties") == Some(&Value::Bool(false))
        && !fields.contains_key("additionalProperties")
        && !fields.keys().any(composed)
    {
        fields.remove("unevaluatedProperties");
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

/// The keywords whose schemas look at the same object.
const IN_PLACE: [&str; 11] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "then",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cheaper_spelling_of_a_closed_copy_refuses_the_same() {
        let schema = json!({
            "properties": {
                "a": { "type": "object", "properties": { "b": { "type": "string" } } },
                "list": { "type": "array", "items": { "properties": { "c": {} } } },
            },
            "allOf": [{ "properties": { "d": {} } }],
        });
        let slow = schema::closed(&schema);
        let mut quick = slow.clone();
        speed_up(&mut quick);
        assert_eq!(quick["unevaluatedProperties"], false, "the parts of allOf count as well");
        assert_eq!(quick["properties"]["a"]["additionalProperties"], false);
        let [slow, quick] =
            [slow, quick].map(|one| jsonschema::draft202012::new(&one).expect("it compiles"));
        for (payload, fits) in [
            (json!({}), true),
            (json!({ "a": { "b": "" }, "list": [{ "c": 1 }], "d": 1 }), true),
            (json!({ "x": 1 }), false),
            (json!({ "a": { "x": 1 } }), false),
            (json!({ "list": [{ "x": 1 }] }), false),
        ] {
            assert_eq!(
                (slow.is_valid(&payload), quick.is_valid(&payload)),
                (fits, fits),
                "{payload}"
            );
        }
    }
}
