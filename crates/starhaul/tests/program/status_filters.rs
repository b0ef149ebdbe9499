//! What `starhaul status` selects: a peer, a rule, the busiest streams; and names that nothing has.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Running, path, run, starhaul, text, wait_for};

/// Two gateways; the rules `busy` and `calm` of the near one lead to a server that reads.
struct Two {
    directory: TempDir,
    _gateways: [Running; 2],
}

impl Two {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let key = |name: &str| {
            let made = run(&["keygen", "--out", path(&file(name))]);
            text(&made.stdout).trim().to_owned()
        };
        let keys = ["near.key", "far.key", "other.key"].map(key);
        let head = |name: &str, peers: &[(&str, &str)]| {
            let peers = peers.iter().map(|(name, key)| {
                format!("[[peer]]\nname = \"{name}\"\npublic_key = \"{key}\"\n")
            });
            let peers: String = peers.collect();
            format!("control = \"{name}.sock\"\nidentity.file = \"{name}.key\"\n{peers}")
        };
        let server = reader();
        let text = format!(
            "listen = \"127.0.0.1:0\"\n{}[egress]\nallow = [\"127.0.0.1:*\"]\n",
            head("far", &[("near", &keys[0])])
        );
        let far = start(&file("far.toml"), &text, &file("far.sock"));
        let address = status(&file("far.sock"), &[])["listen"][0].clone();
        let rule = |name: &str| {
            format!(
                "[[tcp]]\nname = \"{name}\"\npeer = \"far\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{server}\"\n"
            )
        };
        let text = format!(
            "{}[[session]]\npeer = \"far\"\n[[session.path]]\nname = \"a\"\nremote = {address}\n{}{}",
            head("near", &[("far", &keys[1]), ("other", &keys[2])]),
            rule("calm"),
            rule("busy")
        );
        let near = start(&file("near.toml"), &text, &file("near.sock"));
        Self {
            directory,
            _gateways: [far, near],
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("near.sock")
    }

    fn status(&self, arguments: &[&str]) -> Value {
        status(&self.socket(), arguments)
    }

    fn asked(&self, arguments: &[&str]) -> Output {
        asked(&self.socket(), arguments)
    }

    /// Connects to a rule.
    fn connect(&self, rule: &str) -> TcpStream {
        let status = self.status(&[]);
        let rules = status["ingress"].as_array().unwrap();
        let rule = rules.iter().find(|known| known["rule"] == rule).unwrap();
        TcpStream::connect(rule["listen"].as_str().unwrap()).unwrap()
    }
}

fn start(file: &Path, text: &str, socket: &Path) -> Running {
    fs::write(file, text).unwrap();
    let mut command = starhaul(&["gateway", path(file)]);
    let gateway = Running(command.env("STARHAUL_LOG", "warn").spawn().unwrap());
    wait_for("the gateway answers", || {
        asked(socket, &[]).status.success().then_some(())
    });
    gateway
}

fn asked(socket: &Path, arguments: &[&str]) -> Output {
    let mut command: Command = starhaul(&["status", "--socket", path(socket)]);
    command.args(arguments).output().unwrap()
}

fn status(socket: &Path, arguments: &[&str]) -> Value {
    let output = asked(socket, &[&["--json"], arguments].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A server that reads what comes, and keeps connections open.
fn reader() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || while stream.read(&mut [0; 65536]).is_ok_and(|read| read > 0) {});
        }
    });
    address
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let names = list.as_array().unwrap().iter();
    names
        .map(|one| one[key].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_peer_a_rule_and_the_busiest_streams_are_selected() {
    let two = Two::start();
    let mut calm = two.connect("calm");
    calm.write_all(b"a").unwrap();
    let sent = |rule: &'static str| {
        move |status: &Value| {
            let streams = status["sessions"][0]["streams"].as_array().cloned();
            let mut streams = streams.into_iter().flatten();
            let stream = streams.find(|stream| stream["rule"] == rule);
            stream.and_then(|stream| stream["bytes_sent"].as_u64())
        }
    };
    wait_for("the calm stream", || {
        sent("calm")(&two.status(&[])).filter(|bytes| *bytes > 0)
    });
    let mut busy = two.connect("busy");
    busy.write_all(&[7; 100_000]).unwrap();
    wait_for("the busy stream", || {
        sent("busy")(&two.status(&[])).filter(|bytes| *bytes >= 100_000)
    });

    let one = two.status(&["--streams", "1"]);
    assert_eq!(names(&one["sessions"][0]["streams"], "rule"), ["busy"]);
    let tables = two.asked(&["--streams", "1"]);
    let tables = text(&tables.stdout);
    assert!(
        tables.contains("and 1 more streams; --streams 2"),
        "{tables}"
    );

    let calm = two.status(&["--rule", "calm"]);
    assert_eq!(names(&calm["ingress"], "rule"), ["calm"]);
    assert_eq!(names(&calm["sessions"][0]["streams"], "rule"), ["calm"]);
    assert_eq!(names(&calm["peers"][0]["flows"], "rule"), ["calm"]);
    assert_eq!(calm["classes"].as_array().unwrap().len(), 0, "{calm}");

    let all = two.status(&[]);
    assert_eq!(names(&all["peers"], "name"), ["far", "other"]);
    assert!(!all["classes"].as_array().unwrap().is_empty(), "{all}");
    let other = two.status(&["--peer", "other"]);
    assert_eq!(names(&other["peers"], "name"), ["other"]);
    for empty in ["sessions", "ingress", "classes"] {
        assert_eq!(other[empty].as_array().unwrap().len(), 0, "{other}");
    }
}

/// An empty status would read as one without problems.
#[test]
fn a_peer_or_rule_that_nothing_has_is_an_error_with_the_nearest_one() {
    let two = Two::start();
    let session = || (!two.status(&[])["sessions"].as_array()?.is_empty()).then_some(());
    wait_for("the session", session);
    for (arguments, said) in [
        (
            &["--peer", "fra"][..],
            "--peer fra: there is no such peer; did you mean \"far\"?",
        ),
        (&["--json", "--peer", "fra"], "did you mean \"far\"?"),
        (&["--check", "--peer", "fra"], "did you mean \"far\"?"),
        (
            &["--rule", "buzy"],
            "--rule buzy: there is no such rule; did you mean \"busy\"?",
        ),
        (&["--watch", "--rule", "buzy"], "did you mean \"busy\"?"),
    ] {
        let output = two.asked(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
        assert_eq!(text(&output.stdout), "");
    }
    for arguments in [["--peer", "far"], ["--rule", "busy"]] {
        assert!(two.asked(&arguments).status.success(), "{arguments:?}");
    }
}
