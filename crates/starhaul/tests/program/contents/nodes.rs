//! Programs, keys and links of a test.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use starhaul_replay::{Emulator, RelaySpec};

use crate::program::{path, starhaul};

/// A program that runs until the test ends, and the address that its log tells.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str], says: &str) -> Self {
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
        let told = Arc::<Mutex<String>>::default();
        let kept = Arc::clone(&told);
        // It must not stop for a log that is not read.
        thread::spawn(move || {
            for line in log.split(b'\n').map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&String::from_utf8_lossy(&line));
                kept.push('\n');
            }
        });
        Self {
            child,
            address,
            log: told,
        }
    }

    /// What its log says since then.
    pub(super) fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with keys and files.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for name in ["a.key", "b.key", "c.key", "d.key", "secret"] {
            fs::write(folder.at(name), format!("0123456789abcdef {name}\n")).unwrap();
        }
        fs::create_dir_all(folder.at("files/sub")).unwrap();
        folder
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: usize) -> Vec<u8> {
        let content: Vec<u8> = (0..bytes)
            .map(|i| (i.wrapping_mul(40_503) >> 7).to_le_bytes()[0])
            .collect();
        fs::write(self.at(name), &content).unwrap();
        content
    }

    pub(crate) fn serve(&self, root: &str, key: &str) -> Running {
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
    pub(crate) fn relay(
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

    pub(crate) fn fetch(
        &self,
        name: &str,
        from: SocketAddr,
        key: &str,
        into: &Path,
    ) -> std::process::Command {
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
            "60s",
            "--json",
            "--log",
            "off",
        ];
        let mut command = starhaul(&[&["fetch", name], &options[..], &ends].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A link of 20 Mbit/s that loses one packet of 100 in each direction.
pub(crate) fn lossy(seed: u64, target: SocketAddr) -> Emulator {
    lossy_of(4, seed, target)
}

/// The same with another delay.
pub(super) fn lossy_of(delay_ms: u32, seed: u64, target: SocketAddr) -> Emulator {
    let link = format!("rate=20mbit,delay={delay_ms}ms,loss=1%,queue=100p");
    let spec = RelaySpec {
        target,
        forward: link.parse().unwrap(),
        reverse: link.parse().unwrap(),
        seed,
    };
    Emulator::start(vec![spec]).unwrap()
}
