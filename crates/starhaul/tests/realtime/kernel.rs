//! The kernel's congestion control by `iperf3`, which CI installs; skipped with the reason if it is missing.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
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

/// Processes of this group whose program has this name.
fn of_group(group: u32, name: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let is_of = |stat: &String| {
        // The name, in parentheses, then the state, the parent and the group.
        let (head, rest) = stat.rsplit_once(") ").unwrap_or_default();
        let of = rest
            .split_whitespace()
            .nth(2)
            .and_then(|of| of.parse().ok());
        head.ends_with(&format!("({name}")) && of == Some(group)
    };
    stats.filter(is_of).count()
}

/// `iperf3` takes an interruption for an error or for its usual end, and is the first of the usual senders.
#[test]
fn an_interrupted_lab_goes_on_with_no_other_sender() {
    if !allowed() {
        return;
    }
    if Command::new("iperf3").arg("--version").output().is_err() {
        return skip(Need::Iperf3, "it is not installed");
    }
    let _turn = turn(Load::Middle);
    for signal in [Signal::INT, Signal::HUP] {
        // The program that started the tests may have them ignore signals, as shells do in the background.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT,HUP")
            .arg(env!("CARGO_BIN_EXE_starhaul"));
        command.args(["lab", "leocc", "--real", "--quick", "--seconds", "60"]);
        command.args(["--systems", "kernel-cubic,leocc2", "--json"]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let lab = command.spawn().unwrap();
        let group = lab.id();
        let pid = Pid::from_raw(group.try_into().unwrap()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        // The server and the client.
        while of_group(group, "iperf3") < 2 {
            assert!(Instant::now() < until, "no flow begins");
            thread::sleep(Duration::from_millis(20));
        }
        let signalled = Instant::now();
        kill_process_group(pid, signal).unwrap();
        let output = lab.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        assert!(
            said.contains("interrupted by a signal"),
            "{signal:?}: {said}"
        );
        assert!(signalled.elapsed() < Duration::from_secs(20), "it goes on");
        // They end with the lab, and are gone once their parent has waited for them.
        let until = Instant::now() + Duration::from_secs(20);
        while of_group(group, "iperf3") > 0 {
            assert!(Instant::now() < until, "a flow goes on");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
