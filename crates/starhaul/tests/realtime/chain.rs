//! `starhaul lab leotp --real`: relays as processes along a chain of emulated links.

use std::{fs, process::Output};

use serde_json::Value;

use crate::{
    emulated::{is_refused, json, skip_busy, starhaul},
    turn::{Load, turn},
};

const KERNEL: [&str; 2] = ["kernel-bbr", "kernel-cubic"];

/// What the kernel or the computer does not have, or why a run does not count.
fn skipped(result: &Value) -> String {
    let notes = result["skipped"].as_array().unwrap().iter();
    let notes = notes.map(|note| note.as_str().unwrap().to_owned());
    notes.collect::<Vec<_>>().join("\n")
}

#[test]
fn relays_as_processes_deliver_a_whole_file_though_one_is_killed() {
    let _turn = turn(Load::Heavy);
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "leotp", "--real", "--hops", "3", "--seconds", "2"];
    let output: Output = starhaul(&arguments)
        .arg("--json")
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    if is_refused(&output) {
        return;
    }
    // Also when runs do not count: each transfer has ended, and its bytes were compared with those that were served.
    assert!(output.status.success(), "{output:?}");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "files remain");
    let result = json(&output);
    let skipped = skipped(&result);
    if skipped.contains("this computer was too busy") {
        return skip_busy();
    }
    let rows = result["real"].as_array().unwrap();
    let row = |system: &str, restarts: u64| {
        let is = |row: &&Value| row["system"] == system && row["restarts"] == restarts;
        let row = rows.iter().find(is);
        row.unwrap_or_else(|| panic!("no {system} with {restarts} restarts: {result}"))
    };
    for restarts in [0, 1] {
        let row = row("leotp", restarts);
        assert!(row["goodput_mbps"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["longest_pause_ms"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["hops"], 3);
    }
    for system in KERNEL {
        if !skipped.contains(&format!("skipped: {system}")) {
            let share = row(system, 0)["ceiling_share"].as_f64().unwrap();
            assert!(share > 0.0 && share < 1.0, "{system}: {share}");
        }
    }
}
