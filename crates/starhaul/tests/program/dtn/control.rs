//! What lies where a node's control socket is to be.

use std::{
    fs,
    os::unix::{
        fs::symlink,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use super::{Process, configure, said, starhaul, wait_for_socket};
use crate::program::{PATIENCE, free};

/// The end of a command that should end by itself.
fn end_of(command: &mut Command) -> Output {
    let mut child: Child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// The place may be mistyped; what lies there is not the node's to remove.
#[test]
fn what_is_no_socket_of_a_dead_node_is_left_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("precious.txt"), "precious").unwrap();
    symlink(at("precious.txt"), at("link")).unwrap();
    symlink(at("nowhere"), at("broken")).unwrap();
    configure(folder.path(), 1, free(), 2, free());
    let config = at("node.toml");
    let text = fs::read_to_string(&config).unwrap();
    for place in ["precious.txt", "link", "broken"] {
        fs::write(&config, text.replace("control.sock", place)).unwrap();
        for words in [&["dtn", "check"][..], &["dtn", "node", "--config"]] {
            let output = end_of(starhaul().args(words).arg(&config));
            let told = said(&output);
            assert_eq!(output.status.code(), Some(2), "{place}: {told}");
            assert!(told.contains("no socket is there"), "{place}: {told}");
            assert!(!told.contains("is the node running"), "{told}");
        }
        assert!(fs::symlink_metadata(at(place)).is_ok(), "{place} is gone");
    }
    assert_eq!(fs::read_to_string(at("precious.txt")).unwrap(), "precious");
}

/// Another default place must not hide what is wrong with the first.
#[test]
fn a_default_place_that_is_taken_is_told() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), 1, free(), 2, free());
    let config = folder.path().join("node.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("control = \"control.sock\"\n", "")).unwrap();
    let place = folder.path().join("starhaul/dtn.sock");
    fs::create_dir(folder.path().join("starhaul")).unwrap();
    fs::write(&place, "precious").unwrap();
    let mut command = starhaul();
    command
        .args(["dtn", "node", "--config"])
        .arg(&config)
        .env("XDG_RUNTIME_DIR", folder.path());
    let output = end_of(&mut command);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("starhaul/dtn.sock") && told.contains("no socket is there"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(&place).unwrap(), "precious");
}

/// Closes the listener and leaves its file. A process that another test starts at this moment holds the
/// listener too, until it runs its own program.
fn leave_behind(listener: UnixListener, place: &Path) {
    drop(listener);
    let begun = Instant::now();
    while UnixStream::connect(place).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "who listens?");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_node_replaces_the_socket_of_a_dead_one_and_removes_only_its_own() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), 1, free(), 2, free());
    let place = folder.path().join("control.sock");
    leave_behind(UnixListener::bind(&place).unwrap(), &place);
    let mut node = Process::start(folder.path());
    wait_for_socket(&node);
    // A second node is told, and the first one keeps its socket.
    let other = tempfile::tempdir().unwrap();
    configure(other.path(), 3, free(), 2, free());
    let config = other.path().join("node.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("control.sock", place.to_str().unwrap());
    fs::write(&config, text).unwrap();
    let second = end_of(starhaul().args(["dtn", "node", "--config"]).arg(&config));
    assert!(said(&second).contains("listens there"), "{second:?}");
    wait_for_socket(&node);
    // What another program put there since the start is not the node's.
    fs::remove_file(&place).unwrap();
    let other = UnixListener::bind(&place).unwrap();
    node.terminate();
    assert!(place.exists(), "the other's socket is gone");
    leave_behind(other, &place);
    // Its own goes with it.
    node.start_again();
    wait_for_socket(&node);
    node.terminate();
    assert!(!place.exists());
}
