//! The log, the files of large bundles and the journal on one medium that fails at any operation, under a process that dies at any, with
//! and without the power: what was accepted is there, byte for byte, what was acknowledged is known, and a second start finds what the
//! first one found.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hardy_bpa::bundle::Bundle;
use tokio::sync::oneshot::error::TryRecvError;

use super::{
    Key,
    model::{Seed, bundle, seeds},
    prepared::{Prepared, key},
    queue::{Begun, Found, Log, Settings, Waiting},
    read,
    writer::Writer,
};
use crate::{
    bundle_files::Files,
    faulty::{Disk, Random},
    journal::Journal,
    plan::Moment,
};

/// Number of different bundles.
const BUNDLES: u64 = 12;
/// Attempts of the log to write until no task waits for it any more.
const TURNS: usize = 20;
const NOW: Moment = Moment(Duration::from_secs(1));
/// Until when acknowledged bundles are known.
const LATER: Moment = Moment(Duration::from_secs(1000));

/// A running process.
struct Life {
    writer: Writer,
    files: Files,
    journal: Journal,
}

/// A bundle as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Truth {
    /// It is not here, or was.
    Absent,
    /// It was accepted: the name of its data, and which these are.
    Present { name: String, version: u32 },
    /// No task was told what became of it.
    Open,
    /// It was removed, which is certain.
    Gone,
}

struct Model {
    random: Random,
    disk: Disk,
    settings: Settings,
    bundles: Vec<Bundle>,
    truths: Vec<Truth>,
    versions: u32,
    /// Bundles whose acknowledgement counts, and those that were acknowledged in whatever life.
    certain: BTreeSet<usize>,
    tried: BTreeSet<usize>,
    /// Numbers of files.
    files: Arc<AtomicU64>,
    /// Whether the power was cut without sync: anything may be lost.
    is_lossy: bool,
}

/// The data of a bundle in a version.
fn data(of: usize, version: u32) -> Vec<u8> {
    let seed = ((of as u64) << 32) | u64::from(version);
    let length = 5 + Random(seed).below(400);
    let head = [&of.to_le_bytes()[..1], &version.to_le_bytes()].concat();
    let rest = (head.len() as u64..length).map(|at| ((at * 31) ^ seed).to_le_bytes()[0]);
    head.iter().copied().chain(rest).collect()
}

/// Of which bundle these are all data, and in which version.
fn version(bytes: &[u8]) -> Option<(usize, u32)> {
    let (of, rest) = bytes.split_first()?;
    let version = u32::from_le_bytes(*rest.first_chunk()?);
    let of = usize::from(*of);
    (*bytes == data(of, version)).then_some((of, version))
}

/// The name of the data of a bundle that the log has.
fn stored(log: &Log, key: &Key) -> Option<String> {
    let number = log.state.lock().index.number(key)?;
    let bundle = match log.find(&[number]).pop().expect("the bundle is not found") {
        Found::Young(bundle) => *bundle,
        Found::Old(reading, status) => reading.bundle(&status).unwrap(),
    };
    let json = serde_json::to_value(&bundle.metadata).unwrap();
    Some(json["storage_name"].as_str().unwrap().to_owned())
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let segment_bytes = u32::try_from(3000 + random.below(8000)).unwrap();
        let settings = Settings {
            is_synced: !random.one_in(4),
            segment_bytes,
            queue_bytes: 1 << 20,
            young_bytes: if random.one_in(2) { 0 } else { 1 << 20 },
            most_gone: 1000,
            slack_bytes: 2 * u64::from(segment_bytes),
        };
        Self {
            disk: Disk::new(seed ^ 1),
            settings,
            random,
            bundles: (0..BUNDLES).map(bundle).collect(),
            truths: vec![Truth::Absent; usize::try_from(BUNDLES).unwrap()],
            versions: 0,
            certain: BTreeSet::new(),
            tried: BTreeSet::new(),
            files: Arc::default(),
            is_lossy: false,
        }
    }

    fn any(&mut self) -> usize {
        usize::try_from(self.random.below(BUNDLES)).unwrap()
    }

    fn key(&self, of: usize) -> Key {
        key(&self.bundles[of].bundle.id).unwrap()
    }

    /// The name by which the journal knows a bundle.
    fn id(&self, of: usize) -> String {
        self.bundles[of].bundle.id.to_key()
    }

    /// A process reads what is there.
    fn start(&mut self) -> io::Result<Life> {
        let mut salts = Random(self.random.below(u64::MAX));
        let salt = move || Ok(salts.below(u64::MAX));
        let is_synced = self.settings.is_synced;
        let writer = read(self.disk.folder("log/"), self.settings.clone(), salt)?;
        let numbers = self.files.clone();
        // In a few folders.
        let number = move || {
            let number = u128::from(numbers.fetch_add(1, Ordering::Relaxed));
            Ok(((number % 3) << 120) | number)
        };
        let files = Files::new(self.disk.folder("data/"), is_synced, number);
        files.find()?;
        let journal = Journal::on(Some(self.disk.folder("")), is_synced, NOW)?;
        Ok(Life {
            writer,
            files,
            journal,
        })
    }

    /// A new life, which may die in its start; then the next.
    fn recover(&mut self) -> Life {
        loop {
            let is_cut_short = self.random.one_in(3);
            let steps = is_cut_short.then(|| 1 + self.random.below(40));
            self.disk.set_faults(0, u64::MAX);
            self.disk.die_after(steps);
            let started = self.start();
            if started.is_ok() && !self.disk.is_dead() {
                self.disk.die_after(None);
                break;
            }
            drop(started);
            self.crash();
        }
        let once = self.start().unwrap();
        let found = self.dump(&once);
        drop(once);
        let mut again = self.start().unwrap();
        assert_eq!(
            found,
            self.dump(&again),
            "the second start finds other things"
        );
        self.check(&mut again);
        again
    }

    /// All that a life knows, to be compared.
    fn dump(&self, life: &Life) -> Vec<String> {
        let log = &life.writer.log;
        let bundles = (0..self.bundles.len()).map(|of| {
            let key = self.key(of);
            let is_known = life.journal.contains(&self.id(of), NOW);
            let index = &log.state.lock().index;
            let entry = index.number(&key).and_then(|number| index.get(number));
            let entry = entry.map(|entry| (entry.known, entry.data, entry.status.clone()));
            format!("{of} {entry:?} {} {is_known}", index.is_gone(&key))
        });
        let mut all: Vec<String> = bundles.collect();
        let mut files = life.files.find().unwrap();
        files.sort();
        for (name, _) in files {
            let content = life.files.load(&name).unwrap();
            all.push(format!("{name} {:?}", content.as_deref().and_then(version)));
        }
        all
    }

    fn crash(&mut self) {
        let power = self.random.one_in(2);
        self.is_lossy |= power && !self.settings.is_synced;
        self.disk.restart(power);
    }

    /// Compares what a new life finds with what may be, and does what the agent does at its start; from now on that is certain.
    fn check(&mut self, life: &mut Life) {
        let is_lossy = std::mem::take(&mut self.is_lossy);
        for of in 0..self.bundles.len() {
            let found = stored(&life.writer.log, &self.key(of));
            let content = found
                .as_ref()
                .and_then(|name| life.files.load(name).unwrap());
            let whole = content.as_deref().and_then(version);
            let whole = whole.filter(|(other, _)| *other == of);
            match &self.truths[of] {
                Truth::Present { name, version } if !is_lossy => {
                    assert_eq!(found.as_ref(), Some(name), "bundle {of} is lost");
                    assert_eq!(whole, Some((of, *version)), "bundle {of} has other data");
                }
                Truth::Gone if !is_lossy => assert_eq!(found, None, "bundle {of} is back"),
                Truth::Gone | Truth::Absent | Truth::Open | Truth::Present { .. } => {}
            }
            let is_whole = content.is_none() || whole.is_some();
            assert!(is_lossy || is_whole, "bundle {of} has a part of its data");
            self.truths[of] = match (found, whole) {
                (Some(name), Some((_, version))) => Truth::Present { name, version },
                // The agent takes it for lost.
                (Some(_), None) => {
                    self.leave(life, of);
                    Truth::Gone
                }
                (None, _) if is_lossy || self.truths[of] != Truth::Gone => Truth::Absent,
                (None, _) => Truth::Gone,
            };
        }
        self.check_files(life, is_lossy);
        for of in 0..self.bundles.len() {
            let is_known = life.journal.contains(&self.id(of), NOW);
            let must_be = self.certain.contains(&of) && !is_lossy;
            assert!(is_known || !must_be, "{of} would be delivered again");
            let may_be = self.tried.contains(&of);
            assert!(may_be || !is_known, "{of} would never be delivered");
            match is_known {
                true => self.certain.insert(of),
                false => self.certain.remove(&of),
            };
        }
    }

    /// Whatever has the name of a file is whole; what no bundle has goes, as what comes again does.
    fn check_files(&self, life: &Life, is_lossy: bool) {
        for (name, _) in life.files.find().unwrap() {
            let content = life.files.load(&name).unwrap().unwrap();
            let is_whole = version(&content).is_some();
            assert!(is_lossy || is_whole, "{name} has a part of its data");
            let is_its =
                |truth: &Truth| matches!(truth, Truth::Present { name: of, .. } if **of == *name);
            if !self.truths.iter().any(is_its) {
                life.files.delete(&name).unwrap();
            }
        }
    }

    /// Has the log write until it has answered; `None` if the process dies before, or the medium fails for longer.
    fn answer(&self, life: &mut Life, mut waiting: Waiting) -> Option<bool> {
        for _ in 0..TURNS {
            match waiting.try_recv() {
                Ok(answer) => return Some(answer.is_ok()),
                Err(TryRecvError::Empty) => {}
                Err(error @ TryRecvError::Closed) => panic!("no answer: {error}"),
            }
            if self.disk.is_dead() {
                return None;
            }
            life.writer.turn();
        }
        None
    }

    fn accept(&mut self, life: &mut Life) {
        let of = self.any();
        if !matches!(self.truths[of], Truth::Absent | Truth::Gone) {
            return;
        }
        self.versions += 1;
        let version = self.versions;
        let Ok(name) = life.files.save(&data(of, version)) else {
            return;
        };
        let mut json = serde_json::to_value(&self.bundles[of]).unwrap();
        json["metadata"]["storage_name"] = name.clone().into();
        let bundle: Bundle = serde_json::from_value(json).unwrap();
        let prepared = Prepared::new(&bundle).unwrap();
        let begun = life.writer.log.begin_insert(&bundle, &prepared, None);
        match begun.unwrap() {
            Begun::New(waiting) => {
                assert_ne!(
                    self.truths[of],
                    Truth::Gone,
                    "it is forgotten that {of} is gone"
                );
                self.truths[of] = match self.answer(life, waiting) {
                    Some(true) => Truth::Present { name, version },
                    Some(false) => {
                        // The agent deletes what was not taken.
                        let _ = life.files.delete(&name);
                        Truth::Open
                    }
                    None => Truth::Open,
                };
            }
            Begun::Known => {
                let _ = life.files.delete(&name);
                self.truths[of] = Truth::Gone;
            }
            Begun::Full | Begun::Again(_) => panic!("{of} waits"),
        }
    }

    /// Removes a bundle as the agent does: first its data, then what is known of it.
    fn remove(&mut self, life: &mut Life) {
        let of = self.any();
        let Truth::Present { name, .. } = &self.truths[of] else {
            return;
        };
        let name = name.clone();
        self.truths[of] = Truth::Open;
        while life.files.delete(&name).is_err() {
            if self.disk.is_dead() {
                return;
            }
        }
        if self.leave(life, of) {
            self.truths[of] = Truth::Gone;
        }
    }

    /// Removes what the log knows of a bundle; whether that is certain.
    fn leave(&self, life: &mut Life, of: usize) -> bool {
        let removed = life
            .writer
            .log
            .remove(&self.bundles[of].bundle.id, self.key(of));
        removed.is_none_or(|waiting| self.answer(life, waiting) == Some(true))
    }

    fn acknowledge(&mut self, life: &mut Life) {
        let of = self.any();
        self.tried.insert(of);
        if life.journal.record(&self.id(of), LATER, NOW).is_ok() {
            self.certain.insert(of);
        }
    }

    fn live(&mut self, life: &mut Life) {
        if self.random.one_in(2) {
            let steps = 1 + self.random.below(60);
            self.disk.die_after(Some(steps));
        }
        for _ in 0..self.random.below(50) {
            match self.random.below(10) {
                0..5 => self.accept(life),
                5 | 6 => self.remove(life),
                7 | 8 => self.acknowledge(life),
                _ => {
                    let fails = match self.random.below(4) {
                        0 => 5,
                        1 => 20,
                        _ => 0,
                    };
                    let room = self.disk.total() + self.random.below(2000);
                    let is_full = self.random.one_in(3);
                    self.disk
                        .set_faults(fails, if is_full { room } else { u64::MAX });
                }
            }
            if self.disk.is_dead() {
                return;
            }
        }
    }
}

#[test]
fn what_was_accepted_is_whole_and_what_was_acknowledged_is_known_whatever_fails() {
    for seed in seeds(100) {
        let _seed = Seed(seed);
        let mut model = Model::new(seed);
        for _ in 0..2 + model.random.below(5) {
            let mut life = model.recover();
            model.live(&mut life);
            drop(life);
            model.crash();
        }
        drop(model.recover());
    }
}
