//! Files over loopback, through real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use starhaul_ltp::{Coding, Engine, EngineConfig, EngineId, PeerConfig, UnknownPeers};
use starhaul_net::{IoMode, ltp::LtpDriver};
use starhaul_transfer::{Error, FileReceiver, FileSender, Progress, Received, SERVICE};
use starhaul_units::Bandwidth;

const RECEIVER: EngineId = EngineId(2);

fn driver(id: EngineId, peer: Option<EngineId>, rate: Option<Bandwidth>) -> LtpDriver {
    let config = PeerConfig::new(Duration::ZERO, rate);
    let mut engine_config = EngineConfig::new(id, [7; 32]);
    engine_config.unknown_peers = UnknownPeers::Accept {
        most: 3,
        config: Box::new(config.clone()),
    };
    let mut engine = Engine::new(engine_config);
    if let Some(peer) = peer {
        engine.add_peer(Instant::now(), peer, config).unwrap();
    }
    engine.open_service(SERVICE);
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    LtpDriver::bind(local, IoMode::default(), engine).unwrap()
}

/// Sends files one after the other to one receiver, and returns what each sender was told and what was stored.
fn exchange(
    files: &[&Path],
    into: &Path,
    rate: Option<Bandwidth>,
) -> (Vec<Result<(), Error>>, Vec<Received>) {
    let mut receiver = driver(RECEIVER, None, None);
    let (address, waker, is_over) = (
        receiver.local_addr(),
        receiver.waker(),
        AtomicBool::new(false),
    );
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut store = FileReceiver::new(into).unwrap();
            let mut stored = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                receiver.turn(None).unwrap();
                while let Some(event) = receiver.poll_event() {
                    stored.extend(store.handle(&mut receiver, event));
                }
            }
            stored
        });
        let results = files.iter().zip(1..).map(|(file, transfer)| {
            let mut sender = driver(EngineId(transfer + 10), Some(RECEIVER), rate);
            sender.set_address(RECEIVER, address);
            let mut last = Progress::default();
            let sent = FileSender::open(file, transfer, 0, Duration::from_secs(5))
                .and_then(|file| file.run(&mut sender, RECEIVER, |progress| last = progress));
            if sent.is_ok() {
                assert_eq!(last.acknowledged, last.length);
            }
            sent
        });
        let results = results.collect();
        is_over.store(true, Ordering::SeqCst);
        waker.wake();
        (results, receiving.join().unwrap())
    })
}

#[test]
fn files_of_any_size_arrive_and_no_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    let mut files = Vec::new();
    for length in [1usize, 1000, 40_000_001] {
        let file = from.join(format!("{length}.bin"));
        let content: Vec<u8> = (0..length)
            .map(|i| ((i * 31) >> 4).to_le_bytes()[0])
            .collect();
        fs::write(&file, content).unwrap();
        files.push(file);
    }
    // The first file once more: its name is taken by then. And an empty one, which LTP cannot send.
    let empty = from.join("empty");
    fs::write(&empty, "").unwrap();
    let names: Vec<&Path> = files
        .iter()
        .chain([&files[0], &empty])
        .map(AsRef::as_ref)
        .collect();
    let (results, stored) = exchange(&names, &into, None);
    assert!(results[..3].iter().all(Result::is_ok), "{results:?}");
    assert!(
        matches!(&results[3], Err(Error::FarSide(reason)) if reason.contains("exists already"))
    );
    assert!(matches!(&results[4], Err(Error::Unusable(..))));
    assert_eq!(stored.len(), 3);
    for (file, stored) in files.iter().zip(stored) {
        assert_eq!(stored.path, into.join(file.file_name().unwrap()));
        assert!(fs::read(file).unwrap() == fs::read(&stored.path).unwrap());
    }
    // Nothing else is left in the folder.
    assert_eq!(fs::read_dir(&into).unwrap().count(), 3);
}

#[test]
fn segments_leave_no_faster_than_the_rate_of_the_link() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 2_000_000]).unwrap();
    let start = Instant::now();
    let rate = Some(Bandwidth::from_mbit(40));
    let (results, _) = exchange(&[&file], &folder.path().join("into"), rate);
    assert!(results[0].is_ok(), "{results:?}");
    // 2 MB take 0.4 s at this rate; one burst may leave at once.
    assert!(
        start.elapsed() > Duration::from_millis(390),
        "{:?}",
        start.elapsed()
    );
}

/// Nothing tells the sender what arrives: it ends when all blocks have left, and none waits for an answer.
#[test]
fn all_of_a_long_file_leaves_though_nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    // More than two blocks.
    let length = 40_000_001;
    fs::write(&file, vec![7; length]).unwrap();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = PeerConfig::new(Duration::ZERO, Some(Bandwidth::from_mbit(2000)));
    config.is_one_way = true;
    config.coding = Some(Coding::new(0.01));
    let segment = config.segment_data;
    let mut engine = Engine::new(EngineConfig::new(EngineId(9), [7; 32]));
    engine.add_peer(Instant::now(), RECEIVER, config).unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut sender = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
    sender.set_address(RECEIVER, nobody.local_addr().unwrap());
    let (mut last, mut told) = (Progress::default(), Vec::new());
    let sending = FileSender::open(&file, 1, 0, Duration::ZERO).unwrap();
    assert_eq!(sending.blocks(), 3);
    let hash = sending.run_one_way(&mut sender, RECEIVER, |progress| {
        told.extend(progress.left);
        last = progress;
    });
    let hash = hash.unwrap();
    assert_eq!(
        hash,
        <[u8; 32]>::from(Sha256::digest(fs::read(&file).unwrap()))
    );
    assert_eq!((last.left, last.acknowledged), (Some(length as u64), 0));
    assert!(told.is_sorted(), "{told:?}");
    assert!(last.repairs > 0 && last.resent == 0, "{last:?}");
    let engine = sender.engine();
    assert_eq!((engine.sessions(), engine.send_bytes()), ((0, 0), 0));
    let segments = engine.stats().data_segments_sent;
    assert!(segments >= (length / segment) as u64, "{segments}");
}

/// As without a route: what the system refuses has not left, whatever the engine has made of it.
#[test]
fn a_file_that_the_system_does_not_let_leave_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 100_000]).unwrap();
    let mut config = PeerConfig::new(Duration::ZERO, Some(Bandwidth::from_mbit(2000)));
    config.is_one_way = true;
    config.coding = Some(Coding::new(0.01));
    let mut engine = Engine::new(EngineConfig::new(EngineId(9), [7; 32]));
    engine.add_peer(Instant::now(), RECEIVER, config).unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut sender = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
    // No socket can have port 0.
    sender.set_address(RECEIVER, ([127, 0, 0, 1], 0).into());
    let sending = FileSender::open(&file, 1, 0, Duration::ZERO).unwrap();
    let sent = sending.run_one_way(&mut sender, RECEIVER, |_| {});
    assert!(
        matches!(sent, Err(Error::Unsent(datagrams)) if datagrams > 50),
        "{sent:?}"
    );
}
