//! Sends a steady load through an emulated link and prints how late its packets left.
//! `cargo run --release -p starhaul-replay --example lateness -- [MBIT] [SECONDS]`

use std::time::{Duration, Instant};

use starhaul_net::{BindOptions, Poller, RecvBuffer, Transmit, UdpSocket, sharpen_timers};
use starhaul_replay::{Emulator, RelaySpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mbit: u64 = arguments.next().map_or(Ok(50), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let loopback = BindOptions::new("127.0.0.1:0".parse()?);
    let (sender, receiver) = (UdpSocket::bind(&loopback)?, UdpSocket::bind(&loopback)?);
    let link: starhaul_link::LinkSpec = format!("rate={mbit}mbit,delay=20ms").parse()?;
    let emulator = Emulator::start(vec![RelaySpec {
        target: receiver.local_addr(),
        forward: link.clone(),
        reverse: link,
        seed: 1,
    }])?;
    let relay = emulator.relays().first().ok_or("one relay was asked for")?;

    sharpen_timers();
    let (mut poller, mut buffer) = (Poller::new()?, RecvBuffer::new());
    let payload = [0; 1200];
    // Three quarters of the link, so that lateness is not hidden by a queue.
    let interval = Duration::from_nanos(payload.len() as u64 * 8 * 1000 * 4 / 3 / mbit);
    let (start, mut due) = (Instant::now(), Instant::now());
    while start.elapsed() < Duration::from_secs(seconds) {
        while due <= Instant::now() {
            sender.try_send(&Transmit {
                to: relay.address(),
                from: None,
                ecn: 0,
                contents: &payload,
                segment_size: payload.len(),
            })?;
            due += interval;
        }
        poller.wait(&[(&receiver, false)], Some(due))?;
        while receiver.try_recv(&mut buffer)? {}
    }
    let stats = relay.stats();
    let late = |q| stats.lateness.quantile(q);
    println!(
        "{} packets, late p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
        stats.lateness.count(),
        late(0.5),
        late(0.99),
        late(0.999),
        stats.lateness.max()
    );
    Ok(())
}
