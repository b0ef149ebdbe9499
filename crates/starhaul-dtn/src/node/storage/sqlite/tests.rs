//! The store alone, as the agent uses it.

use std::{collections::BTreeSet, time::Duration};

use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime};

use super::*;
use crate::faulty::Random;

const HOUR: Duration = Duration::from_secs(3600);

/// A bundle that was made an hour ago and lives for so long.
fn bundle(number: u64, lifetime: Duration) -> Bundle {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder
        .with_lifetime(lifetime)
        .with_payload(b"x".as_slice().into());
    let made = DtnTime::new(DtnTime::now().millisecs() - 3_600_000);
    let stamp = CreationTimestamp::from_parts(Some(made), number);
    Bundle {
        bundle: builder.build(stamp).unwrap().0,
        metadata: BundleMetadata::default(),
    }
}

/// Takes so many bundles, and then no more.
struct Taker {
    most: usize,
    taken: parking_lot::Mutex<Vec<Id>>,
}

#[async_trait]
impl Sender<Bundle> for Taker {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        let mut taken = self.taken.lock();
        if taken.len() == self.most {
            return Err(SendError(bundle));
        }
        taken.push(bundle.bundle.id);
        Ok(())
    }
}

/// A store that keeps more names than a test has.
fn open(folder: &Path) -> Sqlite {
    Sqlite::open(folder, 1000, None).unwrap()
}

async fn waiting(store: &Sqlite, most: usize) -> BTreeSet<String> {
    let taken = parking_lot::Mutex::default();
    let taker = Taker { most, taken };
    store.poll_waiting(&taker).await.unwrap();
    let taken = taker.taken.into_inner();
    let names: BTreeSet<String> = taken.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), taken.len(), "one is found twice");
    names
}

#[tokio::test]
async fn what_is_gone_does_not_come_back_when_a_change_of_it_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut bundle = bundle(1, 2 * HOUR);
    let id = bundle.bundle.id.clone();
    assert!(store.insert(&bundle).await.unwrap());
    bundle.metadata.status = BundleStatus::Waiting;
    store.update_status(&bundle).await.unwrap();
    assert_eq!(waiting(&store, 9).await.len(), 1);
    store.tombstone(&id).await.unwrap();
    store.replace(&bundle).await.unwrap();
    store.update_status(&bundle).await.unwrap();
    // As the agent may.
    store.tombstone(&id).await.unwrap();
    assert!(store.get(&id).await.unwrap().is_none());
    assert_eq!(waiting(&store, 9).await.len(), 0);
    assert!(!store.insert(&bundle).await.unwrap(), "a copy is taken");
}

#[tokio::test]
async fn the_name_of_a_bundle_is_free_when_it_has_expired_or_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (living, expired) = (bundle(1, 2 * HOUR), bundle(2, HOUR / 2));
    for bundle in [&living, &expired] {
        assert!(store.insert(bundle).await.unwrap());
        store.tombstone(&bundle.bundle.id).await.unwrap();
    }
    assert!(!store.insert(&living).await.unwrap());
    assert!(store.insert(&expired).await.unwrap());
    // One that is here is no name to be freed.
    assert!(!store.insert(&expired).await.unwrap());
    // It is removed by a search for such names, too, at the start of another life.
    store.tombstone(&expired.bundle.id).await.unwrap();
    drop(store);
    let store = open(folder.path());
    store.tombstone(&living.bundle.id).await.unwrap();
    assert_eq!(store.names.kept().unwrap(), 1);
    store.forget(&living.bundle.id).await.unwrap();
    assert!(store.insert(&living).await.unwrap());
    store.forget(&living.bundle.id).await.unwrap();
    assert!(store.get(&living.bundle.id).await.unwrap().is_none());
    assert!(store.insert(&living).await.unwrap());
}

#[tokio::test]
async fn a_search_finds_all_that_waits_whatever_one_before_it_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut all: Vec<Bundle> = (0..150).map(|number| bundle(number, 2 * HOUR)).collect();
    for bundle in &mut all {
        bundle.metadata.status = BundleStatus::Waiting;
        assert!(store.insert(bundle).await.unwrap());
    }
    for most in [1, 70, 3] {
        assert_eq!(waiting(&store, most).await.len(), most);
    }
    // Those of the first half wait no more.
    let (sent, left) = all.split_at_mut(75);
    for bundle in sent {
        bundle.metadata.status = BundleStatus::Dispatching;
        store.update_status(bundle).await.unwrap();
    }
    let left: BTreeSet<String> = left.iter().map(|left| left.bundle.id.to_string()).collect();
    assert_eq!(waiting(&store, 1000).await, left);
}

/// Takes what it is given, and has others go before the second one comes.
struct Remover<'a> {
    store: &'a Sqlite,
    going: parking_lot::Mutex<Vec<Id>>,
    taken: parking_lot::Mutex<Vec<Id>>,
}

#[async_trait]
impl Sender<Bundle> for Remover<'_> {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        self.taken.lock().push(bundle.bundle.id);
        let going = std::mem::take(&mut *self.going.lock());
        for id in going {
            self.store.tombstone(&id).await.unwrap();
        }
        Ok(())
    }
}

/// The search of the library ended with the first 64 that were gone when their turn came.
#[tokio::test]
async fn a_search_goes_on_where_many_have_gone_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut ids = Vec::new();
    for number in 0..140 {
        let mut bundle = bundle(number, 2 * HOUR);
        bundle.metadata.status = BundleStatus::Waiting;
        assert!(store.insert(&bundle).await.unwrap());
        ids.push(bundle.bundle.id);
    }
    let remover = Remover {
        store: &store,
        going: parking_lot::Mutex::new(ids[64..128].to_vec()),
        taken: parking_lot::Mutex::default(),
    };
    store.poll_waiting(&remover).await.unwrap();
    let taken = remover.taken.into_inner();
    assert_eq!(taken, [&ids[..64], &ids[128..]].concat());
}

/// Lifetimes may be years, and a neighbour may send any number of bundles.
#[tokio::test]
async fn of_too_many_names_those_that_expire_first_are_forgotten() {
    const MOST: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(folder.path(), MOST, None).unwrap();
    let all: Vec<Bundle> = (1..40_u32)
        .map(|number| bundle(number.into(), 2 * HOUR * number))
        .collect();
    for (at, bundle) in all.iter().enumerate() {
        assert!(store.insert(bundle).await.unwrap());
        store.tombstone(&bundle.bundle.id).await.unwrap();
        assert!(store.names.kept().unwrap() <= MOST, "after {at}");
        if at == 20 {
            // Another life counts those that are there.
            drop(store);
            store = Sqlite::open(folder.path(), MOST, None).unwrap();
        }
    }
    let (first, last) = (&all[0], &all[all.len() - 1]);
    assert!(!store.insert(last).await.unwrap());
    assert!(store.insert(first).await.unwrap());
    store.forget(&last.bundle.id).await.unwrap();
    assert!(store.insert(last).await.unwrap());
    store.names.kept().unwrap();
}

/// Its data are found at the start, and were removed as those of a copy.
#[tokio::test]
async fn a_bundle_of_which_nothing_can_be_read_does_not_keep_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let bundle = bundle(1, 2 * HOUR);
    let id = &bundle.bundle.id;
    let damages = ["bundle = X'00'", "status_code = 77"];
    for damage in damages {
        store.forget(id).await.unwrap();
        assert!(store.insert(&bundle).await.unwrap());
        let database = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        let damaged = database.execute(&format!("UPDATE bundles SET {damage}"), ());
        assert_eq!(damaged.unwrap(), 1);
        assert!(!matches!(store.get(id).await, Ok(Some(_))), "{damage}");
        assert!(store.insert(&bundle).await.unwrap(), "{damage}");
        assert!(store.get(id).await.unwrap().is_some(), "{damage}");
        assert!(!store.insert(&bundle).await.unwrap(), "{damage}");
    }
}

/// A task of the agent that did not end may still have the store, and another node the folder.
#[tokio::test]
async fn a_store_that_has_ended_writes_no_more_and_lets_the_folder_go() {
    let folder = tempfile::tempdir().unwrap();
    let held = super::super::lock(folder.path()).unwrap();
    let store = Sqlite::open(folder.path(), 1000, Some(Arc::new(held))).unwrap();
    let bundle = bundle(1, 2 * HOUR);
    assert!(super::super::lock(folder.path()).is_err());
    store.close().await;
    let _held = super::super::lock(folder.path()).unwrap();
    assert!(store.insert(&bundle).await.is_err());
    assert!(store.get(&bundle.bundle.id).await.unwrap().is_none());
}

/// Spoils what of a file was perhaps not brought to the medium: it ends anywhere, or a sector of it is what was there before.
fn tear(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
    match random.one_in(2) {
        true => bytes.truncate(at),
        false => {
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(0);
        }
    }
}

/// Which of these bundles are there; what is there is whole.
async fn found(folder: &Path, bundles: &[Bundle]) -> Vec<bool> {
    let store = open(folder);
    let mut found = Vec::new();
    for bundle in bundles {
        let there = store.get(&bundle.bundle.id).await.unwrap();
        let there = there.map(|there| there.bundle.id);
        assert!(there.is_none() || there.as_ref() == Some(&bundle.bundle.id));
        found.push(there.is_some());
    }
    found
}

/// As after the power was cut on a medium that does not keep what was synced: the write-ahead log is torn.
#[tokio::test]
async fn a_torn_write_ahead_log_costs_what_came_last_and_each_start_finds_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // The tables are on the medium.
    drop(open(folder.path()));
    let store = open(folder.path());
    let bundles: Vec<Bundle> = (0..20).map(|number| bundle(number, 2 * HOUR)).collect();
    for bundle in &bundles {
        assert!(store.insert(bundle).await.unwrap());
    }
    let ahead = format!("{FILE}-wal");
    let [database, log] =
        [FILE, ahead.as_str()].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    drop(store);
    assert!(!log.is_empty(), "no bundle is in the write-ahead log");
    for seed in 0..40 {
        let (torn, mut random) = (tempfile::tempdir().unwrap(), Random(seed));
        let mut rest = log.clone();
        tear(&mut rest, &mut random);
        std::fs::write(torn.path().join(FILE), &database).unwrap();
        std::fs::write(torn.path().join(&ahead), &rest).unwrap();
        let first = found(torn.path(), &bundles).await;
        assert_eq!(found(torn.path(), &bundles).await, first, "seed {seed}");
        let lost = first.iter().skip_while(|there| **there);
        assert!(lost.clone().all(|there| !there), "seed {seed}: {first:?}");
        // What is lost is taken again, and nothing else.
        let store = open(torn.path());
        for (bundle, there) in bundles.iter().zip(first) {
            let is_new = store.insert(bundle).await.unwrap();
            assert_eq!(is_new, !there, "seed {seed}");
        }
    }
}
