//! What `starhaul orbit` writes is a link for real programs.

use std::path::PathBuf;

use starhaul_needs::skip;

use crate::{
    emulated::{is_refused, json, probe, replay, starhaul},
    flow::lacked,
    replay::succeeded,
    turn::{Load, turn},
};

/// The path from Beijing to Paris for a minute: 33 to 38 ms one way.
struct Written {
    delay: PathBuf,
    _folder: tempfile::TempDir,
}

impl Written {
    const LEAST_MS: f64 = 30.0;

    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let delay = folder.path().join(name);
        let paths = ["orbit", "paths", "Beijing", "Paris", "--duration", "60s"];
        let written = starhaul(&paths).arg("--out").arg(&delay).output().unwrap();
        assert!(written.status.success(), "{written:?}");
        Self {
            delay,
            _folder: folder,
        }
    }

    /// As a link takes it.
    fn setting(&self) -> String {
        format!("delay={}", self.delay.display())
    }
}

#[test]
fn a_program_behind_a_path_of_satellites_waits_for_its_delay() {
    let _turn = turn(Load::Light);
    for name in ["delay.txt", "path.log"] {
        let written = Written::new(name);
        let (link, server) = (written.setting(), format!("{} sink /dev/null", probe()));
        let links = ["--up", &link, "--down", &link, "--server", &server, "--"];
        let probe = probe();
        let arguments = [&links[..], &[&probe, "ping", "50", "0.4"]].concat();
        let output = replay(&arguments).output().unwrap();
        if is_refused(&output) {
            return;
        }
        assert!(succeeded(output.status), "{name}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let took = said.lines().map(|line| line.parse::<f64>().unwrap() / 1e6);
        let took_ms: Vec<f64> = took.collect();
        let least = 2.0 * Written::LEAST_MS;
        assert!(
            took_ms.len() >= 3 && took_ms.iter().all(|took| *took >= least),
            "{name}: {took_ms:?}"
        );
    }
}

#[test]
fn virtual_and_real_time_are_compared_over_a_path_of_satellites() {
    let _turn = turn(Load::Heavy);
    let written = Written::new("delay.txt");
    let link = format!("rate=4mbit,queue=30p,{}", written.setting());
    let mut agreement = starhaul(&["lab", "agreement", "--quick", "--json"]);
    agreement.args(["--seconds", "1", "--systems", "newreno", "--link", &link]);
    let output = agreement.output().unwrap();
    if is_refused(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let results = json(&output);
    let rows = results["rows"].as_array().unwrap();
    for row in rows {
        let rtt = row["metrics"]["rtt_mean_ms"].as_f64().unwrap();
        assert!(rtt >= 2.0 * Written::LEAST_MS, "{row}");
    }
    let ways: Vec<_> = rows.iter().map(|row| &row["params"]["way"]).collect();
    if !results["skipped"].as_array().unwrap().is_empty() {
        skip(lacked(&results), &results["skipped"]);
        assert_eq!(ways, ["packets", "simulator"]);
        return;
    }
    assert_eq!(ways, ["packets", "simulator", "real"]);
}
