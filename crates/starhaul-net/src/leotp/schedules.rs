//! Files with times of reconfigurations, which are read again when they change: the program that computes them writes those of the next day while
//! the node runs. A thread of its own looks at them, so that no packet waits for a disk.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    thread,
    time::Duration,
};

use starhaul_cc::KnownTimes;
use starhaul_leotp::NeighbourId;

use super::hop;
use crate::Waker;

/// Interval at which files are checked. One that has changed since the check before is still being written, or replaced.
const LOOKED: Duration = Duration::from_secs(2);
/// Lists that wait for the node at most; further files are read when it has taken them.
const MOST_NEWS: usize = 1;

/// The files of a node. Their thread begins with the first of them and ends with this.
#[derive(Debug)]
pub(super) struct Schedules {
    looked: Duration,
    waker: Waker,
    tell: SyncSender<Renewed>,
    news: Receiver<Renewed>,
    orders: Option<Sender<Order>>,
}

/// A file has other times now.
#[derive(Debug)]
pub(super) struct Renewed {
    pub(super) id: NeighbourId,
    pub(super) file: PathBuf,
    pub(super) times: KnownTimes,
}

/// Which file a hop has from now on, if any.
type Order = (NeighbourId, Option<Followed>);

/// A file that is followed.
#[derive(Debug)]
struct Followed {
    file: PathBuf,
    /// Those that hold.
    times: KnownTimes,
    /// The file's stamp when it was last checked.
    seen: Option<Result<Stamp, String>>,
    /// The file's stamp when it was last read.
    read: Option<Stamp>,
    /// The error that was last reported of it, unless it has been read since.
    told: Option<String>,
}

/// What tells a file from its former self.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Schedules {
    /// News wakes the driver through `waker`.
    pub(super) fn new(waker: Waker) -> Self {
        Self::looking_each(LOOKED, waker)
    }

    fn looking_each(looked: Duration, waker: Waker) -> Self {
        let (tell, news) = mpsc::sync_channel(MOST_NEWS);
        Self {
            looked,
            waker,
            tell,
            news,
            orders: None,
        }
    }

    /// From now on a hop has the times in this file, if any; `times` are those that it has had so far.
    pub(super) fn follow(&mut self, id: NeighbourId, file: Option<PathBuf>, times: KnownTimes) {
        if file.is_some() && self.orders.is_none() {
            match self.start() {
                Ok(orders) => self.orders = Some(orders),
                Err(error) => {
                    tracing::warn!(neighbour = id.0, %error, "the times of its schedule stay as they are");
                }
            }
        }
        if let Some(orders) = &self.orders {
            let followed = file.map(|file| Followed::new(file, times));
            // The thread does not end before these orders do.
            let _ = orders.send((id, followed));
        }
    }

    fn start(&self) -> io::Result<Sender<Order>> {
        let (orders, ordered) = mpsc::channel();
        let (looked, tell, waker) = (self.looked, self.tell.clone(), self.waker.clone());
        let thread = thread::Builder::new().name("schedules".to_owned());
        thread.spawn(move || follow_all(looked, &ordered, &tell, &waker))?;
        Ok(orders)
    }

    /// The next file that has other times now.
    pub(super) fn poll(&self) -> Option<Renewed> {
        self.news.try_recv().ok()
    }

    /// Tells of a file, as the thread does.
    #[cfg(test)]
    pub(super) fn say(&self, renewed: Renewed) {
        self.tell.send(renewed).unwrap();
    }
}

/// Checks the files until the driver has dropped the sender of orders or the receiver of news.
fn follow_all(
    looked: Duration,
    orders: &Receiver<Order>,
    tell: &SyncSender<Renewed>,
    waker: &Waker,
) {
    let mut all: BTreeMap<NeighbourId, Followed> = BTreeMap::new();
    loop {
        match orders.recv_timeout(looked) {
            Ok((id, followed)) => {
                all.remove(&id);
                all.extend(followed.map(|followed| (id, followed)));
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        for (&id, followed) in &mut all {
            match followed.look() {
                None => {}
                Some(Ok(times)) => {
                    let file = followed.file.clone();
                    if tell.send(Renewed { id, file, times }).is_err() {
                        return;
                    }
                    waker.wake();
                }
                Some(Err(error)) => {
                    tracing::warn!(neighbour = id.0, %error, "the times of its schedule stay as they are");
                }
            }
        }
    }
}

impl Followed {
    fn new(file: PathBuf, times: KnownTimes) -> Self {
        Self {
            file,
            times,
            seen: None,
            read: None,
            told: None,
        }
    }

    /// Other times than those that held, or what is wrong with the file, once; none while it is as it was, or has changed since the last check.
    fn look(&mut self) -> Option<Result<KnownTimes, String>> {
        let seen = stamp_of(&self.file);
        let before = self.seen.replace(seen.clone());
        if before.as_ref() != Some(&seen) {
            return None;
        }
        let stamp = match seen {
            Ok(stamp) => stamp,
            Err(fault) => {
                self.read = None;
                return self.complain(fault);
            }
        };
        if self.read == Some(stamp) {
            return None;
        }
        let bytes = match contents_of(&self.file, stamp) {
            Ok(bytes) => bytes?,
            Err(error) => return self.complain(hop::unreadable(&self.file, &error)),
        };
        self.read = Some(stamp);
        match hop::times_in(&self.file, &bytes) {
            Ok(times) => {
                self.told = None;
                let is_news = times != self.times;
                self.times = times.clone();
                is_news.then_some(Ok(times))
            }
            Err(fault) => self.complain(fault),
        }
    }

    fn complain(&mut self, fault: String) -> Option<Result<KnownTimes, String>> {
        let told = self.told.replace(fault.clone());
        (told.as_ref() != Some(&fault)).then_some(Err(fault))
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn stamp_of(file: &Path) -> Result<Stamp, String> {
    let metadata = fs::metadata(file).map_err(|error| hop::unreadable(file, &error))?;
    // A pipe was read at the start, and would be waited for.
    match metadata.is_file() {
        true => Ok(Stamp::of(&metadata)),
        false => Err(format!(
            "{}: it is no file that could be read again",
            file.display()
        )),
    }
}

/// What a file holds, if it is what was seen, and is still when it has been read.
fn contents_of(file: &Path, seen: Stamp) -> io::Result<Option<Vec<u8>>> {
    // What was a file may be a pipe by now, which would be waited for.
    let open = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)?;
    if Stamp::of(&open.metadata()?) != seen {
        return Ok(None);
    }
    let bytes = hop::contents(&open)?;
    let is_same = Stamp::of(&open.metadata()?) == seen;
    Ok(is_same.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Poller;

    /// A folder of its own for a test, which goes with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("starhaul-schedules-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn times(text: &str) -> KnownTimes {
        text.parse().unwrap()
    }

    /// The outcomes of so many checks.
    fn looks(followed: &mut Followed, count: usize) -> Vec<Result<KnownTimes, String>> {
        (0..count).filter_map(|_| followed.look()).collect()
    }

    fn renewed(text: &str) -> Vec<Result<KnownTimes, String>> {
        vec![Ok(times(text))]
    }

    /// The one fault that is told, however often it is looked.
    fn fault(followed: &mut Followed) -> String {
        let mut all = looks(followed, 5);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0).expect_err("a fault")
    }

    #[test]
    fn a_file_is_read_again_once_it_stays_as_it_was_changed() {
        let folder = Folder::new("again");
        let file = folder.at("hop.times");
        let first = "1767225612\n";
        fs::write(&file, first).unwrap();
        let mut followed = Followed::new(file.clone(), times(first));
        assert!(looks(&mut followed, 5).is_empty(), "it is as it was");
        // Written bit by bit: what is there between two checks is no list.
        let (begin, end) = ("1767225627\n17672", "25642\n");
        fs::write(&file, begin).unwrap();
        assert!(looks(&mut followed, 1).is_empty());
        fs::write(&file, format!("{begin}{end}")).unwrap();
        assert!(looks(&mut followed, 1).is_empty());
        let second = renewed("1767225627\n1767225642");
        assert_eq!(looks(&mut followed, 5), second);
        // Another one takes its name.
        fs::write(folder.at("next"), "1767225700\n").unwrap();
        fs::rename(folder.at("next"), &file).unwrap();
        assert_eq!(looks(&mut followed, 5), renewed("1767225700"));
        // The same times, as of a job that found nothing else.
        fs::write(folder.at("next"), "1767225700 # again\n").unwrap();
        fs::rename(folder.at("next"), &file).unwrap();
        assert!(looks(&mut followed, 5).is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_once_each_and_the_former_times_stay() {
        let folder = Folder::new("wrong");
        let file = folder.at("hop.times");
        let first = "1767225612\n";
        fs::write(&file, first).unwrap();
        let mut followed = Followed::new(file.clone(), times(first));
        assert!(looks(&mut followed, 2).is_empty());
        // Gone for a moment.
        fs::remove_file(&file).unwrap();
        assert!(looks(&mut followed, 1).is_empty());
        fs::write(&file, first).unwrap();
        assert!(looks(&mut followed, 5).is_empty());
        // Gone for good, and then of another kind.
        fs::remove_file(&file).unwrap();
        let told = fault(&mut followed);
        assert!(told.starts_with("cannot read "), "{told}");
        fs::create_dir(&file).unwrap();
        let told = fault(&mut followed);
        assert!(told.contains("hop.times: it is no file"), "{told}");
        fs::remove_dir(&file).unwrap();
        // Two mistakes, one after the other.
        for (text, expected) in [
            ("1767225612\nstarlink\n", "hop.times: line 2: "),
            ("# nothing yet\n", "hop.times: it has no time"),
        ] {
            fs::write(&file, text).unwrap();
            let told = fault(&mut followed);
            assert!(told.contains(expected), "{told}");
        }
        assert_eq!(followed.times, times(first));
        // Once it was right, the same mistake is a new one.
        fs::write(&file, "1767225700\n").unwrap();
        assert_eq!(looks(&mut followed, 5), renewed("1767225700"));
        fs::write(&file, "# nothing yet\n").unwrap();
        let told = fault(&mut followed);
        assert!(told.contains("it has no time"), "{told}");
    }

    #[test]
    fn a_node_is_woken_for_the_other_times_of_each_file() {
        let folder = Folder::new("woken");
        let files = ["a.times", "b.times"].map(|name| folder.at(name));
        let mut poller = Poller::new().unwrap();
        let mut schedules = Schedules::looking_each(Duration::from_millis(1), poller.waker());
        schedules.follow(NeighbourId(9), None, KnownTimes::default());
        assert!(schedules.orders.is_none(), "a thread for no file");
        for (file, id) in files.iter().zip(0..) {
            fs::write(file, "1767225612\n").unwrap();
            let known = times("1767225612");
            schedules.follow(NeighbourId(id), Some(file.clone()), known);
        }
        for file in &files {
            fs::write(folder.at("next"), "1767225700\n").unwrap();
            fs::rename(folder.at("next"), file).unwrap();
        }
        let mut heard: Vec<Renewed> = Vec::new();
        while heard.len() < files.len() {
            // News end the wait.
            poller.wait(&[], None).unwrap();
            heard.extend(std::iter::from_fn(|| schedules.poll()));
        }
        heard.sort_by_key(|news| news.id);
        for ((news, file), id) in heard.iter().zip(&files).zip(0..) {
            assert_eq!((news.id, &news.file), (NeighbourId(id), file));
            assert_eq!(news.times, times("1767225700"));
        }
    }
}
