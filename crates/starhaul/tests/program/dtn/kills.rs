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

use super::{LIFETIME, two_nodes, wait_for_socket};

/// What applications saw.
#[derive(Default)]
struct Seen {
    /// Numbers that the sending node has confirmed.
    accepted: BTreeSet<u32>,
    /// Numbers that the receiving application was given.
    received: BTreeSet<u32>,
    /// Those whose acknowledgement its node has confirmed.
    acknowledged: BTreeSet<u32>,
    twice: Vec<u32>,
}

/// Sends numbers until it is told to stop, over any number of lives of its node.
async fn send_numbers(socket: PathBuf, seen: Arc<Mutex<Seen>>, stop: Arc<AtomicBool>) {
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
            number += 1;
            let payload = [&number.to_be_bytes()[..], &[7; 2000]].concat();
            match client.send("ipn:2.5", &payload, LIFETIME).await {
                Ok(_) => drop(seen.lock().unwrap().accepted.insert(number)),
                // It may have been taken or not.
                Err(_) => break,
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
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
            let number = u32::from_be_bytes(bundle.payload[..4].try_into().unwrap());
            {
                let mut seen = seen.lock().unwrap();
                seen.received.insert(number);
                if seen.acknowledged.contains(&number) {
                    seen.twice.push(number);
                }
            }
            if client.acknowledge(&bundle.id).await.is_err() {
                break;
            }
            seen.lock().unwrap().acknowledged.insert(number);
        }
    }
}

/// Either node is killed again and again while bundles are sent: all that was accepted arrives, and nothing that was
/// acknowledged comes again. `STARHAUL_KILLS` says how often, `STARHAUL_SEED` at which instants.
#[test]
fn nodes_killed_at_any_instant_lose_and_repeat_nothing() {
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
    eprintln!("{kills} kills, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = two_nodes(folder.path());
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
    while seen.lock().unwrap().accepted.len() <= kills as usize {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "hardly anything is accepted (seed {seed})"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    stop.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    loop {
        let (accepted, missing, twice) = {
            let seen = seen.lock().unwrap();
            let missing: Vec<u32> = seen.accepted.difference(&seen.received).copied().collect();
            (seen.accepted.len(), missing, seen.twice.clone())
        };
        assert!(
            twice.is_empty(),
            "came again although acknowledged: {twice:?} (seed {seed})"
        );
        if missing.is_empty() {
            eprintln!("{accepted} bundles accepted, all delivered");
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
