//! Faults of keys.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::{
    super::{
        gateway::{Launch, Pair, new_key},
        network::{Network, Side},
    },
    bench::Bench,
    links::pair,
};

/// A pair of which one side knows another key of the other one.
fn with_another_key(of: Side) -> Option<Bench> {
    let network = Network::create(1)?;
    let folder = tempfile::tempdir().unwrap();
    let other = new_key(&folder.path().join("other.key"));
    let change = |side, launch: &mut Launch| {
        if side == of {
            let begin = launch.configuration.find("public_key").unwrap();
            let length = launch.configuration[begin..].find('\n').unwrap();
            let line = format!("public_key = \"{other}\"");
            launch
                .configuration
                .replace_range(begin..begin + length, &line);
        }
    };
    let pair = Pair::start_changed(&network, change);
    Some(Bench::new(network, pair))
}

pub(super) fn ours_unknown() {
    let Some(bench) = with_another_key(Side::Ground) else {
        return;
    };
    bench.expect_after("our_key", &["session"]);
}

pub(super) fn other_peer() {
    let Some(bench) = with_another_key(Side::Field) else {
        return;
    };
    bench.expect_after("peer_key", &["session"]);
}

pub(super) fn readable() {
    let Some(bench) = pair(1) else { return };
    let key = bench.pair.directory().join("field.key");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    bench.expect("key");
}

pub(super) fn missing() {
    let Some(bench) = pair(1) else { return };
    fs::remove_file(bench.pair.directory().join("field.key")).unwrap();
    bench.expect("key");
}
