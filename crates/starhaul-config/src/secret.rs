//! Files with secrets, such as keys.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Where the secret file of this name is: for a service of systemd its credential of that name, with `_` for `/`, if it was
/// given one (`LoadCredential=`, whose folder is in `$CREDENTIALS_DIRECTORY`); else beside the configuration.
pub fn secret_file(directory: &Path, name: &str) -> PathBuf {
    let given = env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    credential(given.as_deref(), name).unwrap_or_else(|| directory.join(name))
}

fn credential(folder: Option<&Path>, name: &str) -> Option<PathBuf> {
    if Path::new(name).is_absolute() {
        return None;
    }
    let file = folder?.join(name.trim_start_matches("./").replace('/', "_"));
    file.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_goes_before_the_file_of_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys_gateway.key");
        std::fs::write(&file, "secret").unwrap();
        let found = |name| credential(Some(folder.path()), name);
        assert_eq!(found("keys/gateway.key"), Some(file.clone()));
        assert_eq!(found("./keys/gateway.key"), Some(file));
        assert_eq!(found("gateway.key"), None);
        assert_eq!(found("/keys/gateway.key"), None);
        assert_eq!(found(".."), None, "a folder is no secret");
        assert_eq!(credential(None, "keys/gateway.key"), None);
    }
}
