//! `starhaul serve`, `relay` and `fetch` from the user's side, over emulated links that lose data.
#![allow(clippy::unwrap_used, reason = "a test harness")]

mod program;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use program::{path, run, starhaul, text};
use starhaul_replay::{Emulator, RelaySpec};

/// A program that runs until the test ends, and the address that its log tells.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(arguments: &[&str], says: &str) -> Self {
        let mut child = starhaul(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(says) {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "{arguments:?} ended");
        }
        let start = line.find("127.0.0.1:").unwrap();
        let address = line[start..]
            .chars()
            .take_while(|c| c.is_ascii_digit() || ".:".contains(*c));
        let address = address.collect::<String>().parse().unwrap();
        // It must not stop for a log that is not read.
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with keys and files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for name in ["a.key", "b.key", "c.key", "d.key", "secret"] {
            fs::write(folder.at(name), format!("0123456789abcdef {name}\n")).unwrap();
        }
        fs::create_dir_all(folder.at("files/sub")).unwrap();
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: usize) -> Vec<u8> {
        let content: Vec<u8> = (0..bytes)
            .map(|i| (i.wrapping_mul(40_503) >> 7).to_le_bytes()[0])
            .collect();
        fs::write(self.at(name), &content).unwrap();
        content
    }

    fn serve(&self, root: &str, key: &str) -> Running {
        let (root, key, secret) = (self.at(root), self.at(key), self.at("secret"));
        let options = [
            "--listen",
            "127.0.0.1:0",
            "--key",
            path(&key),
            "--secret",
            path(&secret),
        ];
        Running::start(&[&["serve", path(&root)], &options[..]].concat(), "serves")
    }

    /// A relay at `listen`, with its upstream neighbour at `upstream`.
    fn relay(
        &self,
        name: &str,
        listen: SocketAddr,
        keys: [&str; 2],
        upstream: SocketAddr,
    ) -> Running {
        let [up, down] = keys;
        let file = self.at(&format!("{name}.toml"));
        let config = format!(
            "listen = \"{listen}\"\nupstream = \"up\"\n\
             [[neighbour]]\nname = \"up\"\naddress = \"{upstream}\"\nkey = \"{up}\"\n\
             [[neighbour]]\nname = \"down\"\nkey = \"{down}\"\n"
        );
        fs::write(&file, config).unwrap();
        Running::start(&["relay", "--config", path(&file)], "relays")
    }

    fn fetch(&self, name: &str, from: SocketAddr, key: &str, into: &Path) -> std::process::Command {
        let from = from.to_string();
        let (key, secret) = (self.at(key), self.at("secret"));
        let options = [
            "--from",
            &from,
            "--key",
            path(&key),
            "--secret",
            path(&secret),
        ];
        let ends = [
            "--into",
            path(into),
            "--patience",
            "20s",
            "--json",
            "--log",
            "off",
        ];
        let mut command = starhaul(&[&["fetch", name], &options[..], &ends].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// An address that nothing has bound.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

fn lossy(seed: u64, target: SocketAddr) -> Emulator {
    let link = "rate=20mbit,delay=4ms,loss=1%,queue=100p";
    let spec = RelaySpec {
        target,
        forward: link.parse().unwrap(),
        reverse: link.parse().unwrap(),
        seed,
    };
    Emulator::start(vec![spec]).unwrap()
}

#[test]
fn a_file_crosses_lossy_hops_and_relays_that_are_killed_and_comes_from_their_caches_again() {
    let folder = Folder::new();
    let content = folder.write("files/sub/picture.bin", 6_000_000);
    let server = folder.serve("files", "a.key");
    let up = lossy(1, server.address);
    let first = folder.relay(
        "first",
        free(),
        ["a.key", "b.key"],
        up.relays()[0].address(),
    );
    let middle = lossy(2, first.address);
    let middle_at = middle.relays()[0].address();
    let second = folder.relay("second", free(), ["b.key", "c.key"], middle_at);
    let second_at = second.address;
    let down = lossy(3, second_at);
    let into = folder.at("fetched.bin");
    let fetch = folder.fetch(
        "sub/picture.bin",
        down.relays()[0].address(),
        "c.key",
        &into,
    );
    let fetching = { fetch }.spawn().unwrap();
    // The part grows; then a relay on the way begins a new life.
    let part = |folder: &Folder| {
        let files = fs::read_dir(folder.0.path()).unwrap().map(Result::unwrap);
        let mut parts = files.filter(|file| file.file_name().to_str().unwrap().ends_with(".part"));
        parts
            .next()
            .and_then(|part| Some(part.metadata().ok()?.len()))
    };
    let limit = Instant::now() + Duration::from_secs(60);
    while part(&folder).is_none_or(|bytes| bytes < 1_000_000) && Instant::now() < limit {
        thread::sleep(Duration::from_millis(5));
    }
    drop(second);
    let second = folder.relay("second", second_at, ["b.key", "c.key"], middle_at);
    let fetched = fetching.wait_with_output().unwrap();
    assert_eq!(fetched.status.code(), Some(0), "{}", text(&fetched.stderr));
    assert!(fs::read(&into).unwrap() == content);
    assert_eq!(part(&folder), None);
    // The relay keeps what passes: of the next two requesters, the second hardly asks anything of the hops behind it.
    let crossed = || middle.relays()[0].stats().reverse.link.enqueued_bytes;
    let mut before = 0;
    for name in ["second.bin", "third.bin"] {
        let into = folder.at(name);
        before = crossed();
        let fetch = folder
            .fetch("sub/picture.bin", second.address, "c.key", &into)
            .output()
            .unwrap();
        assert_eq!(fetch.status.code(), Some(0), "{}", text(&fetch.stderr));
        assert!(fs::read(&into).unwrap() == content);
    }
    let more = crossed() - before;
    assert!(
        more < 600_000,
        "{more} of 6000000 bytes crossed the hop again"
    );
}

#[test]
fn a_transfer_goes_on_where_it_ended_and_changed_files_are_found() {
    let folder = Folder::new();
    let content = folder.write("files/data", 3_000_000);
    folder.write("files/empty", 0);
    let server = folder.serve("files", "a.key");
    let link = lossy(5, server.address);
    let from = link.relays()[0].address();
    let into = folder.at("into");
    fs::create_dir(&into).unwrap();
    let mut broken = folder.fetch("data", from, "a.key", &into).spawn().unwrap();
    let has_part = || {
        let mut files = fs::read_dir(&into).unwrap().map(Result::unwrap);
        files.any(|file| file.metadata().is_ok_and(|part| part.len() > 1_000_000))
    };
    let limit = Instant::now() + Duration::from_secs(60);
    while !has_part() && Instant::now() < limit {
        thread::sleep(Duration::from_millis(2));
    }
    broken.kill().unwrap();
    broken.wait().unwrap();
    let fetch = |name: &str| folder.fetch(name, from, "a.key", &into).output().unwrap();
    let fetched = fetch("data");
    assert_eq!(fetched.status.code(), Some(0), "{}", text(&fetched.stderr));
    assert!(fs::read(into.join("data")).unwrap() == content);
    let resumed = text(&fetched.stdout)
        .split("\"resumed_from\":")
        .nth(1)
        .unwrap();
    let resumed: u64 = resumed.split([',', '}']).next().unwrap().parse().unwrap();
    assert!((1_000_000..=3_000_000).contains(&resumed), "{resumed}");
    assert_eq!(fetch("data").status.code(), Some(0), "it is there already");
    assert_eq!(fetch("empty").status.code(), Some(0));
    assert_eq!(fs::read(into.join("empty")).unwrap(), b"");
    // A changed file is another content, and does not replace what is there.
    let changed = folder.write("files/data", 10_000);
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        let refused = fetch("data");
        let stderr = text(&refused.stderr);
        if refused.status.code() == Some(1)
            && stderr.contains("is there already, with other contents")
        {
            break;
        }
        assert!(Instant::now() < limit, "{stderr}");
        thread::sleep(Duration::from_millis(100));
    }
    fs::remove_file(into.join("data")).unwrap();
    assert_eq!(fetch("data").status.code(), Some(0));
    assert!(fs::read(into.join("data")).unwrap() == changed);
}

#[test]
fn errors_say_whose_fault_it_is() {
    let folder = Folder::new();
    folder.write("files/data", 1000);
    let server = folder.serve("files", "a.key");
    let into = folder.at("into");
    let fetch = |name: &str, key: &str, secret: &str| {
        let (from, key, secret) = (
            server.address.to_string(),
            folder.at(key),
            folder.at(secret),
        );
        let options = [
            "--from",
            &from,
            "--key",
            path(&key),
            "--secret",
            path(&secret),
        ];
        run(&[
            &["fetch", name, "--into", path(&into), "--patience", "2s"],
            &options[..],
        ]
        .concat())
    };
    for (name, key, secret, code, expected) in [
        ("data", "b.key", "secret", 1, "does not answer"),
        (
            "nothing",
            "a.key",
            "secret",
            1,
            "no server on the way has \"nothing\"",
        ),
        (
            "data",
            "a.key",
            "b.key",
            1,
            "no server on the way has \"data\"",
        ),
        ("data", "none.key", "secret", 2, "none.key"),
    ] {
        let output = fetch(name, key, secret);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert!(!into.exists());
    let sample = run(&["relay", "--sample"]);
    let config = folder.at("relay.toml");
    fs::write(&config, &sample.stdout).unwrap();
    let missing = run(&["relay", "--check", "--config", path(&config)]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing.stderr).contains("server.key"),
        "{}",
        text(&missing.stderr)
    );
    for key in ["server.key", "requester.key"] {
        assert_eq!(
            run(&["keygen", "--out", path(&folder.at(key))])
                .status
                .code(),
            Some(0)
        );
    }
    let checked = run(&["relay", "--check", "--config", path(&config)]);
    assert!(
        text(&checked.stdout).contains("asked for what is not kept"),
        "{checked:?}"
    );
}
