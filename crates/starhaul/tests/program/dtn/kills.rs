//! Nodes that are killed at any instant.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_dtn_client::control::Client;

use super::{LIFETIME, two_nodes_with, wait_for_socket};

/// Bytes of a small payload, and of a large one, whose data the store keeps in a file of their own.
const SMALL: usize = 2000;
const LARGE: usize = 1_100_000;
/// Bundles that may be missing before no more are sent: nodes that are killed all the time would fill the disk.
const MOST_MISSING: usize = 200;

/// One bundle in ten.
fn is_large(number: u32) -> bool {
    number.is_multiple_of(10)
}

/// The payload with this number: it begins with the number, and the rest follows from it.
fn payload(number: u32) -> Vec<u8> {
    let length = if is_large(number) { LARGE } else { SMALL };
    let length = length + number as usize % 97;
    let mut bytes = Vec::with_capacity(length + 8);
    bytes.extend_from_slice(&number.to_be_bytes());
    // SplitMix64 (Steele, Lea and Flood 2014).
    let mut state = u64::from(number);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Bundles that the applications have sent, received and acknowledged.
#[derive(Default)]
struct Seen {
    /// How many bundles the sending node has confirmed, and how many large ones among them.
    accepted: usize,
    large: usize,
    /// Numbers of these that the receiving application was not given.
    missing: BTreeSet<u32>,
    /// Numbers that it was given.
    received: BTreeSet<u32>,
    /// Those whose acknowledgement its node has confirmed.
    acknowledged: BTreeSet<u32>,
    twice: Vec<u32>,
    /// Payloads it was given that no application sent.
    damaged: Vec<String>,
}

impl Seen {
    fn accept(&mut self, number: u32) {
        self.accepted += 1;
        self.large += usize::from(is_large(number));
        // It may have arrived before its own node has confirmed it.
        if !self.received.contains(&number) {
            self.missing.insert(number);
        }
    }

    fn receive(&mut self, number: u32) {
        self.received.insert(number);
        self.missing.remove(&number);
        if self.acknowledged.contains(&number) {
            self.twice.push(number);
        }
    }
}

/// Sends numbers until it is told to stop, over any number of lives of its node.
async fn send_numbers(socket: PathBuf, seen: Arc<Mutex<Seen>>, stop: Arc<AtomicBool>) {
    let missing = || seen.lock().unwrap().missing.len();
    let mut number = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Ok(mut client) = Client::connect(Some(&socket)).await else {
            continue;
        };
        if client.open(None).await.is_err() {
            continue;
        }
        while !stop.load(Ordering::Relaxed) {
            if missing() > MOST_MISSING {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            number += 1;
            match client.send("ipn:2.5", &payload(number), LIFETIME).await {
                Ok(_) => seen.lock().unwrap().accept(number),
                // It may have been taken or not.
                Err(_) => break,
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The number of a payload, all of whose bytes are as they were sent.
fn number_of(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.first_chunk()?);
    (bytes == payload(number)).then_some(number)
}

async fn receive_numbers(socket: PathBuf, seen: Arc<Mutex<Seen>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Ok(mut client) = Client::connect(Some(&socket)).await else {
            continue;
        };
        if client.open(Some("5")).await.is_err() {
            continue;
        }
        while let Ok(bundle) = client.next_bundle().await {
            let number = number_of(&bundle.payload);
            match number {
                Some(number) => seen.lock().unwrap().receive(number),
                None => {
                    let what = format!("{} of {} bytes", bundle.id, bundle.payload.len());
                    seen.lock().unwrap().damaged.push(what);
                }
            }
            if client.acknowledge(&bundle.id).await.is_err() {
                break;
            }
            seen.lock().unwrap().acknowledged.extend(number);
        }
    }
}

#[test]
fn nodes_killed_at_any_instant_lose_and_repeat_nothing() {
    kill_again_and_again("");
}

#[test]
fn nodes_with_sqlite_killed_at_any_instant_lose_and_repeat_nothing() {
    kill_again_and_again("kind = \"sqlite\"");
}

/// Either node is killed again and again while bundles are sent: all that was accepted arrives byte for byte, and nothing that was
/// acknowledged comes again. `STARHAUL_KILLS` says how often, `STARHAUL_SEED` at which instants; `storage` are keys of `[storage]`.
fn kill_again_and_again(storage: &str) {
    let kills: u32 = std::env::var("STARHAUL_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let seed = std::env::var("STARHAUL_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed: u32 = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().subsec_nanos()
    });
    eprintln!("{kills} kills, seed {seed}, storage {storage:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = two_nodes_with(folder.path(), storage);
    let (seen, stop) = (
        Arc::new(Mutex::new(Seen::default())),
        Arc::new(AtomicBool::new(false)),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let [lander, station] = nodes
        .each_ref()
        .map(|node| node.folder.join("control.sock"));
    runtime.spawn(send_numbers(lander, seen.clone(), stop.clone()));
    runtime.spawn(receive_numbers(station, seen.clone()));
    let mut state = u64::from(seed) | 1;
    let mut random = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(random(700)));
        let which = usize::from(random(2) == 1);
        assert!(
            nodes[which].is_alive(),
            "a node has ended by itself (seed {seed})"
        );
        nodes[which].kill();
        std::thread::sleep(Duration::from_millis(random(100)));
        nodes[which].start_again();
    }
    nodes.iter().for_each(wait_for_socket);
    // On a busy computer nodes may have lived too shortly to accept much.
    let begun = Instant::now();
    let is_little = || {
        let seen = seen.lock().unwrap();
        seen.accepted <= kills as usize || seen.large == 0
    };
    while is_little() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "hardly anything is accepted (seed {seed})"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    stop.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    loop {
        let (accepted, large, missing, twice, damaged) = {
            let seen = seen.lock().unwrap();
            let (missing, twice) = (seen.missing.clone(), seen.twice.clone());
            let damaged = seen.damaged.clone();
            (seen.accepted, seen.large, missing, twice, damaged)
        };
        assert!(
            twice.is_empty(),
            "came again although acknowledged: {twice:?} (seed {seed})"
        );
        assert!(damaged.is_empty(), "changed: {damaged:?} (seed {seed})");
        if missing.is_empty() {
            eprintln!("{accepted} bundles accepted, {large} of them large, all delivered");
            for node in &mut nodes {
                assert!(node.is_alive(), "a node has ended by itself (seed {seed})");
            }
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "{} of {accepted} are missing: {missing:?} (seed {seed})",
            missing.len()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
