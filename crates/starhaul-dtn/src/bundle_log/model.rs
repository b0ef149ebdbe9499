//! The log against a model, on a medium that fails at any operation, under a process that dies at any, with and without the power:
//! what was taken is there, what was removed is not, and nothing else ever is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use hardy_bpa::{
    Bytes,
    bundle::{Bundle, BundleMetadata, BundleStatus},
};
use hardy_bpv7::{
    builder::Builder, bundle::FragmentInfo, creation_timestamp::CreationTimestamp,
    dtn_time::DtnTime,
};

use super::{
    index::Data,
    prepared::{Prepared, key},
    queue::{Begun, FREE, Found, Log, Settings, Waiting},
    read,
    writer::{Turn, Writer},
};
use crate::faulty::{Disk, Random};

/// Number of different bundles.
const BUNDLES: u64 = 24;
/// Every so many of them is a fragment, or expires at once.
const FRAGMENTS: u64 = 8;
const SHORT: u64 = 6;

static ALL: LazyLock<Vec<Bundle>> = LazyLock::new(|| (0..BUNDLES).map(varied).collect());

/// A bundle that no test outlives.
pub(super) fn bundle(number: u64) -> Bundle {
    living(number, Duration::from_secs(36_000))
}

fn living(number: u64, lifetime: Duration) -> Bundle {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder.with_lifetime(lifetime);
    let builder = builder.with_payload(b"x".as_slice().into());
    let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number);
    Bundle {
        bundle: builder.build(stamp).unwrap().0,
        metadata: BundleMetadata::default(),
    }
}

/// One of those of the model.
fn varied(number: u64) -> Bundle {
    let mut varied = match number % SHORT {
        1 => living(number, Duration::ZERO),
        _ => bundle(number),
    };
    if number.is_multiple_of(FRAGMENTS) {
        varied.bundle.id.fragment_info = Some(FragmentInfo {
            offset: 0,
            total_adu_length: 2,
        });
    }
    varied
}

/// The data of a bundle in a version.
fn data(bundle: u64, version: u32) -> Bytes {
    let length = Random(bundle << 32 | u64::from(version)).below(300) as usize;
    let head = [bundle.to_le_bytes()[0]]
        .into_iter()
        .chain(version.to_le_bytes());
    head.chain((0..length).map(|i| (i as u32 ^ version).to_le_bytes()[0]))
        .collect()
}

/// Whether these are data of the bundle; then of which version.
fn version(bundle: u64, bytes: &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first()?;
    let version = u32::from_le_bytes(*rest.first_chunk()?);
    (u64::from(*head) == bundle && *bytes == data(bundle, version)).then_some(version)
}

/// One fact about a bundle as it changed: each value with the number of the change; the first is what is certain.
struct History<T>(Vec<(u64, T)>);

impl<T: PartialEq + Clone> History<T> {
    fn new(value: T) -> Self {
        Self(vec![(0, value)])
    }

    fn push(&mut self, change: u64, value: T) {
        self.0.push((change, value));
    }

    /// All changes up to this one are in the log.
    fn confirm(&mut self, change: u64) {
        let is_later = |(number, _): &(u64, T)| *number > change;
        let first_later = self.0.iter().position(is_later).unwrap_or(self.0.len());
        self.0.drain(..first_later.saturating_sub(1));
    }

    fn now(&self) -> &T {
        &self.0[self.0.len() - 1].1
    }

    fn may_be(&self, value: &T) -> bool {
        self.0.iter().any(|(_, may_be)| may_be == value)
    }
}

/// What a bundle's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    InFile,
    Version(u32),
}

/// A bundle as the model knows it.
struct Truth {
    held: History<Held>,
    label: History<u32>,
    status: History<BundleStatus>,
    number: u64,
    is_coming: bool,
    /// It was removed, which is certain.
    is_gone: bool,
}

/// Data without a bundle: of which they are, and of which change the log has them.
struct Saved {
    bundle: u64,
    version: u32,
    kept: Option<u64>,
    is_certain: bool,
}

enum Asked {
    Insert(u64),
    Remove(u64),
    Flush,
}

pub(super) struct Model {
    pub(super) random: Random,
    pub(super) disk: Disk,
    pub(super) settings: Settings,
    truths: Vec<Truth>,
    saved: BTreeMap<u64, Saved>,
    waiting: Vec<(u64, Asked, Waiting)>,
    changes: u64,
    versions: u32,
    /// Whether the power was cut without sync: anything may be lost.
    is_lossy: bool,
    /// Whether no bundle expires.
    is_long: bool,
}

/// Prints the seed of a test that fails.
pub(super) struct Seed(pub(super) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("STARHAUL_SEED={}", self.0);
        }
    }
}

fn settings(random: &mut Random) -> Settings {
    let segment_bytes = 1500 + random.below(6000) as u32;
    Settings {
        is_synced: !random.one_in(4),
        segment_bytes,
        queue_bytes: if random.one_in(4) { 3000 } else { 1 << 20 },
        young_bytes: [0, 4000, 1 << 20][random.below(3) as usize],
        most_gone: if random.one_in(4) { 6 } else { 1000 },
        slack_bytes: u64::from(segment_bytes) * (1 + random.below(4)),
    }
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let truth = |_| Truth {
            held: History::new(Held::Nothing),
            label: History::new(0),
            status: History::new(BundleStatus::New),
            number: 0,
            is_coming: false,
            is_gone: false,
        };
        Self {
            disk: Disk::new(seed ^ 1),
            settings: settings(&mut random),
            random,
            truths: (0..BUNDLES).map(truth).collect(),
            saved: BTreeMap::new(),
            waiting: Vec::new(),
            changes: 0,
            versions: 0,
            is_lossy: false,
            is_long: false,
        }
    }

    fn bundle(&self, of: u64) -> Bundle {
        let truth = &self.truths[of as usize];
        let mut bundle = ALL[of as usize].clone();
        bundle.metadata.status = truth.status.now().clone();
        bundle.metadata.writable.flow_label = Some(*truth.label.now());
        bundle
    }

    /// A new process reads what is there; it may die in doing so.
    pub(super) fn recover(&mut self) -> Writer {
        loop {
            let is_cut_short = self.random.one_in(3);
            let steps = is_cut_short.then(|| 1 + self.random.below(30));
            self.disk.set_faults(0, u64::MAX);
            self.disk.die_after(steps);
            let read = self.open();
            if read.is_ok() && !self.disk.is_dead() {
                self.disk.die_after(None);
                break;
            }
            self.crash();
        }
        let (once, again) = (self.open().unwrap(), self.open().unwrap());
        assert_eq!(
            dump(&once.log),
            dump(&again.log),
            "the second reading differs"
        );
        self.check(&again.log);
        again
    }

    pub(super) fn open(&mut self) -> std::io::Result<Writer> {
        let mut salts = Random(self.random.below(u64::MAX));
        let salt = move || Ok(salts.below(u64::MAX));
        read(self.disk.folder(""), self.settings.clone(), salt)
    }

    fn crash(&mut self) {
        let power = self.random.one_in(2);
        self.is_lossy |= power && !self.settings.is_synced;
        self.disk.restart(power);
    }

    /// Compares what a new life finds with what may be; from now on that is certain.
    fn check(&mut self, log: &Log) {
        self.waiting.clear();
        let (with_data, mut numbers) = (log.state.lock().index.with_data(), BTreeSet::new());
        for of in 0..BUNDLES {
            let key = key(&ALL[of as usize].bundle.id).unwrap();
            let (number, is_gone) = {
                let index = &log.state.lock().index;
                // A name that is free is in the log for the sake of former records alone.
                (index.number(&key), index.is_gone_at(&key, FREE))
            };
            numbers.extend(number);
            let found = number.map(|number| seen(log, of, number));
            let held = found.as_ref().map_or(Held::Nothing, |found| found.0);
            let is_lossy = self.is_lossy;
            let truth = &mut self.truths[of as usize];
            let may_be = truth.held.may_be(&held) || is_lossy;
            assert!(
                may_be,
                "bundle {of} is {held:?}, not one of {:?}",
                truth.held.0
            );
            let is_short = of % SHORT == 1;
            if truth.is_gone
                && held == Held::Nothing
                && self.settings.most_gone > 100
                && !is_lossy
                && !is_short
            {
                assert!(is_gone, "it is forgotten that {of} is gone");
            }
            truth.is_gone &= is_gone;
            if let Some((_, label, status)) = found {
                assert!(
                    truth.label.may_be(&label) || is_lossy,
                    "{of} has label {label}"
                );
                assert!(
                    truth.status.may_be(&status) || is_lossy,
                    "{of} is {status:?}"
                );
                (truth.label, truth.status) = (History::new(label), History::new(status));
            }
            truth.held = History::new(held);
            truth.is_coming = false;
            truth.number = number.unwrap_or(0);
        }
        let orphans: BTreeSet<u64> = with_data
            .into_iter()
            .filter(|number| !numbers.contains(number))
            .collect();
        self.check_orphans(log, &orphans);
        self.is_lossy = false;
    }

    fn check_orphans(&mut self, log: &Log, orphans: &BTreeSet<u64>) {
        for (number, saved) in &self.saved {
            let is_there = orphans.contains(number);
            assert!(
                is_there || !saved.is_certain || self.is_lossy,
                "data {number} are lost"
            );
        }
        self.saved.clear();
        for number in orphans {
            let bytes = log_data(log, *number).unwrap();
            let bundle = u64::from(bytes[0]);
            let version = version(bundle, &bytes).expect("data of no bundle");
            let (kept, is_certain) = (Some(0), true);
            self.saved.insert(
                *number,
                Saved {
                    bundle,
                    version,
                    kept,
                    is_certain,
                },
            );
        }
    }

    /// A number for a change of the bundle.
    fn change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Bundles come and go, and change, so often; then all is written.
    pub(super) fn come_and_go(&mut self, writer: &mut Writer, times: u32, change: bool) {
        for _ in 0..times {
            let log = writer.log.clone();
            match self.random.below(if change { 6 } else { 4 }) {
                0 | 1 => self.insert(&log),
                2 => self.remove(&log),
                3 => self.drain(writer),
                4 => self.relabel(&log),
                _ => self.replace(&log),
            }
        }
        self.drain(writer);
    }

    fn insert(&mut self, log: &Log) {
        let of = self.random.below(BUNDLES);
        let truth = &self.truths[of as usize];
        let is_left_out = self.is_long && of % SHORT == 1;
        if truth.is_coming || *truth.held.now() != Held::Nothing || is_left_out {
            return;
        }
        let kept = self
            .saved
            .iter()
            .find(|(_, saved)| saved.bundle == of)
            .map(|(number, _)| *number);
        let in_file = kept.is_none() && self.random.one_in(8);
        let number = match kept {
            Some(number) => Some(number),
            None if in_file => None,
            None => Some(self.save(log, of)),
        };
        if self.random.one_in(12) {
            return;
        }
        let bundle = self.bundle(of);
        let prepared = Prepared::new(&bundle).unwrap();
        match log.begin_insert(&bundle, &prepared, number).unwrap() {
            Begun::New(waiting) => {
                let change = self.change();
                let held = match number.and_then(|number| self.saved.remove(&number)) {
                    Some(saved) => Held::Version(saved.version),
                    None => Held::InFile,
                };
                let key = prepared.key;
                let truth = &mut self.truths[of as usize];
                truth.held.push(change, held);
                truth.label.push(change, *truth.label.now());
                truth.status.push(change, truth.status.now().clone());
                (truth.is_coming, truth.is_gone) = (true, false);
                truth.number = log.state.lock().index.number(&key).unwrap();
                self.waiting.push((change, Asked::Insert(of), waiting));
            }
            Begun::Known => {
                let is_gone = log.state.lock().index.is_gone(&prepared.key);
                assert!(is_gone, "{of} is refused as known");
                self.discard(log, number);
            }
            Begun::Full => self.discard(log, number),
            Begun::Again(_) => panic!("{of} was not coming"),
        }
    }

    fn save(&mut self, log: &Log, bundle: u64) -> u64 {
        self.versions += 1;
        let version = self.versions;
        let number = log.save(data(bundle, version));
        let (kept, is_certain) = (None, false);
        self.saved.insert(
            number,
            Saved {
                bundle,
                version,
                kept,
                is_certain,
            },
        );
        number
    }

    fn discard(&mut self, log: &Log, number: Option<u64>) {
        if let Some(number) = number {
            log.discard(number);
            self.saved.remove(&number);
        }
    }

    fn remove(&mut self, log: &Log) {
        let Some(of) = self.present() else {
            return;
        };
        let id = &ALL[of as usize].bundle.id;
        if id.fragment_info.is_some() {
            let change = self.change();
            for saved in self.saved.values_mut().filter(|saved| saved.kept.is_none()) {
                saved.kept = Some(change);
            }
        }
        let change = self.change();
        let key = key(id).unwrap();
        // A name that is free is remembered no longer than that of a bundle that has expired.
        let leaves_name = !self.is_long && self.random.one_in(4);
        let (waiting, asked) = match leaves_name {
            true => (log.forget(id, key), Asked::Flush),
            false => (log.remove(id, key), Asked::Remove(of)),
        };
        let truth = &mut self.truths[of as usize];
        truth.held.push(change, Held::Nothing);
        self.waiting.push((change, asked, waiting.unwrap()));
    }

    /// A bundle that is there, perhaps on its way.
    fn present(&mut self) -> Option<u64> {
        let of = self.random.below(BUNDLES);
        let all = (of..BUNDLES).chain(0..of);
        let is_there = |of: &u64| *self.truths[*of as usize].held.now() != Held::Nothing;
        all.into_iter().find(is_there)
    }

    fn set_status(&mut self, log: &Log) {
        let Some(of) = self.present() else {
            return;
        };
        let status = match self.random.below(3) {
            0 => BundleStatus::Dispatching,
            1 => BundleStatus::Waiting,
            _ => BundleStatus::ForwardPending {
                peer: 7,
                queue: None,
            },
        };
        let text = serde_json::to_string(&status).unwrap();
        let change = self.change();
        log.set_status(&key(&ALL[of as usize].bundle.id).unwrap(), &text);
        self.truths[of as usize].status.push(change, status);
    }

    fn relabel(&mut self, log: &Log) {
        let Some(of) = self.present() else {
            return;
        };
        let (change, label) = (self.change(), self.random.below(5) as u32);
        self.truths[of as usize].label.push(change, label);
        let bundle = self.bundle(of);
        drop(log.renew(&bundle).unwrap());
    }

    fn replace(&mut self, log: &Log) {
        let Some(of) = self.present() else {
            return;
        };
        self.versions += 1;
        let (change, version) = (self.change(), self.versions);
        let truth = &mut self.truths[of as usize];
        if let Held::Version(_) = truth.held.now() {
            truth.held.push(change, Held::Version(version));
            drop(log.replace(truth.number, data(of, version)));
        }
    }

    fn flush(&mut self, log: &Log) {
        let change = self.change();
        self.waiting.push((change, Asked::Flush, log.flush()));
    }

    /// What can be read now is what was said last, or still on its way.
    fn look(&mut self, log: &Log) {
        let Some(of) = self.present() else {
            return;
        };
        let truth = &self.truths[of as usize];
        let (held, label, status) = seen(log, of, truth.number);
        assert!(truth.held.may_be(&held), "{of} reads {held:?}");
        assert!(truth.label.may_be(&label), "{of} reads {label}");
        assert_eq!(status, *truth.status.now());
    }

    /// Takes in what the log has answered.
    fn hear(&mut self) {
        for (change, asked, mut waiting) in std::mem::take(&mut self.waiting) {
            let answer = match waiting.try_recv() {
                Ok(answer) => answer,
                Err(tokio::sync::oneshot::error::TryRecvError::Empty) => {
                    self.waiting.push((change, asked, waiting));
                    continue;
                }
                Err(error) => panic!("no answer: {error}"),
            };
            if let Asked::Insert(of) = asked {
                self.truths[of as usize].is_coming = false;
                if answer.is_err() {
                    // It may come back all the same.
                    let change = self.change();
                    self.truths[of as usize].held.push(change, Held::Nothing);
                    continue;
                }
            }
            answer.expect("only new bundles are refused");
            self.confirm(change);
            if let Asked::Remove(of) = asked {
                let truth = &mut self.truths[of as usize];
                truth.is_gone = *truth.held.now() == Held::Nothing;
            }
        }
    }

    fn confirm(&mut self, change: u64) {
        for truth in &mut self.truths {
            truth.held.confirm(change);
            truth.label.confirm(change);
            truth.status.confirm(change);
        }
        for saved in self.saved.values_mut() {
            saved.is_certain |= saved.kept.is_some_and(|kept| kept <= change);
        }
    }

    fn live(&mut self, writer: &mut Writer) {
        let log = writer.log.clone();
        if self.random.one_in(2) {
            let steps = 1 + self.random.below(60);
            self.disk.die_after(Some(steps));
        }
        for _ in 0..self.random.below(200) {
            match self.random.below(24) {
                0..6 => self.insert(&log),
                6..9 => self.remove(&log),
                9..11 => self.set_status(&log),
                11 => self.relabel(&log),
                12 => self.replace(&log),
                13 => self.flush(&log),
                14 | 15 => self.look(&log),
                16 if self.random.one_in(6) => want_room(&log),
                16 => {
                    let number = self.saved.keys().next().copied();
                    self.discard(&log, number);
                }
                17 if self.random.one_in(4) => {
                    let fails = [0, 0, 5, 20][self.random.below(4) as usize];
                    let room = self.disk.total() + self.random.below(4000);
                    let room = if self.random.one_in(3) {
                        room
                    } else {
                        u64::MAX
                    };
                    self.disk.set_faults(fails, room);
                }
                _ => {
                    writer.turn();
                    self.hear();
                }
            }
            if self.disk.is_dead() {
                return;
            }
        }
        if self.random.one_in(2) {
            self.drain(writer);
        }
    }

    /// Until nothing is to be done; then the log is as small as is promised.
    pub(super) fn drain(&mut self, writer: &mut Writer) {
        self.disk.set_faults(0, u64::MAX);
        self.disk.die_after(None);
        let mut turns = 0;
        while writer.turn() != Turn::Idle {
            turns += 1;
            assert!(turns < 10_000, "it never rests");
        }
        self.hear();
        assert!(self.waiting.is_empty(), "an answer is missing");
        let state = writer.log.state.lock();
        let (live, segments) = (state.index.live(), state.segments.values());
        let total: u64 = segments.map(|held| held.length).sum();
        let most = live + live / 2 + self.settings.slack_bytes;
        assert!(total <= most, "{total} bytes for {live}");
    }
}

/// What the log says of a bundle that it has.
fn seen(log: &Log, of: u64, number: u64) -> (Held, u32, BundleStatus) {
    let bundle = match log.find(&[number]).pop().expect("the bundle is not found") {
        Found::Young(bundle) => *bundle,
        Found::Old(reading, status) => reading.bundle(&status).unwrap(),
    };
    assert_eq!(bundle.bundle.id, ALL[of as usize].bundle.id);
    let is_in_file = log.state.lock().index.get(number).unwrap().data == Data::InFile;
    let held = match is_in_file {
        true => Held::InFile,
        false => {
            let bytes = log_data(log, number).expect("the bundle has no data");
            Held::Version(version(of, &bytes).expect("the data are damaged"))
        }
    };
    let label = bundle.metadata.writable.flow_label.unwrap();
    (held, label, bundle.metadata.status)
}

fn log_data(log: &Log, number: u64) -> Option<Bytes> {
    Some(match log.data(number)? {
        Ok(data) => data,
        Err(reading) => reading.data().unwrap(),
    })
}

/// Has all segments cleaned, however little that brings.
pub(super) fn want_room(log: &Log) {
    let mut state = log.state.lock();
    state.room_wanted = state.segments.keys().next_back().copied();
}

/// All that the log knows, to be compared.
fn dump(log: &Log) -> Vec<String> {
    let numbers = log.state.lock().index.with_data();
    let data = numbers
        .iter()
        .map(|number| format!("{number}: {:?}", log_data(log, *number)));
    let known = ALL.iter().map(|bundle| {
        let key = key(&bundle.bundle.id).unwrap();
        let index = &log.state.lock().index;
        let number = index.number(&key);
        let entry = number.and_then(|number| index.get(number));
        let entry = entry.map(|entry| (entry.known, entry.data, entry.status.clone()));
        format!("{key:?} {number:?} {entry:?} {}", index.is_gone(&key))
    });
    data.chain(known).collect()
}

/// `STARHAUL_SEEDS` says how many runs are made in place of `usual`, `STARHAUL_SEED` which is the first.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let variable = |name: &str| std::env::var(name).ok()?.parse().ok();
    let first = variable("STARHAUL_SEED").unwrap_or(0);
    first..first + variable("STARHAUL_SEEDS").unwrap_or(usual)
}

#[test]
fn damage_costs_the_bundle_that_it_hits() {
    let mut model = Model::new(1);
    model.settings.is_synced = true;
    model.settings.segment_bytes = 1 << 20;
    model.settings.young_bytes = 0;
    let mut writer = model.recover();
    let log = writer.log.clone();
    while model.truths.iter().filter(|truth| truth.is_coming).count() < 10 {
        model.insert(&log);
    }
    model.drain(&mut writer);
    let there = |model: &Model| {
        let taken = model.truths.iter();
        taken
            .filter(|truth| *truth.held.now() != Held::Nothing)
            .count()
    };
    assert_eq!(there(&model), 10);
    drop(writer);
    model.disk.rot(0, 3000);
    model.is_lossy = true;
    let mut writer = model.open().unwrap();
    let log = writer.log.clone();
    model.check(&log);
    assert_eq!(there(&model), 9);
    // One that is damaged only now is lost when its segment goes, and no other is.
    model.disk.rot(0, 300);
    log.state.lock().room_wanted = Some(0);
    model.drain(&mut writer);
    assert_eq!(log.state.lock().index.live_in(0), 0);
    model.is_lossy = true;
    model.check(&log);
    assert_eq!(there(&model), 8);
}

/// Whatever could not be read for some time, and was cleaned meanwhile or came at a start, is there in a later life.
#[test]
fn reading_that_fails_for_some_time_costs_nothing() {
    for seed in seeds(300) {
        let _seed = Seed(seed);
        let mut model = Model::new(seed);
        model.settings.is_synced = true;
        model.settings.most_gone = 1000;
        model.settings.young_bytes = 0;
        let mut writer = model.recover();
        // One that has expired may come back with its file, and goes then.
        model.is_long = true;
        // A life that cannot read at its start how a bundle changed goes on with it as it was.
        let is_restarted = model.random.one_in(2);
        model.come_and_go(&mut writer, 80, !is_restarted);
        let one_in = 1 + model.random.below(4);
        model.disk.set_read_faults(one_in);
        if is_restarted {
            drop(writer);
            writer = model.open().unwrap();
        }
        want_room(&writer.log);
        for _ in 0..100 {
            writer.turn();
        }
        drop(writer);
        model.disk.set_read_faults(0);
        let mut writer = model.recover();
        model.drain(&mut writer);
    }
}

/// Bundles of a life that cannot read what is there do not pass for those that are.
#[test]
fn what_could_not_be_read_is_not_mixed_up_with_what_came_meanwhile() {
    for seed in 0..100 {
        let _seed = Seed(seed);
        let mut model = Model::new(seed);
        model.settings.is_synced = true;
        model.settings.queue_bytes = 1 << 20;
        let mut writer = model.recover();
        for reads_fail in [0, 1] {
            model.disk.set_read_faults(reads_fail);
            if reads_fail > 0 {
                drop(writer);
                model.saved.clear();
                writer = model.open().unwrap();
            }
            let log = writer.log.clone();
            for _ in 0..10 {
                model.insert(&log);
            }
            model.drain(&mut writer);
        }
        drop(writer);
        model.disk.set_read_faults(0);
        let mut writer = model.recover();
        model.drain(&mut writer);
    }
}

#[test]
fn whatever_fails_and_whenever_a_life_ends_the_log_holds_what_it_took() {
    for seed in seeds(400) {
        let _seed = Seed(seed);
        let mut model = Model::new(seed);
        for _ in 0..2 + model.random.below(6) {
            let mut writer = model.recover();
            model.live(&mut writer);
            drop(writer);
            model.crash();
        }
        let mut writer = model.recover();
        model.drain(&mut writer);
    }
}
