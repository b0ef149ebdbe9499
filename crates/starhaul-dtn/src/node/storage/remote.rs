//! A store on another machine: PostgreSQL. A program may be built without it; then its configuration refuses its key.

#[cfg(feature = "postgres")]
mod unbroken;

use std::sync::Arc;

use hardy_bpa::storage::MetadataStorage;

use crate::{Error, config::DatabaseUrl};

/// Connects to a database, and brings its tables to the present form.
#[cfg(feature = "postgres")]
pub(super) async fn database(url: &DatabaseUrl) -> Result<Arc<dyn MetadataStorage>, Error> {
    let settings = hardy_postgres_storage::Config {
        database_url: url.0.clone(),
        ..hardy_postgres_storage::Config::default()
    };
    let opened = hardy_postgres_storage::new(&settings, true).await;
    let store = opened.map_err(|error| Error::Agent(format!("PostgreSQL: {error}")))?;
    Ok(Arc::new(unbroken::Unbroken(store)))
}

#[cfg(not(feature = "postgres"))]
pub(super) async fn database(_: &DatabaseUrl) -> Result<Arc<dyn MetadataStorage>, Error> {
    Err(Error::Agent(
        "this program was built without the feature postgres".to_owned(),
    ))
}
