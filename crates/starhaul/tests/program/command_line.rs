//! The program from the user's side: output, exit codes, files, signals.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::program::{Running, path, run, starhaul, text};

#[test]
fn exit_codes_tell_usage_and_configuration_from_failure() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong.toml");
    fs::write(&wrong, "lisen = \"127.0.0.1:0\"\n").unwrap();
    for (arguments, code, said) in [
        (&["--version"][..], 0, ""),
        (&["gateway", "sample"], 0, ""),
        (&["gateway"], 2, "--config"),
        (&["nonsense"], 2, "nonsense"),
        (&["--log", "a=b=c", "gateway", "sample"], 2, "--log"),
        (
            &["gateway", "check", path(&wrong)],
            2,
            "wrong.toml:1: unknown key \"lisen\"; did you mean \"listen\"?",
        ),
        (&["gateway", "--config", path(&wrong)], 2, "wrong.toml:1"),
        (
            &["demo", "--qlog", path(&wrong)],
            2,
            "name a folder that can be written",
        ),
        (
            &["lab", "cut", "--quick", "--qlog", path(&wrong)],
            2,
            "name a folder that can be written",
        ),
        (
            &["gateway", "check", "/nonexistent/x.toml"],
            2,
            "/nonexistent/x.toml",
        ),
        (
            &["detect", "--interval", "20ms"],
            2,
            "as long as three intervals",
        ),
        (
            &["detect", "--by", "udp", "--toward", "2001:db8::1:4700"],
            2,
            "or [2001:db8::1]:4700 if 4700 is the port",
        ),
        (
            &["detect", "--toward", "2001:db8:1:2:3:4:5:6:4700"],
            2,
            "as [ADDRESS]:PORT",
        ),
        (
            &["detect", "--timetable", "onweb"],
            2,
            "starlink, oneweb, or for example",
        ),
        (
            &["status", "--socket", "/nonexistent/x.sock"],
            1,
            "is the gateway running?",
        ),
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {output:?}"
        );
        assert!(
            text(&output.stderr).contains(said),
            "{arguments:?}: {output:?}"
        );
    }
}

#[test]
fn keys_are_made_once_for_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.key");
    let made = run(&["keygen", "--out", path(&file)]);
    assert!(made.status.success());
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let shown = run(&["pubkey", path(&file)]);
    assert_eq!(made.stdout, shown.stdout);
    let secret = fs::read(&file).unwrap();
    assert_eq!(
        run(&["keygen", "--out", path(&file)]).status.code(),
        Some(1)
    );
    assert_eq!(
        fs::read(&file).unwrap(),
        secret,
        "an existing key is not touched"
    );

    let printed = run(&["keygen"]);
    fs::write(&file, &printed.stdout).unwrap();
    assert_eq!(run(&["pubkey", path(&file)]).stdout, printed.stderr);
    fs::write(&file, "no key").unwrap();
    assert_eq!(run(&["pubkey", path(&file)]).status.code(), Some(2));
}

#[test]
fn a_reader_who_leaves_early_is_no_failure() {
    let mut child = starhaul(&["gateway", "sample"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&["completions", shell]);
        let completions = text(&completions.stdout);
        assert!(completions.contains("gateway") && completions.contains("log-format"));
        assert!(!completions.contains("replay-supervisor"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(run(&["manpages", path(directory.path())]).status.success());
    assert!(directory.path().join("starhaul-gateway.1").exists());
}

/// From sample to service: two keys, two files, two processes, `status` in both forms, and an end by signal.
#[test]
fn two_gateways_meet_and_tell_their_status() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let key = |name: &str| {
        let made = run(&["keygen", "--out", path(&file(name))]);
        text(&made.stdout).trim().to_owned()
    };
    let (near_key, far_key) = (key("near.key"), key("far.key"));
    fs::write(
        file("far.toml"),
        format!("listen = \"127.0.0.1:0\"\ncontrol = \"far.sock\"\n[identity]\nfile = \"far.key\"\n[[peer]]\nname = \"near\"\npublic_key = \"{near_key}\"\n"),
    )
    .unwrap();
    let checked = run(&["gateway", "check", path(&file("far.toml"))]);
    assert!(
        text(&checked.stdout).contains(&format!("public key: {far_key}")),
        "{checked:?}"
    );

    let (far, far_log) = start(&file("far.toml"), &["--qlog", path(&file("records"))]);
    let far_socket = file("far.sock");
    let listen = status(&far_socket)["listen"][0]
        .as_str()
        .unwrap()
        .to_owned();
    fs::write(
        file("near.toml"),
        format!("control = \"near.sock\"\n[identity]\nfile = \"near.key\"\n[[peer]]\nname = \"far\"\npublic_key = \"{far_key}\"\n[[session]]\n[[session.path]]\nname = \"leo\"\nremote = \"{listen}\"\n"),
    )
    .unwrap();
    let (near, near_log) = start(&file("near.toml"), &["--qlog", path(&file("records"))]);
    let near_socket = file("near.sock");
    while status(&near_socket)["sessions"]
        .as_array()
        .unwrap()
        .is_empty()
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(
        status(&near_socket)["sessions"][0]["paths"][0]["name"],
        "leo"
    );
    let table = run(&["status", "--socket", path(&near_socket)]);
    let table = text(&table.stdout);
    assert!(
        table.contains("session with far") && table.contains("leo"),
        "{table}"
    );

    // The logs are held until here: a gateway that cannot write them is not tested.
    for (mut running, _log, socket) in [(near, near_log, &near_socket), (far, far_log, &far_socket)]
    {
        let pid = running.0.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(running.0.wait().unwrap().code(), Some(0));
        assert!(!socket.exists(), "the control socket is cleaned up");
    }
    // Both ends left a record of the session and of its path.
    let records = fs::read_dir(file("records")).unwrap().map(Result::unwrap);
    let records: Vec<_> = records.map(|entry| entry.path()).collect();
    assert_eq!(records.len(), 4, "{records:?}");
    for record in records {
        let text = fs::read_to_string(&record).unwrap();
        let events = text.split('\u{1e}').skip(1);
        let events = events.map(|event| serde_json::from_str::<serde_json::Value>(event).unwrap());
        assert!(events.count() > 1, "{}: {text}", record.display());
        let mode = fs::metadata(&record).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", record.display());
    }
}

#[test]
fn a_hangup_reads_the_configuration_again_and_never_kills() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    run(&["keygen", "--out", path(&file("a.key"))]);
    let key = run(&["keygen", "--out", path(&file("b.key"))]);
    let text = format!(
        "listen = \"127.0.0.1:0\"\ncontrol = \"a.sock\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{}\"\n",
        text(&key.stdout).trim()
    );
    fs::write(file("a.toml"), &text).unwrap();
    let (mut running, mut log) = start(&file("a.toml"), &[]);
    let pid = running.0.id().to_string();
    let mut hang_up = |expected: &str| {
        let sent = Command::new("kill").args(["-HUP", &pid]).status().unwrap();
        assert!(sent.success());
        wait_for(&mut log, expected);
    };
    fs::write(file("a.toml"), format!("lisen = 1\n{text}")).unwrap();
    hang_up("did you mean \"listen\"?");
    let rule = "[[tcp]]\nname = \"web\"\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:9\"\n";
    fs::write(file("a.toml"), format!("{text}{rule}")).unwrap();
    hang_up("configuration read again");
    assert_eq!(status(&file("a.sock"))["ingress"][0]["rule"], "web");
    assert!(running.0.try_wait().unwrap().is_none(), "it runs on");
}

#[test]
fn a_reload_that_renames_a_path_tells_of_what_its_month_has_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    run(&["keygen", "--out", path(&file("a.key"))]);
    let key = run(&["keygen", "--out", path(&file("b.key"))]);
    let config = |name: &str| {
        let text = format!(
            "state = \"state\"\ncontrol = \"a.sock\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{}\"\n\
             [[session]]\n[[session.path]]\nname = \"{name}\"\nremote = \"127.0.0.1:9\"\nmonthly = \"50GB\"\n",
            text(&key.stdout).trim()
        );
        fs::write(file("a.toml"), text).unwrap();
    };
    config("lte");
    let (running, mut log) = start(&file("a.toml"), &[]);
    let socket = file("a.sock");
    let set = ["path", "set", "lte", "used=12GB", "--socket", path(&socket)];
    assert!(run(&set).status.success());
    config("mobile");
    let pid = running.0.id().to_string();
    let sent = Command::new("kill").args(["-HUP", &pid]).status().unwrap();
    assert!(sent.success());
    let mut said = String::new();
    while !said.contains("configuration read again") {
        assert_ne!(log.read_line(&mut said).unwrap(), 0, "the gateway ended");
    }
    // Attempts to open the session count, too.
    assert!(
        said.contains("`starhaul path set NAME used=12000"),
        "{said}"
    );
}

/// A start may wait for a disk, or for the resolver.
#[test]
fn a_hangup_during_the_start_is_heard_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    run(&["keygen", "--out", path(&file("real.key"))]);
    let key = run(&["keygen", "--out", path(&file("b.key"))]);
    let text = format!(
        "listen = \"127.0.0.1:0\"\ncontrol = \"off\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{}\"\n",
        text(&key.stdout).trim()
    );
    fs::write(file("a.toml"), text).unwrap();
    let made = Command::new("mkfifo").arg(file("a.key")).status().unwrap();
    assert!(made.success());
    let mut child = starhaul(&["gateway", "--config", path(&file("a.toml"))])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let running = Running(child);
    // Returns when the gateway waits for its key.
    let mut pipe = fs::File::options().write(true).open(file("a.key")).unwrap();
    let pid = running.0.id().to_string();
    let sent = Command::new("kill").args(["-HUP", &pid]).status().unwrap();
    assert!(sent.success());
    let key = fs::read(file("real.key")).unwrap();
    fs::rename(file("real.key"), file("a.key")).unwrap();
    // The pipe breaks if the signal ended the process.
    pipe.write_all(&key).unwrap();
    drop(pipe);
    wait_for(&mut log, "gateway runs");
    wait_for(&mut log, "configuration read again");
}

/// As a service it is started again; without its end it would look alive.
#[test]
fn a_gateway_that_cannot_receive_any_more_ends_with_an_error() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    for name in ["a.key", "chain.key", "hop.key"] {
        run(&["keygen", "--out", path(&file(name))]);
    }
    let key = run(&["keygen", "--out", path(&file("b.key"))]);
    let key = text(&key.stdout).trim();
    let address = crate::program::free();
    let identity = "control = \"off\"\n[identity]\nfile = \"a.key\"\n";
    for text in [
        format!(
            "listen = \"{address}\"\n{identity}[[peer]]\nname = \"b\"\npublic_key = \"{key}\"\n"
        ),
        format!(
            "{identity}[leotp]\nlisten = \"{address}\"\nsecret = \"chain.key\"\n[[leotp.neighbour]]\nname = \"b\"\nkey = \"hop.key\"\n"
        ),
    ] {
        fs::write(file("a.toml"), text).unwrap();
        let (mut running, _log) = start(&file("a.toml"), &[]);
        // The system refuses to wait for more descriptors than may be open.
        let none = Rlimit {
            current: Some(1),
            maximum: Some(1),
        };
        prlimit(Some(Pid::from_child(&running.0)), Resource::Nofile, none).unwrap();
        // What comes ends the wait that began before.
        let knock = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let status = crate::program::wait_for("the gateway ends", || {
            let _ = knock.send_to(b"?", address);
            running.0.try_wait().unwrap()
        });
        assert_eq!(status.code(), Some(1));
    }
}

#[test]
fn an_error_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    run(&["keygen", "--out", path(&file("a.key"))]);
    let key = run(&["keygen", "--out", path(&file("b.key"))]);
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = format!(
        "listen = \"{address}\"\ncontrol = \"off\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{}\"\n",
        self::text(&key.stdout).trim()
    );
    fs::write(file("a.toml"), text).unwrap();
    let output = run(&["gateway", "--config", path(&file("a.toml"))]);
    let said = self::text(&output.stderr);
    assert_eq!(said.matches("in use").count(), 1, "{said}");
    assert!(said.contains(&address), "{said}");
}

/// Starts a gateway and waits until it reports that it runs.
fn start(config: &Path, more: &[&str]) -> (Running, BufReader<std::process::ChildStderr>) {
    let mut child = starhaul(&["gateway", "--config", path(config)])
        .args(more)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let running = Running(child);
    wait_for(&mut log, "gateway runs");
    (running, log)
}

fn wait_for(log: &mut BufReader<std::process::ChildStderr>, words: &str) {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the gateway ended");
    }
}

fn status(socket: &Path) -> serde_json::Value {
    let output = run(&["status", "--json", "--socket", path(socket)]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn lab_says_what_to_type_in_place_of_what_cannot_run() {
    let help = run(&["lab", "leocc", "--help"]);
    let help = text(&help.stdout).replace('\n', " ");
    for ablation in ["detector", "kalman", "band", "adaptation"] {
        let name = format!("leocc-no-{ablation}");
        assert!(help.contains(&name), "{name} is missing: {help}");
    }
    for (systems, only, said) in [
        ("kernel-cubic", "scatter", "add --real"),
        ("lecoc2", "scatter", "Did you mean leocc2?"),
        ("cubic", "ablation", "add leocc"),
    ] {
        let asked = ["--quick", "--systems", systems, "--only", only];
        let output = starhaul(&["lab", "leocc"]).args(asked).output().unwrap();
        assert!(!output.status.success(), "{systems}");
        let error = text(&output.stderr);
        assert!(error.contains(said), "{systems}: {error}");
    }
}

#[test]
fn what_lab_found_is_printed_though_it_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, out) = (
        directory.path().join("traces"),
        directory.path().join("out"),
    );
    fs::create_dir(&traces).unwrap();
    fs::write(traces.join("even.txt"), "5\n10\n15\n20\n2000\n").unwrap();
    let lab = |out: &Path| {
        let traces = [
            "--systems",
            "newreno",
            "--only",
            "scatter",
            "--traces",
            path(&traces),
        ];
        let rest = ["--json", "--out", path(out)];
        let mut lab = starhaul(&["lab", "leocc"]);
        lab.args(traces).args(rest).output().unwrap()
    };
    // A folder in place of a file is detected only when the results are written.
    fs::create_dir_all(out.join("results.json")).unwrap();
    let late = lab(&out);
    assert!(!late.status.success());
    let results: serde_json::Value = serde_json::from_slice(&late.stdout).unwrap();
    assert!(results["rows"][0]["metrics"].is_object(), "{results}");
    assert!(text(&late.stderr).contains("cannot keep the results"));
    // A file in place of the folder is detected before the run.
    let early = lab(&traces.join("even.txt"));
    assert!(!early.status.success() && early.stdout.is_empty());
    let said = text(&early.stderr);
    assert!(
        said.contains("--out") && !said.contains("virtual time"),
        "{said}"
    );
}

#[test]
fn lab_lists_its_experiments_and_runs_one_over_a_folder_of_traces() {
    let output = run(&["lab", "list"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    assert!(
        list.contains("LeoCC fig. 3") && list.contains("leocc --only fairness"),
        "{list}"
    );

    let directory = tempfile::tempdir().unwrap();
    let (traces, out) = (
        directory.path().join("traces"),
        directory.path().join("out"),
    );
    fs::create_dir(&traces).unwrap();
    fs::write(traces.join("even.txt"), "5\n10\n15\n20\n2000\n").unwrap();
    let lab = [
        "lab",
        "leocc",
        "--quick",
        "--seed",
        "9",
        "--traces",
        path(&traces),
    ];
    let output = starhaul(&lab)
        .args([
            "--systems",
            "newreno,bbr",
            "--loss",
            "0,1%",
            "--queue",
            "20",
            "--json",
        ])
        .args(["--only", "scatter", "--out", path(&out)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (results["experiment"].as_str(), results["seed"].as_u64()),
        (Some("leocc"), Some(9))
    );
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[3]["system"], "bbr");
    assert_eq!(rows[3]["params"]["loss"], 0.01);
    assert_eq!(rows[3]["params"]["queue"], 20);
    assert!(rows[3]["metrics"]["queue_delay_p95_ms"].is_number());
    let written = fs::read_to_string(out.join("results.json")).unwrap();
    assert_eq!(
        written,
        text(&output.stdout),
        "--json prints what the folder holds"
    );
    assert!(out.join("report.html").is_file() && out.join("results.csv").is_file());

    for (option, value) in [
        ("--systems", "tahoe"),
        ("--loss", "200%"),
        ("--queue", "much"),
        ("--only", "all"),
    ] {
        let output = starhaul(&lab).args([option, value]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option} {value}");
        let said = text(&output.stderr);
        assert!(said.contains(value), "{said}");
    }
}
