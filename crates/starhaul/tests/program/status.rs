//! `starhaul status --watch` outlives the gateway that it watches.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use crate::program::{PATIENCE, Running};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");

/// A key that belongs to no gateway of the tests.
const OTHER_KEY: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

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
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < until, "the gateway made no control socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

#[test]
fn a_watch_waits_for_a_gateway_that_stopped_and_goes_on_with_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let made = Command::new(STARHAUL)
        .args(["keygen", "--out", file("key").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success());
    let (config, socket) = (file("gateway.toml"), file("control.sock"));
    let text = format!(
        "listen = \"127.0.0.1:0\"\ncontrol = \"control.sock\"\n[identity]\nfile = \"key\"\n[[peer]]\nname = \"p\"\npublic_key = \"{OTHER_KEY}\"\n"
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

/// The exit code of `status --check`, and all that it said.
fn check(socket: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(STARHAUL);
    let output = command
        .args(["status", "--check", "--socket"])
        .arg(socket)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn wait_for_check(socket: &Path, code: i32, words: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        let (ended, said) = check(socket);
        if ended == Some(code) && said.contains(words) {
            return;
        }
        assert!(Instant::now() < until, "{ended:?}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_check_fails_where_a_session_or_a_configured_path_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let keys = ["near", "far"].map(|name| {
        let mut keygen = Command::new(STARHAUL);
        let key = keygen.args(["keygen", "--out"]).arg(file(name)).output();
        String::from_utf8(key.unwrap().stdout).unwrap()
    });
    let head = |name: &str, peer: &str, key: &str| {
        format!(
            "control = \"{name}.sock\"\nidentity.file = \"{name}\"\n[[peer]]\nname = \"{peer}\"\npublic_key = \"{}\"\n",
            key.trim()
        )
    };
    let [near, far] = ["near.sock", "far.sock"].map(file);
    let text = format!(
        "listen = \"127.0.0.1:0\"\n{}",
        head("far", "near", &keys[0])
    );
    fs::write(file("far.toml"), text).unwrap();
    let _far = gateway(&file("far.toml"), &far);
    assert_eq!(check(&far).0, Some(1), "nobody has opened a session");

    let mut status = Command::new(STARHAUL);
    let status = status.args(["status", "--json", "--socket"]).arg(&far);
    let status: serde_json::Value =
        serde_json::from_slice(&status.output().unwrap().stdout).unwrap();
    let address = status["listen"][0].as_str().unwrap();
    let path = |name: &str, more: &str| {
        format!("[[session.path]]\nname = \"{name}\"\nremote = \"{address}\"\n{more}\n")
    };
    let session = format!(
        "{}[[session]]\n{}",
        head("near", "far", &keys[1]),
        path("a", "")
    );
    let both = format!("{session}{}", path("b", "interface = \"nosuch0\""));
    fs::write(file("near.toml"), both).unwrap();
    let running = gateway(&file("near.toml"), &near);
    wait_for_check(&near, 1, "path b to far is down");
    wait_for_check(&far, 0, "ok: 1 session(s) over 1 path(s)");
    fs::write(file("near.toml"), session).unwrap();
    let process = running.0.id().to_string();
    let told = Command::new("kill").args(["-s", "HUP", &process]).status();
    assert!(told.unwrap().success());
    wait_for_check(&near, 0, "ok: 1 session(s) over 1 path(s)");
    drop(running);
    assert_eq!(check(&near).0, Some(1), "nobody answers");
}
