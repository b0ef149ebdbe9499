//! Single faults, each as it was met.

use std::{
    fs::File,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleStatus},
    storage::{BundleMemStorage, BundleStorage as _, MetadataStorage as _},
    stream::{SendError, Sender},
};
use parking_lot::Mutex;

use super::{
    BundleLog, LoggedBundles,
    model::{Model, Seed, bundle, seeds, want_room},
    prepared::{Prepared, key, name},
    queue::{Begun, Log, Settings, Waiting},
    read,
    writer::{Turn, Writer},
};
use crate::{
    bundle_files::BundleFiles,
    config::Storage,
    faulty::{Disk, Random},
    medium::Folder,
    steady::{Found, Place, SteadyBundles},
    stock::{Stock, counted::Counted},
};

/// Bytes of a segment, which are a few bundles.
const SEGMENT: u32 = 2000;

/// A life of a log that is cleaned only when that is asked for.
fn open(disk: &Disk, most_gone: usize) -> Writer {
    let settings = Settings {
        is_synced: true,
        segment_bytes: SEGMENT,
        queue_bytes: 1 << 20,
        young_bytes: 0,
        most_gone,
        slack_bytes: 1 << 30,
    };
    let mut salts = Random(disk.total());
    let salt = move || Ok(salts.below(u64::MAX));
    read(disk.folder(""), settings, salt).unwrap()
}

fn rest(writer: &mut Writer) {
    while writer.turn() != Turn::Idle {}
}

/// Takes a bundle; returns its number.
fn take(writer: &mut Writer, bundle: &Bundle) -> u64 {
    let log = writer.log.clone();
    let number = log.save(b"data".as_slice().into());
    let prepared = Prepared::new(bundle).unwrap();
    let begun = log.begin_insert(bundle, &prepared, Some(number)).unwrap();
    let Begun::New(mut waiting) = begun else {
        panic!("the bundle is not new");
    };
    rest(writer);
    waiting.try_recv().unwrap().unwrap();
    number
}

fn remove(log: &Log, bundle: &Bundle) -> Waiting {
    let id = &bundle.bundle.id;
    log.remove(id, key(id).unwrap()).unwrap()
}

fn oldest(writer: &Writer) -> u32 {
    let state = writer.log.state.lock();
    *state.segments.first_key_value().unwrap().0
}

/// Without any room a bundle cannot be removed, and nothing be copied; but segments without live records can go.
#[test]
fn a_full_disk_gets_room_from_segments_that_nobody_needs() {
    let disk = Disk::new(1);
    let mut writer = open(&disk, 1000);
    let bundles: Vec<Bundle> = (0..20).map(bundle).collect();
    for bundle in &bundles {
        take(&mut writer, bundle);
    }
    let (last, others) = bundles.split_last().unwrap();
    for bundle in others {
        drop(remove(&writer.log, bundle));
    }
    rest(&mut writer);
    assert_eq!(writer.log.state.lock().index.live_in(0), 0);
    disk.set_faults(0, disk.total());
    writer.log.state.lock().room_wanted = Some(0);
    let mut removed = remove(&writer.log, last);
    for _ in 0..20 {
        writer.turn();
    }
    assert!(oldest(&writer) > 0, "the useless segment is there");
    removed.try_recv().unwrap().unwrap();
}

/// While as many are remembered as may be, one more does not have a segment cleaned.
#[test]
fn bundles_that_are_gone_are_forgotten_many_at_a_time() {
    let disk = Disk::new(1);
    let mut writer = open(&disk, 16);
    for number in 0..60 {
        let bundle = bundle(number);
        take(&mut writer, &bundle);
        let (before, count) = (oldest(&writer), writer.log.state.lock().index.gone_count());
        drop(remove(&writer.log, &bundle));
        rest(&mut writer);
        let after = writer.log.state.lock().index.gone_count();
        assert!(after <= 18, "{after} are remembered");
        let is_cleaned = oldest(&writer) > before;
        assert_eq!(is_cleaned, count == 18, "{count} are remembered");
    }
}

/// What cannot be read for a moment is not lost.
#[tokio::test]
async fn a_bundle_that_cannot_be_read_for_a_moment_is_found() {
    let disk = Disk::new(1);
    let mut writer = open(&disk, 1000);
    let bundle = bundle(1);
    let number = take(&mut writer, &bundle);
    drop(writer);
    let writer = open(&disk, 1000);
    let log = Arc::new(BundleLog {
        log: writer.log.clone(),
        writer: Mutex::new(None),
    });
    let files = SteadyBundles::new(
        Arc::new(BundleMemStorage::new(&Default::default())),
        Place::Memory,
    );
    let data = LoggedBundles::new(log.clone(), files, std::env::temp_dir());
    disk.set_read_faults(1);
    let name = name(number);
    let reading = async { tokio::join!(data.load(&name), log.get(&bundle.bundle.id)) };
    tokio::pin!(reading);
    tokio::select! {
        biased;
        _ = &mut reading => panic!("the bundle is given up"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    disk.set_read_faults(0);
    let (loaded, got) = reading.await;
    assert_eq!(&*loaded.unwrap().unwrap(), b"data");
    assert_eq!(got.unwrap().unwrap().bundle.id, bundle.bundle.id);
}

/// Who hears of bundles that are lost.
#[derive(Default)]
struct Lost(Mutex<Vec<Bundle>>);

#[async_trait]
impl Sender<Bundle> for Lost {
    async fn send(&self, bundle: Bundle) -> Result<(), SendError<Bundle>> {
        self.0.lock().push(bundle);
        Ok(())
    }
}

/// The agent takes data that it cannot load for lost: in the same task it removes the bundle, or a start does so at its end.
#[tokio::test]
async fn a_bundle_that_cannot_be_read_for_long_stays() {
    for is_start in [false, true] {
        let disk = Disk::new(1);
        let mut writer = open(&disk, 1000);
        let number = writer.log.save(b"data".as_slice().into());
        let mut json = serde_json::to_value(bundle(1)).unwrap();
        json["metadata"]["storage_name"] = name(number).into();
        let bundle: Bundle = serde_json::from_value(json).unwrap();
        let prepared = Prepared::new(&bundle).unwrap();
        let begun = writer.log.begin_insert(&bundle, &prepared, Some(number));
        let Ok(Begun::New(mut waiting)) = begun else {
            panic!("the bundle is not new");
        };
        rest(&mut writer);
        waiting.try_recv().unwrap().unwrap();
        drop(writer);
        let mut writer = open(&disk, 1000);
        let log = Arc::new(BundleLog {
            log: writer.log.clone(),
            writer: Mutex::new(None),
        });
        let memory = Arc::new(BundleMemStorage::new(&Default::default()));
        let patience = Duration::from_millis(50);
        let files = SteadyBundles::with_patience(memory, Place::Memory, patience);
        let stock = Stock::new("ipn:9.0".parse().unwrap(), Storage::small());
        let counted = Counted::new(log.clone(), stock.clone(), Some(files.unread().clone()));
        let data = LoggedBundles::new(log, files, std::env::temp_dir());
        let (id, name) = (bundle.bundle.id.clone(), name(number));
        let lost = Arc::<Lost>::default();
        if !is_start {
            stock.insert(&bundle, true);
        }
        let agent = {
            let (data, counted, disk) = (data.clone(), counted.clone(), disk.clone());
            let (id, name, lost) = (id.clone(), name.clone(), lost.clone());
            tokio::spawn(async move {
                if is_start {
                    counted.start_recovery().await;
                    data.recover(&Found::default()).await.unwrap();
                }
                disk.set_read_faults(1);
                let loaded = data.load(&name).await.unwrap();
                assert!(loaded.is_none(), "it is waited for for ever");
                disk.set_read_faults(0);
                if is_start {
                    counted.remove_unconfirmed(&*lost).await.unwrap();
                } else {
                    data.delete(&name).await.unwrap();
                    counted.tombstone(&id).await.unwrap();
                }
            })
        };
        agent.await.unwrap();
        assert_eq!(lost.0.lock().len(), 0, "{is_start}");
        let got = counted.get(&id).await.unwrap().expect("it is gone");
        assert_eq!(got.metadata.status, BundleStatus::Waiting, "{is_start}");
        assert_eq!(&*data.load(&name).await.unwrap().unwrap(), b"data");
        assert_eq!(stock.total().bundles, 1, "{is_start}");
        // Another task ends it, as when it expires.
        let (ended, ()) = tokio::join!(counted.tombstone(&id), async { rest(&mut writer) });
        ended.unwrap();
        assert_eq!(stock.total().bundles, 0, "{is_start}");
    }
}

/// Data of a bundle that is too large for the log, which were written later than now by a clock that was set back since.
#[tokio::test]
async fn large_data_of_a_former_life_are_found_whatever_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let config = Storage {
        folder: Some(folder.path().to_owned()),
        sync: true,
        sqlite: false,
        database: None,
        bucket: None,
        bytes: 1 << 30,
        bundles: 100,
        bundle_bytes: 1 << 22,
    };
    let open = || {
        let log = Arc::new(BundleLog::open(folder.path(), &config, ()).unwrap());
        let medium = Folder::new(path.clone()).unwrap();
        let files = BundleFiles::new(Box::new(medium), true);
        let files = SteadyBundles::new(files, Place::Folder(path.clone()));
        let data = LoggedBundles::new(log.clone(), files, folder.path().to_owned());
        (log, data)
    };
    let (log, data) = open();
    let name = data.save(vec![7; 2 << 20].into()).await.unwrap();
    log.close();
    let later = SystemTime::now() + Duration::from_secs(1_000_000);
    let file = File::options().write(true).open(path.join(&*name));
    file.unwrap().set_modified(later).unwrap();
    let ((log, data), found) = (open(), Found::default());
    data.recover(&found).await.unwrap();
    let found: Vec<_> = found
        .0
        .into_inner()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(found, [name]);
    log.close();
}

/// A log that a life with sync has filled, before lives without.
fn synced_before(seed: u64) -> Model {
    let mut model = Model::new(seed);
    model.settings.is_synced = true;
    model.settings.most_gone = 1000;
    let mut writer = model.recover();
    model.come_and_go(&mut writer, 60, true);
    drop(writer);
    model.settings.is_synced = false;
    model
}

/// Without sync, a life that is killed leaves copies that are not on the medium; what they were copied from stays until they are.
#[test]
fn copies_of_a_life_that_was_killed_come_to_the_medium_before_their_segment_goes() {
    for seed in seeds(200) {
        let _seed = Seed(seed);
        let mut model = synced_before(seed);
        for is_killed in [true, false] {
            let mut writer = model.open().unwrap();
            want_room(&writer.log);
            model
                .disk
                .die_after(is_killed.then_some(1 + model.random.below(12)));
            for _ in 0..1 + model.random.below(6) {
                writer.turn();
            }
            model.disk.restart(false);
        }
        model.disk.restart(true);
        let mut writer = model.recover();
        model.drain(&mut writer);
    }
}

/// Without sync, what a former life has brought to the medium is copied while syncs fail now and then: it is still there after the power
/// was cut.
#[test]
fn a_sync_that_fails_does_not_cost_what_was_on_the_medium() {
    for seed in seeds(400) {
        let _seed = Seed(seed);
        let mut model = synced_before(seed);
        let mut writer = model.recover();
        for _ in 0..3 {
            want_room(&writer.log);
            model.disk.set_faults(2 + model.random.below(8), u64::MAX);
            for _ in 0..model.random.below(40) {
                writer.turn();
            }
            model.disk.set_faults(0, u64::MAX);
            for _ in 0..model.random.below(40) {
                writer.turn();
            }
        }
        drop(writer);
        model.disk.restart(true);
        let mut writer = model.recover();
        model.drain(&mut writer);
    }
}
