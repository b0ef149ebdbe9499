//! What a service of systemd is given.

use std::{
    env,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The folder in which a service of systemd may keep what outlives it: the first of its `StateDirectory=`, which systemd names in
/// `$STATE_DIRECTORY`; `None` for any other process.
pub fn state_folder() -> Option<PathBuf> {
    first(&env::var_os("STATE_DIRECTORY")?)
}

fn first(folders: &OsStr) -> Option<PathBuf> {
    let first = folders.as_bytes().split(|byte| *byte == b':').next()?;
    let folder = Path::new(OsStr::from_bytes(first));
    folder.is_absolute().then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_counts_if_it_is_absolute() {
        let found = |folders: &str| first(OsStr::new(folders));
        let folder = Some(PathBuf::from("/var/lib/starhaul-dtn"));
        assert_eq!(found("/var/lib/starhaul-dtn"), folder);
        assert_eq!(found("/var/lib/starhaul-dtn:/var/lib/other"), folder);
        assert_eq!(found(""), None);
        assert_eq!(found("bundles"), None);
    }
}
