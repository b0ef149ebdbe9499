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

/// A folder with the keys of a relay's neighbours.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.key", "b.key"] {
        let text = format!("0123456789abcdef {name}\n");
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// A relay that these keys of one neighbour tell of reconfigurations.
fn relay(folder: &tempfile::TempDir, keys: &str) -> Relay {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n\
         [[neighbour]]\nname = \"a\"\nkey = \"a.key\"\n{keys}\n\
         [[neighbour]]\nname = \"b\"\nkey = \"b.key\"\n"
    );
    let config = Config::parse(&text, &folder.path().join("relay.toml")).unwrap();
    Relay::open(config, false).unwrap()
}

/// A relay runs until it has heard of one; when that is.
fn heard(mut relay: Relay) -> Duration {
    let limit = Instant::now() + Duration::from_secs(60);
    while relay.traffic().node.reconfigurations == 0 {
        assert!(Instant::now() < limit, "it heard of none: {relay:?}");
        relay.turn(limit).unwrap();
    }
    unix()
}

/// A line of a file with times.
fn line(time: Duration) -> String {
    format!("{}.{:03}\n", time.as_secs(), time.subsec_millis())
}

#[test]
fn listed_times_and_a_timetable_are_heard_of_in_time() {
    let folder = folder();
    // After the relay has read it, on a busy computer too.
    let listed = unix() + Duration::from_secs(2);
    let text = format!("# the hop to a\n{}", line(listed));
    fs::write(folder.path().join("hop.times"), text).unwrap();
    let at = heard(relay(&folder, "schedule = \"hop.times\""));
    // A time is written in milliseconds.
    let over = listed + OVER - Duration::from_millis(1);
    assert!(at >= over, "{at:?}, the outage is over at {over:?}");
    let relay = relay(&folder, "timetable = \"0s every 1s\"");
    let before = unix();
    let at = heard(relay);
    // The first whole second whose outage was not over yet.
    let second = Duration::from_secs((before - OVER).as_secs() + 1);
    assert!(at >= second + OVER, "{at:?}, the outage of {second:?}");
}

/// A prober tells the timetable where no host can be probed, and nothing else does then: from this address that one is not reached, whoever may
/// send echo requests.
#[test]
fn what_the_prober_of_a_satellite_hop_tells_is_heard() {
    let folder = folder();
    let keys = "link = \"leo\"\ndetect_target = \"192.0.2.1\"\ntimetable = \"0s every 1s\"";
    heard(relay(&folder, keys));
}

/// The file was read at the start alone: those of the next day needed a restart.
#[test]
fn a_schedule_that_is_renewed_is_heard_of_without_a_restart() {
    let folder = folder();
    let [file, next] = ["hop.times", "next.times"].map(|name| folder.path().join(name));
    // In 2096.
    fs::write(&file, "4000000000\n").unwrap();
    let mut relay = relay(&folder, "schedule = \"hop.times\"");
    relay.turn(Instant::now() + OVER).unwrap();
    // Whenever it is read, a time comes soon.
    let start = unix();
    let times = (0..120).map(|seconds| line(start + Duration::from_secs(seconds)));
    fs::write(&next, times.collect::<String>()).unwrap();
    fs::rename(&next, &file).unwrap();
    heard(relay);
}
