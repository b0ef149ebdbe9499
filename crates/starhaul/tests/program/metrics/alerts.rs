//! The alerts of bundle nodes and relays, over series of their metrics.

use std::{fs, process::Command};

use crate::{
    gateways::{is_installed, rules},
    program::{path, text},
};

/// What the alerts of nodes and relays say to series that are as bad as they are meant for, and to good ones.
#[test]
fn alerts_of_nodes_and_relays_fire_when_they_should() {
    if !is_installed() {
        return;
    }
    let of_node = "{job=\"starhaul-dtn\",instance=\"a\"}";
    let [bytes, max_bytes, bundles, max_bundles, refused] = [
        "storage_bytes",
        "storage_max_bytes",
        "storage_bundles",
        "storage_max_bundles",
        "refused_bundles_total",
    ]
    .map(|name| format!("starhaul_dtn_{name}{of_node}"));
    let neighbour = "{job=\"starhaul-dtn\",instance=\"a\",neighbour=\"ipn:2.0\",protocol=\"tcp\"}";
    let [open, due] =
        ["open", "due"].map(|what| format!("starhaul_dtn_neighbour_{what}{neighbour}"));
    let forged =
        "starhaul_relay_refused_total{job=\"starhaul-relay\",instance=\"b\",cause=\"forged\"}";
    let queue =
        "starhaul_relay_limit_reached_total{job=\"starhaul-relay\",instance=\"b\",limit=\"queue\"}";
    let node = "severity: warning, job: starhaul-dtn, instance: a";
    let relay = "severity: warning, job: starhaul-relay, instance: b";
    let nearly_full = "StarhaulBundleStorageNearlyFull";
    let tests = [
        one(
            nearly_full,
            &[(&bytes, "95x20"), (&max_bytes, "100x20")],
            node,
        ),
        one(
            nearly_full,
            &[(&bundles, "95x20"), (&max_bundles, "100x20")],
            node,
        ),
        one(
            nearly_full,
            &[
                (&bytes, "50x20"),
                (&max_bytes, "100x20"),
                (&bundles, "9x20"),
                (&max_bundles, "100x20"),
            ],
            "",
        ),
        one(
            "StarhaulBundlesRefused",
            &[(&refused, "0x15 3x5")],
            "severity: critical, job: starhaul-dtn, instance: a",
        ),
        one("StarhaulBundlesRefused", &[(&refused, "3x20")], ""),
        one(
            "StarhaulNeighbourAway",
            &[(&open, "0x20"), (&due, "1x20")],
            &format!("{node}, neighbour: 'ipn:2.0', protocol: tcp"),
        ),
        one(
            "StarhaulNeighbourAway",
            &[(&open, "0x20"), (&due, "0x20")],
            "",
        ),
        one(
            "StarhaulNeighbourAway",
            &[(&open, "1x20"), (&due, "1x20")],
            "",
        ),
        one(
            "StarhaulRelayRefuses",
            &[(forged, "0+120x20")],
            &format!("{relay}, cause: forged"),
        ),
        one("StarhaulRelayRefuses", &[(forged, "0+6x20")], ""),
        one(
            "StarhaulRelayOverloaded",
            &[(queue, "0+120x20")],
            &format!("{relay}, limit: queue"),
        ),
        one(
            "StarhaulProgramAway",
            &[("up{job=\"starhaul-relay\",instance=\"b\"}", "0x20")],
            "severity: critical, job: starhaul-relay, instance: b",
        ),
    ];
    try_all(&tests);
}

#[test]
fn a_peer_is_away_unless_the_hours_of_all_paths_to_it_are_over() {
    if !is_installed() {
        return;
    }
    let alert = "StarhaulPeerAway";
    let sessions = ("starhaul_sessions{instance=\"a\",peer=\"far\"}", "0x20");
    let out = |path: &str, reason: &str| {
        format!(
            "starhaul_path_out_of_service{{instance=\"a\",peer=\"far\",path=\"{path}\",reason=\"{reason}\"}}"
        )
    };
    let state = |path: &str, opened_by: &str| {
        format!(
            "starhaul_path_state{{instance=\"a\",peer=\"far\",path=\"{path}\",opened_by=\"{opened_by}\",state=\"up\"}}"
        )
    };
    let (hours, quota) = (out("lte", "hours"), out("sat", "quota"));
    let (ordered, of_lte) = (out("sat", "ordered"), out("lte", "quota"));
    let (sat, theirs) = (state("sat", "us"), state("dish", "peer"));
    let fires = "severity: critical, instance: a, peer: far";
    let closed = (hours.as_str(), "1x20");
    let tests = [
        one(alert, &[sessions], fires),
        one(alert, &[sessions, (&hours, "0x20")], fires),
        one(alert, &[sessions, closed, (&of_lte, "0x20")], ""),
        one(alert, &[sessions, closed, (&ordered, "1x20")], ""),
        // Another path is to be in service, or ended at its quota; the peer has a path that is silent.
        one(alert, &[sessions, closed, (&sat, "0x20")], fires),
        one(alert, &[sessions, closed, (&quota, "1x20")], fires),
        one(
            alert,
            &[(sessions.0, "1x20"), closed, (&theirs, "0x20")],
            fires,
        ),
    ];
    try_all(&tests);
}

/// A test of one alert: what it says after twenty minutes of these series, with these labels, or that it does not fire.
fn one(alert: &str, series: &[(&str, &str)], labels: &str) -> String {
    let input = series
        .iter()
        .map(|(name, values)| format!("      - {{ series: '{name}', values: '{values}' }}\n"));
    let fires = match labels {
        "" => String::new(),
        labels => format!("          - exp_labels: {{ {labels} }}\n"),
    };
    format!(
        "  - interval: 1m\n    input_series:\n{}    alert_rule_test:\n      - eval_time: 20m\n        \
         alertname: {alert}\n        exp_alerts:\n{fires}",
        input.collect::<String>(),
    )
}

/// Runs tests of alerts by `promtool`.
fn try_all(tests: &[String]) {
    let folder = tempfile::tempdir().unwrap();
    // What people read is not repeated here.
    let text_of_rules = fs::read_to_string(rules()).unwrap();
    let bare = text_of_rules.lines().filter(|line| {
        let line = line.trim_start();
        !["annotations:", "summary:", "description:"]
            .iter()
            .any(|key| line.starts_with(key))
    });
    let bare: Vec<&str> = bare.collect();
    fs::write(folder.path().join("alerts.yml"), bare.join("\n")).unwrap();
    let file = folder.path().join("tests.yml");
    let head = "rule_files: [alerts.yml]\nevaluation_interval: 1m\ntests:\n";
    fs::write(&file, format!("{head}{}", tests.concat())).unwrap();
    let tested = Command::new("promtool")
        .args(["test", "rules", path(&file)])
        .output()
        .unwrap();
    assert!(
        tested.status.success(),
        "{}{}",
        text(&tested.stdout),
        text(&tested.stderr)
    );
}
