//! The file with the times of a relay's hop, as its operator treats it while the relay runs.

use std::fs;

use super::nodes::{Folder, Running};
use crate::program::{path, wait_for};

#[test]
fn a_schedule_is_read_again_and_its_operator_is_told_what_to_do() {
    let folder = Folder::new();
    let [config, times, next] = ["relay.toml", "hop.times", "next.times"].map(|it| folder.at(it));
    let text = "listen = \"127.0.0.1:0\"\n\
                [[neighbour]]\nname = \"up\"\nkey = \"a.key\"\nschedule = \"hop.times\"\n\
                [[neighbour]]\nname = \"down\"\nkey = \"b.key\"\n";
    fs::write(&config, text).unwrap();
    // Of last year.
    fs::write(&times, "1767225612\n").unwrap();
    let relay = Running::start(&["relay", "--config", path(&config)], "relays");
    let says = |text: &str| wait_for(text, || relay.log().contains(text).then_some(()));
    says("the last time of its schedule has passed");
    says("starhaul orbit paths --tle ELEMENTS FROM TO");
    says(&format!("--out '{}'", path(&times)));
    fs::write(&times, "1767225612\ntomorrow\n").unwrap();
    says("the times of its schedule stay as they are");
    says("hop.times: line 2: \"tomorrow\" is no time");
    // Those of the next days.
    fs::write(&next, "4000000000\n4000000015\n").unwrap();
    fs::rename(&next, &times).unwrap();
    says("its schedule was read again: 2 times");
    let log = relay.log();
    for once in ["has passed", "stay as they are", "read again"] {
        let count = log.lines().filter(|line| line.contains(once)).count();
        assert_eq!(count, 1, "{once}:\n{log}");
    }
}
