//! Exit codes, and files that are left as they were.

use std::{fs, path::Path, process::Stdio};

use crate::{
    operator::{OTHER_KEY, Site, gateway, status_when, wants},
    program::{Running, path, run, starhaul, text, wait_for},
};

#[test]
fn the_doctor_and_path_list_look_at_the_gateway_that_is_meant() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    let doctor = |config: &Path| {
        let output = run(&["doctor", "--json", "--config", path(config)]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let of_gateway = findings
            .into_iter()
            .filter(|finding| finding["subject"] == "gateway");
        of_gateway.collect::<Vec<_>>()
    };
    // Without a socket nothing is wrong with it.
    let found = doctor(&config);
    assert!(found.len() == 1 && found[0]["level"] == "note", "{found:?}");
    let text = fs::read_to_string(&config).unwrap();
    let config = site.write("a.toml", &text.replace("\"off\"", "\"a.sock\""));
    let _gateway = gateway(&config, &site.file("log"));
    let socket = site.file("a.sock");
    status_when(&socket, |_| true);
    let found = doctor(&config);
    assert!(
        found.iter().all(|finding| finding["level"] != "problem"),
        "{found:?}"
    );
    let list = ["path", "list", "--socket", path(&socket), "--peer"];
    wants(&[&list[..], &["b"]].concat(), 0, &[]);
    wants(
        &[&list[..], &["bb"]].concat(),
        2,
        &["no such peer", "did you mean \"b\"?"],
    );
    // Nothing is ordered of a peer that is not there.
    let down = ["path", "down", "x", "--socket", path(&socket), "--peer"];
    let mistyped = [&down[..], &["bb"]].concat();
    wants(&mistyped, 2, &["no such peer"]);
}

#[test]
fn an_outcome_is_told_whoever_reads_the_output() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    let unread = |arguments: &[&str]| {
        let mut command = starhaul(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        child.wait().unwrap().code()
    };
    let doctor = [
        "doctor",
        "--json",
        "--config",
        path(&config),
        "--socket",
        "/nowhere/s",
    ];
    assert_eq!(unread(&doctor), Some(1));
    assert_eq!(unread(&["gateway", "sample"]), Some(0));
}

/// Standard error with a reader that is gone.
fn unheard() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

#[test]
fn an_outcome_does_not_depend_on_who_reads_errors() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    let out = site.file("bw.txt");
    let set = ["path", "set", "a", "cost=x", "--socket", "/nowhere/s"];
    // What is left out of the trace is said.
    let link = "rate=10mbit,outage=2s..3s,jitter=5ms";
    let convert = ["trace", "convert", link, "--out", path(&out)];
    let cases = [(&set[..], 2), (&convert, 0), (&["keygen"], 0)];
    for (arguments, code) in cases {
        let mut command = starhaul(arguments);
        let ended = command.stdout(Stdio::null()).stderr(unheard()).status();
        assert_eq!(ended.unwrap().code(), Some(code), "{arguments:?}");
    }
    // A log whose reader is gone ends no gateway.
    let text = fs::read_to_string(&config).unwrap();
    let config = site.write("a.toml", &text.replace("\"off\"", "\"a.sock\""));
    let mut command = starhaul(&["gateway", "--log", "debug", "--config", path(&config)]);
    let mut gateway = Running(command.stderr(unheard()).spawn().unwrap());
    let socket = site.file("a.sock");
    wait_for("an answer of the gateway", || {
        assert_eq!(gateway.0.try_wait().unwrap(), None, "it has ended");
        let status = run(&["status", "--json", "--socket", path(&socket)]);
        status.status.success().then_some(())
    });
}

#[test]
fn what_is_not_replaced_stays_as_it_was() {
    let site = Site::new();
    let kept = site.write("kept.csv", "what was there\n");
    let delay = site.write("delay.txt", "5\n6\n");
    let same = site.file("same.txt");
    let convert = |trace: &str, more: &[&str], code, said| {
        let arguments = [&["trace", "convert", trace][..], more].concat();
        wants(&arguments, code, &[said]);
    };
    let format = ["--out", path(&kept), "--out-format", "csv"];
    convert(path(&delay), &format, 2, "no capacity");
    let twice = ["--out", path(&same), "--out-delay", path(&same)];
    convert("rate=10mbit,delay=5ms", &twice, 2, "--out-delay");
    assert!(!same.exists());
    fs::create_dir(site.file("x")).unwrap();
    let also_same = site.file("x/../same.txt");
    let twice = ["--out", path(&same), "--out-delay", path(&also_same)];
    convert("rate=10mbit,delay=5ms", &twice, 2, "--out-delay");
    assert!(!same.exists());
    assert_eq!(fs::read_to_string(&kept).unwrap(), "what was there\n");
    // What the trace of a link leaves out is said.
    let out = site.file("bw.txt");
    let link = "rate=10mbit,outage=2s..3s,jitter=5ms";
    convert(link, &["--out", path(&out)], 0, "no outage and no jitter");
}

#[test]
fn an_empty_variable_is_none() {
    let mut command = starhaul(&["gateway", "sample"]);
    let output = command.env("STARHAUL_LOG_FORMAT", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut command = starhaul(&["gateway", "sample"]);
    let output = command.env("STARHAUL_LOG_FORMAT", "jso").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A mistyped peer has no problem to be found, which would read as health.
#[test]
fn the_doctor_knows_no_peer_that_is_mistyped() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    let mut doctor = vec!["doctor", "--config", path(&config)];
    doctor.extend(["--socket", "/nowhere/s", "--peer"]);
    let asked = |peer| [&doctor[..], &[peer]].concat();
    let said = ["no such peer", "did you mean \"b\"?"];
    wants(&asked("bb"), 2, &said);
    // A right one is looked at: no gateway answers at that socket.
    wants(&asked("b"), 1, &["problem(s) found"]);
}

#[test]
fn a_wrong_argument_is_told_from_what_failed() {
    let site = Site::new();
    let (key, out, file) = (site.file("a.key"), site.file("out"), site.write("f", "x"));
    let unknown = format!("{}:1", "x".repeat(64));
    let client = ["record", "client", "--out", path(&out), "--key", path(&key)];
    let client = |more: &[&'static str]| [&client[..], more].concat();
    wants(&client(&["--server", "host"]), 2, &["--server host: "]);
    // A name that is not found may be another time; no server is asked for this one, whose label is too long.
    let to_unknown = [&client(&["--server"])[..], &[unknown.as_str()]].concat();
    wants(&to_unknown, 1, &[&format!("--server {unknown}: ")]);
    let nothing = client(&["--server", "127.0.0.1:9", "--max-rate", "0bit"]);
    wants(&nothing, 2, &["--max-rate of 0"]);
    let send = ["send", path(&file), "--to"];
    let ltp = ["127.0.0.1", "--key", "nokey"];
    let ltp = [&["ltp"][..], &send, &ltp].concat();
    wants(&ltp, 2, &["--key nokey: "]);
    let said = ["error: \"foo:bar\" is no endpoint"];
    let dtn = [&["dtn"][..], &send, &["foo:bar"]].concat();
    wants(&dtn, 2, &said);
    let set = ["path", "set", "a", "cost=x", "--socket", "/nowhere/s"];
    wants(&set, 2, &["cost: \"x\" is no price"]);
}

/// As a service it would be started again for ever.
#[test]
fn a_gateway_without_the_keys_of_its_chain_is_refused_by_start_and_check() {
    let site = Site::new();
    let chain = "[leotp]\nlisten = \"127.0.0.1:0\"\nsecret = \"s\"\n[[leotp.neighbour]]\nname = \"n\"\nkey = \"k\"\n";
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, chain);
    site.write("s", "sixteen bytes or more");
    let doctor = ["doctor", "--socket", "/nowhere/s", "--config"];
    let look = || {
        let looked = run(&[&doctor[..], &[path(&config)]].concat());
        text(&looked.stdout).to_owned()
    };
    let refused = |why: &str| {
        let said = ["[leotp]: key of neighbour \"n\": ", why];
        wants(&["gateway", "check", path(&config)], 2, &said);
        wants(&["gateway", "--config", path(&config)], 2, &said);
        let found = look();
        assert!(found.contains(said[0]), "{found}");
    };
    refused("No such file or directory");
    site.write("k", "short");
    refused("a key has 16 bytes at least");
    site.write("k", "another sixteen bytes");
    wants(&["gateway", "check", path(&config)], 0, &[]);
    let found = look();
    assert!(!found.contains("[leotp] keys"), "{found}");
}

/// What a newcomer types first leads on, command by command.
#[test]
fn check_of_the_sample_says_how_its_keys_are_made() {
    let site = Site::new();
    let sample = run(&["gateway", "sample"]).stdout;
    let config = site.write("gateway.toml", text(&sample));
    let made = |config: &Path| {
        let looked = run(&["gateway", "check", path(config)]);
        let said = text(&looked.stderr).to_owned();
        assert_eq!(looked.status.code(), Some(2), "{said}");
        let commands = said.lines().filter(|line| line.contains("starhaul keygen"));
        commands
            .map(|line| line.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let commands = made(&config);
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in &commands {
        wants(&["gateway", path(&config)], 2, &[command]);
        let words = command.split('#').next().unwrap_or_default();
        let words: Vec<_> = words.split_whitespace().skip(1).collect();
        assert!(run(&words).status.success(), "{command}");
    }
    wants(&["gateway", "check", path(&config)], 0, &[]);
    // As the package lays them out, where the folder is missing too.
    let peer = format!("[[peer]]\nname = \"b\"\npublic_key = \"{OTHER_KEY}\"\n");
    let text =
        format!("listen = \"127.0.0.1:0\"\n[identity]\nfile = \"my keys/gateway.key\"\n{peer}");
    let config = site.write("b.toml", &text);
    let commands = made(&config);
    let [command] = &commands[..] else {
        panic!("one key is missing: {commands:?}");
    };
    let program = Path::new(env!("CARGO_BIN_EXE_starhaul")).parent().unwrap();
    let paths = std::env::var("PATH").unwrap_or_default();
    let shell = std::process::Command::new("sh")
        .args(["-c", command])
        .env("PATH", format!("{}:{paths}", program.display()))
        .output();
    let shell = shell.unwrap();
    assert!(shell.status.success(), "{command}: {shell:?}");
    wants(&["gateway", "check", path(&config)], 0, &[]);
}
