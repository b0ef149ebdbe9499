//! A bundle node that may open no more files.

use std::{fs, io::Read as _, net::TcpStream, process::Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{Process, starhaul, wait_for_socket};
use crate::program::{PATIENCE, free, wait_for};

/// What connects meanwhile waits, and is served when files can be opened again.
#[test]
fn a_node_accepts_again_after_it_has_run_out_of_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let (address, log) = (free(), folder.path().join("log"));
    let text = format!(
        "node = \"ipn:2.0\"\ncontrol = \"control.sock\"\n[storage]\nkind = \"memory\"\n[tcp]\nlisten = \"{address}\"\n"
    );
    fs::write(folder.path().join("node.toml"), text).unwrap();
    let mut command = starhaul();
    command
        .args(["dtn", "node", "--config"])
        .arg(folder.path().join("node.toml"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let node = Process {
        folder: folder.path().to_owned(),
        child: command.spawn().unwrap(),
    };
    wait_for_socket(&node);
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit {
        // The standard streams alone.
        current: Some(3),
        maximum: before.maximum,
    };
    let id = Pid::from_child(&node.child);
    prlimit(Some(id), Resource::Nofile, none).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, b"dtn!\x04\x00").unwrap();
    let is_told = |said: &str| said.contains("no connection can be accepted");
    wait_for("the log tells it", || {
        fs::read_to_string(&log).ok().filter(|said| is_told(said))
    });
    prlimit(Some(id), Resource::Nofile, before).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"dtn!\x04\x00");
}
