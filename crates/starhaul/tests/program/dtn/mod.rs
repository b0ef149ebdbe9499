//! Bundle nodes as processes: the commands, nodes that are killed at any instant, and disks without room.

mod control;
mod descriptors;
mod disk;
mod flows;
mod kills;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use starhaul_needs::Sleeper;

use crate::program::{free, wait_for};

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

    /// Ends it in order.
    fn terminate(&mut self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success() && self.child.wait().unwrap().success());
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

/// Adds keys of `[storage]` to what was configured.
fn keep_in(folder: &Path, storage: &str) {
    let file = folder.join("node.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{text}[storage]\n{storage}\n")).unwrap();
}

fn two_nodes(folder: &Path) -> [Process; 2] {
    two_nodes_with(folder, "")
}

/// Two neighbours; `storage` are keys of `[storage]` of both.
fn two_nodes_with(folder: &Path, storage: &str) -> [Process; 2] {
    let (a, b) = (free(), free());
    let (first, last) = (folder.join("lander"), folder.join("station"));
    configure(&first, 1, a, 2, b);
    configure(&last, 2, b, 1, a);
    [first, last].map(|folder| {
        keep_in(&folder, storage);
        Process::start(&folder)
    })
}

fn wait_for_socket(process: &Process) {
    let socket = process.folder.join("control.sock");
    wait_for("the node starts", || {
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
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
    let explained = starhaul()
        .args(["dtn", "check", "--explain"])
        .arg(&file)
        .output()
        .unwrap();
    for told in ["LTP to ipn:2.0:\n  profile", "first timeout", "no errors"] {
        assert!(said(&explained).contains(told), "{}", said(&explained));
    }
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
    let (begun, sleeper) = (Instant::now(), Sleeper::start());
    let demo = starhaul()
        .args(["demo", "--space", "--json"])
        .output()
        .unwrap();
    assert!(demo.status.success(), "{}", said(&demo));
    let took = begun.elapsed();
    if took >= Duration::from_secs(60) {
        sleeper.fail(format!("the demo took {took:?}"));
    }
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

/// The log of a store of many terabytes has thousands of open segments.
#[test]
fn a_node_opens_as_many_files_as_the_system_lets_it() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), 1, free(), 2, free());
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -Sn 256 && exec \"$0\" \"$@\""]);
    command.args([env!("CARGO_BIN_EXE_starhaul"), "dtn", "node", "--config"]);
    let command = command.arg(folder.path().join("node.toml"));
    let process = Process {
        folder: folder.path().to_owned(),
        child: command.stdout(Stdio::null()).spawn().unwrap(),
    };
    wait_for_socket(&process);
    let limits = format!("/proc/{}/limits", process.child.id());
    let limits = fs::read_to_string(limits).unwrap();
    let open_files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut numbers = open_files.unwrap().split_whitespace().skip(3);
    assert_eq!(numbers.next(), numbers.next());
}

/// The benchmark itself checks that each bundle arrives once, as it was sent. How fast this computer is at the moment is another matter: the
/// exit code says what the goals say.
#[test]
fn the_benchmark_prints_ltp_and_a_row_for_each_storage() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = starhaul();
    bench.args(["dtn", "bench", "--json", "--large", "3", "--small", "400"]);
    bench.args(["--rounds", "1", "--storage", "memory,disk", "--folder"]);
    let stores = folder.path().join("stores");
    let output = bench.arg(&stores).arg("--check").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let goals = report["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 4, "{errors}");
    // How fast a disk takes large bundles nobody promised.
    let promised = goals.iter().filter(|goal| goal["told_only"] != true);
    let missed = promised.filter(|goal| goal["met"] == false).count();
    let code = output.status.code();
    assert_eq!(code, Some(i32::from(missed > 0)), "{errors}");
    let told = format!("goals missed, {missed} of 3");
    assert_eq!(errors.contains(&told), missed > 0, "{errors}");
    assert!(report["ltp_gbit_per_s"].as_f64().unwrap() > 0.0);
    let rows = report["rows"].as_array().unwrap();
    let told: Vec<_> = rows
        .iter()
        .map(|row| (&row["place"], &row["large"], &row["small"]))
        .map(|(place, large, small)| format!("{place} {large} {small}"))
        .collect();
    assert_eq!(told, ["\"memory\" 3 400", "\"disk\" 3 400"]);
    for row in rows {
        assert!(row["gbit_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["small_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["cpu_us"].as_f64() > Some(0.0), "{row}");
        let has_disk = row["disk_gbit_per_s"].as_f64() > Some(0.0);
        assert_eq!(has_disk, row["place"] == "disk", "{row}");
    }
    assert!(!stores.exists(), "the stores are left");
}
