//! What a relay costs: how many bits per second of processor time it forwards, beside a program that forwards the same datagrams
//! by the same system calls and does nothing else. Over loopback; `cargo bench -p starhaul-contents`.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use starhaul_contents::{
    Fetching, Relay, ServeOptions, Server,
    config::{Config, Neighbour},
};
use starhaul_leotp::{ContentSecret, NeighbourKey, RateRule};
use starhaul_net::{BulkSocket, IoMode, Poller, RecvBuffer, leotp::HopSignals};

const BYTES: usize = 200_000_000;
/// As a full data packet of LEOTP.
const DATAGRAM: usize = 1472;
const ROUNDS: usize = 5;
/// What a relay is to forward for each second of processor time, in Gbit.
const LEAST_GBIT: f64 = 1.0;
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// What one round found, in Gbit/s of payload.
#[derive(Clone, Copy)]
struct Round {
    /// Per second of the forwarder's processor time.
    per_core: f64,
    /// Per second that passed, with all threads on this host.
    passed: f64,
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("content");
    let words = (0_u32..).take(BYTES / 4);
    let content: Vec<u8> = words
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(&file, content).unwrap();
    let (mut relays, mut raws) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        relays.push(relay(
            &file,
            &folder.path().join(format!("fetched-{round}")),
        ));
        raws.push(raw());
    }
    let row = |name, rounds: &[Round]| {
        let median = |of: fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (per_core, passed) = (median(|round| round.per_core), median(|round| round.passed));
        println!("{name:8} {per_core:8.2} Gbit per second of processor time, {passed:6.2} Gbit/s");
        per_core
    };
    let ours = row("relay", &relays);
    let ceiling = row("raw UDP", &raws);
    println!("relay / raw UDP: {:.2}", ours / ceiling);
    assert!(
        ours >= LEAST_GBIT,
        "goal missed: {ours:.2} Gbit per second of processor time, at least {LEAST_GBIT}"
    );
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

fn gbit(bytes: usize, time: Duration) -> f64 {
    bytes as f64 * 8e-9 / time.as_secs_f64()
}

/// Runs a forwarder in a thread until `work` is done, and gives the processor time of the forwarder.
fn forward(mut turn: impl FnMut() + Send, work: impl FnOnce()) -> Duration {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            starhaul_net::sharpen_timers();
            while !is_done.load(Ordering::Relaxed) {
                turn();
            }
            processor_time()
        });
        work();
        is_done.store(true, Ordering::Relaxed);
        forwarder.join().unwrap()
    })
}

fn relay(file: &Path, into: &Path) -> Round {
    let keys = [NeighbourKey::new(&[1; 32]), NeighbourKey::new(&[2; 32])];
    let secret = ContentSecret::new(&[3; 32]);
    let options = ServeOptions {
        root: file.to_owned(),
        listen: LOCAL,
        packet_bytes: None,
        neighbours: vec![keys[0].clone()],
        secret: secret.clone(),
    };
    let mut server = Server::open(options, |_| {}).unwrap();
    let neighbour = |name: &str, address: Option<SocketAddr>, key: &NeighbourKey| Neighbour {
        name: name.into(),
        address: address.map(Into::into),
        key: key.clone(),
        signals: HopSignals::default(),
    };
    let config = Config {
        listen: LOCAL,
        metrics: None,
        cache_bytes: 64 << 20,
        upstream: Some("up".into()),
        rate_rule: RateRule::default(),
        neighbours: vec![
            neighbour("up", Some(server.local_addr()), &keys[0]),
            neighbour("down", None, &keys[1]),
        ],
    };
    // It ends with the process.
    thread::spawn(move || server.run());
    let mut relay = Relay::open(config, false).unwrap();
    let fetching = Fetching {
        name: "content".into(),
        from: vec![relay.local_addr()],
        key: keys[1].clone(),
        secret,
        into: into.to_owned(),
        patience: Duration::from_secs(20),
    };
    let mut passed = Duration::ZERO;
    let time = forward(
        || {
            relay
                .turn(Instant::now() + Duration::from_millis(10))
                .unwrap()
        },
        || {
            let began = Instant::now();
            fetching.run(|_| {}).unwrap();
            passed = began.elapsed();
        },
    );
    fs::remove_file(into).unwrap();
    Round {
        per_core: gbit(BYTES, time),
        passed: gbit(BYTES, passed),
    }
}

fn raw() -> Round {
    let bind = || BulkSocket::bind(LOCAL, IoMode::Gso).unwrap();
    let [sender, forwarder, receiver] = [bind(), bind(), bind()];
    let (to, next) = (forwarder.local_addr(), receiver.local_addr());
    let (mut buffer, mut poller) = (RecvBuffer::new(), Poller::new().unwrap());
    let forwarded = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&forwarded);
    let mut passed = Duration::ZERO;
    let time = forward(
        move || {
            if !forwarder.try_recv(&mut buffer).unwrap() {
                let deadline = Instant::now() + Duration::from_millis(10);
                poller
                    .wait(&[(forwarder.socket(), false)], Some(deadline))
                    .unwrap();
                return;
            }
            for message in buffer.messages() {
                let sent = forwarder
                    .try_send(next, message.contents, message.stride)
                    .unwrap();
                counted.fetch_add(sent, Ordering::Relaxed);
            }
        },
        || {
            let batch = vec![0; DATAGRAM * 44];
            let (mut got, mut sent) = (0, 0);
            let (mut buffer, began) = (RecvBuffer::new(), Instant::now());
            while forwarded.load(Ordering::Relaxed) < BYTES {
                // As much under way as sockets hold.
                if sent - got < 4_000_000 {
                    sent += sender.try_send(to, &batch, DATAGRAM).unwrap();
                }
                while receiver.try_recv(&mut buffer).unwrap() {
                    got += buffer
                        .messages()
                        .map(|message| message.contents.len())
                        .sum::<usize>();
                }
            }
            passed = began.elapsed();
        },
    );
    Round {
        per_core: gbit(BYTES, time),
        passed: gbit(BYTES, passed),
    }
}
