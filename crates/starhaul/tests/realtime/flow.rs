//! `starhaul lab flow` from the user's side: over loopback, and behind `starhaul replay` if the system allows it.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Output, Stdio},
};

use serde_json::Value;
use starhaul_needs::{Need, skip};

use crate::{
    emulated::{STARHAUL, is_refused, json, replay, run_in_time, starhaul},
    turn::{Load, turn},
};

const SECRET: &str = "a secret of this test";

/// A server on a port of its own; ended with the value.
struct Server(Child, String, String);

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = starhaul(&["lab", "flow", "server", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            said += &line;
            if let Some((_, address)) = line.split_once("address=") {
                break address.trim().to_owned();
            }
        };
        if !arguments.contains(&"--secret") {
            said += &lines.next().unwrap().unwrap();
        }
        // Later output must be read, or the pipe fills.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child, address, said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn client(server: &str, secret: &str, more: &[&str]) -> Output {
    let common = [
        "lab",
        "flow",
        "client",
        "--server",
        server,
        "--seconds",
        "1",
    ];
    starhaul(&common)
        .args(["--secret", secret])
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn a_flow_over_loopback_goes_either_way_and_is_told_as_json() {
    let _turn = turn(Load::Full);
    let server = Server::start(&["--secret", SECRET, "--controller", "bbr"]);
    for (option, toward) in [
        (&["--json"][..], "server"),
        (&["--json", "--down"], "client"),
    ] {
        let output = client(&server.1, SECRET, option);
        assert!(output.status.success(), "{output:?}");
        let told = json(&output);
        assert_eq!(told["toward"], toward);
        assert_eq!(told["per_second_mbps"].as_array().unwrap().len(), 1);
        let bytes = told["bytes"].as_u64().unwrap();
        assert!(bytes > 100_000, "{told}");
        assert_eq!(told["controller"].is_null(), toward == "client");
    }
}

#[test]
fn only_who_knows_the_secret_is_served_and_the_server_says_what_it_made() {
    let _turn = turn(Load::Full);
    let server = Server::start(&[]);
    let (_, made) = server.2.split_once("--secret ").unwrap();
    let output = client(&server.1, made.trim(), &[]);
    assert!(text(&output.stdout).contains("Mbit/s"), "{output:?}");
    let output = client(&server.1, "not what the server knows", &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for (secret, said) in [("short", "too short"), ("", "too short")] {
        let output = client(&server.1, secret, &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(said), "{output:?}");
    }
}

#[test]
fn a_flow_behind_replay_stays_within_the_link() {
    let _turn = turn(Load::Heavy);
    let link = "rate=8mbit,delay=10ms,queue=60p";
    let server = format!("{STARHAUL} lab flow server");
    let links = ["--up", link, "--down", link, "--json", "--server", &server];
    let output = replay(&links)
        .args(["--", STARHAUL, "lab", "flow", "client", "--seconds", "2"])
        .env("STARHAUL_FLOW_SECRET", SECRET)
        .output()
        .unwrap();
    if is_refused(&output) {
        return;
    }
    let (replay, said) = (json(&output), text(&output.stderr));
    let all = said
        .lines()
        .find(|line| line.trim_start().starts_with("all"));
    let all = all.unwrap_or_else(|| panic!("{said}"));
    let mbps: f64 = all.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(mbps <= 8.0, "{all}: more than the link carries");
    if replay["valid"] == true {
        assert!(
            mbps > 4.0,
            "{all}: the flow does not fill the link: {replay}"
        );
    }
}

#[test]
fn a_flow_of_leocc_is_told_of_the_outage_that_the_satellite_hop_shows() {
    let _turn = turn(Load::Heavy);
    let link = "rate=8mbit,delay=15ms,outage=4s..4.09s";
    let server = format!("STARHAUL_FLOW_SECRET='{SECRET}' exec {STARHAUL} lab flow server");
    let client = format!(
        "{STARHAUL} lab flow client --seconds 6 --json --controller leocc2 --secret '{SECRET}'"
    );
    let links = ["--up", link, "--down", link, "--json", "--server", &server];
    let run = run_in_time(&[&links[..], &["--", "sh", "-c", &client]].concat());
    let Some((_, output)) = run else { return };
    let said = text(&output.stderr);
    let told = said.lines().find(|line| line.starts_with('{'));
    let told: Value = serde_json::from_str(told.unwrap_or_else(|| panic!("{said}"))).unwrap();
    assert_eq!(told["reconfigurations"], 1, "{told} {said}");
}

/// The missing need that the program reports.
pub(crate) fn lacked(results: &Value) -> Need {
    let late = results["skipped"].to_string().contains("too busy");
    if late { Need::Time } else { Need::Netns }
}

fn in_real_time(arguments: &[&str]) -> Option<Value> {
    let _turn = turn(Load::Heavy);
    let output = starhaul(arguments).output().unwrap();
    if is_refused(&output) {
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(json(&output))
}

#[test]
fn agreement_measures_each_way_and_judges_it() {
    let link = "rate=4mbit,delay=5ms,queue=30p";
    let results = in_real_time(&[
        "lab",
        "agreement",
        "--quick",
        "--seconds",
        "1",
        "--systems",
        "newreno",
        "--link",
        link,
        "--json",
    ]);
    // Without namespaces the virtual part is still reported.
    let Some(results) = results else { return };
    let rows = results["rows"].as_array().unwrap();
    let ways: Vec<_> = rows
        .iter()
        .map(|row| row["params"]["way"].clone())
        .collect();
    if results["skipped"].as_array().unwrap().is_empty() {
        assert_eq!(ways, ["packets", "simulator", "real"]);
        assert_eq!(results["verdicts"].as_array().unwrap().len(), 4);
    } else {
        skip(lacked(&results), &results["skipped"]);
        assert_eq!(ways, ["packets", "simulator"]);
    }
    for row in rows {
        let metrics = &row["metrics"];
        assert_eq!(metrics["capacity_mbps"], 4.0, "{row}");
        let throughput = metrics["throughput_mbps"].as_f64().unwrap();
        assert!(throughput > 0.0 && throughput <= 4.0, "{row}");
    }
}

#[test]
fn the_scatter_in_real_time_has_the_shape_of_the_virtual_one() {
    let results = in_real_time(&[
        "lab",
        "leocc",
        "--real",
        "--quick",
        "--seconds",
        "1",
        "--systems",
        "leocc2",
        "--json",
    ]);
    let Some(results) = results else { return };
    assert_eq!(results["experiment"], "leocc");
    assert_eq!(results["real"]["runs"], 1);
    // A late run is repeated once.
    let late = results["real"]["invalid_runs"].as_u64().unwrap();
    let rows = results["rows"].as_array().unwrap();
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len() as u64, rows.len() as u64 + late);
    if rows.is_empty() {
        return skip(lacked(&results), &results["skipped"]);
    }
    let row = &results["rows"][0];
    assert_eq!(row["system"], "leocc2");
    assert_eq!(row["params"]["loss"], 0.002);
    for figure in [
        "throughput_mbps",
        "capacity_mbps",
        "utilisation",
        "queue_delay_mean_ms",
        "queue_delay_p95_ms",
        "rtt_mean_ms",
        "rtt_p95_ms",
    ] {
        assert!(row["metrics"][figure].as_f64().unwrap() > 0.0, "{row}");
    }
}
