//! `starhaul status --watch` outlives the gateway that it watches.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");
/// Each step takes a second or two; busy computers take longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[&str]) -> Running {
    let mut command = Command::new(STARHAUL);
    command.args(arguments).env_remove("STARHAUL_LOG");
    let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(pipes.spawn().unwrap())
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    told
}

fn gateway(config: &Path, socket: &Path) -> Running {
    let running = start(&["gateway", "--config", config.to_str().unwrap()]);
    let until = Instant::now() + PATIENCE;
    while !socket.exists() {
        assert!(Instant::now() < until, "the gateway made no control socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

#[test]
fn a_watch_waits_for_a_gateway_that_stopped_and_goes_on_with_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let key = Command::new(STARHAUL)
        .args(["keygen", "--out", file("key").to_str().unwrap()])
        .output()
        .unwrap();
    let key = String::from_utf8(key.stdout).unwrap();
    let (config, socket) = (file("gateway.toml"), file("control.sock"));
    let text = format!(
        "listen = \"127.0.0.1:0\"\ncontrol = \"control.sock\"\n[identity]\nfile = \"key\"\n[[peer]]\nname = \"p\"\npublic_key = \"{}\"\n",
        key.trim()
    );
    fs::write(&config, text).unwrap();

    let first = gateway(&config, &socket);
    let socket_name = socket.to_str().unwrap();
    let mut watch = start(&["status", "--watch", "--json", "--socket", socket_name]);
    let said = lines(watch.0.stdout.take().unwrap());
    let warned = lines(watch.0.stderr.take().unwrap());
    said.recv_timeout(PATIENCE).unwrap();
    drop(first);
    let warning = warned.recv_timeout(PATIENCE).unwrap();
    assert!(
        warning.contains("no answer from the gateway, waiting for it"),
        "{warning}"
    );
    assert!(watch.0.try_wait().unwrap().is_none(), "it ended");
    while said.try_recv().is_ok() {}

    let _second = gateway(&config, &socket);
    let status = said.recv_timeout(PATIENCE).unwrap();
    assert!(
        status.starts_with('{') && status.contains("uptime_s"),
        "{status}"
    );
    assert!(warned.try_recv().is_err(), "told once");
}
