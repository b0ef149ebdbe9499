//! Window and rate of every controller over one fixed path, pinned so that every change of behaviour shows: 20 Mbit/s
//! and 40 ms with 0.1 % loss; at 12 s an outage of 100 ms, after which the path carries 12 Mbit/s over 55 ms; the
//! signal comes an RTT later. `STARHAUL_RENEW_CURVES=1 cargo test -p starhaul-cc curves` renews the files in
//! `tests/curves`; review their differences.

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_units::Bandwidth;

use crate::harness::{PACKET_BYTES, Path};

const SECONDS: u32 = 24;

fn path() -> Path {
    let mut path = Path::new(20, 40).queue_bdp(2.0).loss(0.001, 42);
    let (from, to) = (Duration::from_secs(12), Duration::from_millis(12_100));
    path.outage = Some((from, to));
    path.later_rate = Some((to, Bandwidth::from_mbit(12)));
    path.later_rtt = Some((to, Duration::from_millis(55)));
    path.reconfigured = vec![to + Duration::from_millis(55)];
    path
}

/// One line per second: time, window, bytes delivered in the second before, queue, phase.
fn curve(config: &ControllerConfig) -> String {
    let run = path().run(config, SECONDS.into());
    let mut text = String::from("    s  packets   Mbit/s   queue  state\n");
    for second in 1..SECONDS {
        let at = f64::from(second);
        let Some(sample) = run.between(at, at + 1.0).next() else {
            continue;
        };
        let packets = |bytes: u64| bytes as f64 / PACKET_BYTES as f64;
        let _ = writeln!(
            text,
            "{second:5} {:8.1} {:8.2} {:7.1}  {}",
            packets(sample.cwnd),
            run.rate_between(at - 1.0, at).mbit(),
            packets(sample.queue_bytes),
            sample.state,
        );
    }
    text
}

#[test]
fn every_controller_follows_its_pinned_curve() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/curves");
    let feed = RateFeed::new(Bandwidth::from_mbit(12));
    let mut wrong = Vec::new();
    for name in ControllerConfig::NAMES {
        let config = ControllerConfig::from_name(name, Some(feed.clone())).unwrap();
        let (file, curve) = (folder.join(format!("{name}.txt")), curve(&config));
        if std::env::var_os("STARHAUL_RENEW_CURVES").is_some() {
            fs::write(&file, &curve).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != curve {
            wrong.push(format!("{}, but now:\n{curve}", file.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nrenew with STARHAUL_RENEW_CURVES=1 if that is meant",
        wrong.join("\n")
    );
}
