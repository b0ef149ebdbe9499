//! Recordings from the user's side: over loopback, killed early, and through an emulated link.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    emulated::{ATTEMPTS, STARHAUL, Sleeper, is_refused, replay, skip_busy, starhaul},
    turn::{Load, turn},
};

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn key(folder: &Path, name: &str) -> String {
    let file = folder.join(name);
    assert!(
        starhaul(&["keygen", "--out", path(&file)])
            .output()
            .unwrap()
            .status
            .success()
    );
    path(&file).to_owned()
}

/// A server on loopback, and its address as logged.
struct Server(Child, String);

impl Server {
    fn start(key: &str) -> Self {
        let mut child = starhaul(&["record", "server", "--listen", "127.0.0.1:0", "--key", key])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines
            .find(|line| line.as_ref().unwrap().contains("address="))
            .unwrap()
            .unwrap();
        let address = line
            .split("address=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        // So that its log does not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child, address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(server: &str, key: &str, out: &Path, more: &[&str]) -> Command {
    let mut command = starhaul(&[
        "record",
        "client",
        "--server",
        server,
        "--key",
        key,
        "--out",
        path(out),
    ]);
    command.args(["--max-rate", "8mbit"]).args(more);
    command
}

fn json(output: &Output) -> serde_json::Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is wrong with the summary of a recording of loopback, which carries all of the heavy flow, at 8 Mbit/s.
fn amiss(summary: &serde_json::Value) -> Option<String> {
    ["up", "down"]
        .iter()
        .enumerate()
        .find_map(|(index, direction)| {
            let summary = &summary[index];
            assert_eq!(summary["direction"], *direction);
            let rate = summary["mean_capacity_mbit"].as_f64().unwrap();
            let right = rate > 4.0 && rate < 9.0 && summary["limited_by_max_rate"] == true;
            (!right).then(|| summary.to_string())
        })
}

#[test]
fn both_directions_over_loopback_become_traces_that_can_be_read() {
    let _turn = turn(Load::Light);
    let folder = tempfile::tempdir().unwrap();
    let key = key(folder.path(), "key");
    let server = Server::start(&key);
    // A pause of this computer is an outage of the link to a recording, so a run that has one is no trial.
    let mut disturbed = Vec::new();
    let out = loop {
        if disturbed.len() == ATTEMPTS {
            // Three in a row in time with all programs are not this computer's.
            let ours = disturbed.iter().all(|(in_time, _)| *in_time);
            assert!(!ours, "{disturbed:#?}");
            return skip_busy();
        }
        let out = folder.path().join(format!("out-{}", disturbed.len()));
        let more = ["--seconds", "1", "--light", "udp", "--json"];
        let sleeper = Sleeper::start();
        let output = client(&server.1, &key, &out, &more).output().unwrap();
        let in_time = sleeper.end().were_in_time();
        match amiss(&json(&output)) {
            None => break out,
            Some(why) => disturbed.push((in_time, why)),
        }
    };
    for direction in ["up", "down"] {
        let file = |ending: &str| path(&out.join(format!("{direction}{ending}"))).to_owned();
        let pair = format!("bw={},delay={}", file("-bw.txt"), file("-delay.txt"));
        pair.parse::<starhaul_link::LinkSpec>().unwrap();
        format!("csv={}", file(".csv"))
            .parse::<starhaul_link::LinkSpec>()
            .unwrap();
    }
    let again = client(&server.1, &key, &out, &["--seconds", "1"])
        .output()
        .unwrap();
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("is a recording already"));
}

#[test]
fn a_recording_that_was_killed_still_becomes_a_trace() {
    let _turn = turn(Load::Light);
    let folder = tempfile::tempdir().unwrap();
    let key = key(folder.path(), "key");
    let server = Server::start(&key);
    let out = folder.path().join("out");
    let more = ["--seconds", "60", "--direction", "up", "--light", "udp"];
    let mut recording = client(&server.1, &key, &out, &more)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = out.join("up-journal.jsonl");
    let saturated = |text: &str| text.matches("\"phase\":\"saturated\"").count();
    let patience = Instant::now() + Duration::from_secs(60);
    while saturated(&fs::read_to_string(&journal).unwrap_or_default()) < 30 {
        assert!(Instant::now() < patience, "it never saturated the link");
        sleep(Duration::from_millis(50));
    }
    recording.kill().unwrap();
    recording.wait().unwrap();
    let summary = json(
        &starhaul(&["record", "finish", path(&out), "--json"])
            .output()
            .unwrap(),
    );
    assert_eq!(summary[0]["complete"], false);
    assert_eq!(summary[0]["delay_source"], "constant");
    assert!(summary[0]["seconds"].as_f64().unwrap() >= 1.0, "{summary}");

    // What was measured of one direction is of use though the other had hardly begun.
    let begun: String = fs::read_to_string(&journal)
        .unwrap()
        .lines()
        .take_while(|line| !line.contains("\"phase\":\"saturated\""))
        .map(|line| line.replace("\"direction\":\"up\"", "\"direction\":\"down\"") + "\n")
        .collect();
    assert!(begun.contains("\"direction\":\"down\""), "{begun}");
    fs::write(out.join("down-journal.jsonl"), begun).unwrap();
    let output = starhaul(&["record", "finish", path(&out), "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no trace of this direction"), "{said}");
    let both = json(&output);
    assert_eq!(both.as_array().map(Vec::len), Some(1), "{both}");
    assert_eq!(both[0], summary[0]);
}

#[test]
fn a_stranger_hears_nothing() {
    let _turn = turn(Load::Light);
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (key(folder.path(), "ours"), key(folder.path(), "theirs"));
    let server = Server::start(&ours);
    let output = client(
        &server.1,
        &theirs,
        &folder.path().join("out"),
        &["--light", "udp"],
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the server does not answer"));
}

/// Records upward over `link` for `seconds` behind a replay; if this system or its load does not allow it, reports the
/// reason and returns `None`.
fn recorded(folder: &Path, link: &str, seconds: u32) -> Option<PathBuf> {
    let key = key(folder, "key");
    let out = folder.join("out");
    let serve = format!("{STARHAUL} record server --listen 0.0.0.0:4710 --key {key}");
    let record = format!(
        "{STARHAUL} record client --server $STARHAUL_SERVER:4710 --key {key} --out {} --seconds {seconds} --direction up --light icmp",
        path(&out)
    );
    let links = ["--up", link, "--down", link, "--server", &serve];
    let sleeper = Sleeper::start();
    let output = replay(&links)
        .args(["--", "sh", "-c", &record])
        .output()
        .unwrap();
    let in_time = sleeper.end().were_in_time();
    if is_refused(&output) {
        return None;
    }
    assert!(out.join("summary.json").exists(), "{output:?}");
    // The exit code reports it, when the program's output is redirected.
    if output.status.code() == Some(3) || !in_time {
        skip_busy();
        return None;
    }
    Some(out)
}

#[test]
fn an_emulated_link_comes_back_in_real_time() {
    let _turn = turn(Load::Middle);
    let folder = tempfile::tempdir().unwrap();
    let link = "rate=10mbit,delay=20ms,queue=100p";
    let Some(out) = recorded(folder.path(), link, 5) else {
        return;
    };
    let summary = fs::read(out.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
    let summary = &summary[0];
    let mut rates: Vec<f64> = summary["capacity_mbit"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rate| rate.as_f64().unwrap())
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    assert!((median - 10.0).abs() < 0.3, "{summary}");
    let delay = summary["delay_ms"][1].as_f64().unwrap();
    assert!((delay - 20.0).abs() < 1.5, "{summary}");
}

#[test]
fn a_satellite_link_comes_back_in_real_time_with_its_outages() {
    let _turn = turn(Load::Heavy);
    let folder = tempfile::tempdir().unwrap();
    let link = "synth=leo,seed=3";
    let Some(out) = recorded(folder.path(), link, 16) else {
        return;
    };
    let file = |name: &str| path(&out.join(name)).to_owned();
    let pair = format!("bw={},delay={}", file("up-bw.txt"), file("up-delay.txt"));
    let mut compare = starhaul(&["trace", "compare", link, &pair, "--json"]);
    let compared = json(&compare.output().unwrap());
    let figure = |part: &str, name: &str| compared[part][name].as_f64().unwrap();
    assert!(figure("capacity", "median_error") < 0.03, "{compared}");
    assert!(figure("delay_ms", "median_error").abs() < 1.0, "{compared}");
    let outages = compared["capacity"]["outages_s"].as_array().unwrap();
    let [true_ones, found] = [0, 1].map(|which| outages[which].as_array().unwrap().len());
    assert!(true_ones > 0 && true_ones == found, "{compared}");
}

#[test]
fn a_direction_that_was_not_begun_can_be_recorded_later() {
    let _turn = turn(Load::Light);
    let folder = tempfile::tempdir().unwrap();
    let key = key(folder.path(), "key");
    let server = Server::start(&key);
    let out = folder.path().join("out");
    let more = ["--seconds", "60", "--light", "udp"];
    let mut recording = client(&server.1, &key, &out, &more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = out.join("up-journal.jsonl");
    let patience = Instant::now() + Duration::from_secs(60);
    while fs::metadata(&journal).map_or(0, |found| found.len()) == 0 {
        assert!(Instant::now() < patience, "it never began");
        sleep(Duration::from_millis(50));
    }
    let process = recording.id().to_string();
    let interrupted = Command::new("kill").args(["-INT", &process]).status();
    assert!(interrupted.unwrap().success());
    assert_eq!(recording.wait().unwrap().code(), Some(1));
    assert!(!out.join("down-journal.jsonl").exists());
    let more = ["--seconds", "1", "--direction", "down", "--light", "udp"];
    let output = client(&server.1, &key, &out, &more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(out.join("down-bw.txt").exists());
}
