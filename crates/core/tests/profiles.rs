//! Profiles load, and a wrong one says what is wrong with it.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::profile::{Instrument, ProfileError};
use chapar_core::{Profile, Tenant};

const SYSTEMS: [&str; 4] = ["melmastoon", "meridian", "learning", "invoicing"];

const MINIMAL: &str = r#"
    name = "test"
    dialect = "cloudevents"
    grammar = "plain"
    event_ids = "uuidv7"
    correlation_ids = "ulid"
    idempotency = "optional"
    key_template = "{tenant}:{aggregate_id}"
    dlq_template = "{stream}.{topic}.dlq"
"#;

#[test]
fn every_system_s_profile_loads_under_its_own_name() {
    for name in SYSTEMS {
        assert_eq!(support::profile(name).name, name);
    }
}

#[test]
fn every_subject_of_the_systems_has_a_retention_class_that_exists() {
    for name in SYSTEMS {
        let profile = support::profile(name);
        let subjects = support::path(&format!("fixtures/subjects/{name}.txt"));
        for subject in std::fs::read_to_string(subjects).unwrap().lines() {
            let class = profile.retention_of(subject).unwrap_or_else(|| panic!("{subject}"));
            assert!(profile.retention.contains_key(class), "{subject} is in {class}");
        }
    }
}

#[test]
fn a_profile_survives_being_written_and_read() {
    for name in SYSTEMS {
        let profile = support::profile(name);
        let text = serde_json::to_string(&profile).unwrap();
        let again: Profile = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}

#[test]
fn what_is_not_a_profile_is_refused() {
    assert!(Profile::from_toml(MINIMAL).is_ok());
    for bad in ["", "name = 1", &format!("{MINIMAL}\nunknown_key = 1")] {
        assert!(matches!(Profile::from_toml(bad), Err(ProfileError::Toml(_))), "{bad}");
    }
}

#[test]
fn a_retention_rule_needs_its_class() {
    let error = refused("[[retention_rules]]\nclass = \"hot\"\nsubjects = [\"*\"]");
    assert!(matches!(error, ProfileError::RetentionClass(class) if class == "hot"));
}

#[test]
fn a_cross_tenant_topic_needs_its_space() {
    let topic = "[[cross_tenant]]\nsubject = \"a.b.done\"\npublisher = \"p\"\nreaders = []";
    let error = refused(topic);
    assert!(matches!(error, ProfileError::CrossTenant(subject) if subject == "a.b.done"));
    accepted(&format!("cross_tenant_spaces = [\"a.*\"]\n{topic}"));
}

#[test]
fn the_default_residency_is_one_of_the_residencies() {
    let error = refused("default_residency = \"eu\"\nresidencies = [\"us\"]");
    assert!(matches!(error, ProfileError::Residency(region) if region == "eu"));
    accepted("default_residency = \"us\"\nresidencies = [\"us\"]");
}

#[test]
fn an_exception_is_at_least_a_subject() {
    let error = refused("[exceptions]\n\"Not A Subject\" = \"no reason\"");
    assert!(matches!(error, ProfileError::Subject(_)), "{error}");
}

#[test]
fn a_template_names_what_exists() {
    for (field, template) in [
        ("key_template", "{tenant}:{account}"),
        ("key_template", "{aggregate_id"),
        ("dlq_template", "{tenant}.dlq"),
    ] {
        let line = MINIMAL.lines().find(|line| line.contains(field)).unwrap();
        let text = MINIMAL.replace(line, &format!("{field} = {template:?}"));
        let error = Profile::from_toml(&text).unwrap_err();
        assert!(matches!(&error, ProfileError::Template(found, _) if found == template), "{error}");
    }
}

#[test]
fn an_ordering_key_is_filled_and_taken_apart_again() {
    let profile = Profile::from_toml(MINIMAL).unwrap();
    let tenant: Tenant = "{aggregate_id}".parse().unwrap();
    let key = profile.key_template.fill(&tenant, "a/{tenant}");
    assert_eq!(key, "{aggregate_id}:a/{tenant}");
    assert_eq!(profile.key_template.aggregate_id(&tenant, &key), Some("a/{tenant}"));
    assert_eq!(profile.key_template.aggregate_id(&Tenant::platform(), &key), None);
    let constant = support::profile("invoicing").key_template;
    assert_eq!(constant.fill(&tenant, "ignored"), "{aggregate_id}");
    assert_eq!(constant.aggregate_id(&tenant, "anything"), None);
}

#[test]
fn keys_of_two_tenants_are_never_the_same() {
    assert!("a:b".parse::<Tenant>().is_err(), "a:b with c would have the key of a with b:c");
    let template = Profile::from_toml(MINIMAL).unwrap().key_template;
    let (a, ab): (Tenant, Tenant) = ("a".parse().unwrap(), "ab".parse().unwrap());
    assert!(template.is_key_of("a", &template.fill(&a, "b:c")));
    assert!(template.is_key_of("a", &template.of(&a, "room 7")));
    assert!(!template.is_key_of("a", &template.fill(&ab, "c")));
    let constant = support::profile("invoicing").key_template;
    assert_eq!(constant.of(&a, "room 7"), "a:room 7");
    assert!(constant.is_key_of("a", "a") && !constant.is_key_of("a", "ab"));
    for ambiguous in
        ["{tenant}/{aggregate_id}", "{aggregate_id}:{tenant}", "{tenant}{aggregate_id}"]
    {
        let error = Profile::from_toml(MINIMAL).unwrap().ordered_by(ambiguous).unwrap_err();
        assert!(matches!(&error, ProfileError::AmbiguousKey(_)), "{error}");
    }
}

#[test]
fn a_dead_letter_topic_is_named_by_the_template() {
    let profile = Profile::from_toml(MINIMAL).unwrap();
    assert_eq!(profile.dlq_template.fill("t.v1", "S"), "S.t.v1.dlq");
    assert_eq!(support::profile("learning").dlq_template.fill("t.v1", "SYNC"), "SYNC.dlq");
}

#[test]
fn an_instrument_has_the_name_of_the_systems_dashboards() {
    let bank = support::profile("meridian");
    assert_eq!(bank.metric(Instrument::ConsumerLag), Some("kafka_consumer_lag"));
    assert_eq!(bank.metric(Instrument::SagasInFlight), None);
}

fn accepted(more: &str) {
    Profile::from_toml(&format!("{MINIMAL}\n{more}")).unwrap();
}

fn refused(more: &str) -> ProfileError {
    Profile::from_toml(&format!("{MINIMAL}\n{more}")).unwrap_err()
}
