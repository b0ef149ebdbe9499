//! `starhaul demo`: what it leaves on the disk, and what it must not touch.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use starhaul_needs::{Need, skip};

use crate::program::{Running, path, run, starhaul, text, wait_for};

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_report_stays_as_it_is_until_there_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (
        folder.path().join("old.html"),
        folder.path().join("new.html"),
    );
    fs::write(&old, "the last report").unwrap();
    for report in [&old, &new] {
        let arguments = [
            "demo",
            "--leo-trace",
            "/nonexistent",
            "--report",
            path(report),
        ];
        let output = run(&arguments);
        assert!(!output.status.success(), "{output:?}");
        assert!(text(&output.stderr).contains("/nonexistent"), "{output:?}");
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "the last report");
    assert!(!new.exists(), "a run that failed leaves an empty report");
    let nowhere = folder.path().join("no/such/folder.html");
    let output = run(&["demo", "--report", path(&nowhere)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write"), "{output:?}");
}

/// A full disk shows only when the report is written.
#[test]
fn results_are_printed_although_the_report_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    symlink("/dev/full", &report).unwrap();
    let mut arguments = vec![
        "demo",
        "--seconds",
        "1",
        "--json",
        "--report",
        path(&report),
    ];
    arguments.extend(["--leo-loss", "0", "--geo-loss", "0"]);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write"), "{output:?}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["seconds"], 1);
}

/// As in a container that has a single file of its host.
#[test]
fn a_report_that_is_a_mount_of_its_own_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    fs::write(&report, "the last report").unwrap();
    let with_mount = |program: &[&str]| {
        let script = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script])
            .arg(&report)
            .args(program)
            .output()
    };
    if !with_mount(&["true"]).is_ok_and(|output| output.status.success()) {
        return skip(Need::Mount, "unshare(1) cannot mount a file");
    }
    let demo = [env!("CARGO_BIN_EXE_starhaul"), "demo", "--seconds", "1"];
    let options = ["--report", path(&report)];
    let output = with_mount(&[&demo[..], &options].concat()).unwrap();
    assert!(output.status.success(), "{output:?}");
    let written = fs::read_to_string(&report).unwrap();
    assert!(written.contains("</html>"), "{written}");
    assert_eq!(entries(folder.path()), 1, "a part of a report is left");
}

#[cfg(feature = "dtn")]
#[test]
fn the_demo_in_space_leaves_nothing_behind_when_it_is_told_to_end() {
    for signal in ["INT", "TERM", "HUP"] {
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
