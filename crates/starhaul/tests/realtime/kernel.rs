//! The kernel's congestion control by `iperf3`, which CI installs; skipped with the reason if it is missing.

use std::{fs, process::Command};

use serde_json::Value;
use starhaul_needs::{Need, skip};

use crate::{
    emulated::rows,
    replay::{allowed, run},
    turn::{Load, turn},
};

/// A short satellite uplink. At 1 % loss Cubic uses a small part of it, on any computer.
const UP: &str = "synth=leo,seed=3,rate=20mbit,loss=1%";

/// The received rate in Mbit/s according to iperf3, and bytes; `None`, with a reported reason, if the kernel lacks the
/// controller.
fn transfer(congestion_control: &str, arguments: &[&str]) -> Option<(f64, u64)> {
    // Over IPv6, where the kernel has it.
    let server = "${STARHAUL_SERVER6:-$STARHAUL_SERVER}";
    let script = format!("iperf3 -c {server} -C {congestion_control} -t 10 -J");
    let links = [
        "--up",
        UP,
        "--down",
        "delay=10ms",
        "--server",
        "iperf3 -s -1",
    ];
    let output = run(&[&links[..], arguments, &["--", "sh", "-c", &script]].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("TCP_CONGESTION") {
        skip(Need::Kernel, format!("it has no {congestion_control}"));
        return None;
    }
    // Exit code 3: too late for valid figures; the order of the rates still holds.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let result: Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let received = &result["end"]["sum_received"];
    let mbit = received["bits_per_second"].as_f64().unwrap() / 1e6;
    Some((mbit, received["bytes"].as_u64().unwrap()))
}

#[test]
fn kernel_bbr_fills_a_lossy_satellite_link_that_kernel_cubic_leaves_empty() {
    if !allowed() {
        return;
    }
    if Command::new("iperf3").arg("--version").output().is_err() {
        return skip(Need::Iperf3, "it is not installed");
    }
    let _turn = turn(Load::Middle);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (log, svg, html) = (file("log"), file("bbr.svg"), file("cubic.html"));
    let Some((bbr, bytes)) = transfer("bbr", &["--log", &log, "--plot", &svg]) else {
        return;
    };
    let Some((cubic, _)) = transfer("cubic", &["--plot", &html]) else {
        return;
    };
    println!("BBR {bbr:.1} Mbit/s, Cubic {cubic:.1} Mbit/s");
    assert!(
        bbr > 2.0 * cubic && cubic > 0.1,
        "BBR {bbr}, Cubic {cubic} Mbit/s"
    );
    let rows = rows(std::path::Path::new(&log));
    let up = rows.iter().filter(|row| row.direction == "up");
    let delivered: u64 = up
        .clone()
        .filter(|row| row.fate == "delivered")
        .map(|row| row.bytes)
        .sum();
    assert!(
        delivered > bytes,
        "{delivered} bytes of packets for {bytes}"
    );
    assert_eq!(
        up.clone().map(|row| row.bytes).max(),
        Some(1500),
        "whole packets"
    );
    assert!(
        up.clone().any(|row| row.fate == "loss"),
        "no loss in {} packets",
        up.count()
    );
    let (svg, html) = (
        fs::read_to_string(svg).unwrap(),
        fs::read_to_string(html).unwrap(),
    );
    assert!(svg.starts_with("<svg ") && svg.contains("dropped at random"));
    assert!(html.starts_with("<!doctype html>") && html.contains("-C cubic -t 10"));
}
