//! Bundle nodes as processes: the commands, and nodes that are killed at any instant.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_dtn::control::Client;

const LIFETIME: Duration = Duration::from_secs(600);

fn starhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhaul"));
    command.env("STARHAUL_LOG", "warn");
    command
}

fn run(folder: &Path) -> Child {
    let mut command = starhaul();
    command
        .args(["dtn", "node", "--config"])
        .arg(folder.join("node.toml"));
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// A node as a process, which dies with this.
struct Process {
    folder: PathBuf,
    child: Child,
}

impl Process {
    fn start(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            child: run(folder),
        }
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn kill(&mut self) {
        // SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = run(&self.folder);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(folder: &Path, number: u32, listen: SocketAddr, peer: u32, address: SocketAddr) {
    fs::create_dir_all(folder).unwrap();
    let text = format!(
        "node = \"ipn:{number}.0\"\ncontrol = \"control.sock\"\n[ltp]\nlisten = \"{listen}\"\n\
         [[ltp.peer]]\nnode = \"ipn:{peer}.0\"\naddress = \"{address}\"\n"
    );
    fs::write(folder.join("node.toml"), text).unwrap();
}

fn udp() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

fn two_nodes(folder: &Path) -> [Process; 2] {
    let (a, b) = (udp(), udp());
    let (first, last) = (folder.join("lander"), folder.join("station"));
    configure(&first, 1, a, 2, b);
    configure(&last, 2, b, 1, a);
    [Process::start(&first), Process::start(&last)]
}

fn wait_for_socket(process: &Process) {
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(process.folder.join("control.sock")).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the node does not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn files_pings_and_status_by_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = two_nodes(folder.path());
    nodes.iter().for_each(wait_for_socket);
    let [lander, station] = nodes
        .each_ref()
        .map(|node| node.folder.join("control.sock"));
    let picture = folder.path().join("picture.raw");
    let content: Vec<u8> = (0..1_500_000_u32)
        .map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()[0])
        .collect();
    fs::write(&picture, &content).unwrap();
    let received = folder.path().join("received");
    let mut receive = starhaul();
    receive
        .args(["dtn", "receive", "--count", "1", "--to"])
        .arg(&received)
        .arg("--socket")
        .arg(&station);
    let receive = receive
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sent = starhaul()
        .args(["dtn", "send"])
        .arg(&picture)
        .args(["--to", "ipn:2.0", "--wait", "1min", "--socket"])
        .arg(&lander)
        .output()
        .unwrap();
    assert!(sent.status.success(), "{}", said(&sent));
    assert!(
        said(&sent)
            .contains("1 file(s), 1500000 bytes: arrived and have the same hashes at ipn:2.100"),
        "{}",
        said(&sent)
    );
    let receive = receive.wait_with_output().unwrap();
    assert!(
        receive.status.success() && said(&receive).contains("picture.raw (1500000 bytes, SHA-256 "),
        "{}",
        said(&receive)
    );
    assert_eq!(fs::read(received.join("picture.raw")).unwrap(), content);
    let ping = starhaul()
        .args([
            "dtn",
            "ping",
            "ipn:2.0",
            "--count",
            "2",
            "--interval",
            "10ms",
            "--socket",
        ])
        .arg(&lander)
        .output()
        .unwrap();
    assert!(
        ping.status.success() && said(&ping).contains("ipn:2.7: answer 2 after "),
        "{}",
        said(&ping)
    );
    let silent = starhaul()
        .args(["dtn", "ping", "ipn:2.99", "--wait", "300ms", "--socket"])
        .arg(&lander)
        .output()
        .unwrap();
    assert_eq!(silent.status.code(), Some(1), "{}", said(&silent));
    let status = starhaul()
        .args(["dtn", "status", "--socket"])
        .arg(&station)
        .output()
        .unwrap();
    assert!(
        said(&status).contains("node ipn:2.0 at ") && said(&status).contains("neighbour"),
        "{}",
        said(&status)
    );
    let json = starhaul()
        .args(["dtn", "status", "--json", "--socket"])
        .arg(&station)
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["neighbours"][0]["node"], "ipn:1.0");
    assert!(json["counters"]["received"].as_u64() > Some(2));
}

#[test]
fn check_names_what_is_wrong_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let sample = starhaul().args(["dtn", "sample"]).output().unwrap();
    fs::write(&file, &sample.stdout).unwrap();
    let good = starhaul()
        .args(["dtn", "check"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        good.status.success() && said(&good).contains("no errors"),
        "{}",
        said(&good)
    );
    let wrong = String::from_utf8(sample.stdout)
        .unwrap()
        .replace("[[contact]]\nfrom", "[[contact]]\nform");
    fs::write(&file, wrong).unwrap();
    let bad = starhaul()
        .args(["dtn", "check"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        said(&bad).contains("unknown key \"form\"; did you mean \"from\"?"),
        "{}",
        said(&bad)
    );
}

/// All pictures reach the station over contacts that open and close, within a minute.
#[test]
fn the_demo_in_space_brings_every_picture() {
    let begun = Instant::now();
    let demo = starhaul()
        .args(["demo", "--space", "--json"])
        .output()
        .unwrap();
    assert!(demo.status.success(), "{}", said(&demo));
    assert!(begun.elapsed() < Duration::from_secs(60));
    let result: serde_json::Value = serde_json::from_slice(&demo.stdout).unwrap();
    let pictures = result["pictures"].as_array().unwrap();
    assert_eq!(pictures.len(), 8);
    for picture in pictures {
        assert_eq!(picture["is_equal"], true, "{picture}");
        // No contact joins all three: each picture waits at the orbiter.
        let waited = picture["arrived_s"].as_f64().unwrap() - picture["taken_s"].as_f64().unwrap();
        assert!(waited > 60.0, "{picture}");
    }
    assert!(result["resent"].as_u64() > Some(0));
}

/// What applications saw.
#[derive(Default)]
struct Seen {
    /// Numbers that the sending node has confirmed.
    accepted: BTreeSet<u32>,
    /// Numbers that the receiving application was given.
    received: BTreeSet<u32>,
    /// Those whose acknowledgement its node has confirmed.
    acknowledged: BTreeSet<u32>,
    twice: Vec<u32>,
}

/// Sends numbers until it is told to stop, over any number of lives of its node.
async fn send_numbers(socket: PathBuf, seen: Arc<Mutex<Seen>>, stop: Arc<AtomicBool>) {
    let mut number = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Ok(mut client) = Client::connect(Some(&socket)).await else {
            continue;
        };
        if client.open(None).await.is_err() {
            continue;
        }
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let payload = [&number.to_be_bytes()[..], &[7; 2000]].concat();
            match client.send("ipn:2.5", &payload, LIFETIME).await {
                Ok(_) => drop(seen.lock().unwrap().accepted.insert(number)),
                // It may have been taken or not.
                Err(_) => break,
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn receive_numbers(socket: PathBuf, seen: Arc<Mutex<Seen>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Ok(mut client) = Client::connect(Some(&socket)).await else {
            continue;
        };
        if client.open(Some("5")).await.is_err() {
            continue;
        }
        while let Ok(bundle) = client.next_bundle().await {
            let number = u32::from_be_bytes(bundle.payload[..4].try_into().unwrap());
            {
                let mut seen = seen.lock().unwrap();
                seen.received.insert(number);
                if seen.acknowledged.contains(&number) {
                    seen.twice.push(number);
                }
            }
            if client.acknowledge(&bundle.id).await.is_err() {
                break;
            }
            seen.lock().unwrap().acknowledged.insert(number);
        }
    }
}

/// Either node is killed again and again while bundles are sent: all that was accepted arrives, and nothing that was
/// acknowledged comes again. `STARHAUL_KILLS` says how often.
#[test]
fn nodes_killed_at_any_instant_lose_and_repeat_nothing() {
    let kills: u32 = std::env::var("STARHAUL_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    eprintln!("{kills} kills, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = two_nodes(folder.path());
    let (seen, stop) = (
        Arc::new(Mutex::new(Seen::default())),
        Arc::new(AtomicBool::new(false)),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let [lander, station] = nodes
        .each_ref()
        .map(|node| node.folder.join("control.sock"));
    runtime.spawn(send_numbers(lander, seen.clone(), stop.clone()));
    runtime.spawn(receive_numbers(station, seen.clone()));
    let mut state = u64::from(seed) | 1;
    let mut random = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(random(700)));
        let which = usize::from(random(2) == 1);
        assert!(
            nodes[which].is_alive(),
            "a node has ended by itself (seed {seed})"
        );
        nodes[which].kill();
        std::thread::sleep(Duration::from_millis(random(100)));
        nodes[which].start_again();
    }
    nodes.iter().for_each(wait_for_socket);
    std::thread::sleep(Duration::from_millis(500));
    stop.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    loop {
        let (accepted, missing, twice) = {
            let seen = seen.lock().unwrap();
            let missing: Vec<u32> = seen.accepted.difference(&seen.received).copied().collect();
            (seen.accepted.len(), missing, seen.twice.clone())
        };
        assert!(
            twice.is_empty(),
            "came again although acknowledged: {twice:?} (seed {seed})"
        );
        if missing.is_empty() {
            eprintln!("{accepted} bundles accepted, all delivered");
            for node in &mut nodes {
                assert!(node.is_alive(), "a node has ended by itself (seed {seed})");
            }
            assert!(
                accepted > kills as usize,
                "only {accepted} bundles were accepted"
            );
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "{} of {accepted} are missing: {missing:?} (seed {seed})",
            missing.len()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
