//! Files with secrets, such as keys.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// The fewest bytes of a secret that is shared by its file.
const LEAST_BYTES: usize = 16;

/// A file with a shared secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("{}: {source}", file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds too little.
    #[error("{}: a key has 16 bytes at least; make one with `starhaul keygen --out FILE`", .0.display())]
    Short(PathBuf),
}

/// What those share who have the same file: any text or bytes, at least 16, without white space around; its SHA-256.
///
/// # Errors
/// The file cannot be read, or holds too little.
pub fn shared_secret(file: &Path) -> Result<[u8; 32], SecretError> {
    let unreadable = |source| SecretError::File {
        file: file.to_owned(),
        source,
    };
    let bytes = fs::read(file).map_err(unreadable)?;
    let secret = bytes.trim_ascii();
    match secret.len() < LEAST_BYTES {
        true => Err(SecretError::Short(file.to_owned())),
        false => Ok(Sha256::digest(secret).into()),
    }
}

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
    fn a_shared_secret_is_what_the_file_holds_without_white_space_around() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, holds: &str| {
            let file = folder.path().join(name);
            fs::write(&file, holds).unwrap();
            file
        };
        let one = shared_secret(&file("one", "0123456789abcdef")).unwrap();
        let same = shared_secret(&file("same", " 0123456789abcdef\n")).unwrap();
        let other = shared_secret(&file("other", "0123456789abcdeg")).unwrap();
        assert_eq!(one, same);
        assert_ne!(one, other);
        let short = shared_secret(&file("short", "0123456789abcde \n"));
        assert!(matches!(short, Err(SecretError::Short(_))), "{short:?}");
        let missing = shared_secret(&folder.path().join("missing"));
        assert!(
            matches!(missing, Err(SecretError::File { .. })),
            "{missing:?}"
        );
    }

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
