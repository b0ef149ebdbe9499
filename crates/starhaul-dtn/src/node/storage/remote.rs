//! Stores on other machines: PostgreSQL and S3. A program may be built without them; then its configuration refuses their keys.

#[cfg(feature = "postgres")]
mod names;
#[cfg(feature = "postgres")]
mod unbroken;

use std::sync::Arc;

use hardy_bpa::storage::BundleStorage;

use crate::{
    Error,
    config::{Bucket, DatabaseUrl},
    names::Forgetful,
};

/// Connects to a database, and brings its tables to the present form. It keeps at most so many names of bundles that are gone.
#[cfg(feature = "postgres")]
pub(super) async fn database(
    url: &DatabaseUrl,
    most_gone: usize,
) -> Result<Arc<dyn Forgetful>, Error> {
    let settings = hardy_postgres_storage::Config {
        database_url: url.0.clone(),
        ..hardy_postgres_storage::Config::default()
    };
    let opened = hardy_postgres_storage::new(&settings, true).await;
    let store = opened.map_err(|error| Error::Agent(format!("PostgreSQL: {error}")))?;
    let names = names::Names::open(&url.0, most_gone).await;
    let names = names.map_err(|error| Error::Agent(format!("PostgreSQL: {error}")))?;
    Ok(Arc::new(unbroken::Unbroken { store, names }))
}

#[cfg(not(feature = "postgres"))]
pub(super) async fn database(_: &DatabaseUrl, _: usize) -> Result<Arc<dyn Forgetful>, Error> {
    Err(Error::Agent(
        "this program was built without the feature postgres".to_owned(),
    ))
}

/// The data of bundles in a bucket. Whether it is there shows when it is used.
#[cfg(feature = "s3")]
pub(super) async fn objects(bucket: &Bucket) -> Result<Arc<dyn BundleStorage>, Error> {
    let settings = hardy_s3_storage::Config {
        bucket: bucket.name.clone(),
        prefix: bucket.prefix.clone(),
        region: bucket.region.clone(),
        endpoint_url: bucket.endpoint.clone(),
        // The names of buckets are hosts at Amazon alone.
        force_path_style: bucket.endpoint.is_some(),
        ..hardy_s3_storage::Config::default()
    };
    let opened = hardy_s3_storage::new(&settings).await;
    opened.map_err(|error| Error::Agent(format!("S3: {error}")))
}

#[cfg(not(feature = "s3"))]
pub(super) async fn objects(_: &Bucket) -> Result<Arc<dyn BundleStorage>, Error> {
    Err(Error::Agent(
        "this program was built without the feature s3".to_owned(),
    ))
}
