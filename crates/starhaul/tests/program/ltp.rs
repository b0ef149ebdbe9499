//! `starhaul ltp` from the user's side.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read as _},
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;
use starhaul_needs::{Need, skip};

use crate::program::{Running, path, run, starhaul, text, wait_for};

/// A receiver of one file, and its address.
fn receiver(into: &Path) -> (Child, String) {
    let (receiver, address, _) = receiver_with(&[], into);
    (receiver, address)
}

/// One with further arguments, and what its log tells after its address.
fn receiver_with(more: &[&str], into: &Path) -> (Child, String, BufReader<ChildStderr>) {
    receiver_of_all(&[&["--once"][..], more].concat(), into)
}

/// One of any number of files, unless the arguments say otherwise.
fn receiver_of_all(more: &[&str], into: &Path) -> (Child, String, BufReader<ChildStderr>) {
    let arguments = [
        "ltp",
        "receive",
        "--listen",
        "127.0.0.1:0",
        "--into",
        path(into),
    ];
    let mut receiver = starhaul(&arguments)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The log tells the address.
    let mut log = BufReader::new(receiver.stderr.take().unwrap());
    let address = address_in(&mut log);
    (receiver, address, log)
}

/// The address that a receiver tells.
fn address_in(log: &mut impl BufRead) -> String {
    let mut line = String::new();
    while !line.contains("receives files") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the receiver ended");
    }
    let start = line.find("127.0.0.1:").unwrap();
    let digits = |c: &char| c.is_ascii_digit() || ".:".contains(*c);
    line[start..].chars().take_while(digits).collect()
}

/// `| head -1` closed the output before the sender knew, which then waited for minutes and said that it had failed.
#[test]
fn a_sender_learns_that_its_file_is_stored_though_nobody_reads_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("file"), folder.path().join("into"));
    fs::write(&file, [7; 5000]).unwrap();
    let (mut receiver, address) = receiver(&into);
    drop(receiver.stdout.take());
    let sent = run(&["ltp", "send", path(&file), "--to", &address]);
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    assert!(receiver.wait().unwrap().success());
    assert_eq!(fs::read(into.join("file")).unwrap(), [7; 5000]);
}

#[test]
fn a_receiver_tells_of_senders_without_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let [file, key, into] = ["file", "key", "into"].map(|name| folder.path().join(name));
    fs::write(&file, [7; 5000]).unwrap();
    fs::write(&key, "a key of the receiver alone").unwrap();
    let (mut receiver, address, mut log) = receiver_with(&["--key", path(&key)], &into);
    let sending = ["ltp", "send", path(&file), "--to", &address];
    let mut sender = starhaul(&sending).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    while !line.contains("without a signature of --key") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the receiver ended");
    }
    for child in [&mut receiver, &mut sender] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Both ends have the same profile, or the receiver says why nothing of the file comes.
#[test]
fn a_file_crosses_with_each_profile_and_not_with_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, [7; 50_000]).unwrap();
    for profile in ["rfc5326", "ccsds-734.1", "fixed"] {
        let into = folder.path().join(profile);
        let (receiver, address, _log) = receiver_with(&["--profile", profile], &into);
        let receiver = Running(receiver);
        let sending = ["ltp", "send", path(&file), "--to", &address];
        let sent = run(&[&sending[..], &["--profile", profile]].concat());
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        assert_eq!(fs::read(into.join("file")).unwrap(), [7; 50_000]);
        drop(receiver);
    }
    let into = folder.path().join("other");
    let (receiver, address, mut log) = receiver_with(&["--profile", "fixed"], &into);
    let _receiver = Running(receiver);
    let sending = ["ltp", "send", path(&file), "--to", &address];
    let sender = starhaul(&sending).stderr(Stdio::null()).spawn().unwrap();
    let _sender = Running(sender);
    let mut line = String::new();
    while !line.contains("written otherwise than --profile says") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the receiver ended");
    }
    assert_eq!(fs::read_dir(&into).unwrap().count(), 0);
}

#[test]
fn what_a_profile_does_not_have_is_refused() {
    for more in [
        ["--repair", "5%"],
        ["--repair", "auto"],
        ["--numbers", "64"],
    ] {
        let sending = ["ltp", "send", "f", "--to", "127.0.0.1"];
        let ccsds = ["--profile", "ccsds-734.1"];
        let sent = run(&[&sending[..], &ccsds, &more].concat());
        let said = text(&sent.stderr);
        assert_eq!(sent.status.code(), Some(2), "{said}");
        assert!(said.contains("--profile ccsds-734.1 has no "), "{said}");
    }
    let wide = ["ltp", "send", "f", "--to", "192.0.2.1", "--numbers", "64"];
    let explained = run(&[&wide[..], &["--explain"]].concat());
    assert_eq!(explained.status.code(), Some(0));
    assert!(text(&explained.stdout).contains("64 bits"));
}

#[test]
fn a_rate_of_zero_is_refused() {
    let sent = run(&["ltp", "send", "f", "--to", "127.0.0.1", "--rate", "0bit"]);
    let said = text(&sent.stderr);
    assert_eq!(sent.status.code(), Some(2), "{said}");
    assert!(said.contains("--rate of 0"), "{said}");
}

/// A signal comes in the middle of a file: no part of it stays. Who waited for one file does not have it; who takes any has what there was.
#[test]
fn a_receiver_that_is_ended_leaves_nothing_half_written() {
    for (signal, once) in [("-TERM", true), ("-INT", true), ("-TERM", false)] {
        let folder = tempfile::tempdir().unwrap();
        let (file, into) = (folder.path().join("large"), folder.path().join("into"));
        // Many blocks, which take seconds at this rate.
        File::create(&file).unwrap().set_len(256 << 20).unwrap();
        let more: &[&str] = if once { &["--once"] } else { &[] };
        let (mut receiver, address, mut log) = receiver_of_all(more, &into);
        let sending = [
            "ltp",
            "send",
            path(&file),
            "--to",
            &address,
            "--rate",
            "300mbit",
        ];
        let mut sender = starhaul(&sending).stderr(Stdio::null()).spawn().unwrap();
        wait_for("a part of the file", || {
            (fs::read_dir(&into).unwrap().count() > 0).then_some(())
        });
        let id = receiver.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
        let ended = receiver.wait().unwrap();
        sender.kill().unwrap();
        sender.wait().unwrap();
        let mut said = String::new();
        log.read_to_string(&mut said).unwrap();
        assert_eq!(ended.code(), Some(i32::from(once)), "{signal}: {said}");
        let is_told = said.contains("before a file was complete");
        assert_eq!(is_told, once, "{signal}: {said}");
        assert_eq!(fs::read_dir(&into).unwrap().count(), 0, "{signal}");
    }
}

/// A bar while the file comes, and then its hash.
#[test]
fn on_a_terminal_a_receiver_shows_how_far_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("moon"), folder.path().join("into"));
    fs::write(&file, vec![7; 3_000_000]).unwrap();
    let command = format!(
        "{} ltp receive --once --listen 127.0.0.1:0 --into {}",
        env!("CARGO_BIN_EXE_starhaul"),
        path(&into)
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    script.env_remove("STARHAUL_LOG");
    script.env("TERM", "xterm").env("NO_COLOR", "1");
    let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut script) = script else {
        return skip(Need::Script, "it is not there");
    };
    // At its end the terminal would be told that nobody types any more.
    let _typed = script.stdin.take();
    let mut shown = BufReader::new(script.stdout.take().unwrap());
    let mut script = Running(script);
    let address = address_in(&mut shown);
    // So that it takes more than a second.
    let sending = ["ltp", "send", path(&file), "--to", &address];
    let sent = run(&[&sending[..], &["--rate", "16mbit"]].concat());
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let mut all = Vec::new();
    shown.read_to_end(&mut all).unwrap();
    let all = String::from_utf8_lossy(&all);
    assert!(script.0.wait().unwrap().success(), "{all}");
    let is_bar = |part: &str| part.contains("moon: ") && part.contains(" Mbit/s, segments");
    assert!(all.split(['\r', '\n']).any(is_bar), "{all}");
    assert!(all.contains(path(&into.join("moon"))), "{all}");
}

#[test]
fn a_file_is_sent_received_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (
        folder.path().join("picture.bin"),
        folder.path().join("into"),
    );
    let content: Vec<u8> = (0..3_000_000u32)
        .map(|i| (i >> 3).to_le_bytes()[0])
        .collect();
    fs::write(&file, &content).unwrap();
    let (receiver, address) = receiver(&into);
    let sent = run(&["ltp", "send", path(&file), "--to", &address]);
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let received = receiver.wait_with_output().unwrap();
    assert_eq!(received.status.code(), Some(0));
    assert!(text(&received.stdout).contains("picture.bin"));
    assert!(fs::read(into.join("picture.bin")).unwrap() == content);
}

/// What the far side refuses is told by the exit code, and why by the text.
#[test]
fn a_file_that_the_far_side_cannot_store_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let [file, taken, gone] = ["file", "taken", "gone"].map(|name| folder.path().join(name));
    fs::write(&file, [7; 5000]).unwrap();
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("file"), "another").unwrap();
    for (into, why) in [(&taken, "exists already"), (&gone, "No such file")] {
        let (receiver, address, _log) = receiver_with(&[], into);
        let _ends_with_this = Running(receiver);
        if into == &gone {
            fs::remove_dir(into).unwrap();
        }
        let sent = run(&["ltp", "send", path(&file), "--to", &address]);
        let said = text(&sent.stderr);
        assert_eq!(sent.status.code(), Some(1), "{said}");
        assert!(
            said.contains("the far side does not have the file") && said.contains(why),
            "{said}"
        );
    }
    assert_eq!(fs::read(taken.join("file")).unwrap(), b"another");
}

/// A link that loses one datagram in 20, and has no way back.
struct OneWay {
    near: SocketAddr,
    far: UdpSocket,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OneWay {
    fn to(address: &str) -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (near, far, ended) = (bind(), bind(), Arc::<AtomicBool>::default());
        near.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let (to, is_over): (SocketAddr, _) = (address.parse().unwrap(), ended.clone());
        let (out, at) = (far.try_clone().unwrap(), near.local_addr().unwrap());
        let carry = move || {
            let (mut datagram, mut count) = (vec![0; 65_536], 0_u64);
            while !is_over.load(Ordering::SeqCst) {
                if let Ok(length) = near.recv(&mut datagram) {
                    count += 1;
                    if !count.is_multiple_of(20) {
                        out.send_to(&datagram[..length], to).unwrap();
                    }
                }
            }
        };
        Self {
            near: at,
            far,
            ended,
            thread: Some(thread::spawn(carry)),
        }
    }

    /// Whether the far side sent anything.
    fn was_answered(&self) -> bool {
        self.far.set_nonblocking(true).unwrap();
        self.far.recv(&mut [0; 2000]).is_ok()
    }
}

impl Drop for OneWay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // What it says fails its own assertions.
            let _ = thread.join();
        }
    }
}

/// Repair segments alone bring the file; the sender says that it cannot know, and both print the same hash.
#[test]
fn a_file_crosses_a_lossy_link_without_a_way_back() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("file"), folder.path().join("into"));
    let content: Vec<u8> = (0..600_000_u32)
        .map(|i| (i >> 3).to_le_bytes()[0])
        .collect();
    fs::write(&file, &content).unwrap();
    let (receiver, address, _log) = receiver_with(&["--one-way"], &into);
    let link = OneWay::to(&address);
    // Slow enough for a busy computer; more is repaired than is lost on purpose.
    let sent = run(&[
        "ltp",
        "send",
        path(&file),
        "--to",
        &link.near.to_string(),
        "--one-way",
        "--rate",
        "4mbit",
        "--repair",
        "10%",
    ]);
    let said = text(&sent.stderr);
    assert_eq!(sent.status.code(), Some(3), "{said}");
    assert!(
        said.contains("nobody can tell whether it arrives"),
        "{said}"
    );
    let received = receiver.wait_with_output().unwrap();
    assert_eq!(received.status.code(), Some(0));
    assert!(fs::read(into.join("file")).unwrap() == content);
    let hash = |output: &[u8]| text(output).split("  ").next().map(str::to_owned);
    assert_eq!(hash(&sent.stdout), hash(&received.stdout));
    assert_eq!(hash(&sent.stdout).map(|hash| hash.len()), Some(64));
    assert!(!link.was_answered(), "the receiver has no way back");
}

/// What the first pass lost a further one brings, of the same block; the file is there once.
#[test]
fn a_file_that_is_sent_again_crosses_without_repair_segments() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("file"), folder.path().join("into"));
    let content: Vec<u8> = (0..200_000_u32)
        .map(|i| (i >> 3).to_le_bytes()[0])
        .collect();
    fs::write(&file, &content).unwrap();
    let (receiver, address, _log) = receiver_with(&["--one-way"], &into);
    let link = OneWay::to(&address);
    let to = link.near.to_string();
    let sending = ["ltp", "send", path(&file), "--to", &to, "--one-way"];
    let known = ["--rate", "4mbit", "--repair", "0%", "--repeat", "3"];
    let sent = run(&[&sending[..], &known].concat());
    assert_eq!(sent.status.code(), Some(3), "{}", text(&sent.stderr));
    let received = receiver.wait_with_output().unwrap();
    assert_eq!(received.status.code(), Some(0));
    assert!(fs::read(into.join("file")).unwrap() == content);
    assert_eq!(text(&received.stdout).lines().count(), 1);
    let alone = run(&["ltp", "send", "f", "--to", "127.0.0.1", "--repeat", "2"]);
    let said = text(&alone.stderr);
    assert_eq!(alone.status.code(), Some(2), "{said}");
    assert!(said.contains("--one-way"), "{said}");
}

#[test]
fn one_way_needs_to_know_the_link() {
    for given in [
        &["--rate", "8mbit"][..],
        &["--repair", "5%"],
        &["--rate", "8mbit", "--repair", "auto"],
    ] {
        let sending = ["ltp", "send", "f", "--to", "127.0.0.1", "--one-way"];
        let sent = run(&[&sending[..], given].concat());
        let said = text(&sent.stderr);
        assert_eq!(sent.status.code(), Some(2), "{said}");
        assert!(
            said.contains("--one-way needs --rate and --repair"),
            "{said}"
        );
    }
}

/// What an operator can set, what follows from it, and what is fixed.
#[test]
fn every_value_is_explained() {
    let both = [
        "engine  ",
        "profile",
        "session numbers",
        "one-way light time",
        "rate",
        "segment data",
        "margin",
        "first timeout",
        "first answer",
        "retransmission limit",
        "cycle limit",
        "checkpoints",
        "session given up",
        "sessions",
        "receive memory",
        "longest block",
        "integrity",
        "system calls",
        "lower layers",
        "one way",
        "repair segments",
        "key",
    ];
    let send = &["send", "/nonexistent", "--to", "192.0.2.1"][..];
    let receive = &["receive", "--into", "/nonexistent/folder"][..];
    let of_sender = &["block", "under way", "far side's hash"][..];
    let of_receiver = &["senders at a time", "answers"][..];
    let (usual, one_way): (&[&str], &[&str]) =
        (&[], &["--one-way", "--rate", "8mbit", "--repair", "5%"]);
    for (command, own) in [(send, of_sender), (receive, of_receiver)] {
        for link in [usual, one_way] {
            let all = [&["ltp"][..], command, link, &["--explain"]].concat();
            let explained = run(&all);
            assert_eq!(explained.status.code(), Some(0), "{all:?}");
            let said = text(&explained.stdout);
            for name in both.iter().chain(own) {
                let lines = said.lines().filter(|line| line.starts_with(*name));
                assert!(lines.count() > 0, "{name} of {all:?}: {said}");
            }
            // Each line has its value and its reason.
            for line in said.lines() {
                assert!(line.contains("  (") && line.ends_with(')'), "{line}");
            }
            let repair = said.contains("for 5 % lost");
            assert_eq!(repair, !link.is_empty(), "{said}");
        }
    }
    let auto = [&["ltp"][..], send, &["--repair", "auto", "--explain"]].concat();
    let said = run(&auto).stdout;
    assert!(text(&said).contains("auto, none at first"), "{said:?}");
}

/// A link of a gigabit over ten minutes has far more under way than a host has memory.
#[test]
fn received_blocks_take_a_quarter_of_the_hosts_memory_at_most() {
    let told = fs::read_to_string("/proc/meminfo").unwrap();
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.unwrap().trim().trim_end_matches(" kB");
    let total = total.parse::<u64>().unwrap() << 10;
    let link = ["--light-time", "600s", "--rate", "1gbit", "--explain"];
    let receive = ["ltp", "receive", "--into", "/nonexistent/folder"];
    let explained = run(&[&receive[..], &link].concat());
    assert_eq!(explained.status.code(), Some(0));
    let said = text(&explained.stdout);
    let bytes = |name: &str| -> u64 {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        let mut words = line.split_whitespace();
        words.find_map(|word| word.parse().ok()).unwrap()
    };
    let of_all = bytes("receive memory of all");
    let most = (total / 4).clamp(64 << 20, 8 << 30);
    assert!((64 << 20..=most).contains(&of_all), "{said}");
    assert_eq!(bytes("receive memory  "), of_all, "{said}");
    assert!(bytes("longest block") < of_all, "{said}");
    for reason in ["quarter of", "host's memory"] {
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn defaults_are_explained_without_doing_anything() {
    let explained = run(&[
        "ltp",
        "send",
        "/nonexistent",
        "--to",
        "192.0.2.1",
        "--light-time",
        "4s",
        "--explain",
    ]);
    assert_eq!(explained.status.code(), Some(0));
    let said = text(&explained.stdout);
    for part in ["one-way light time", "8.1s", "retransmission limit"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The names of an object's fields.
fn keys(value: &Value) -> String {
    let mut keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys.join(" ")
}

#[test]
fn the_benchmark_prints_ceilings_and_rows() {
    let bench = run(&[
        "ltp",
        "bench",
        "--segment",
        "1360",
        "--megabytes",
        "5",
        "--repeats",
        "1",
        "--json",
    ]);
    assert_eq!(bench.status.code(), Some(0), "{}", text(&bench.stderr));
    let report: Value = serde_json::from_slice(&bench.stdout).unwrap();
    assert_eq!(keys(&report), "ceilings mtu rows");
    assert_eq!(
        keys(&report["ceilings"][0]),
        "gbit_per_s mode receive_us_per_segment segment_bytes send_us_per_segment"
    );
    let row = "gbit_per_s lost mode pairs receive_us_per_segment segment_bytes send_us_per_segment share_of_ceiling";
    assert_eq!(keys(&report["rows"][0]), row);
    let modes: Vec<&str> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["mode"].as_str())
        .collect();
    assert_eq!(modes, ["gso", "mmsg", "single"]);
}

/// How fast this computer is at the moment is another matter: the exit code says what the goals say, as text and as JSON.
#[test]
fn the_benchmark_judges_what_it_measures() {
    let bench = |more: &[&str]| {
        let small = ["--segment", "1360", "--megabytes", "2", "--repeats", "1"];
        let all = [
            &["ltp", "bench", "--mode", "gso", "--check"][..],
            &small,
            more,
        ]
        .concat();
        run(&all)
    };
    let judged = bench(&["--json"]);
    let report: Value = serde_json::from_slice(&judged.stdout).unwrap();
    assert_eq!(keys(&report), "ceilings goals mtu rows");
    let goals = report["goals"].as_array().unwrap();
    let figures: Vec<&str> = goals
        .iter()
        .filter_map(|goal| goal["figure"].as_str())
        .collect();
    let of_gso = [
        "lost",
        "share_of_ceiling",
        "gbit_per_s",
        "send_us_per_segment",
        "receive_us_per_segment",
    ];
    assert_eq!(figures, of_gso);
    let is_met = |goal: &Value| {
        let measured = goal["measured"].as_f64().unwrap();
        let least = goal["at_least"].as_f64();
        let most = goal["at_most"].as_f64();
        least.is_none_or(|least| measured >= least) && most.is_none_or(|most| measured <= most)
    };
    assert!(goals.iter().all(|goal| goal["met"] == is_met(goal)));
    let missed = goals.iter().filter(|goal| goal["met"] == false).count();
    let said = text(&judged.stderr);
    assert_eq!(judged.status.code(), Some(i32::from(missed > 0)), "{said}");
    let told = format!("goals missed, {missed} of 5");
    assert_eq!(said.contains(&told), missed > 0, "{said}");

    let judged = bench(&[]);
    let table = text(&judged.stdout);
    let goals = |outcome: &str| {
        let lines = table.lines();
        lines.filter(|line| line.starts_with(outcome)).count()
    };
    let (met, missed) = (goals("met "), goals("missed "));
    assert_eq!(met + missed, 5, "{table}");
    let code = judged.status.code();
    assert_eq!(code, Some(i32::from(missed > 0)), "{table}");
}

/// In real time, too: what adapts is compared with fixed sizes of the same run.
#[test]
fn the_benchmark_compares_what_adapts_with_fixed_sizes() {
    let bench = run(&[
        "ltp",
        "bench",
        "--mode",
        "gso",
        "--megabytes",
        "2",
        "--repeats",
        "1",
        "--check",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&bench.stdout).unwrap();
    let row = &report["rows"][0];
    let sizes = row["beside"].as_array().unwrap().iter();
    let sizes: Vec<u64> = sizes
        .filter_map(|one| one["segment_bytes"].as_u64())
        .collect();
    assert_eq!(sizes, [1360, 64_000]);
    assert_eq!(keys(&row["beside"][0]), "gbit_per_s segment_bytes share");
    let goals = report["goals"].as_array().unwrap();
    let goal = goals
        .iter()
        .find(|goal| goal["figure"] == "share_of_best_fixed")
        .unwrap();
    assert_eq!(goal["measured"], row["share_of_best_fixed"]);
    assert_eq!(goal["at_least"], 0.9);
    let missed = goals.iter().any(|goal| goal["met"] == false);
    let said = text(&bench.stderr);
    assert_eq!(bench.status.code(), Some(i32::from(missed)), "{said}");
}

/// The bit of `CAP_NET_ADMIN`, which lets a socket have a larger buffer than `net.core.rmem_max` grants.
const NET_ADMIN: u32 = 12;

/// What starts a program without `CAP_NET_ADMIN`; nothing where this test has none itself. `None`, with a reported reason, if it cannot be
/// dropped.
fn without_net_admin() -> Option<Vec<&'static str>> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = u64::from_str_radix(capabilities.unwrap().trim(), 16).unwrap();
    if (capabilities >> NET_ADMIN) & 1 == 0 {
        return Some(Vec::new());
    }
    let dropping = [
        "setpriv",
        "--inh-caps=-net_admin",
        "--bounding-set=-net_admin",
    ];
    let mut probe = Command::new(dropping[0]);
    let probe = probe.args(&dropping[1..]).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        skip(
            Need::Setpriv,
            "setpriv is missing, or the right to drop a capability",
        );
        return None;
    }
    Some(dropping.to_vec())
}

/// With what the system grants every user, and the default size of segments or one packet of Ethernet each: a receiver's socket holds less
/// than the block, and never less than what is on its way to it. The benchmark itself compares the block.
#[test]
fn without_a_privilege_no_segment_is_lost_to_a_full_socket() {
    let Some(dropping) = without_net_admin() else {
        return;
    };
    for segment in ["auto", "1360"] {
        let program = [env!("CARGO_BIN_EXE_starhaul")];
        let bench = ["ltp", "bench", "--megabytes", "30", "--repeats", "1"];
        let sized = ["--segment", segment, "--json"];
        let all = [&dropping[..], &program, &bench, &sized].concat();
        let mut command = Command::new(all[0]);
        let bench = command.args(&all[1..]).output().unwrap();
        assert_eq!(bench.status.code(), Some(0), "{}", text(&bench.stderr));
        let report: Value = serde_json::from_slice(&bench.stdout).unwrap();
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row["lost"], 0, "--segment {segment}: {row}");
        }
    }
}

#[test]
fn a_key_that_everybody_has_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "\n").unwrap();
    let into = path(folder.path());
    let output = run(&[
        "ltp",
        "receive",
        "--once",
        "--into",
        into,
        "--key",
        path(&key),
    ]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the file is empty"), "{said}");
}
