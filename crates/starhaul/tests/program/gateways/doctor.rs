//! `starhaul doctor` names planted causes, and nothing on a healthy pair.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

use serde_json::Value;

use super::{
    gateway::Pair,
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");

fn doctor(network: &Network, pair: &Pair, more: &[&str]) -> Output {
    let mut command = Command::new(STARHAUL);
    let file = |name: &str| pair.directory().join(name);
    command
        .args(["doctor", "--json", "--config"])
        .arg(file("field.toml"));
    command.arg("--socket").arg(file("field.sock")).args(more);
    network.run(Side::Field, &mut command).unwrap()
}

/// The findings of a level, one line each.
fn found(output: &Output, level: &str) -> Vec<String> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = report["findings"].as_array().unwrap().iter();
    let of_level = findings.filter(|finding| finding["level"] == level);
    of_level
        .map(|finding| {
            let [subject, found] = ["subject", "found"].map(|key| finding[key].as_str().unwrap());
            format!("{subject}: {found}")
        })
        .collect()
}

fn assert_problem(network: &Network, pair: &Pair, cause: &str) {
    wait_for(cause, || {
        let output = doctor(network, pair, &[]);
        let problems = found(&output, "problem");
        assert_eq!(output.status.code(), Some(i32::from(!problems.is_empty())));
        problems
            .iter()
            .any(|problem| problem.contains(cause))
            .then_some(())
    });
}

#[test]
fn a_healthy_pair_has_no_problem_and_its_bottleneck_is_told() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let upload = Transfer::upload(&network);
    upload.wait_for_progress(4 << 20);
    let output = doctor(&network, &pair, &[]);
    assert_eq!(found(&output, "problem"), Vec::<String>::new());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let good = [found(&output, "good"), found(&output, "note")].concat();
    let told = good
        .iter()
        .find(|finding| finding.contains("bottleneck toward ground"));
    assert!(told.is_some(), "{good:?}");
    upload.finish();
}

#[test]
fn planted_causes_are_named() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let mut pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);

    network.cut(0);
    assert_problem(&network, &pair, "path link0");
    network.mend(0);
    pair.wait_until_up(&["link0"]);

    network.ip(Side::Field, "link set wan1 down");
    assert_problem(&network, &pair, "interface wan1 of path link1: it is down");
    network.delete_link(1);
    assert_problem(&network, &pair, "this host has none of this name");
    network.add_link(1);

    let key = pair.directory().join("field.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_problem(&network, &pair, "others may read or replace");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    pair.field.signal("TERM");
    assert!(pair.field.wait(super::PATIENCE).is_some());
    assert_problem(&network, &pair, "control socket");
}
