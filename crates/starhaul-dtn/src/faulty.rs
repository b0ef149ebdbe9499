//! A medium in memory that fails, dies, and loses what was not brought to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IoSlice},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use crate::medium::{Found, Medium, MediumFile};

/// What is written or lost as a whole.
const SECTOR: usize = 64;

/// Pseudo-random numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// The medium; clones are the same one.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Mutex<State>>);

struct State {
    /// As the process sees it.
    names: BTreeMap<String, usize>,
    /// As it is after the power was cut.
    durable_names: BTreeMap<String, usize>,
    files: Vec<Content>,
    random: Random,
    /// One of so many operations fails; 0 for none.
    fails_one_in: u64,
    /// The same for reading, which costs no step.
    reads_fail_one_in: u64,
    capacity: u64,
    /// Operations until the process dies.
    steps: Option<u64>,
}

#[derive(Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that the next sync brings to the medium. After one that failed, those it did not bring are forgotten, as Linux does.
    dirty: BTreeSet<usize>,
}

/// Of a process that is dead: nothing of the operation is done.
const DEAD: io::ErrorKind = io::ErrorKind::NotConnected;

/// Of a process that dies in the operation.
const DYING: io::ErrorKind = io::ErrorKind::Interrupted;

fn is_dying<T>(done: &io::Result<T>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == DYING)
}

fn is_dead<T>(done: &io::Result<T>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == DEAD)
}

struct Handle {
    disk: Disk,
    file: usize,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            files: Vec::new(),
            random: Random(seed),
            fails_one_in: 0,
            reads_fail_one_in: 0,
            capacity: u64::MAX,
            steps: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// From now on one of so many operations fails (none with 0), and so many bytes have room.
    pub(crate) fn set_faults(&self, one_in: u64, capacity: u64) {
        let mut state = self.state();
        (state.fails_one_in, state.capacity) = (one_in, capacity);
    }

    /// From now on one of so many readings fails; none with 0.
    pub(crate) fn set_read_faults(&self, one_in: u64) {
        self.state().reads_fail_one_in = one_in;
    }

    /// The process dies after so many operations, in the middle of one.
    pub(crate) fn die_after(&self, steps: Option<u64>) {
        self.state().steps = steps;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().steps == Some(0)
    }

    /// The next process begins; `power` says that the power was cut before.
    pub(crate) fn restart(&self, power: bool) {
        let mut state = self.state();
        state.steps = None;
        if power {
            state.cut_power();
        }
    }

    /// The bytes of all segments.
    pub(crate) fn total(&self) -> u64 {
        self.state().total()
    }

    /// Spoils one byte of a segment that is on the medium.
    pub(crate) fn rot(&self, file: usize, at: usize) {
        let mut state = self.state();
        let file = &mut state.files[file];
        file.durable[at] ^= 0x10;
        file.seen[at] = file.durable[at];
    }

    /// A folder of it, whose name ends with `/`; without one, the top.
    pub(crate) fn folder(&self, name: &str) -> Box<dyn Medium> {
        Box::new(Drawer {
            disk: self.clone(),
            folder: name.to_owned(),
        })
    }

    fn open(&self, file: usize) -> Arc<dyn MediumFile> {
        let disk = self.clone();
        Arc::new(Handle { disk, file })
    }
}

impl State {
    fn total(&self) -> u64 {
        let files = self.names.values();
        files.map(|file| self.files[*file].seen.len() as u64).sum()
    }

    /// Whether the operation is done; if it is not, a part of it may be.
    fn step(&mut self) -> io::Result<()> {
        if let Some(steps) = &mut self.steps {
            if *steps <= 1 {
                let is_dying = std::mem::take(steps) == 1;
                return Err(match is_dying {
                    true => DYING.into(),
                    false => DEAD.into(),
                });
            }
            *steps -= 1;
        }
        match self.fails_one_in {
            0 => Ok(()),
            one_in if self.random.one_in(one_in) => Err(io::Error::other("input/output error")),
            _ => Ok(()),
        }
    }

    /// Of what was not brought to the medium, any part may have come there, in any order.
    fn cut_power(&mut self) {
        let (old, new) = (self.durable_names.clone(), self.names.clone());
        let stale: Vec<u8> = self
            .files
            .iter()
            .flat_map(|file| file.durable.clone())
            .collect();
        let all: BTreeSet<_> = old.keys().chain(new.keys()).cloned().collect();
        let mut names = BTreeMap::new();
        for name in all {
            let from = if self.random.one_in(2) { &old } else { &new };
            names.extend(from.get(&name).map(|file| (name.clone(), *file)));
        }
        for file in &mut self.files {
            let random = &mut self.random;
            let lengths = (file.durable.len(), file.seen.len());
            let length = match random.below(3) {
                0 => lengths.0,
                1 => lengths.1,
                _ => lengths.0 + random.below(lengths.1.abs_diff(lengths.0) as u64 + 1) as usize,
            };
            let mut after = vec![0; length];
            let way = random.below(4);
            for (sector, bytes) in after.chunks_mut(SECTOR).enumerate() {
                let at = sector * SECTOR;
                let comes = file.dirty.contains(&sector)
                    && match way {
                        0 => false,
                        1 => true,
                        _ => random.one_in(2),
                    };
                let from = if comes { &file.seen } else { &file.durable };
                for (i, byte) in bytes.iter_mut().enumerate() {
                    // Beyond the old end there may be what another file has left.
                    let left = stale.get(at + i).filter(|_| way == 3);
                    *byte = from.get(at + i).or(left).copied().unwrap_or(0);
                }
            }
            (file.seen, file.durable) = (after.clone(), after);
            file.dirty.clear();
        }
        (self.names, self.durable_names) = (names.clone(), names);
    }

    fn write(&mut self, file: usize, at: usize, bytes: &[u8]) {
        let file = &mut self.files[file];
        let end = at + bytes.len();
        if file.seen.len() < end {
            file.seen.resize(end, 0);
        }
        file.seen[at..end].copy_from_slice(bytes);
        file.dirty.extend(at / SECTOR..end.div_ceil(SECTOR));
    }
}

/// A folder of the medium: names are brought to it for each folder alone.
struct Drawer {
    disk: Disk,
    /// What all names in it begin with.
    folder: String,
}

impl Drawer {
    fn place(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }
}

/// The folder of a name.
fn folder_of(place: &str) -> &str {
    place.rfind('/').map_or("", |end| &place[..=end])
}

impl State {
    /// Brings to the medium which files of a folder there are; `is_in` says of a name whether it is one.
    fn sync_names(&mut self, is_in: impl Fn(&str) -> bool) -> io::Result<()> {
        self.step()?;
        self.durable_names.retain(|name, _| !is_in(name));
        let seen = self.names.iter().filter(|(name, _)| is_in(name));
        self.durable_names
            .extend(seen.map(|(name, file)| (name.clone(), *file)));
        Ok(())
    }
}

impl Medium for Drawer {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.disk.state();
        state.step()?;
        let names = state.names.keys();
        let names = names.filter_map(|name| name.strip_prefix(&self.folder));
        Ok(names.map(ToOwned::to_owned).collect())
    }

    fn all(&self) -> io::Result<Vec<Found>> {
        let mut state = self.disk.state();
        state.step()?;
        let files = state.names.iter();
        let found = files.filter_map(|(name, file)| {
            Some(Found {
                name: name.strip_prefix(&self.folder)?.to_owned(),
                bytes: state.files[*file].seen.len() as u64,
                written: SystemTime::UNIX_EPOCH,
            })
        });
        Ok(found.collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let name = self.place(name);
        let mut state = self.disk.state();
        let done = state.step();
        if is_dead(&done) || (done.is_err() && state.random.one_in(2)) {
            return done.and(Err(DEAD.into()));
        }
        assert!(!state.names.contains_key(&name), "{name} is there");
        let file = state.files.len();
        state.files.push(Content::default());
        state.names.insert(name, file);
        done.map(|()| Disk::open(&self.disk, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let mut state = self.disk.state();
        state.step()?;
        let file = state.names.get(&self.place(name)).copied();
        let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Disk::open(&self.disk, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.step();
        // A process that dies in it may have done it.
        if done.is_err() && !(is_dying(&done) && state.random.one_in(2)) {
            return done;
        }
        let file = state.names.remove(&self.place(from));
        let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        state.names.insert(self.place(to), file);
        done
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step()?;
        state.names.remove(&self.place(name));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.sync_names(|name| folder_of(name) == self.folder)
    }

    fn sync_name(&self, name: &str) -> io::Result<()> {
        let place = self.place(name);
        let mut state = self.disk.state();
        state.sync_names(|name| folder_of(name) == folder_of(&place))
    }

    fn free(&self) -> io::Result<u64> {
        let state = self.disk.state();
        Ok(state.capacity.saturating_sub(state.total()))
    }
}

impl MediumFile for Handle {
    fn write(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let mut state = self.disk.state();
        let mut done = state.step();
        let mut length = bytes.len();
        if done.is_ok() && state.total() + bytes.len() as u64 > state.capacity {
            done = Err(io::ErrorKind::StorageFull.into());
        }
        if done.is_err() {
            length = match is_dead(&done) {
                true => 0,
                false => state.random.below(length as u64) as usize,
            };
        }
        if length > 0 {
            state.write(self.file, at as usize, &bytes[..length]);
        }
        done
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.step();
        let state = &mut *state;
        let (file, random) = (&mut state.files[self.file], &mut state.random);
        if is_dead(&done) {
            return done;
        }
        let length = match done.is_ok() {
            true => file.seen.len(),
            false => file.durable.len(),
        };
        file.durable.resize(length, 0);
        for sector in file.dirty.clone() {
            let range = sector * SECTOR..length.min((sector + 1) * SECTOR);
            if (done.is_ok() || random.one_in(2))
                && let Some(from) = file.seen.get(range.clone())
            {
                file.durable[range].copy_from_slice(from);
            }
        }
        if !is_dying(&done) {
            file.dirty.clear();
        }
        done
    }

    fn settle(&self) -> io::Result<()> {
        self.sync()?;
        let mut state = self.disk.state();
        let file = &mut state.files[self.file];
        file.seen.clone_from(&file.durable);
        Ok(())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step()?;
        let file = &mut state.files[self.file];
        file.seen.resize(length as usize, 0);
        Ok(())
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.steps == Some(0) {
            return Err(io::Error::other("dead"));
        }
        let one_in = state.reads_fail_one_in;
        if one_in > 0 && state.random.one_in(one_in) {
            return Err(io::Error::other("input/output error"));
        }
        let file = &state.files[self.file];
        let from = file.seen.get(at as usize..at as usize + bytes.len());
        bytes.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.step()?;
        Ok(state.files[self.file].seen.len() as u64)
    }
}
