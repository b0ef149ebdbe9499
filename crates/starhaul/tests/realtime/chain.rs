//! `starhaul lab leotp --real`: relays as processes along a chain of emulated links.

use std::fs;

use serde_json::Value;

use crate::{
    emulated::{Sleeper, is_refused, json, skip_busy, starhaul},
    turn::{Load, turn},
};

const KERNEL: [&str; 2] = ["kernel-bbr", "kernel-cubic"];
/// The round trip of a hop as the command has it by default.
const HOP_MS: f64 = 20.0;
/// What the search of neighbours and the start of a relay may take beside two round trips of the path.
const FOUND_MS: f64 = 100.0;

/// What the kernel or the computer does not have, or why a run does not count.
fn skipped(result: &Value) -> String {
    let notes = result["skipped"].as_array().unwrap().iter();
    let notes = notes.map(|note| note.as_str().unwrap().to_owned());
    notes.collect::<Vec<_>>().join("\n")
}

/// What a run told, and whether programs of ordinary priority were woken in time; none where this system does not allow it. No file
/// stays.
fn run(arguments: &[&str]) -> Option<(Value, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let real = ["lab", "leotp", "--real", "--json"].as_slice();
    let sleeper = Sleeper::start();
    let output = starhaul(&[real, arguments].concat())
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let is_in_time = sleeper.end().were_in_time();
    if is_refused(&output) {
        return None;
    }
    // Also when runs do not count: each transfer has ended, and its bytes were compared with those that were served.
    assert!(output.status.success(), "{output:?}");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "files remain");
    Some((json(&output), is_in_time))
}

#[test]
fn relays_as_processes_deliver_a_whole_file_though_one_is_killed() {
    let _turn = turn(Load::Heavy);
    // The start takes a quarter of a second of it.
    let Some((result, is_in_time)) = run(&["--hops", "3", "--seconds", "8"]) else {
        return;
    };
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
    if !is_in_time {
        return skip_busy();
    }
    let (whole, restarted) = (row("leotp", 0), row("leotp", 1));
    assert!(whole["ceiling_share"].as_f64().unwrap() >= 0.9, "{whole}");
    let pause = restarted["longest_pause_ms"].as_f64().unwrap();
    let path_ms = HOP_MS * 3.0;
    assert!(pause <= path_ms * 2.0 + FOUND_MS, "{restarted}");
}

/// A message that a hop loses waits for that hop alone, on the way there and on the way back. One of 400 is lost twice, and of the 60 of a
/// run the second slowest counts: one run of a hundred has two of those, and another one tells.
#[test]
fn messages_through_gateways_wait_for_the_hops_that_lose_them() {
    let _turn = turn(Load::Middle);
    let (bound, mut slow) = (HOP_MS * 6.0, Vec::new());
    for seed in ["1", "2"] {
        let arguments = [
            "--messages",
            "--hops",
            "4",
            "--seconds",
            "5",
            "--seed",
            seed,
        ];
        let Some((result, is_in_time)) = run(&arguments) else {
            return;
        };
        if skipped(&result).contains("this computer was too busy") {
            return skip_busy();
        }
        let rows = result["messages"].as_array().unwrap();
        let row = rows.iter().find(|row| row["system"] == "leotp");
        let row = row.unwrap_or_else(|| panic!("no leotp: {result}"));
        assert_eq!(row["hops"], 4);
        assert!(row["messages"].as_f64().unwrap() > 10.0, "{row}");
        let figure = |key: &str| row[key].as_f64().unwrap();
        assert!((figure("bound_ms") - bound).abs() < 1e-6, "{row}");
        assert!(figure("latency_p50_ms") >= HOP_MS * 4.0, "{row}");
        if !is_in_time {
            return skip_busy();
        }
        if figure("latency_p99_ms") <= bound {
            return;
        }
        slow.push(row.to_string());
    }
    panic!("99 % are not within {bound} ms: {slow:#?}");
}
