//! Disks that take no more: what does not fit is refused with a reason, and what was accepted arrives.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use starhaul_dtn_client::control::{Bundle, Client};
use starhaul_needs::{Need, skip};

use super::{LIFETIME, Process, configure, keep_in, wait_for_socket};
use crate::program::{PATIENCE, free};

const PAYLOAD: u32 = 100_000;
/// So large that it gets a file of its own.
const LARGE_PAYLOAD: u32 = 1_200_000;

/// A node whose store is a file system of its own, with these options of tmpfs.
fn start_limited(folder: &Path, options: &str) -> Process {
    let bundles = folder.join("bundles");
    fs::create_dir_all(&bundles).unwrap();
    let mount = format!("mount -t tmpfs -o {options} none \"$0\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]);
    command.arg(bundles).arg(env!("CARGO_BIN_EXE_starhaul"));
    command
        .args(["dtn", "node", "--config"])
        .arg(folder.join("node.toml"));
    command.env("STARHAUL_LOG", "off").stdout(Stdio::null());
    Process {
        folder: folder.to_owned(),
        child: command.spawn().unwrap(),
    }
}

fn may_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .args(["mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        skip(Need::Mount, "unshare(1) cannot mount a file system");
    }
    works
}

fn payload(number: u32, length: u32) -> Vec<u8> {
    let bytes = (0..length).map(|i| (i.wrapping_mul(number | 1) >> 5).to_le_bytes()[0]);
    [&number.to_be_bytes()[..], &bytes.collect::<Vec<_>>()].concat()
}

fn number(bundle: &Bundle) -> u32 {
    let number = u32::from_be_bytes(bundle.payload[..4].try_into().unwrap());
    let length = u32::try_from(bundle.payload.len()).unwrap() - 4;
    assert!(
        bundle.payload == payload(number, length),
        "{number} is damaged"
    );
    number
}

async fn client(process: &Process) -> Client {
    Client::connect(Some(&process.folder.join("control.sock")))
        .await
        .unwrap()
}

/// Takes bundles until all of `expected` have come, each once.
async fn receive(station: &Process, expected: &BTreeSet<u32>) {
    let mut client = client(station).await;
    client.open(Some("5")).await.unwrap();
    let mut got = BTreeSet::new();
    while got != *expected {
        let missing = expected.difference(&got).count();
        if !client.has_bundle(PATIENCE).await.unwrap() {
            let status = client.status().await.unwrap();
            panic!("{missing} do not come: {status:?}");
        }
        let bundle = client.next_bundle().await.unwrap();
        let number = number(&bundle);
        assert!(expected.contains(&number), "{number} was refused");
        assert!(got.insert(number), "{number} came twice");
        client.acknowledge(&bundle.id).await.unwrap();
    }
}

/// The sender's disk has no room, by bytes or by files.
#[tokio::test]
async fn a_full_disk_refuses_bundles_and_keeps_those_it_has() {
    if !may_mount() {
        return;
    }
    let sqlite = "kind = \"sqlite\"";
    for (storage, options, length, reason) in [
        ("", "size=24m", PAYLOAD, "16 MiB are kept"),
        ("", "size=64m,nr_inodes=60", LARGE_PAYLOAD, "No space left"),
        (sqlite, "size=28m", PAYLOAD, "16 MiB are kept"),
        (sqlite, "size=64m,nr_inodes=60", PAYLOAD, "No space left"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (free(), free());
        let (first, last) = (folder.path().join("lander"), folder.path().join("station"));
        configure(&first, 1, a, 2, b);
        configure(&last, 2, b, 1, a);
        keep_in(&first, storage);
        let lander = start_limited(&first, options);
        wait_for_socket(&lander);
        let mut sender = client(&lander).await;
        sender.open(None).await.unwrap();
        let mut accepted = BTreeSet::new();
        let refusal = loop {
            let number = u32::try_from(accepted.len()).unwrap();
            assert!(number < 1000, "the disk is not full");
            let payload = payload(number, length);
            match sender.send("ipn:2.5", &payload, LIFETIME).await {
                Ok(_) => accepted.insert(number),
                Err(error) => break error.to_string(),
            };
        };
        assert!(
            refusal.contains("cannot be stored") && refusal.contains(reason),
            "{refusal}"
        );
        assert!(accepted.len() > 5, "{storage} {options}: {accepted:?}");
        let station = Process::start(&last);
        wait_for_socket(&station);
        receive(&station, &accepted).await;
        until_empty(&lander).await;
        // There is room again.
        let number = u32::try_from(accepted.len()).unwrap();
        sender
            .send("ipn:2.5", &payload(number, length), LIFETIME)
            .await
            .unwrap();
        receive(&station, &BTreeSet::from([number])).await;
    }
}

/// The receiver's disk has no room: the sender keeps what the receiver has not stored.
#[tokio::test]
async fn a_full_disk_on_the_way_pushes_back() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (free(), free());
    let (first, last) = (folder.path().join("lander"), folder.path().join("station"));
    configure(&first, 1, a, 2, b);
    configure(&last, 2, b, 1, a);
    let (lander, station) = (Process::start(&first), start_limited(&last, "size=26m"));
    wait_for_socket(&lander);
    wait_for_socket(&station);
    let mut sender = client(&lander).await;
    sender.open(None).await.unwrap();
    let sent: BTreeSet<u32> = (0..120).collect();
    for number in &sent {
        sender
            .send("ipn:2.5", &payload(*number, PAYLOAD), LIFETIME)
            .await
            .unwrap();
    }
    let begun = Instant::now();
    while client(&station)
        .await
        .status()
        .await
        .unwrap()
        .counters
        .refused
        == 0
    {
        assert!(begun.elapsed() < PATIENCE, "nothing is refused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let held = client(&lander).await.status().await.unwrap();
    assert!(held.storage.bundles > 0, "the sender kept nothing");
    receive(&station, &sent).await;
    until_empty(&lander).await;
}

async fn until_empty(process: &Process) {
    let begun = Instant::now();
    loop {
        let status = client(process).await.status().await.unwrap();
        if status.storage.bundles == 0 {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{} bundles stay",
            status.storage.bundles
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
