//! Where the sessions of a run leave their qlog records, if they are wanted.

use std::sync::Arc;

use starhaul_endpoint::QlogFolder;
use starhaul_quic::QlogFiles;

/// The records of one run; none by default.
#[derive(Clone, Debug, Default)]
pub struct Records(Option<QlogFolder>);

impl Records {
    /// Records are left in this folder; `None`: nowhere.
    pub const fn new(folder: Option<QlogFolder>) -> Self {
        Self(folder)
    }

    /// The same for a part of what is recorded, whose files begin with its name.
    #[must_use]
    pub fn of(&self, part: &str) -> Self {
        Self(self.0.as_ref().map(|folder| folder.prefixed(part)))
    }

    /// What a node writes into.
    pub fn files(&self) -> Option<Arc<dyn QlogFiles>> {
        let folder = self.0.clone()?;
        Some(Arc::new(folder))
    }
}
