//! Files with keys that a configuration names and that do not exist yet.

use std::path::PathBuf;

use super::{Config, IdentitySource};

/// A file with a key that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKey {
    /// Where the configuration names it, for people.
    pub named_by: String,
    /// Path of the file.
    pub file: PathBuf,
    /// Who needs the same file, for people; `None`: it is for this gateway alone.
    pub shared_with: Option<String>,
}

impl Config {
    /// The files with keys that it names and that do not exist: a gateway does not start before they are made.
    pub fn missing_keys(&self) -> Vec<MissingKey> {
        let mut keys = Vec::new();
        if let IdentitySource::File(file) = &self.identity {
            keys.push(MissingKey {
                named_by: "[identity]".to_owned(),
                file: file.clone(),
                shared_with: None,
            });
        }
        if let Some(leotp) = &self.leotp {
            keys.push(MissingKey {
                named_by: "[leotp]: secret".to_owned(),
                file: leotp.secret.clone(),
                shared_with: Some("the gateway at the other end of the chain".to_owned()),
            });
            keys.extend(leotp.neighbours.iter().map(|neighbour| MissingKey {
                named_by: format!("[leotp]: key of neighbour {:?}", neighbour.name),
                file: neighbour.key.clone(),
                shared_with: Some(format!("neighbour {:?}", neighbour.name)),
            }));
        }
        // One in a folder that we may not look into may be there.
        keys.retain(|key| matches!(key.file.try_exists(), Ok(false)));
        keys
    }
}
