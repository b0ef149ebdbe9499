//! The data of bundles in files of their own.
//!
//! A file is written under another name, and gets its own when it is whole, and on the medium if that is asked for: whatever has a
//! name of its own after a crash is what was saved.

use std::{
    io::{self, IoSlice},
    sync::Arc,
    time::SystemTime,
};

use hardy_bpa::{
    Bytes, async_trait,
    storage::{BundleStorage, RecoveryResponse, Result},
    stream::Sender,
};
use starhaul_dtn_client::random;

use crate::medium::{Found, Medium};

/// The end of the name of a file that is not whole yet.
const UNFINISHED: &str = ".tmp";

/// The data of bundles, each in a file.
pub(crate) struct BundleFiles(Arc<Files>);

impl BundleFiles {
    /// Files of `medium`, which are on it before they count as saved if that `is_synced`.
    pub(crate) fn new(medium: Box<dyn Medium>, is_synced: bool) -> Arc<Self> {
        Arc::new(Self(Arc::new(Files::new(medium, is_synced, number))))
    }

    /// Does something that waits for the medium.
    async fn on_files<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Files) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = self.0.clone();
        Ok(tokio::task::spawn_blocking(move || act(&files)).await??)
    }
}

/// The store without its tasks: each call works on the medium at once.
pub(crate) struct Files {
    medium: Box<dyn Medium>,
    is_synced: bool,
    /// Of which names are made.
    number: Box<dyn Fn() -> io::Result<u128> + Send + Sync>,
}

impl Files {
    /// Files of `medium`, as [`BundleFiles::new`] has them; `number` returns none a second time, in whatever life.
    pub(crate) fn new(
        medium: Box<dyn Medium>,
        is_synced: bool,
        number: impl Fn() -> io::Result<u128> + Send + Sync + 'static,
    ) -> Self {
        Self {
            medium,
            is_synced,
            number: Box::new(number),
        }
    }

    /// The files that are whole, and when they were written. What a life that ended has left unfinished goes.
    pub(crate) fn find(&self) -> io::Result<Vec<RecoveryResponse>> {
        let (mut whole, now) = (Vec::new(), SystemTime::now());
        for Found {
            name,
            bytes,
            written,
        } in self.medium.all()?
        {
            if bytes > 0 && !name.ends_with(UNFINISHED) {
                whole.push((name.into(), written.min(now).into()));
            } else if let Err(error) = self.medium.remove(&name) {
                // It need not go now.
                tracing::warn!(file = name, %error, "a useless file stays");
            }
        }
        Ok(whole)
    }

    /// Data by their name; `None` if they are not there.
    pub(crate) fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.medium.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
        let mut data = vec![0; length];
        file.read(0, &mut data)?;
        Ok(Some(data))
    }

    /// Saves data under a name of their own. What could not be saved is not found by a later life, if it can be removed.
    pub(crate) fn save(&self, data: &[u8]) -> io::Result<String> {
        let number = (self.number)()?;
        // In one of 256 folders.
        let name = format!("{:02x}/{number:032x}", number >> 120);
        self.replace(&name, data).inspect_err(|_| {
            let _ = self.medium.remove(&name);
        })?;
        Ok(name)
    }

    /// Puts data in place of those of this name, if there are any.
    pub(crate) fn replace(&self, name: &str, data: &[u8]) -> io::Result<()> {
        let unfinished = format!("{name}{UNFINISHED}");
        // An attempt that failed has perhaps left it.
        self.medium.remove(&unfinished)?;
        let written = self
            .write(&unfinished, data)
            .and_then(|()| self.medium.rename(&unfinished, name));
        written.inspect_err(|_| {
            // Otherwise the next start does it.
            let _ = self.medium.remove(&unfinished);
        })?;
        match self.is_synced {
            true => self.medium.sync_name(name),
            false => Ok(()),
        }
    }

    fn write(&self, name: &str, data: &[u8]) -> io::Result<()> {
        let file = self.medium.create(name)?;
        if !data.is_empty() {
            file.write(0, &mut [IoSlice::new(data)])?;
        }
        match self.is_synced {
            true => file.sync(),
            false => Ok(()),
        }
    }

    /// Removes data, if they are there. A crash may bring them back: no bundle refers to them then.
    pub(crate) fn delete(&self, name: &str) -> io::Result<()> {
        self.medium.remove(name)
    }
}

/// A random number, which no other file has.
fn number() -> io::Result<u128> {
    let bytes = random::bytes().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u128::from_be_bytes(bytes))
}

#[async_trait]
impl BundleStorage for BundleFiles {
    async fn recover(&self, stream: &dyn Sender<RecoveryResponse>) -> Result<()> {
        for found in self.on_files(Files::find).await? {
            if stream.send(found).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    async fn load(&self, name: &str) -> Result<Option<Bytes>> {
        let name = name.to_owned();
        let data = self.on_files(move |files| files.load(&name)).await?;
        Ok(data.map(Bytes::from))
    }

    async fn save(&self, data: Bytes) -> Result<Arc<str>> {
        let name = self.on_files(move |files| files.save(&data)).await?;
        Ok(name.into())
    }

    async fn replace(&self, name: &str, data: Bytes) -> Result<()> {
        let name = name.to_owned();
        self.on_files(move |files| files.replace(&name, &data))
            .await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.on_files(move |files| files.delete(&name)).await
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        faulty::Disk,
        medium::{Folder, MediumFile},
        steady::{Place, SteadyBundles, accept},
    };

    fn in_folder(path: &Path) -> Files {
        let medium = Folder::new(path.to_owned()).unwrap();
        Files::new(Box::new(medium), true, number)
    }

    fn names(files: &Files) -> Vec<String> {
        let found = files.find().unwrap();
        found.iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn what_is_saved_is_loaded_replaced_found_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let files = in_folder(folder.path());
        let large = [7; 100_000];
        let saved = [&large[..], b"x"].map(|data| (files.save(data).unwrap(), data));
        for (name, data) in &saved {
            assert!(files.load(name).unwrap().unwrap() == *data);
        }
        let [(first, _), (last, _)] = &saved;
        files.replace(first, b"other").unwrap();
        assert_eq!(files.load(first).unwrap().unwrap(), b"other");
        // As in the next life.
        let files = in_folder(folder.path());
        let mut found = names(&files);
        found.sort();
        let mut expected = [first.clone(), last.clone()];
        expected.sort();
        assert_eq!(found, expected);
        files.delete(first).unwrap();
        files.delete(first).unwrap();
        assert_eq!(files.load(first).unwrap(), None);
        assert_eq!(names(&files), std::slice::from_ref(last));
    }

    /// Versions before this one had files in folders of folders.
    #[test]
    fn files_of_earlier_versions_are_found_and_what_was_cut_short_goes() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("aa/bb");
        std::fs::create_dir_all(&below).unwrap();
        for (name, content) in [("1f", "data"), ("2.tmp", "part"), ("3", "")] {
            std::fs::write(below.join(name), content).unwrap();
        }
        let files = in_folder(folder.path());
        assert_eq!(names(&files), ["aa/bb/1f"]);
        assert_eq!(std::fs::read_dir(&below).unwrap().count(), 1);
        files.replace("aa/bb/1f", b"new").unwrap();
        assert_eq!(files.load("aa/bb/1f").unwrap().unwrap(), b"new");
        files.delete("aa/bb/1f").unwrap();
        assert!(names(&files).is_empty());
    }

    /// A medium that cannot be told which files there are.
    struct Nameless(Box<dyn Medium>);

    impl Medium for Nameless {
        fn names(&self) -> io::Result<Vec<String>> {
            self.0.names()
        }

        fn all(&self) -> io::Result<Vec<Found>> {
            self.0.all()
        }

        fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
            self.0.create(name)
        }

        fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
            self.0.open(name)
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }

        fn sync_names(&self) -> io::Result<()> {
            Err(io::Error::other("input/output error"))
        }

        fn sync_name(&self, _: &str) -> io::Result<()> {
            self.sync_names()
        }

        fn free(&self) -> io::Result<u64> {
            self.0.free()
        }
    }

    /// The next life would not find it after a power cut, or find it although it was refused.
    #[tokio::test]
    async fn a_bundle_whose_own_folder_cannot_be_synced_is_refused() {
        let disk = Disk::new(1);
        let files = BundleFiles::new(Box::new(Nameless(disk.folder("data/"))), true);
        let place = Place::Folder(std::env::temp_dir());
        let bundles = SteadyBundles::new(files, place);
        let saved = accept(bundles.save(Bytes::from_static(b"data"))).await;
        assert!(saved.is_err(), "it is accepted: {saved:?}");
        assert!(disk.folder("data/").all().unwrap().is_empty());
    }

    /// Each refused bundle would take a file of a disk that has none left.
    #[test]
    fn a_full_disk_keeps_nothing_of_what_is_refused() {
        let disk = Disk::new(1);
        let files = Files::new(disk.folder("data/"), true, number);
        let name = files.save(&[7; 1000]).unwrap();
        disk.set_faults(0, 1500);
        assert!(files.save(&[8; 1000]).is_err());
        assert!(files.replace(&name, &[8; 1000]).is_err());
        assert_eq!(disk.total(), 1000);
        assert_eq!(names(&files), std::slice::from_ref(&name));
        assert!(files.load(&name).unwrap().unwrap() == [7; 1000]);
    }
}
