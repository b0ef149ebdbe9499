//! Datagrams of an application through a UDP rule of two gateways, at rates that rise until some are lost.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::SockRef;
use starhaul_needs::Floor;

use crate::{gateways, stream};

/// Application bytes of each datagram.
const DATAGRAM_BYTES: usize = 1200;
const SENDING: Duration = Duration::from_secs(3);
const MBIT: [f64; 5] = [100.0, 300.0, 600.0, 800.0, 1000.0];
/// Most that may be lost at a rate which a rule is said to carry, in percent.
const MOST_LOST: f64 = 0.1;
/// What every build must carry: half of the rate that docs/performance.md notes of one. What is lost at more hangs on what else the computer
/// does.
const HELD_MBIT: f64 = 300.0;
/// As an application that expects such rates asks for.
const BUFFER_BYTES: usize = 4 << 20;

/// Prints how many of the datagrams sent at each rate arrive.
pub(crate) fn print_losses(floor: &mut Floor) {
    let runtime = stream::runtime();
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    SockRef::from(&sink)
        .set_recv_buffer_size(BUFFER_BYTES)
        .unwrap();
    sink.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let rule = format!(
        "udp = [{{ name = \"r\", listen = \"127.0.0.1:0\", target = \"{}\", deadline = \"1s\" }}]\n",
        sink.local_addr().unwrap()
    );
    let gateways = runtime.block_on(gateways::pair(&rule));
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    source
        .connect(gateways[0].ingress_address("r").unwrap())
        .unwrap();
    let (received, over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let counting = {
        let (received, over) = (received.clone(), over.clone());
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                if sink.recv(&mut buffer).is_ok() {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    // What the rule received of the application, and did not pass to the session: the rest was lost behind it.
    let taken = || {
        let status = gateways[0].report();
        let rule = status.ingress.first().unwrap();
        (rule.datagrams_in, rule.dropped.refused)
    };
    let (mut carried, mut is_carried) = (0.0, true);
    for mbit in MBIT {
        let before = received.load(Ordering::Relaxed);
        let (taken_before, refused_before) = taken();
        let sent = send(&source, mbit);
        thread::sleep(Duration::from_millis(1500));
        let arrived = received.load(Ordering::Relaxed) - before;
        let lost = 100.0 * (1.0 - arrived as f64 / sent as f64);
        let (taken_now, refused_now) = taken();
        let unread = sent.saturating_sub(taken_now - taken_before);
        is_carried &= lost <= MOST_LOST;
        if is_carried {
            carried = mbit;
        }
        let refused = refused_now - refused_before;
        let behind = (sent - unread).saturating_sub(refused + arrived);
        println!(
            "UDP rule at {mbit:6.0} Mbit/s: {sent} datagrams, {lost:.2} % lost: {unread} before the rule, {refused} in it, {behind} behind it"
        );
    }
    floor.at_least("UDP rule: Mbit/s carried", carried, HELD_MBIT);
    over.store(true, Ordering::Relaxed);
    let _ = counting.join();
}

/// Sends at that rate and returns how many datagrams it was.
fn send(source: &UdpSocket, mbit: f64) -> u64 {
    let interval = Duration::from_secs_f64(DATAGRAM_BYTES as f64 * 8e-6 / mbit);
    let payload = [7; DATAGRAM_BYTES];
    let (start, mut due, mut sent) = (Instant::now(), Instant::now(), 0);
    while start.elapsed() < SENDING {
        // A source that cannot keep up ends in time all the same.
        while due <= Instant::now() && start.elapsed() < SENDING {
            source.send(&payload).unwrap();
            sent += 1;
            due += interval;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    sent
}
