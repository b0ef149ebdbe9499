//! `starhaul lab dmtp --real` and `lab mpdtp --real`: blocks with deadlines over two emulated links, beside rivals: the kernel's MPTCP, and the
//! programs of SRT and RIST, which CI installs.

use std::process::Command;

use serde_json::Value;
use starhaul_needs::{Need, skip};

use crate::{
    emulated::{is_refused, json, skip_busy, starhaul},
    turn::{Load, turn},
};

const MPTCP: &str = "mptcp";

/// A busy computer holds up what is on its way, as a path does that loses; the scheduler then rightly takes the other one. So many runs
/// may be made until one shows what is spared.
const RUNS: usize = 3;
/// Bytes over the dear path while the cheap one loses nothing: a twentieth of this in quiet, and five times this at a tenth.
const MOST_SPARED: u64 = 1_000_000;

#[test]
fn blocks_are_in_time_over_a_path_that_loses_a_tenth_and_rivals_run_beside_them() {
    let _turn = turn(Load::Heavy);
    let mut seen = Vec::new();
    while seen.len() < RUNS {
        let arguments = ["lab", "dmtp", "--real", "--quick", "--json", "--systems"];
        let output = starhaul(&arguments)
            .args(["starhaul,mptcp", "--loss", "0,10%"])
            .output()
            .unwrap();
        if is_refused(&output) {
            return;
        }
        assert!(output.status.success(), "{output:?}");
        let result = json(&output);
        if result["skipped"]
            .to_string()
            .contains("this computer was too busy")
        {
            return skip_busy();
        }
        let Some([clean, lossy]) = judged(&result) else {
            return skip_busy();
        };
        // What a path that loses nothing is spared, and what it takes over from one that loses a tenth.
        assert!(lossy > clean, "{clean} and {lossy}");
        if clean < MOST_SPARED {
            return;
        }
        seen.push(clean);
    }
    panic!("{seen:?} bytes over the dear path while the cheap one loses nothing");
}

/// Of what all blocks in time would count. The figure is the lab's; this computer, busy with other tests, may cost some.
const LEAST_QOE: f64 = 0.95;

#[test]
fn text_audio_and_video_are_in_time_over_two_paths_and_rivals_run_beside_them() {
    let _turn = turn(Load::Heavy);
    let arguments = ["lab", "mpdtp", "--real", "--quick", "--json", "--systems"];
    let output = starhaul(&arguments).arg("starhaul,mptcp").output().unwrap();
    if is_refused(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let result = json(&output);
    let skipped = result["skipped"].to_string();
    if skipped.contains("this computer was too busy") {
        return skip_busy();
    }
    for part in ["bandwidth", "loss"] {
        let rows = result[part].as_array().unwrap();
        let of = |system: &str| rows.iter().find(|row| row["system"] == system);
        let own = of("starhaul").unwrap();
        if own["disturbed"].as_u64().unwrap() > 0 {
            return skip_busy();
        }
        let [qoe, ideal] = ["qoe", "ideal"].map(|key| own[key].as_f64().unwrap());
        assert!(qoe >= LEAST_QOE * ideal, "{part}: {own}");
        if !skipped.contains("skipped: mptcp, because") {
            let rival = of(MPTCP).unwrap();
            assert!(rival["qoe"].as_f64().unwrap() > 0.0, "{part}: {rival}");
            for path in ["short_bytes", "long_bytes"] {
                assert!(rival[path].as_u64().unwrap() > 0, "{part}: {rival}");
            }
        }
    }
}

/// A program of each rival, what it needs, and the rivals by it: of one stream, and of text, audio and video.
const PROGRAMS: [(&str, Need, [&str; 2]); 2] = [
    ("srt-live-transmit", Need::Srt, ["srt-fec", "srt-apart-fec"]),
    ("ristsender", Need::Rist, ["rist", "rist-apart"]),
];
/// Of the blocks of a rival where nothing is lost and much fits. Programs have no real-time priority: a busy computer may cost it some.
const LEAST_OF_RIVAL: f64 = 0.9;

/// Wrong delays, ports or numbers of blocks would leave a rival nothing in time, and a comparison with it would be worth nothing.
#[test]
fn what_srt_and_rist_carry_without_a_loss_is_in_time() {
    let _turn = turn(Load::Heavy);
    let mut rivals = Vec::new();
    for (program, need, names) in PROGRAMS {
        match Command::new(program).arg("-h").output() {
            Ok(_) => rivals.push(names),
            Err(error) => skip(need, format!("{program}: {error}")),
        }
    }
    for (at, experiment) in ["dmtp", "mpdtp"].into_iter().enumerate() {
        let names: Vec<&str> = rivals.iter().map(|names| names[at]).collect();
        if names.is_empty() || !rivals_are_in_time(experiment, &names) {
            return;
        }
    }
}

/// Runs these rivals without a loss; `false`, with a reported reason, if this computer did not let them.
fn rivals_are_in_time(experiment: &str, names: &[&str]) -> bool {
    let quick = ["lab", experiment, "--real", "--quick", "--json"];
    let output = starhaul(&quick)
        .args(["--only", "loss", "--loss", "0"])
        .args(["--systems", &names.join(",")])
        .output()
        .unwrap();
    if is_refused(&output) {
        return false;
    }
    assert!(output.status.success(), "{output:?}");
    let result = json(&output);
    let rows = result["loss"].as_array().unwrap();
    for name in names {
        let row = rows.iter().find(|row| row["system"] == *name);
        let is_judged = row.filter(|row| row["disturbed"] == 0);
        let Some(row) = is_judged else {
            let skipped = result["skipped"].to_string();
            let is_busy = row.is_some() || skipped.contains("this computer was too busy");
            assert!(is_busy, "{name}: {result}");
            skip_busy();
            return false;
        };
        let in_time = row["on_time_share"].as_f64().unwrap();
        assert!(in_time >= LEAST_OF_RIVAL, "{experiment}: {row}");
    }
    true
}

/// The dear path's bytes at each of the two losses; nothing if this computer disturbed a run.
fn judged(result: &Value) -> Option<[u64; 2]> {
    let rows = result["loss"].as_array().unwrap();
    let of = |system: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["system"] == system).collect()
    };
    let own = of("starhaul");
    assert_eq!(own.len(), 2, "{result}");
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    if own.iter().any(|row| number(row, "disturbed") > 0) {
        return None;
    }
    for row in &own {
        assert_eq!(number(row, "sent"), 250);
        // The figure is the lab's; this computer, busy with other tests, may cost a block or two.
        assert!(number(row, "on_time") >= 245, "{row}");
    }
    // What it does not have, as the note says, and no failure.
    if !result["skipped"]
        .to_string()
        .contains("skipped: mptcp, because")
    {
        let rival = of(MPTCP);
        assert_eq!(rival.len(), 2, "{result}");
        for path in ["cheap_bytes", "dear_bytes"] {
            assert!(
                number(rival[0], path) > 0,
                "no subflow over one path: {result}"
            );
        }
    }
    Some([0, 1].map(|step| number(own[step], "dear_bytes")))
}
