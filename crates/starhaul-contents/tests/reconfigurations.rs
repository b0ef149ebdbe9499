//! A relay hears of the reconfigurations that its configuration knows of, when their outages are over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use starhaul_contents::{Relay, config::Config};

/// The longest outage: packets pass again since then.
const OVER: Duration = Duration::from_millis(135);

fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A relay that these keys of one neighbour tell of reconfigurations runs until it has heard of one; when that is.
fn heard(folder: &tempfile::TempDir, keys: &str) -> Duration {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n\
         [[neighbour]]\nname = \"a\"\nkey = \"a.key\"\n{keys}\n\
         [[neighbour]]\nname = \"b\"\nkey = \"b.key\"\n"
    );
    let config = Config::parse(&text, &folder.path().join("relay.toml")).unwrap();
    let mut relay = Relay::open(config, false).unwrap();
    let limit = Instant::now() + Duration::from_secs(20);
    while relay.traffic().node.reconfigurations == 0 {
        assert!(Instant::now() < limit, "it heard of none: {keys}");
        relay.turn(limit).unwrap();
    }
    unix()
}

#[test]
fn listed_times_and_a_timetable_are_heard_of_in_time() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.key", "b.key"] {
        let text = format!("0123456789abcdef {name}\n");
        fs::write(folder.path().join(name), text).unwrap();
    }
    let listed = unix() + Duration::from_millis(300);
    let (seconds, millis) = (listed.as_secs(), listed.subsec_millis());
    let text = format!("# the hop to a\n{seconds}.{millis:03}\n");
    fs::write(folder.path().join("hop.times"), text).unwrap();
    let at = heard(&folder, "schedule = \"hop.times\"");
    // A time is written in milliseconds.
    let over = listed + OVER - Duration::from_millis(1);
    assert!(at >= over, "{at:?}, the outage is over at {over:?}");
    let before = unix();
    let at = heard(&folder, "timetable = \"0s every 1s\"");
    // The first whole second whose outage was not over yet.
    let second = Duration::from_secs((before - OVER).as_secs() + 1);
    assert!(at >= second + OVER, "{at:?}, the outage of {second:?}");
}
