//! What a node that is killed leaves behind: each start finds the same, however many there are.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use super::kit::{LIFETIME, Running, content, until, write};
use starhaul_dtn_client::status::{Status, StoredFor};
use tempfile::TempDir;

/// Bundles for each endpoint; the first of them have files of their own.
const COUNT: u64 = 12;
const LARGE: u64 = 3;

fn payload(number: u64) -> Vec<u8> {
    let length = if number < LARGE { 1_100_000 } else { 2000 };
    content(length, number)
}

/// A copy of a folder as it is now, which is what a node leaves that is killed now.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn killed(running: &Running) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(
        &running.folder.path().join("bundles"),
        &folder.path().join("bundles"),
    );
    folder
}

/// What is stored, in all and for each node.
fn stored(status: &Status) -> (u64, u64, Vec<StoredFor>) {
    let storage = &status.storage;
    (storage.bundles, storage.bytes, status.stored.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_finds_what_the_first_one_found() {
    let text =
        "node = \"ipn:1.0\"\n[ltp]\nlisten = \"127.0.0.1:0\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n";
    let running = Running::start(text).await;
    let mut sender = running.client().await;
    sender.open(None).await.unwrap();
    // For an application that takes them, for one that is not there, and for a node that is not.
    for to in ["ipn:1.60", "ipn:1.50", "ipn:2.50"] {
        for number in 0..COUNT {
            sender
                .send(to, &payload(number), LIFETIME * 10)
                .await
                .unwrap();
        }
    }
    let mut receiver = running.client().await;
    receiver.open(Some("60")).await.unwrap();
    for _ in 0..COUNT {
        let bundle = receiver.next_bundle().await.unwrap();
        receiver.acknowledge(&bundle.id).await.unwrap();
    }
    until(&running, "the others are stored", |status| {
        status.storage.bundles == 2 * COUNT
    })
    .await;
    drop((sender, receiver));
    let mut folder = killed(&running);
    running.stop().await;
    // As if it had been about to store more.
    let bundles = folder.path().join("bundles");
    write(&bundles, "data/a1/1.tmp", b"a part");
    write(&bundles, "data/a2/2", b"");
    write(&bundles, "data/a3/3", b"no bundle");
    write(&bundles, "delivered.new", b"a part");
    let delivered = fs::read(bundles.join("delivered")).unwrap();
    write(&bundles, "delivered", &[&delivered[..], b"a part"].concat());
    let mut found = None;
    for start in 0..3 {
        let running = Running::start_in(folder, text).await;
        let now = stored(&running.client().await.status().await.unwrap());
        assert_eq!(now.0, 2 * COUNT, "start {start}");
        assert_eq!(*found.get_or_insert(now.clone()), now, "start {start}");
        folder = killed(&running);
        running.stop().await;
    }
    assert_eq!(files(&folder.path().join("bundles/data")), 2 * LARGE);
    let running = Running::start_in(folder, text).await;
    let mut receiver = running.client().await;
    receiver.open(Some("50")).await.unwrap();
    let mut missing: BTreeSet<_> = (0..COUNT).map(payload).collect();
    while !missing.is_empty() {
        let bundle = receiver.next_bundle().await.unwrap();
        assert!(
            missing.remove(&bundle.payload),
            "it comes twice, or changed"
        );
        receiver.acknowledge(&bundle.id).await.unwrap();
    }
    // What was acknowledged comes no more.
    let mut receiver = running.client().await;
    receiver.open(Some("60")).await.unwrap();
    let comes = receiver.has_bundle(Duration::from_millis(300)).await;
    assert!(!comes.unwrap());
    drop(receiver);
    running.stop().await;
}

/// The files in a folder and those below.
fn files(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}
