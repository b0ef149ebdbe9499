//! Bundles that applications have acknowledged. The agent may hand them out again after a restart; an application gets none of
//! them twice.

use std::{
    collections::HashMap,
    fmt,
    io::{self, IoSlice},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    medium::{Folder, Medium, MediumFile},
    plan::Moment,
};

/// The file, and what takes its place.
const NAME: &str = "delivered";
const NEW: &str = "delivered.new";

/// The acknowledged bundles that have not expired; in a file, if there is a folder for it.
pub struct Journal {
    /// When each expires: from then on the agent hands it out no more. To ask for this does not wait for the medium.
    until: Mutex<HashMap<String, Moment>>,
    held: Mutex<Held>,
    medium: Option<Box<dyn Medium>>,
    /// Bundles that are known at most, about.
    most: usize,
}

struct Held {
    file: Option<Arc<dyn MediumFile>>,
    /// Bytes of the file, unless the last line is torn.
    length: u64,
    /// Whether what is written is brought to the medium.
    syncs: bool,
    /// Lines in the file.
    lines: usize,
    /// Whether the last line may be incomplete, since it could not be written.
    is_torn: bool,
    /// Whether the file's name is on the medium.
    is_named: bool,
    /// The file is not written anew with fewer lines, since that has failed.
    lines_to_try: usize,
}

/// Lines of expired bundles that are kept before the file is written anew.
const MOST_USELESS: usize = 10_000;
/// So many lines later it is tried again.
const TRY_AGAIN: usize = 1000;

impl Journal {
    /// Reads the journal of a former life. A line that a crash has cut off was not confirmed to its application. The file is written
    /// anew without what has expired, if the disk has room for that. With `syncs`, what is recorded is on the medium.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(folder: Option<&Path>, syncs: bool, now: Moment) -> io::Result<Self> {
        let medium = folder.map(|folder| -> Box<dyn Medium> { Box::new(Folder::of(folder)) });
        Self::on(medium, syncs, now)
    }

    /// The same on any medium.
    pub(crate) fn on(
        medium: Option<Box<dyn Medium>>,
        syncs: bool,
        now: Moment,
    ) -> io::Result<Self> {
        let mut until = HashMap::new();
        let mut held = Held {
            file: None,
            length: 0,
            syncs,
            lines: 0,
            is_torn: false,
            is_named: true,
            lines_to_try: 0,
        };
        if let Some(medium) = medium.as_deref() {
            let text = read(medium)?;
            let text = String::from_utf8_lossy(&text);
            let lines = text.split_inclusive('\n').filter_map(parse);
            until = lines.filter(|(_, until)| *until > now).collect();
            match held.write_anew(medium, &until) {
                Err(error) if held.file.is_none() => {
                    tracing::warn!(%error, "the journal of delivered bundles is not written anew, but goes on");
                    held.go_on(medium, &text)?;
                }
                written => written?,
            }
        }
        Ok(Self {
            until: Mutex::new(until),
            held: Mutex::new(held),
            medium,
            most: usize::MAX,
        })
    }

    /// Knows at most so many bundles, and an eighth more for a while: those that expire first are forgotten. The sender of a bundle chooses
    /// its lifetime.
    #[must_use]
    pub fn of_at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Whether a bundle was acknowledged whose lifetime has not ended: another may have its name after that.
    pub fn contains(&self, id: &str, now: Moment) -> bool {
        self.until().get(id).is_some_and(|until| *until > now)
    }

    /// Notes that a bundle was acknowledged: the call returns when the medium has it.
    ///
    /// # Errors
    /// The file cannot be written: the application must not be told that its acknowledgement counts.
    pub fn record(&self, id: &str, until: Moment, now: Moment) -> io::Result<()> {
        let mut held = self.held();
        let held = &mut *held;
        if let Some(file) = &held.file {
            let (end_of_torn, at) = match held.is_torn {
                true => ("\n", file.length()?),
                false => ("", held.length),
            };
            held.is_torn = true;
            // One call, so that a crash leaves at most the last line incomplete.
            let line = format!("{end_of_torn}{id} {}\n", until.0.as_millis());
            file.write(at, &mut [IoSlice::new(line.as_bytes())])?;
            if held.syncs {
                file.sync()?;
            }
            (held.is_torn, held.length) = (false, at + line.len() as u64);
        }
        if let Some(medium) = self.medium.as_deref() {
            held.name(medium)?;
        }
        let known = {
            let mut all = self.until();
            all.insert(id.to_owned(), until);
            // Each time costs a search of all.
            if all.len() > self.most.saturating_add(self.most / 8) {
                all.retain(|_, until| *until > now);
                forget_first(&mut all, self.most);
            }
            all.len()
        };
        held.lines += 1;
        let most = MOST_USELESS + 2 * known;
        if held.lines > most.max(held.lines_to_try) {
            let all = {
                let mut all = self.until();
                all.retain(|_, until| *until > now);
                all.clone()
            };
            match self.medium.as_deref() {
                // The bundle is in the old file, or in the new one, whose name the next call brings to the medium.
                Some(medium) => held.write_anew(medium, &all).unwrap_or_else(|error| {
                    tracing::warn!(%error, "the journal of delivered bundles stays longer than it need be");
                }),
                None => held.lines = all.len(),
            }
        }
        Ok(())
    }

    fn until(&self) -> MutexGuard<'_, HashMap<String, Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Held {
    fn write_anew(
        &mut self,
        medium: &dyn Medium,
        until: &HashMap<String, Moment>,
    ) -> io::Result<()> {
        let renamed = self.write_to(medium, until).and_then(|written| {
            medium.rename(NEW, NAME)?;
            Ok(written)
        });
        let (file, length) = renamed.inspect_err(|_| {
            // On a full disk it would take the room of acknowledgements.
            let _ = medium.remove(NEW);
            self.lines_to_try = self.lines + TRY_AGAIN;
        })?;
        // What is written from now on would be lost in the old one, which has no name any more.
        (self.file, self.length) = (Some(file), length);
        (self.lines, self.is_torn) = (until.len(), false);
        self.is_named = false;
        self.name(medium)
    }

    /// The new file, and its length.
    fn write_to(
        &self,
        medium: &dyn Medium,
        until: &HashMap<String, Moment>,
    ) -> io::Result<(Arc<dyn MediumFile>, u64)> {
        let all = until.iter();
        let lines = all.map(|(id, until)| format!("{id} {}\n", until.0.as_millis()));
        let lines = lines.collect::<String>();
        // A life that ended in this has left it.
        medium.remove(NEW)?;
        let file = medium.create(NEW)?;
        if !lines.is_empty() {
            file.write(0, &mut [IoSlice::new(lines.as_bytes())])?;
        }
        if self.syncs {
            file.sync()?;
        }
        Ok((file, lines.len() as u64))
    }

    /// Appends to the file of a former life from now on, which holds this text.
    fn go_on(&mut self, medium: &dyn Medium, text: &str) -> io::Result<()> {
        let file = match medium.open(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => medium.create(NAME)?,
            opened => opened?,
        };
        // What that life was killed in the middle of may not be there yet.
        if self.syncs {
            file.sync()?;
        }
        self.length = file.length()?;
        self.file = Some(file);
        self.lines = text.lines().count();
        self.lines_to_try = self.lines + TRY_AGAIN;
        self.is_torn = !text.is_empty() && !text.ends_with('\n');
        self.is_named = false;
        self.name(medium)
    }

    /// Brings the name of the file to the medium.
    fn name(&mut self, medium: &dyn Medium) -> io::Result<()> {
        if self.syncs && !self.is_named {
            medium.sync_names()?;
            self.is_named = true;
        }
        Ok(())
    }
}

/// What former lives have written.
fn read(medium: &dyn Medium) -> io::Result<Vec<u8>> {
    let file = match medium.open(NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut text = vec![0; length];
    file.read(0, &mut text)?;
    Ok(text)
}

/// Forgets the bundles that expire first, until `most` are left.
fn forget_first(all: &mut HashMap<String, Moment>, most: usize) {
    let surplus = all.len().saturating_sub(most);
    let Some(place) = surplus.checked_sub(1) else {
        return;
    };
    let mut ends: Vec<Moment> = all.values().copied().collect();
    let last = *ends.select_nth_unstable(place).1;
    let earlier = ends.iter().filter(|end| **end < last).count();
    // Of those that expire with the last one that goes, some may stay.
    let mut with_it = surplus - earlier;
    all.retain(|_, until| {
        let goes = *until < last || *until == last && with_it > 0;
        with_it -= usize::from(goes && *until == last);
        !goes
    });
}

/// A whole line; the end of a line says that it is.
fn parse(line: &str) -> Option<(String, Moment)> {
    let (id, until) = line.strip_suffix('\n')?.split_once(' ')?;
    let until = std::time::Duration::from_millis(until.parse().ok()?);
    Some((id.to_owned(), Moment(until)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::faulty::Disk;

    #[test]
    fn acknowledged_bundles_are_known_in_the_next_life_until_they_expire() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let open = |now| Journal::open(Some(folder.path()), true, now).unwrap();
        let journal = open(at(0));
        journal.record("one", at(10), at(0)).unwrap();
        journal.record("two", at(100), at(0)).unwrap();
        // A crash in the middle of the third line.
        let file = folder.path().join("delivered");
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, [&whole[..], b"three 99"].concat()).unwrap();
        let journal = open(at(5));
        let has = |journal: &Journal, id| journal.contains(id, at(5));
        assert!(has(&journal, "one") && has(&journal, "two") && !has(&journal, "three"));
        // Another bundle may have its name then.
        assert!(!journal.contains("one", at(10)));
        let journal = open(at(50));
        assert!(!has(&journal, "one") && has(&journal, "two"));
        journal.record("four", at(70), at(50)).unwrap();
        assert!(open(at(60)).contains("four", at(60)));
    }

    /// A neighbour whose bundles live for centuries does not fill the memory with their names.
    #[test]
    fn beyond_a_bound_those_that_expire_first_are_forgotten() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let journal = Journal::open(None, true, at(0)).unwrap().of_at_most(80);
        for number in 0..1000_u64 {
            // Three of four expire at the same moment.
            let until = match number.is_multiple_of(4) {
                true => 10_000 + number,
                false => 5000,
            };
            let id = number.to_string();
            journal.record(&id, at(until), at(1)).unwrap();
            assert!(journal.until().len() <= 90);
        }
        let has = |number: u64| journal.contains(&number.to_string(), at(1));
        assert!(has(996) && has(992) && has(800), "the last to expire");
        assert!(!has(1) && !has(0));
        assert!(journal.until().len() >= 80);
    }

    #[test]
    fn a_line_on_the_medium_counts_although_the_file_cannot_be_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let journal = Journal::open(Some(folder.path()), true, at(0)).unwrap();
        // Nothing can be written there.
        let new = folder.path().join("delivered.new");
        std::fs::create_dir(&new).unwrap();
        journal.held().lines = 2 * MOST_USELESS;
        journal.record("one", at(100), at(0)).unwrap();
        std::fs::remove_dir(&new).unwrap();
        let lines = journal.held().lines;
        journal.record("two", at(100), at(0)).unwrap();
        assert_eq!(journal.held().lines, lines + 1, "it is tried at once");
        journal.held().lines += TRY_AGAIN;
        journal.record("three", at(100), at(0)).unwrap();
        assert_eq!(journal.held().lines, 3);
        drop(journal);
        let journal = Journal::open(Some(folder.path()), true, at(50)).unwrap();
        let is_there = |id| journal.contains(id, at(50));
        assert!(["one", "two", "three"].into_iter().all(is_there));
    }

    #[test]
    fn a_journal_that_cannot_be_written_anew_goes_on_and_leaves_no_second_file() {
        let disk = Disk::new(1);
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let open = |now| Journal::on(Some(disk.folder("")), true, now).unwrap();
        let text = || String::from_utf8(read(&*disk.folder("")).unwrap()).unwrap();
        let old = disk.folder("").create(NAME).unwrap();
        let lines = b"one 100000\ntwo 10000\nthree 99";
        old.write(0, &mut [IoSlice::new(lines)]).unwrap();
        // Nothing has room beside it.
        disk.set_faults(0, disk.total());
        let journal = open(at(50));
        let names = disk.folder("").names().unwrap();
        assert_eq!(names, [NAME], "the new file stays");
        let has = |journal: &Journal, id| journal.contains(id, at(50));
        assert!(has(&journal, "one") && !has(&journal, "two") && !has(&journal, "three"));
        assert_eq!(journal.held().lines, 3);
        disk.set_faults(0, u64::MAX);
        journal.record("four", at(100), at(50)).unwrap();
        assert!(text().starts_with("one 100000\ntwo 10000\nthree 99\nfour "));
        drop(journal);
        let journal = open(at(60));
        assert!(!text().contains("two"), "it is not written anew");
        assert!(has(&journal, "one") && has(&journal, "four"));
        assert_eq!(journal.held().lines, 2);
    }

    /// What a write that failed has left of a line is no part of the next one.
    #[test]
    fn a_line_that_could_not_be_written_costs_no_other() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        for room in 0..20 {
            let disk = Disk::new(room);
            let open = || Journal::on(Some(disk.folder("")), true, at(1)).unwrap();
            let journal = open();
            journal.record("first", at(100), at(1)).unwrap();
            disk.set_faults(0, disk.total() + room);
            let id = "a-name-that-has-no-room";
            assert!(journal.record(id, at(100), at(1)).is_err(), "{room}");
            assert!(!journal.contains(id, at(1)), "{room}");
            disk.set_faults(0, u64::MAX);
            journal.record("last", at(100), at(1)).unwrap();
            for journal in [journal, open()] {
                let has = |id| journal.contains(id, at(1));
                assert!(has("first") && has("last"), "{room}");
            }
        }
    }
}
