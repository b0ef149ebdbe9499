//! Wrong input of users and the program's answers: options, names of files, keys, configurations.

use std::{
    fs,
    io::Read as _,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::program::{Running, path, run, starhaul, text};

/// A folder with a key, `a.key`, and a configuration of it.
pub(crate) struct Site {
    directory: tempfile::TempDir,
    own_key: String,
}

/// A key that belongs to no gateway of the tests.
pub(crate) const OTHER_KEY: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = run(&["keygen", "--out", path(&directory.path().join("a.key"))]);
        let own_key = text(&made.stdout).trim().to_owned();
        Self { directory, own_key }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// A configuration with one peer; `rest` is appended.
    pub(crate) fn config(&self, top: &str, peer_key: &str, rest: &str) -> PathBuf {
        let text = format!(
            "{top}\ncontrol = \"off\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{peer_key}\"\n{rest}"
        );
        self.write("a.toml", &text)
    }
}

/// Runs the program and expects this exit code, and all of these texts on standard error.
pub(crate) fn wants(arguments: &[&str], code: i32, said: &[&str]) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    for said in said {
        assert!(
            error.contains(said),
            "{arguments:?} does not say {said:?}: {error}"
        );
    }
}

#[test]
fn a_level_that_is_none_is_an_error_and_not_silence() {
    for (level, said) in [
        ("warning", "did you mean warn?"),
        ("wran", "did you mean warn?"),
        ("verbose", "error, warn, info, debug, trace"),
        ("info,starhaul_gateway=debgu", "did you mean debug?"),
        (
            "info,starhaul_gatway=debug",
            "did you mean starhaul_gateway?",
        ),
        ("starhaul-gateway=debug", "did you mean starhaul_gateway?"),
        ("", "error, warn, info, debug, trace"),
    ] {
        for arguments in [
            ["--log", level, "gateway", "sample"],
            ["gateway", "sample", "--log", level],
        ] {
            wants(&arguments, 2, &["--log", said]);
        }
        let output = starhaul(&["gateway", "sample"])
            .env("STARHAUL_LOG", level)
            .output()
            .unwrap();
        // An empty variable counts as unset.
        let expected = if level.is_empty() { 0 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{level}: {output:?}");
    }
    for level in [
        "warn",
        "WARN",
        "off",
        "info,starhaul_gateway=debug",
        "starhaul_quic::node=trace,noq_proto=off",
        "starhaul_session",
    ] {
        wants(&["--log", level, "gateway", "sample"], 0, &[]);
    }
}

/// Runs a gateway in a terminal of `script` (util-linux) until it logs; returns the log.
fn logged_on_a_terminal(site: &Site, variables: &[(&str, &str)]) -> Option<String> {
    let busy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // The address is in use, so the gateway ends after a warning about its key file.
    let listen = format!("listen = \"{}\"", busy.local_addr().unwrap());
    let config = site.config(&listen, OTHER_KEY, "");
    fs::set_permissions(site.file("a.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let command = format!(
        "{} gateway --config {}",
        env!("CARGO_BIN_EXE_starhaul"),
        config.display()
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    script.env_remove("STARHAUL_LOG").env_remove("NO_COLOR");
    script.env("TERM", "xterm").envs(variables.iter().copied());
    let output = script.stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn logs_are_coloured_on_a_terminal_that_wants_it_and_nowhere_else() {
    let site = Site::new();
    let Some(plain) = logged_on_a_terminal(&site, &[]) else {
        return starhaul_needs::skip(starhaul_needs::Need::Script, "it is not there");
    };
    assert!(plain.contains("\x1b["), "{plain:?}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let said = logged_on_a_terminal(&site, &[variable]).unwrap();
        assert!(said.contains("WARN"), "{variable:?}: {said:?}");
        assert!(!said.contains('\x1b'), "{variable:?}: {said:?}");
    }
    // no-color.org: an empty variable has no effect.
    let said = logged_on_a_terminal(&site, &[("NO_COLOR", "")]).unwrap();
    assert!(said.contains("\x1b["), "{said:?}");
}

#[test]
fn a_picture_in_a_format_that_is_not_written_is_refused_before_any_work() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let trace = "rate=10mbit,delay=5ms";
    for (name, instead) in [
        ("x.png", "x.svg"),
        ("x.pdf", "x.svg"),
        ("x", "x.html"),
        ("x.htlm", "x.html"),
    ] {
        let (out, instead) = (file(name), file(instead));
        let said = ["must end in .svg", "in .html", path(&instead)];
        for arguments in [
            &["trace", "plot", trace, "--out", path(&out)][..],
            &["demo", "--seconds", "1", "--report", path(&out)],
            &[
                "replay",
                "--up",
                trace,
                "--down",
                trace,
                "--plot",
                path(&out),
                "--",
                "true",
            ],
        ] {
            wants(arguments, 2, &said);
            assert!(!out.exists(), "{arguments:?} leaves a file behind");
        }
    }
    wants(
        &["trace", "plot", trace, "--out", path(&file("x.svg"))],
        0,
        &[],
    );
    wants(
        &["trace", "plot", trace, "--out", path(&file("x.HTML"))],
        0,
        &[],
    );
    let page = fs::read_to_string(file("x.HTML")).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    // Standard output has no name, and gets the page.
    assert!(text(&run(&["trace", "plot", trace, "--out", "-"]).stdout).contains("<svg"));
}

#[test]
fn a_trace_is_not_written_into_a_name_that_promises_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let trace = "rate=10mbit,delay=5ms";
    for (name, said) in [
        ("x.csv.gz", "x.csv"),
        ("x.png", "starhaul trace plot"),
        ("x.svg", "starhaul trace plot"),
        ("x.html", "starhaul trace plot"),
        ("x.json", "starhaul trace info --json"),
    ] {
        let out = file(name);
        wants(
            &["trace", "convert", trace, "--out", path(&out)],
            2,
            &[said],
        );
        assert!(!out.exists(), "{name}");
    }
    wants(
        &["trace", "convert", trace, "--out", path(&file("x.txt"))],
        0,
        &[],
    );
}

#[test]
fn a_folder_of_results_is_not_made_where_a_file_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["report.html", "results.json", "plot.png"] {
        let out = directory.path().join(name);
        wants(
            &[
                "lab",
                "leocc",
                "--quick",
                "--systems",
                "newreno",
                "--only",
                "shift",
                "--out",
                path(&out),
            ],
            2,
            &["--out", "a folder"],
        );
        assert!(!out.exists(), "{name}");
        wants(
            &[
                "record",
                "client",
                "--server",
                "127.0.0.1:9",
                "--key",
                "none",
                "--out",
                path(&out),
            ],
            2,
            &["--out", "a folder"],
        );
        assert!(!out.exists(), "{name}");
    }
}

#[test]
fn check_finds_two_rules_on_one_address() {
    let site = Site::new();
    let rule = |kind: &str, name: &str, listen: &str| {
        let more = match kind {
            "udp" | "rtp" => "target = \"a:1\"\ndeadline = \"1s\"\n",
            "tcp" => "target = \"a:1\"\n",
            _ => "",
        };
        format!("[[{kind}]]\nname = \"{name}\"\nlisten = \"{listen}\"\n{more}")
    };
    let check = |top: &str, one: (&str, &str), other: (&str, &str)| {
        let rules = rule(one.0, "one", one.1) + &rule(other.0, "two", other.1);
        run(&[
            "gateway",
            "check",
            path(&site.config(top, OTHER_KEY, &rules)),
        ])
    };
    let listen = "listen = \"0.0.0.0:4600\"";
    for (one, other) in [
        (("tcp", "127.0.0.1:5000"), ("tcp", "127.0.0.1:5000")),
        (("tcp", "127.0.0.1:5000"), ("socks5", "127.0.0.1:5000")),
        (("udp", "127.0.0.1:5000"), ("rtp", "127.0.0.1:5000")),
        (("udp", "0.0.0.0:5000"), ("udp", "127.0.0.1:5000")),
        (("tcp", "[::]:5000"), ("tcp", "127.0.0.1:5000")),
    ] {
        let output = check(listen, one, other);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{one:?} {other:?}: {said}");
        for part in ["listen", "\"one\"", "\"two\""] {
            assert!(said.contains(part), "{one:?} {other:?}: {said}");
        }
    }
    for (one, other) in [
        (("tcp", "127.0.0.1:5000"), ("udp", "127.0.0.1:5000")),
        (("tcp", "127.0.0.1:5000"), ("tcp", "127.0.0.2:5000")),
        (("udp", "127.0.0.1:0"), ("udp", "127.0.0.1:0")),
        (("tcp", "0.0.0.0:5000"), ("tcp", "[::1]:5000")),
        (("tcp", "0.0.0.0:4600"), ("tcp", "127.0.0.1:5000")),
    ] {
        let output = check(listen, one, other);
        assert!(output.status.success(), "{one:?} {other:?}: {output:?}");
    }
    // The address for peers is in use as well.
    let output = check(listen, ("udp", "127.0.0.1:4600"), ("udp", "127.0.0.1:5000"));
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("0.0.0.0:4600"),
        "{said}"
    );
    let output = check(
        "listen = [\"0.0.0.0:4600\", \"127.0.0.1:4600\"]",
        ("udp", "127.0.0.1:4700"),
        ("udp", "127.0.0.1:5000"),
    );
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn ones_own_key_is_no_peer() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", &site.own_key, "");
    let said = ["a.toml:7: [[peer]]: public_key", "our own"];
    wants(&["gateway", "check", path(&config)], 2, &said);
    wants(&["gateway", "--config", path(&config)], 2, &said);
}

#[test]
fn check_finds_what_would_fail_when_the_gateway_runs() {
    let site = Site::new();
    let long = "x".repeat(120);
    let control = |place: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\ncontrol = \"{place}\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{OTHER_KEY}\"\n"
        )
    };
    let session = |keys: &str| {
        format!("[[session]]\n[[session.path]]\nname = \"p\"\nremote = \"192.0.2.1:4600\"\n{keys}")
    };
    let second = "[[session.path]]\nname = \"q\"\nremote = \"192.0.2.1:4600\"\n";
    for (top, rest, said) in [
        ("", session("").replace("192.0.2.1", "0.0.0.0"), "remote:"),
        ("", session("").replace("192.0.2.1", "239.1.2.3"), "remote:"),
        (
            "",
            session("").replace("192.0.2.1", "255.255.255.255"),
            "remote:",
        ),
        ("", session("local = \"239.1.2.3\"\n"), "local:"),
        (
            "listen = \"0.0.0.0:4600\"",
            session("local = \"192.0.2.7:4600\"\n"),
            "local:",
        ),
        (
            "",
            session("local = \"192.0.2.7:4601\"\n") + second + "local = \"192.0.2.7:4601\"\n",
            "local:",
        ),
        ("listen = \"224.0.0.1:4600\"", String::new(), "listen:"),
    ] {
        let config = site.config(top, OTHER_KEY, &rest);
        wants(&["gateway", "check", path(&config)], 2, &[said]);
    }
    let config = site.write("long.toml", &control(&long));
    wants(
        &["gateway", "check", path(&config)],
        2,
        &["control:", "107 bytes"],
    );
    // Values that may be intended give a warning.
    for (rest, said) in [
        (session("") + second, "\"p\" and \"q\" lead the same way"),
        (session("interface = \"nonesuch0\"\n"), "nonesuch0"),
        (session("") + "[egress]\nallow = \"*:*\"\n", "127.0.0.1"),
        (
            session("") + "[egress]\ndeny = \"10.0.0.0/8:*\"\n",
            "nothing is allowed",
        ),
    ] {
        let config = site.config("", OTHER_KEY, &rest);
        wants(&["gateway", "check", path(&config)], 0, &["warning", said]);
    }
}

#[test]
fn keys_of_other_programs_are_told_apart() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    for (key, said) in [
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----\n",
            "OpenSSH",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nb3BlbnNz\n-----END RSA PRIVATE KEY-----\n",
            "RSA",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nb3Bl\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "password",
        ),
        (
            "-----BEGIN PUBLIC KEY-----\nb3Bl\n-----END PUBLIC KEY-----\n",
            "public",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nb3Bl\n-----END CERTIFICATE-----\n",
            "certificate",
        ),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@host\n", "public"),
        (&format!("{OTHER_KEY}\n"), "public"),
    ] {
        site.write("a.key", key);
        let said = ["a.key", said, "starhaul keygen --out FILE"];
        wants(&["gateway", "check", path(&config)], 2, &said);
        wants(&["pubkey", path(&site.file("a.key"))], 2, &said);
    }
    for (key, said) in [
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@host", "OpenSSH"),
        ("-----BEGIN PUBLIC KEY-----", "starhaul pubkey"),
        (
            "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=",
            "last 44",
        ),
    ] {
        let config = site.config("listen = \"127.0.0.1:0\"", key, "");
        wants(
            &["gateway", "check", path(&config)],
            2,
            &["public_key:", said],
        );
    }
}

#[test]
fn a_value_without_its_quotes_is_told_to_need_them() {
    let site = Site::new();
    for (line, said) in [
        ("listen = 127.0.0.1:4600", "listen = \"127.0.0.1:4600\""),
        ("listen = 0.0.0.0:4600 # all", "listen = \"0.0.0.0:4600\""),
        ("listen = [::]:4600", "listen = \"[::]:4600\""),
        ("listen = [0.0.0.0:4600, \"[::]:4600\"]", "\"0.0.0.0:4600\""),
        ("control = off", "control = \"off\""),
        ("control = /run/x.sock", "control = \"/run/x.sock\""),
        ("control = “off”", "control = \"off\""),
    ] {
        let config = site.write("wrong.toml", &format!("{line}\n"));
        wants(
            &["gateway", "check", path(&config)],
            2,
            &["wrong.toml:1:", "quotes", said],
        );
    }
    let rule = "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:5000\"\ntarget = \"a:1\"\n";
    let config = site.config("", OTHER_KEY, &format!("{rule}deadline = 800ms\n"));
    wants(
        &["gateway", "check", path(&config)],
        2,
        &["quotes", "deadline = \"800ms\""],
    );
    // Other errors do not mention quotes.
    let config = site.write("wrong.toml", "listen = [\"127.0.0.1:1\"\n[identity]\n");
    let said = run(&["gateway", "check", path(&config)]).stderr;
    assert!(!text(&said).contains("quotes"), "{}", text(&said));
}

#[test]
fn help_lists_arguments_in_the_order_in_which_they_are_typed() {
    for (arguments, order) in [
        (
            &["trace", "info", "--help"][..],
            ["\n  <TRACE>", "\n  [DELAY]"],
        ),
        (&["trace", "plot", "--help"], ["\n  <TRACE>", "\n  [DELAY]"]),
        (&["trace", "cut", "--help"], ["\n  <TRACE>", "\n  [DELAY]"]),
        (
            &["trace", "compare", "--help"],
            ["\n  <FIRST>", "\n  <SECOND>"],
        ),
    ] {
        let output = run(arguments);
        let help = text(&output.stdout);
        let [first, second] = order.map(|argument| help.find(argument).unwrap());
        let options = help.find("Options:").unwrap();
        assert!(first < second && second < options, "{help}");
    }
}

#[test]
fn a_configuration_is_named_alike_by_all_that_read_one() {
    let site = Site::new();
    let busy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = \"{}\"", busy.local_addr().unwrap());
    let config = site.config(&listen, OTHER_KEY, "");
    wants(&["gateway", "check", path(&config)], 0, &[]);
    wants(&["gateway", "check", "--config", path(&config)], 0, &[]);
    // Both read it, and fail at its address.
    wants(&["gateway", "--config", path(&config)], 1, &["in use"]);
    wants(&["gateway", path(&config)], 1, &["in use"]);
    wants(&["gateway"], 2, &["--config"]);
    wants(&["gateway", "check"], 2, &["FILE"]);
    wants(&["gateway", "chek"], 2, &["chek", "check"]);
    wants(
        &["gateway", path(&config), "--config", path(&config)],
        2,
        &["cannot be used"],
    );
}

#[test]
fn a_control_socket_in_the_place_of_a_file_is_refused_by_check_and_start() {
    let site = Site::new();
    let precious = site.write("precious.txt", "precious");
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"off\"", "\"precious.txt\"")).unwrap();
    let said = &["precious.txt", "no socket is there"][..];
    wants(&["gateway", "check", path(&config)], 2, said);
    wants(&["gateway", path(&config)], 2, said);
    assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
}

#[test]
fn a_secret_that_others_may_read_draws_a_warning() {
    let site = Site::new();
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, "");
    let key = site.file("a.key");
    let mode = |file: &Path, mode| fs::set_permissions(file, fs::Permissions::from_mode(mode));
    let warned = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr).to_owned()
    };
    for (bits, expected) in [
        (0o600, false),
        (0o400, false),
        (0o640, false),
        (0o644, true),
        (0o602, true),
    ] {
        mode(&key, bits).unwrap();
        for arguments in [
            &["gateway", "check", path(&config)][..],
            &["pubkey", path(&key)],
        ] {
            let said = warned(arguments);
            assert_eq!(said.contains("chmod 600"), expected, "{bits:o}: {said}");
            assert!(!expected || said.contains("a.key"), "{said}");
        }
    }
    // Secrets within the configuration, too.
    mode(&key, 0o600).unwrap();
    let proxy =
        "[[socks5]]\nname = \"s\"\nlisten = \"127.0.0.1:0\"\nusername = \"u\"\npassword = \"p\"\n";
    let config = site.config("listen = \"127.0.0.1:0\"", OTHER_KEY, proxy);
    mode(&config, 0o644).unwrap();
    let said = warned(&["gateway", "check", path(&config)]);
    assert!(
        said.contains("a.toml") && said.contains("chmod 600"),
        "{said}"
    );
    mode(&config, 0o600).unwrap();
    let said = warned(&["gateway", "check", path(&config)]);
    assert!(!said.contains("chmod"), "{said}");
    // A secret of the environment is in no file that other users could read.
    let secret = fs::read_to_string(&key).unwrap();
    let peer = format!("[[peer]]\nname = \"b\"\npublic_key = \"{OTHER_KEY}\"\n");
    let config = site.write(
        "e.toml",
        &format!("listen = \"127.0.0.1:0\"\ncontrol = \"off\"\n{peer}"),
    );
    mode(&config, 0o644).unwrap();
    let mut check = starhaul(&["gateway", "check", path(&config)]);
    let output = check
        .env("STARHAUL_GATEWAY_IDENTITY_SECRET", &secret)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("chmod"), "{said}");
}

/// A gateway that logs into a file.
pub(crate) fn gateway(config: &Path, log: &Path) -> Running {
    let mut command = starhaul(&["gateway", "--config", path(config)]);
    command.stderr(fs::File::create(log).unwrap());
    Running(command.spawn().unwrap())
}

/// The status of a gateway, once `wanted` accepts it.
pub(crate) fn status_when(
    socket: &Path,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    loop {
        let output = run(&["status", "--json", "--socket", path(socket)]);
        let status = serde_json::from_slice(&output.stdout);
        if let Some(status) = status.ok().filter(&wanted) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_key_that_does_not_match_is_warned_of_once_and_not_at_each_attempt() {
    let (far, near) = (Site::new(), Site::new());
    let text = |listen: &str, key: &str, rest: &str| {
        format!(
            "{listen}control = \"a.sock\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{key}\"\n{rest}"
        )
    };
    let config = far.write(
        "a.toml",
        &text("listen = \"127.0.0.1:0\"\n", &near.own_key, ""),
    );
    let _far = gateway(&config, &far.file("log"));
    let status = status_when(&far.file("a.sock"), |_| true);
    let remote = status["listen"][0].as_str().unwrap();
    let session = ["p", "q"].map(|name| {
        format!(
            "[[session.path]]\nname = \"{name}\"\nremote = \"{remote}\"\nlocal = \"127.0.0.1:0\"\n"
        )
    });
    let session = format!("[[session]]\n{}", session.concat());
    // Not the far gateway's key.
    let config = near.write("a.toml", &text("", OTHER_KEY, &session));
    let log = near.file("log");
    let _near = gateway(&config, &log);
    let failed = |status: &serde_json::Value| status["peers"][0]["failed_attempts"].as_u64();
    status_when(&near.file("a.sock"), |status| failed(status) >= Some(4));
    let log = fs::read_to_string(log).unwrap();
    let lines = log.lines().filter(|line| line.contains("WARN"));
    let lines: Vec<_> = lines
        .filter(|line| !line.contains("lead the same way"))
        .collect();
    assert!(
        (1..=2).contains(&lines.len()),
        "{} warnings:\n{log}",
        lines.len()
    );
    assert!(lines[0].contains("key"), "{log}");
}

/// Neither the warning of the refusal nor that of the limit fills the log, however many streams a peer opens.
#[test]
fn refused_streams_are_warned_of_once_and_not_each() {
    let (far, near) = (Site::new(), Site::new());
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = |top: &str, key: &str, rest: &str| {
        format!(
            "{top}control = \"a.sock\"\n[identity]\nfile = \"a.key\"\n[[peer]]\nname = \"b\"\npublic_key = \"{key}\"\n{rest}"
        )
    };
    let egress = "[egress]\nallow = [\"127.0.0.0/8:*\"]\nmax_streams = 1\n";
    let config = text("listen = \"127.0.0.1:0\"\n", &near.own_key, egress);
    let log = far.file("log");
    let _far = gateway(&far.write("a.toml", &config), &log);
    let status = status_when(&far.file("a.sock"), |_| true);
    let remote = status["listen"][0].as_str().unwrap();
    let target = target.local_addr().unwrap();
    let rules = format!(
        "[[session]]\n[[session.path]]\nname = \"p\"\nremote = \"{remote}\"\n\
         [[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n"
    );
    let config = near.write("a.toml", &text("", &far.own_key, &rules));
    let _near = gateway(&config, &near.file("log"));
    let up = |status: &serde_json::Value| status["sessions"][0]["paths"][0]["state"] == "up";
    let status = status_when(&near.file("a.sock"), up);
    let rule = status["ingress"][0]["listen"].as_str().unwrap();

    // The first takes the only place; who is refused is told by the end of its connection.
    let _held = TcpStream::connect(rule).unwrap();
    let streams = |status: &serde_json::Value| status["sessions"][0]["streams"][0].is_object();
    status_when(&far.file("a.sock"), streams);
    for _ in 0..20 {
        // It may be reset before its client knows that it is connected.
        let read = TcpStream::connect(rule).and_then(|mut refused| refused.read(&mut [0]));
        assert!(!matches!(read, Ok(1..)), "{read:?}");
    }
    let log = fs::read_to_string(log).unwrap();
    for said in [
        "stream of the peer refused",
        "[egress] max_streams raises it",
    ] {
        let lines = log.lines().filter(|line| line.contains(said)).count();
        assert!((1..=2).contains(&lines), "{said:?} {lines} times:\n{log}");
    }
}

#[test]
fn manual_pages_say_exit_status_files_and_environment() {
    let directory = tempfile::tempdir().unwrap();
    assert!(run(&["manpages", path(directory.path())]).status.success());
    let page = |name: &str| {
        let mut text = String::new();
        let file = fs::File::open(directory.path().join(name));
        file.unwrap_or_else(|error| panic!("{name}: {error}"))
            .read_to_string(&mut text)
            .unwrap();
        text
    };
    for entry in fs::read_dir(directory.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = page(&name);
        let sections: &[&str] = match name.ends_with(".1") {
            true => &["EXIT STATUS", "ENVIRONMENT", "SEE ALSO"],
            false => &["DESCRIPTION", "FILES", "SEE ALSO"],
        };
        for section in sections {
            assert!(
                text.contains(&format!(".SH \"{section}\""))
                    || text.contains(&format!(".SH {section}")),
                "{name} lacks {section}"
            );
        }
    }
    let gateway = page("starhaul-gateway.1");
    for said in [
        "control.sock",
        "STARHAUL_LOG",
        "XDG_RUNTIME_DIR",
        "SIGHUP",
        "NO_COLOR",
    ] {
        assert!(gateway.contains(said), "{said} is missing");
    }
    for (name, variable) in [
        ("starhaul-gateway.1", "STARHAUL_GATEWAY_"),
        ("starhaul-dtn-node.1", "STARHAUL_DTN_"),
        ("starhaul-relay.1", "STARHAUL_RELAY_"),
    ] {
        assert!(page(name).contains(variable), "{name} lacks {variable}");
    }
    assert!(page("starhaul-replay.1").contains("late"), "exit status 3");
    let format = page("starhaul-gateway.toml.5");
    for key in [
        "listen",
        "max_sessions",
        "packet_bytes",
        "detect_outage",
        "rate_feed",
        "frame_timeout",
        "username",
        "deny",
    ] {
        assert!(
            format.contains(&format!("\\fB{key}\\fR")),
            "{key} is missing: {format}"
        );
    }
    assert!(format.contains("starhaul\\-gateway.toml") || format.contains("starhaul-gateway.toml"));
    for (name, key) in [
        ("starhaul-dtn.toml.5", "max_bundle_bytes"),
        ("starhaul-relay.toml.5", "upstream"),
    ] {
        let format = page(name);
        assert!(format.contains(&format!("\\fB{key}\\fR")), "{format}");
        assert!(format.contains("KINDS OF VALUES"), "{format}");
    }
}

/// Also where the socket has its default place: it would be the owner's alone, and the members of the group would ask in vain.
#[test]
fn a_control_group_that_is_none_is_an_error_of_start_and_check() {
    let site = Site::new();
    // A gateway that went on would end here.
    let busy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = |control: &str| {
        let text = format!(
            "listen = \"{}\"\ncontrol_group = \"nogroupofthisname\"\n{control}[identity]\nfile = \"a.key\"\n\
             [[peer]]\nname = \"b\"\npublic_key = \"{OTHER_KEY}\"\n",
            busy.local_addr().unwrap()
        );
        site.write("a.toml", &text)
    };
    for control in ["", "control = \"a.sock\"\n"] {
        let file = config(control);
        for command in [&["gateway"][..], &["gateway", "check"]] {
            let output = starhaul(command)
                .arg(&file)
                .env("XDG_RUNTIME_DIR", site.directory.path())
                .output()
                .unwrap();
            let said = text(&output.stderr);
            assert!(
                said.contains("control_group \"nogroupofthisname\": /etc/group has no group"),
                "{command:?} {control:?}: {said}"
            );
            assert_eq!(output.status.code(), Some(2), "{said}");
        }
    }
    let file = config("control = \"off\"\n");
    assert!(run(&["gateway", "check", path(&file)]).status.success());
}
