//! The keys of the rows of `lab dmtp` and `lab mpdtp`, by which programs read them: rivals have every figure that is told of them beside ours.

#![expect(clippy::unwrap_used, reason = "a failed call is a failed test")]

use serde_json::Value;
use starhaul_lab::{
    Error,
    experiments::{dmtp::Dmtp, mpdtp::Mpdtp},
    kit::{Context, Experiment},
};

/// What both experiments tell of every system.
const METRICS: [&str; 5] = [
    "on_time_share",
    "latency_p50_ms",
    "latency_p99_ms",
    "wire_extra_share",
    "dear_bytes",
];

/// The rows of part `loss` of these systems at a loss of 3 %.
fn rows(experiment: &dyn Experiment, systems: &str) -> Vec<Value> {
    let name = experiment.command().get_name().to_owned();
    let options = ["--only", "loss", "--loss", "3%", "--systems", systems];
    let all = std::iter::once(name.as_str()).chain(options);
    let options = experiment.command().try_get_matches_from(all).unwrap();
    let context = Context {
        command: &name,
        bench: &|| Err(Error::Failed("it is in virtual time".to_owned())),
    };
    let plan = experiment.plan(&options, 1).unwrap();
    let found = plan.run(&context, &mut |_| {}).unwrap();
    assert_eq!(found.failure(), None, "seed 1");
    let json: Value = serde_json::from_str(&found.json().unwrap()).unwrap();
    json["loss"].as_array().unwrap().clone()
}

fn systems(rows: &[Value]) -> Vec<[&str; 2]> {
    let of = |row| ["system", "scheduler"].map(|key| text(row, key));
    rows.iter().map(of).collect()
}

fn text<'r>(row: &'r Value, key: &str) -> &'r str {
    row["params"][key].as_str().unwrap()
}

fn has_numbers(row: &Value, keys: &[&str]) {
    for key in keys {
        assert!(row["metrics"][key].is_number(), "{key}: {row}");
    }
}

#[test]
fn rows_of_dmtp_have_their_keys_for_the_systems_and_losses_asked_for() {
    let rows = rows(&Dmtp, "mpquic,fec+retransmit");
    let both = "fec+retransmit";
    let wanted = [[both, "rules"], [both, "optimizer"], ["mpquic", "its own"]];
    assert_eq!(systems(&rows), wanted);
    for row in &rows {
        assert_eq!(row["params"]["loss"], 0.03, "{row}");
        has_numbers(row, &METRICS);
        // Headers alone are some percent of what is offered.
        assert!(row["wire_extra_share"].as_f64() > Some(0.0), "{row}");
    }
    has_numbers(&rows[0], &["extra_bytes_share", "least_extra_bytes_share"]);
    assert!(rows[2]["extra_bytes_share"].is_null());
}

#[test]
fn rows_of_mpdtp_have_their_keys_and_ours_its_protections() {
    let rows = rows(&Mpdtp, "none,fec+retransmit,mpquic,oracle");
    let both = "fec+retransmit";
    let wanted = [
        ["none", "rules"],
        [both, "rules"],
        [both, "optimizer"],
        ["mpquic", "its own"],
        ["oracle", "its own"],
    ];
    assert_eq!(systems(&rows), wanted);
    for row in &rows {
        let params = &row["params"];
        assert_eq!(params["loss"], 0.03, "{row}");
        assert!(params["bandwidth"].is_number(), "{row}");
        assert_eq!(text(row, "queue"), "42 kB");
        has_numbers(row, &["qoe", "on_time_share"]);
    }
    let (oracle, real) = rows.split_last().unwrap();
    for row in real {
        has_numbers(row, &METRICS);
        has_numbers(row, &["short_bytes", "long_bytes"]);
    }
    assert!(oracle["wire_extra_share"].is_null(), "{oracle}");
    let extra = |row: &Value| row["extra_bytes_share"].as_f64();
    // Without protection hardly anything leaves but the data: a receiver is asked whether it has a block.
    let none = extra(&rows[0]);
    assert!(none.is_some_and(|extra| extra < 0.01), "{}", rows[0]);
    assert!(extra(&rows[1]) > Some(0.0), "{}", rows[1]);
    assert_eq!(extra(&rows[3]), None);
    let qoe = |row: &Value| row["qoe"].as_f64();
    assert!(qoe(&rows[1]) > qoe(&rows[0]), "{} {}", rows[0], rows[1]);
}
