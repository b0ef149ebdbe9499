//! What a gateway leaves for programs to read: rows of its paths, and a log in JSON.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::program::{Running, free, path, run, starhaul, text, wait_for};

fn keygen(file: &Path) -> String {
    let made = run(&["keygen", "--out", path(file)]);
    text(&made.stdout).trim().to_owned()
}

/// Heading and rows, as columns by name.
fn rows(file: &Path) -> Option<Vec<std::collections::BTreeMap<String, String>>> {
    let table = fs::read_to_string(file).ok()?;
    let mut lines = table.lines();
    let heading: Vec<_> = lines.next()?.split(',').map(str::to_owned).collect();
    assert_eq!(
        heading[..5],
        ["time_s", "peer", "path", "opened_by", "state"]
    );
    let rows = lines.map(|line| {
        let cells: Vec<_> = line.split(',').map(str::to_owned).collect();
        assert_eq!(cells.len(), heading.len(), "{line}");
        heading.iter().cloned().zip(cells).collect()
    });
    Some(rows.collect())
}

#[test]
fn rows_and_lines_are_for_programs_and_outlive_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let keys = ["near", "far"].map(|name| keygen(&file(name)));
    let address = free();
    let head = |name: &str, peer: &str, key: &str| {
        format!(
            "control = \"{name}.sock\"\nidentity.file = \"{name}\"\n[[peer]]\nname = \"{peer}\"\npublic_key = \"{key}\"\n"
        )
    };
    let far = format!("listen = \"{address}\"\n{}", head("far", "near", &keys[0]));
    fs::write(file("far.toml"), far).unwrap();
    let near = format!(
        "{}[[session]]\n[[session.path]]\nname = \"leo\"\nremote = \"{address}\"\n",
        head("near", "far", &keys[1])
    );
    fs::write(file("near.toml"), near).unwrap();
    let (table, log) = (file("paths.csv"), file("near.log"));
    let mut command = starhaul(&["gateway", path(&file("near.toml")), "--log-format", "json"]);
    command.args(["--stats", path(&table), "--stats-interval", "1s"]);
    command
        .stderr(File::create(&log).unwrap())
        .stdout(Stdio::null());
    let _near = Running(command.spawn().unwrap());

    let first = wait_for("a row", || rows(&table)?.into_iter().next());
    assert_eq!((&*first["peer"], &*first["path"]), ("far", "leo"));
    assert_eq!((&*first["opened_by"], &*first["state"]), ("us", "down"));
    // Before there is a peer: the path cannot be up in the former file.
    fs::rename(&table, file("old.csv")).unwrap();
    let mut command = starhaul(&["gateway", path(&file("far.toml"))]);
    let _far = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let up = wait_for("a row of the path in service", || {
        let mut rows = rows(&table)?.into_iter();
        // What was sent counts once a datagram of the session has left.
        rows.find(|row| {
            row["state"] == "up" && !row["rtt_ms"].is_empty() && row["bytes_sent"] != "0"
        })
    });
    assert!(up["bytes_sent"].parse::<u64>().unwrap() > 0, "{up:?}");
    let before = rows(&file("old.csv")).unwrap();
    assert!(
        before.iter().all(|row| row["state"] == "down"),
        "{before:?}"
    );

    let log = wait_for("the session is logged", || {
        let log = fs::read_to_string(&log).unwrap();
        // To the end of a line.
        (log.contains("session open") && log.ends_with('\n')).then_some(log)
    });
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        let has = |key: &str| line[key].is_string();
        assert!(
            ["timestamp", "level", "target", "message"]
                .into_iter()
                .all(has),
            "{line}"
        );
    }
    let open = lines
        .iter()
        .find(|line| line["message"] == "session open")
        .unwrap();
    assert_eq!(open["peer"], "far");
    assert_eq!(open["level"], "INFO");
}

#[test]
fn a_table_that_cannot_be_written_and_a_wrong_interval_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.toml");
    keygen(&directory.path().join("key"));
    let key = keygen(&directory.path().join("other"));
    let config = format!(
        "listen = \"127.0.0.1:0\"\ncontrol = \"off\"\nidentity.file = \"key\"\n[[peer]]\nname = \"p\"\npublic_key = \"{key}\"\n"
    );
    fs::write(&file, config).unwrap();
    let refuse = |arguments: &[&str], why: &str| {
        let mut command: Command = starhaul(&["gateway", path(&file)]);
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{output:?}");
    };
    refuse(
        &["--stats", path(directory.path())],
        "name a file that can be written",
    );
    refuse(
        &["--stats", "x.csv", "--stats-interval", "10ms"],
        "1s to 1h",
    );
    refuse(&["--log-format", "xml"], "json");
}
