//! The program behind `starhaul replay`, for tests that need an emulated link in real time.
//!
//! Needs network namespaces and TUN devices; without them each test reports that and passes. A run that was late
//! because the computer is too busy is repeated, and then skipped with that reason.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a harness of which each test uses a part"
)]

use std::{
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use serde_json::Value;
pub use starhaul_needs::{FREE, Sleeper};
use starhaul_needs::{Need, Wakes, skip};

pub const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");
pub const ATTEMPTS: usize = 3;
/// Repetitions of all tests of a program together: a computer that was too busy so often will not become free.
const REPETITIONS: usize = 4;

/// The program, without environment variables that would change its behaviour.
pub fn starhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(STARHAUL);
    command
        .args(arguments)
        .env_remove("STARHAUL_LOG")
        .env_remove("STARHAUL_FLOW_SECRET")
        .env_remove("STARHAUL_SERVER")
        .stdin(Stdio::null());
    command
}

pub fn replay(arguments: &[&str]) -> Command {
    let mut command = starhaul(&["replay"]);
    command.args(arguments);
    command
}

/// The traffic generator of known timing, `examples/replay-probe.rs`.
pub fn probe() -> String {
    let probe = Path::new(STARHAUL).with_file_name("examples/replay-probe");
    assert!(
        probe.exists(),
        "build it first: cargo build -p starhaul --examples"
    );
    probe.to_str().unwrap().to_owned()
}

/// Whether this system did not allow a replay; reports it.
pub fn is_refused(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = said.contains("cannot make a network namespace")
        || said.contains("cannot make a tun device");
    if refused {
        skip(Need::Netns, said);
    }
    refused
}

/// Reports that this computer was too busy for a test.
pub fn skip_busy() {
    skip(Need::Time, "this computer is too busy to keep it");
}

/// Runs a replay that prints JSON until packets left in time and programs ran in time; `None`, with a reported reason,
/// if they never do or the system does not allow it.
pub fn run_in_time(arguments: &[&str]) -> Option<(Value, Output)> {
    let run = run_until(arguments, |result, wakes| {
        result["valid"] == true && wakes.were_in_time()
    });
    run.map(|(result, output, _)| (result, output))
}

/// Like [`run_in_time`], where a program behind the link measures to a millisecond; with the share of wake-ups that were exact, at
/// least nine in ten. A ping takes several, so that only above [`FREE`] all of what it is off is the link's doing.
pub fn run_exactly_in_time(arguments: &[&str]) -> Option<(Output, f64)> {
    let run = run_until(arguments, |result, wakes| {
        result["valid"] == true && wakes.were_in_time() && wakes.exact_share() >= 0.9
    });
    run.map(|(_, output, wakes)| (output, wakes.exact_share()))
}

/// Like [`run_in_time`], but packets may leave some milliseconds late: enough to recognise outages by.
pub fn run_roughly_in_time(arguments: &[&str]) -> Option<(Value, Output)> {
    let run = run_until(arguments, |result, wakes| {
        let late_us = result["lateness_us"]["p99"].as_f64();
        late_us.is_some_and(|late| late < 5_000.0) && wakes.were_in_time()
    });
    run.map(|(result, output, _)| (result, output))
}

fn run_until(
    arguments: &[&str],
    is_enough: impl Fn(&Value, &Wakes) -> bool,
) -> Option<(Value, Output, Wakes)> {
    let mut free = 0;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 && !may_repeat() {
            break;
        }
        let sleeper = Sleeper::start();
        let output = replay(arguments).output().unwrap();
        let wakes = sleeper.end();
        free += usize::from(wakes.were_in_time() && wakes.exact_share() >= FREE);
        if is_refused(&output) {
            return None;
        }
        let result = json(&output);
        if is_enough(&result, &wakes) {
            return Some((result, output, wakes));
        }
    }
    // Replay that is late by itself must not pass as a busy computer. Where the repetitions are used up, fewer attempts than that tell
    // neither, and the test is skipped: the computer was too busy for those before.
    assert!(
        free < ATTEMPTS,
        "late although the computer was not: {arguments:?}"
    );
    skip_busy();
    None
}

/// Takes one of the [`REPETITIONS`], if any is left.
fn may_repeat() -> bool {
    static LEFT: AtomicUsize = AtomicUsize::new(REPETITIONS);
    let take_one = |left: usize| left.checked_sub(1);
    LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one)
        .is_ok()
}

/// Runs all jobs concurrently, each in a thread with this thread's name; returns their results in order.
pub fn at_once<R: Send, const N: usize>(jobs: [impl FnOnce() -> R + Send; N]) -> [R; N] {
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        let started = jobs.map(|job| {
            let builder = thread::Builder::new().name(name.clone());
            builder.spawn_scoped(scope, job).unwrap()
        });
        started.map(|job| job.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// The program's JSON output.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A recorded trace, and its text; `None`, with a reported reason, if it does not exist.
pub fn recorded_trace(name: &str) -> Option<(PathBuf, String)> {
    let file = starhaul_needs::trace(name)?;
    let text = fs::read_to_string(&file).unwrap();
    Some((file, text))
}

/// The packets of a log.
pub fn rows(log: &Path) -> Vec<Row> {
    let text = fs::read_to_string(log).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap().split('\t').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let cell = |name| cells[columns.iter().position(|column| *column == name).unwrap()];
            Row {
                direction: cell("direction").to_owned(),
                arrived_s: cell("arrived_s").parse().unwrap(),
                left_s: cell("left_s").parse().unwrap(),
                bytes: cell("bytes").parse().unwrap(),
                protocol: cell("protocol").to_owned(),
                fate: cell("fate").to_owned(),
            }
        })
        .collect()
}

#[derive(Debug)]
pub struct Row {
    pub direction: String,
    pub arrived_s: f64,
    pub left_s: f64,
    pub bytes: u64,
    pub protocol: String,
    pub fate: String,
}
