//! `starhaul detect` and gateways on LEO paths, in real time behind `starhaul replay`, against the gaps that the link really had.
//!
//! Needs network namespaces and TUN devices; where the system gives none, each test says so and passes. Where the run itself
//! says that this computer was too busy to keep time, it is repeated, and then skipped with that reason.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");
const ATTEMPTS: usize = 3;

fn replay(arguments: &[&str]) -> Output {
    let mut command = Command::new(STARHAUL);
    command
        .arg("replay")
        .args(arguments)
        .env_remove("STARHAUL_LOG")
        .stdin(Stdio::null());
    command.output().unwrap()
}

/// The result of a valid run; `None`, with the reason said, where there is none.
fn run_in_time(arguments: &[&str]) -> Option<Value> {
    for _ in 0..ATTEMPTS {
        let output = replay(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("cannot make a network namespace")
            || said.contains("cannot make a tun device")
        {
            println!("skipped: needs network namespaces and TUN devices: {said}");
            return None;
        }
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        if result["valid"] == true {
            return Some(result);
        }
    }
    println!("skipped: this computer is too busy to keep time");
    None
}

fn probe() -> String {
    let probe = Path::new(STARHAUL).with_file_name("examples/replay-probe");
    assert!(
        probe.exists(),
        "build it first: cargo build -p starhaul --examples"
    );
    probe.to_str().unwrap().to_owned()
}

/// 24 Mbit/s, silent in each of these gaps, as mahimahi writes it.
fn trace(gaps: &[Range<u64>], length_ms: u64) -> String {
    let open = (1..=length_ms).filter(|ms| !gaps.iter().any(|gap| gap.contains(ms)));
    open.map(|ms| format!("{ms}\n{ms}\n")).collect()
}

/// Gaps of stamps beyond Δ_outage: when each ended, in seconds.
fn ends(stamps: &str) -> Vec<f64> {
    let stamps: Vec<u64> = stamps.lines().map(|line| line.parse().unwrap()).collect();
    let gaps = stamps.windows(2).filter(|pair| pair[1] - pair[0] > 45);
    gaps.map(|pair| pair[1] as f64 / 1e3).collect()
}

/// Runs `starhaul detect` beside a flow that keeps the link full; gives the events, on the clock of the link.
fn detect(bandwidth: &Path, by: &str, seconds: u32, load_mbit: u32) -> Option<Vec<(f64, Value)>> {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (log, events) = (file("log"), file("events"));
    let (probe, up) = (
        probe(),
        format!("bw={},delay=15ms,queue=300p", bandwidth.display()),
    );
    let server = format!("{probe} sink /dev/null & exec {STARHAUL} detect --serve 0.0.0.0:4701");
    // Alone at first, so that the first packet of the log is its own.
    let script = format!(
        "{STARHAUL} detect --by {by} --toward $STARHAUL_SERVER:4701 --seconds {seconds} --json >{events} & sleep 0.3; \
         {probe} blast {load_mbit} {seconds} 1472; wait"
    );
    let links = ["--up", &up, "--down", "delay=15ms", "--server", &server];
    let rest = ["--log", &log, "--json", "--", "sh", "-c", &script];
    run_in_time(&[&links[..], &rest].concat())?;
    let text = fs::read_to_string(&log).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let arrived = names.iter().position(|name| *name == "arrived_s").unwrap();
    let first = lines.next().unwrap().split('\t').nth(arrived).unwrap();
    let begun: f64 = first.parse().unwrap();
    let events = fs::read_to_string(events).unwrap();
    let events = events.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let elapsed = event["elapsed_s"].as_f64().unwrap_or_default();
        (elapsed + begun, event)
    });
    Some(events.collect())
}

/// Each of the outages was found within 150 ms of its end, and nothing else.
fn assert_found(events: &[(f64, Value)], ends: &[f64]) {
    let found: Vec<f64> = events
        .iter()
        .filter(|(_, event)| event["event"] == "reconfiguration")
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(found.len(), ends.len(), "{found:?} of {ends:?}: {events:?}");
    for (found, end) in found.iter().zip(ends) {
        let late = found - end;
        assert!((-0.02..0.15).contains(&late), "{late} s after {end}");
    }
}

fn of_kind<'e>(events: &'e [(f64, Value)], kind: &str) -> &'e Value {
    let found = events.iter().find(|(_, event)| event["event"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind}: {events:?}")).1
}

#[test]
fn reconfigurations_beside_a_full_queue_are_found_by_icmp_and_by_udp() {
    let directory = tempfile::tempdir().unwrap();
    let bandwidth = directory.path().join("bw");
    // The short one is no reconfiguration.
    let gaps = [4000..4060, 5000..5030, 6000..6135, 7500..7590];
    let stamps = trace(&gaps, 20_000);
    fs::write(&bandwidth, &stamps).unwrap();
    let ends = ends(&stamps);
    assert_eq!(ends.len(), 3);
    for (by, named) in [("icmp", "icmp_"), ("udp", "udp_echo")] {
        let Some(events) = detect(&bandwidth, by, 9, 30) else {
            return;
        };
        let probing = of_kind(&events, "probing");
        let method = probing["by"].as_str().unwrap();
        assert!(method.starts_with(named), "{probing}");
        if by == "icmp" {
            assert_eq!(probing["hops"], 1, "found by itself: {probing}");
        }
        assert_found(&events, &ends);
        let summary = of_kind(&events, "summary");
        assert_eq!(summary["reconfigurations"], 3, "{summary}");
        assert!(summary["sent"].as_u64().unwrap() > 500, "{summary}");
    }
}

#[test]
fn the_eight_reconfigurations_of_a_recorded_link_are_found_and_no_other() {
    let folder = std::env::var_os("STARHAUL_TRACES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    let bandwidth = folder.join("leocc-example/bw_example.txt");
    let Ok(stamps) = fs::read_to_string(&bandwidth) else {
        println!("skipped: no traces (set STARHAUL_TRACES)");
        return;
    };
    let ends = ends(&stamps);
    assert_eq!(ends.len(), 8);
    if let Some(events) = detect(&bandwidth, "icmp", 117, 70) {
        assert_found(&events, &ends);
    }
}

/// Both gateways know: the one with the dish by its prober, the other by the session's acknowledgements.
#[test]
fn a_gateway_on_a_leo_path_tells_its_controller_and_the_peers() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let key = |name: &str| {
        let made = Command::new(STARHAUL)
            .args(["keygen", "--out", &file(name)])
            .output()
            .unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (near_key, far_key) = (key("near.key"), key("far.key"));
    let config = |name: &str, key: &str, rest: &str| {
        let text = format!(
            "control = \"{name}.sock\"\n{rest}\n[identity]\nfile = \"{name}.key\"\n[[peer]]\nname = \"peer\"\npublic_key = \"{key}\"\n"
        );
        (file(&format!("{name}.toml")), text)
    };
    let (far_file, far) = config("far", &near_key, "listen = \"0.0.0.0:4600\"");
    let (near_file, near) = config("near", &far_key, "");
    let path =
        "[[session]]\n[[session.path]]\nname = \"leo\"\nremote = \"SERVER:4600\"\nlink = \"leo\"\n";
    fs::write(&far_file, far).unwrap();
    fs::write(&near_file, near + path).unwrap();
    let stamps = trace(&[7000..7090, 8500..8630], 30_000);
    fs::write(file("bw"), stamps).unwrap();

    let up = format!("bw={},delay=15ms", file("bw"));
    let server = format!("exec {STARHAUL} gateway --config {far_file}");
    let status = |name: &str| {
        format!(
            "{STARHAUL} status --json --socket {} >{}",
            file(&format!("{name}.sock")),
            file(&format!("{name}.json"))
        )
    };
    let script = format!(
        "sed -i s/SERVER/$STARHAUL_SERVER/ {near_file}; {STARHAUL} gateway --config {near_file} & sleep 10; {}; {}; kill $!; wait",
        status("near"),
        status("far")
    );
    let links = ["--up", &up, "--down", "delay=15ms", "--server", &server];
    let rest = ["--json", "--", "sh", "-c", &script];
    if run_in_time(&[&links[..], &rest].concat()).is_none() {
        return;
    }
    let path = |name: &str| {
        let text = fs::read_to_string(file(&format!("{name}.json"))).unwrap();
        let status: Value = serde_json::from_str(&text).unwrap();
        status["sessions"][0]["paths"][0].clone()
    };
    let (near, far) = (path("near"), path("far"));
    assert_eq!(near["controller"], "leocc2", "{near}");
    assert_eq!(near["detector"]["state"], "probing", "{near}");
    assert_eq!(near["detector"]["found"], 2, "{near}");
    assert_eq!(near["reconfigurations"]["count"], 2, "{near}");
    assert_eq!(
        near["reconfigurations"]["last"]["source"], "probe",
        "{near}"
    );
    assert!(near["segment_rtt_ms"].as_f64().unwrap() >= 30.0, "{near}");
    assert_eq!(far["reconfigurations"]["count"], 2, "{far}");
    assert_eq!(far["reconfigurations"]["last"]["source"], "peer", "{far}");
    assert!(far["detector"].is_null(), "{far}");
}
