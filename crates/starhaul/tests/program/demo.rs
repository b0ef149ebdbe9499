//! `starhaul demo`: what it leaves on the disk, and what it must not touch.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::program::{Running, run, starhaul, text, wait_for};

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[cfg(feature = "dtn")]
#[test]
fn the_demo_in_space_leaves_nothing_behind_when_it_is_told_to_end() {
    for signal in ["INT", "TERM"] {
        let place = tempfile::tempdir().unwrap();
        let mut demo = starhaul(&["demo", "--space", "--json"]);
        demo.env("TMPDIR", place.path());
        demo.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut demo = Running(demo.spawn().unwrap());
        // The first picture is taken when all nodes are up.
        wait_for("a picture", || {
            let mut folders = fs::read_dir(place.path()).unwrap();
            let taken = folders.next()?.ok()?.path().join("taken");
            (taken.exists() && entries(&taken) > 0).then_some(())
        });
        assert_eq!(entries(place.path()), 1);
        let pid = demo.0.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        assert_eq!(demo.0.wait().unwrap().code(), Some(1), "{signal}");
        assert_eq!(entries(place.path()), 0, "a folder remains after {signal}");
    }
    let output = run(&["demo", "--space", "--qlog", "records"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_run_lasts_an_hour_at_most() {
    let output = run(&["demo", "--seconds", "3601"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("3600"), "{output:?}");
}
