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
    let folder = tempfile::tempdir().unwrap();
    let one = |alert: &str, series: &[(&str, &str)], labels: &str| {
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
    };
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
