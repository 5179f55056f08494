//! An app on a backbone that is open already.

use std::sync::Arc;

use chapar::prelude::*;
use chapar::{Profile, Registry, StartError, Store, StoreOptions};
use chapar_core::dialect::MetadataJson;
use chapar_sql::SqlTransport;

use crate::harness::{House, on_each_store, stop};

on_each_store!(
    an_app_on_an_open_backbone_migrates_too,
    settings_of_the_backbone_are_refused_where_it_is_open,
);

async fn an_app_on_an_open_backbone_migrates_too(house: House) {
    let app = house.app().migrate([Migration::new(1, "rooms", "create table rooms (n bigint)")]);
    let running = app.start().await.unwrap();
    let mut tx = house.chapar.store().begin_raw().await.unwrap();
    tx.execute("insert into rooms (n) values (1)", vec![]).await.unwrap();
    tx.rollback().await.unwrap();
    stop(running).await;
}

async fn settings_of_the_backbone_are_refused_where_it_is_open(house: House) {
    let registry = Registry::from_bundle(
        r#"{ "format": 1, "system": "melmastoon", "version": "1", "contracts": [] }"#,
    );
    let wrong = [
        ("App::profile ", house.app().profile(Profile::default())),
        ("App::dialect ", house.app().dialect(Arc::new(MetadataJson))),
        ("App::contracts ", house.app().contracts("contracts.json")),
        ("App::registry ", house.app().registry(registry.unwrap())),
    ];
    for (method, app) in wrong {
        let Err(error) = app.start().await else { panic!("{method} was ignored") };
        assert!(matches!(error, StartError::Open(_)), "{error:?}");
        assert!(error.to_string().starts_with(method), "{error}");
    }
}

#[tokio::test]
async fn an_empty_store_is_migrated_by_an_app_on_an_open_backbone() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("empty.db").display());
    let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
    let transport = Arc::new(SqlTransport::new(store.clone(), "empty"));
    let app = || App::new(House::backbone(store.clone()), transport.clone(), "empty");
    let Err(error) = app().start().await else { panic!("it has no tables") };
    assert!(matches!(error, StartError::Migrate { .. }), "{error:?}");
    stop(app().migrate([]).start().await.unwrap()).await;
}
