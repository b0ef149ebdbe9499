//! `starhaul replay` from the user's side, measured from outside by `examples/replay-probe.rs`.

mod pictures;
mod remains;

use std::{
    fs,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use starhaul_needs::Need;

use crate::{
    emulated::{ATTEMPTS, Row, STARHAUL, is_refused, json, probe, replay, rows, run_in_time},
    turn::{Load, turn},
};

const QUICK: [&str; 4] = ["--up", "delay=0ms", "--down", "delay=0ms"];

pub(crate) fn run(arguments: &[&str]) -> Output {
    replay(arguments).output().unwrap()
}

/// Success; without an upper bound of a delay, a late run (3) counts, too.
pub(crate) fn succeeded(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 3))
}

/// Whether this system allows a replay; if not, reports the reason.
pub(crate) fn allowed() -> bool {
    let output = run(&[&QUICK[..], &["--", "true"]].concat());
    let refused = is_refused(&output);
    assert!(refused || succeeded(output.status), "{output:?}");
    !refused
}

#[test]
fn links_that_cannot_be_are_refused_before_anything_runs() {
    let too_long = "a-name-of-sixteen";
    for (arguments, said) in [
        (
            &["--up", "rat=5mbit", "--down", "delay=0ms", "--", "true"][..],
            "--up rat=5mbit",
        ),
        (&["--up", "delay=0ms", "--", "true"], "0 × --down"),
        (&["--", "true"], "no link is given"),
        (
            &[
                "--up",
                "delay=0ms",
                "--up",
                "delay=0ms",
                "--down",
                "delay=0ms",
                "--",
                "true",
            ],
            "2 × --up",
        ),
        (
            &[
                "--link",
                too_long,
                "--up",
                "delay=0ms",
                "--down",
                "delay=0ms",
                "--",
                "true",
            ],
            too_long,
        ),
        (&QUICK, "COMMAND"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

#[test]
fn exit_codes_and_signals_pass_through() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    for (command, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -9 $$"], 128 + 9),
        (&["/nonexistent/program"], 127),
    ] {
        let output = run(&[&QUICK[..], &["--"], command].concat());
        assert_eq!(output.status.code(), Some(code), "{command:?}: {output:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let script = format!(
        "trap 'exit 5' TERM; touch {}; while :; do sleep 0.01; done",
        ready.display()
    );
    let running = replay(&[&QUICK[..], &["--", "sh", "-c", &script]].concat());
    let mut running = Started::new(running);
    wait_until("the command runs", || ready.exists());
    signal(&running.child, "TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_program_bound_to_an_address_uses_that_link() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let (probe, sink) = (probe(), format!("{} sink /dev/null", probe()));
    let script = format!(
        "{probe} ask $STARHAUL_ADDRESS:0; {probe} ask $STARHAUL_ADDRESS_2:0; {probe} ask $STARHAUL_ADDRESS_2:0; \
         {probe} ask 0.0.0.0:0; echo $STARHAUL_ADDRESS $STARHAUL_ADDRESS_2"
    );
    let leo = ["--link", "leo", "--up", "delay=5ms", "--down", "delay=5ms"];
    let geo = [
        "--link",
        "geo",
        "--up",
        "delay=30ms",
        "--down",
        "delay=30ms",
    ];
    let rest = ["--server", &sink, "--json", "--", "sh", "-c", &script];
    let output = run(&[&leo[..], &geo, &rest].concat());
    let result = json(&output);
    // The packets that the server got, then the addresses.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    let [first, second, third, any, addresses] = lines[..] else {
        panic!("{output:?}");
    };
    let (one, two) = addresses.split_once(' ').unwrap();
    for (seen, address) in [(first, one), (second, two), (third, two), (any, one)] {
        assert!(seen.starts_with(&format!("{address}:")), "{said}");
    }
    for (link, name, packets) in [(0, "leo", 2), (1, "geo", 2)] {
        let link = &result["links"][link];
        assert_eq!(link["name"], name);
        for direction in ["up", "down"] {
            assert_eq!(
                link[direction]["delivered"], packets,
                "{name} {direction}: {result}"
            );
        }
    }
}

#[test]
fn ipv6_crosses_the_same_links() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let (probe, sink) = (probe(), format!("{} sink /dev/null", probe()));
    let script = format!(
        "export STARHAUL_SERVER=$STARHAUL_SERVER6; [ \"$STARHAUL_SERVER\" ] || exit 9; \
         {probe} ask [::]:0; {probe} ask [$STARHAUL_ADDRESS6_2]:0; {probe} ping 50 0.5"
    );
    let one = ["--up", "delay=5ms", "--down", "delay=5ms"];
    let two = ["--up", "delay=30ms", "--down", "delay=30ms"];
    let rest = ["--server", &sink, "--json", "--", "sh", "-c", &script];
    let output = run(&[&one[..], &two, &rest].concat());
    if output.status.code() == Some(9) {
        return starhaul_needs::skip(Need::Ipv6, "this kernel has none");
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = said.lines().filter(|line| !line.starts_with("warning"));
    for end in ["[2001:2::c612:2]:", "[2001:2::c612:6]:"] {
        assert!(lines.next().unwrap().starts_with(end), "{said}");
    }
    let took_ms: Vec<f64> = lines
        .map(|line| line.parse::<f64>().unwrap() / 1e6)
        .collect();
    assert!(
        took_ms.len() > 3 && took_ms.iter().all(|took| *took >= 10.0),
        "{said}"
    );
    // Only requested packets are on the links: no router solicitation, no group report.
    let result = json(&output);
    let delivered = |link: usize| result["links"][link]["up"]["delivered"].as_u64();
    let pings = u64::try_from(took_ms.len()).unwrap();
    assert_eq!((delivered(0), delivered(1)), (Some(1 + pings), Some(1)));
}

/// Two rates and three gaps, in mahimahi's format.
fn trace() -> (String, Vec<u64>) {
    let mut stamps: Vec<u64> = Vec::new();
    for ms in 1..=4000u64 {
        let gap = [700..760, 1900..2035, 3100..3190]
            .iter()
            .any(|gap| gap.contains(&ms));
        let each_ms = if ms < 2000 { 3 } else { 1 + ms % 2 };
        if !gap {
            stamps.extend((0..each_ms).map(|_| ms));
        }
    }
    let text = stamps.iter().map(|stamp| format!("{stamp}\n")).collect();
    (text, stamps)
}

/// What the sink received: when each datagram left the link by the sink's own clock, in seconds of the links, and the log.
fn blasted(bandwidth: &Path) -> Option<(Vec<f64>, Vec<Row>)> {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    // Full within 90 ms, and for 130 ms without a packet, as the sender has no priority.
    let up = format!("bw={},delay=20ms,queue=400p", bandwidth.display());
    let server = format!("{} sink {}", probe(), file("sink").display());
    let log = file("log");
    let links = ["--up", &up, "--down", "delay=1ms", "--server", &server];
    let log_to = ["--log", log.to_str().unwrap(), "--json", "--"];
    let command = [&probe(), "blast", "90", "3.9", "1472"];
    run_in_time(&[&links[..], &log_to, &command].concat())?;
    // The receiver's clock began before the links; the first packet corrects it.
    let rows = rows(&log);
    let first = rows.iter().find(|row| row.fate == "delivered").unwrap();
    let received = fs::read_to_string(file("sink")).unwrap();
    let received = received.lines().map(|line| line.split_once(' ').unwrap());
    let received = received.map(|(at, _)| at.parse::<f64>().unwrap() / 1e9);
    let received: Vec<f64> = received.collect();
    let shift = first.left_s - received[0];
    let arrivals = received.iter().map(|at| at + shift - 0.020);
    Some((arrivals.collect(), rows))
}

#[test]
fn udp_above_capacity_gets_each_second_what_the_trace_offers_and_shows_its_gaps() {
    if !allowed() {
        return;
    }
    let _turn = turn(Load::Heavy);
    let directory = tempfile::tempdir().unwrap();
    let bandwidth = directory.path().join("bw");
    let (text, stamps) = trace();
    fs::write(&bandwidth, text).unwrap();
    let expected = [61.0, 136.0, 91.0];
    for attempt in 1..=ATTEMPTS {
        let Some((arrivals, rows)) = blasted(&bandwidth) else {
            return;
        };
        let gaps = arrivals.windows(2).map(|pair| (pair[1] - pair[0]) * 1e3);
        let gaps: Vec<f64> = gaps.filter(|gap| *gap > 45.0).collect();
        let is_close = |(gap, expected): (&f64, f64)| (gap - expected).abs() < 3.0;
        let as_expected = gaps.len() == expected.len() && gaps.iter().zip(expected).all(is_close);
        // The sink has no priority either; where it is woken late, its clock shows a gap that the link did not have.
        if !as_expected && attempt < ATTEMPTS {
            continue;
        }
        assert!(as_expected, "{gaps:?}");
        for second in [1.0, 2.0] {
            let within = |at: f64| (second..second + 1.0).contains(&(at - 0.0005));
            let got = arrivals.iter().filter(|at| within(**at)).count();
            let offered = stamps.iter().filter(|ms| within(**ms as f64 / 1e3)).count();
            let share = got as f64 / offered as f64;
            assert!(
                (0.98..=1.02).contains(&share),
                "second {second}: {got} of {offered} packets"
            );
        }
        // Every packet has its line and its fate.
        let data = rows
            .iter()
            .filter(|row| row.direction == "up" && row.protocol == "-");
        assert!(data.clone().any(|row| row.fate == "queue"));
        assert_eq!(
            data.filter(|row| row.fate == "delivered").count(),
            arrivals.len()
        );
        return;
    }
}

#[test]
fn a_run_inside_a_run_crosses_both_links() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let server = format!("{} sink /dev/null", probe());
    let outer = [
        "--up",
        "delay=20ms",
        "--down",
        "delay=0ms",
        "--server",
        &server,
        "--",
    ];
    let inner = [
        STARHAUL,
        "replay",
        "--up",
        "delay=30ms",
        "--down",
        "delay=7ms",
        "--",
    ];
    let output = run(&[&outer[..], &inner, &[&probe(), "ping", "50", "0.6"]].concat());
    assert!(succeeded(output.status), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let took_ms: Vec<f64> = said
        .lines()
        .map(|line| line.parse::<f64>().unwrap() / 1e6)
        .collect();
    assert!(
        took_ms.len() >= 5 && took_ms.iter().all(|took| *took >= 57.0),
        "{took_ms:?}"
    );
}

#[test]
fn runs_at_once_do_not_meet() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    // Both servers have the same address and port, each on the far side of its own link.
    let probe = probe();
    let server = format!("{probe} sink /dev/null");
    let arguments = [
        &QUICK[..],
        &["--server", &server, "--", &probe, "ask", "0.0.0.0:0"],
    ]
    .concat();
    let runs = [(); 3].map(|()| Started::new(replay(&arguments)));
    for mut run in runs {
        assert!(succeeded(run.child.wait().unwrap()));
    }
}

/// A process that ends with the test.
struct Started {
    child: Child,
}

impl Started {
    fn new(mut command: Command) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self {
            child: command.spawn().unwrap(),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status();
    assert!(status.unwrap().success());
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "still waiting until {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
