//! By which rule `[leotp]` finds the rates of its hops, and how it is known when the hop to a neighbour is reconfigured.

use starhaul_cc::{ProbeTarget, Timetable};
use starhaul_endpoint::RateRule;
use starhaul_net::leotp::HopSignals;

use super::*;

/// A gateway whose chain begins with a neighbour that has these keys, too.
fn with(keys: &str) -> Result<Config, String> {
    configured("", keys)
}

/// The same with further keys of `[leotp]`.
fn configured(of_all: &str, keys: &str) -> Result<Config, String> {
    let text = format!(
        "[identity]\nfile = \"i\"\n[[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:1\"\ntarget = \"a:1\"\n\
         service = \"leotp\"\n[leotp]\nlisten = \"127.0.0.1:2\"\nsecret = \"s\"\nupstream = \"u\"\n{of_all}\
         [[leotp.neighbour]]\nname = \"u\"\nkey = \"k\"\naddress = \"192.0.2.1:3\"\n{keys}"
    );
    let config = Config::parse(&text, Path::new("/etc/starhaul/gateway.toml"));
    config.map_err(|error| error.to_string())
}

#[test]
fn a_neighbour_tells_how_its_hop_is_known_to_be_reconfigured() {
    let signals = |keys: &str| {
        let config = with(keys).unwrap();
        config.leotp.unwrap().neighbours[0].signals.clone()
    };
    assert_eq!(signals(""), HopSignals::default());
    let keys = "timetable = \"starlink\"\nschedule = \"hop.times\"";
    let told = signals(keys);
    assert_eq!(told.timetable, Some(Timetable::STARLINK));
    let file = Path::new("/etc/starhaul/hop.times");
    assert_eq!(told.schedule.as_deref(), Some(file));
    let said = with("timetable = \"starlink\"").unwrap().describe();
    assert!(
        said.contains(", reconfigurations by 12s every 15s\n"),
        "{said}"
    );
    let said = with(keys).unwrap().describe();
    let by = "by 12s every 15s, the times in /etc/starhaul/hop.times\n";
    assert!(said.contains(by), "{said}");
    let probed = signals("link = \"leo\"\ntimetable = \"oneweb\"");
    assert_eq!(probed.probe, Some(ProbeTarget::Auto));
    for (keys, expected) in [
        ("timetable = \"oneweb\"", "tells no time by itself"),
        ("detect_target = \"auto\"", "nothing is probed here"),
        ("schedule = \"\"", "schedule: write the path of a file"),
    ] {
        let error = with(keys).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_published_rule_is_chosen_by_its_name() {
    let config = with("").unwrap();
    assert!(!config.describe().contains("published"));
    assert_eq!(config.leotp.unwrap().rate_rule, RateRule::Adaptive);
    let config = configured("rule = \"published\"\n", "").unwrap();
    let said = config.describe();
    assert!(said.contains("\n  rates by the published rule\n"), "{said}");
    assert_eq!(config.leotp.unwrap().rate_rule, RateRule::Published);
    let error = configured("rule = \"publishd\"\n", "").unwrap_err();
    assert!(
        error.contains("rule") && error.contains("published"),
        "{error}"
    );
}

/// The descriptions of both differed, and their links led to different places.
#[test]
fn the_hop_of_a_relay_has_the_same_keys() {
    let relay = starhaul_contents::config::Config::definition();
    let in_hop = ["link", "detect_target", "timetable", "schedule"];
    for (paths, keys) in [
        (["leotp.neighbour", "neighbour"], &in_hop[..]),
        (["leotp", ""], &["rule"][..]),
    ] {
        let [ours, theirs] = [(&TOP, paths[0]), (relay, paths[1])].map(|(top, path)| {
            let mut tables = top.tables().into_iter();
            let table = tables.find(|table| table.path == path);
            table.expect(path).definition
        });
        for key in keys {
            let [ours, theirs] = [ours, theirs].map(|table| table.key(key).expect(key));
            assert_eq!(ours, theirs);
        }
    }
}
