//! `--log-format journal`: entries of systemd's journal, by its native protocol.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
};

use starhaul_needs::{Need, skip};

use crate::program::{PATIENCE, path, run, text};

/// Whether this script works in a mount namespace.
fn may_mount(script: &str) -> bool {
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script])
        .output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        skip(Need::Mount, "unshare(1) cannot mount a file system");
    }
    works
}

#[test]
fn entries_have_message_priority_and_the_fields_of_the_message() {
    let folder = tempfile::tempdir().unwrap();
    // Where systemd has its own, in a namespace of the program.
    let journal = UnixDatagram::bind(folder.path().join("socket")).unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let key = folder.path().join("a.key");
    run(&["keygen", "--out", path(&key)]);
    let config = folder.path().join("a.toml");
    let text_of = "listen = [\"127.0.0.1:0\"]\ncontrol = \"off\"\n[identity]\nfile = \"a.key\"\n\
                   [[peer]]\nname = \"b\"\npublic_key = \"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n";
    fs::write(&config, text_of).unwrap();
    // The test's folder may be below /run.
    let script = format!(
        "exec 9<{folder} && mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind /proc/self/fd/9 /run/systemd/journal",
        folder = folder.path().display()
    );
    if !may_mount(&script) {
        return;
    }
    let script = format!("{script} && exec \"$@\"");
    let mut gateway = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", &script])
        .args(["sh", env!("CARGO_BIN_EXE_starhaul")])
        .args(["gateway", "--log-format", "journal", path(&config)])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut buffer = vec![0; 65_536];
    let entry = loop {
        let length = journal.recv(&mut buffer).unwrap();
        let entry = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if entry.contains("peers are accepted") {
            break entry;
        }
    };
    gateway.kill().unwrap();
    let ended = gateway.wait_with_output().unwrap();
    assert_eq!(text(&ended.stderr), "", "it goes to the journal alone");
    for field in [
        "PRIORITY",
        "MESSAGE",
        "TARGET",
        "SYSLOG_IDENTIFIER",
        "STARHAUL_ADDRESS",
    ] {
        let is_there = entry.lines().any(|line| line.starts_with(field));
        assert!(is_there, "no {field}: {entry:?}");
    }
}

#[test]
fn without_a_journal_the_program_says_so() {
    if std::path::Path::new("/run/systemd/journal/socket").exists() {
        // Entries of a test have no place in the journal of a host.
        return;
    }
    let output = run(&["--log-format", "journal", "gateway", "sample"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("systemd's journal does not take entries"),
        "{said}"
    );
}
