//! What the node asks of a store of what is known of bundles, beside what the agent asks.

use hardy_bpa::{
    async_trait,
    storage::{MetadataStorage, Result},
};
use hardy_bpv7::bundle::Id;

/// A store from which a bundle can go and leave its name to another one.
///
/// The agent's own way remembers the name until the bundle expires, so that no copy is taken again. A bundle that is not what its source
/// sent must not shut out the one that is.
#[async_trait]
pub(crate) trait Forgetful: MetadataStorage {
    /// Removes a bundle as [`MetadataStorage::tombstone`] does, but its name is free from now on.
    async fn forget(&self, id: &Id) -> Result<()>;
}
