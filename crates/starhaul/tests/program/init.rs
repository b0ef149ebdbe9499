//! `starhaul init`: both sides' files, from options and from answers, and what is never overwritten.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::program::{path, run, starhaul, text};

/// `init` into the folder, with these options beside the address.
fn init(directory: &Path, more: &[&str]) -> Output {
    let mut command = starhaul(&["init", "--directory", path(directory)]);
    command.args(["--remote", "192.0.2.1:4600", "--path", "leo=lo,link=leo"]);
    command.args(more).stdin(Stdio::null()).output().unwrap()
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn both_sides_get_files_that_are_right_and_know_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let site = directory.path().join("site");
    let more = [
        "--path",
        "geo=lo,cost=1.5",
        "--allow",
        "10.0.0.0/8:*",
        "--name",
        "ship",
        "--json",
    ];
    let output = init(&site, &more);
    assert!(output.status.success(), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = said["files"].as_array().unwrap();
    let modes: Vec<_> = files
        .iter()
        .map(|file| file["mode"].as_str().unwrap())
        .collect();
    assert_eq!(modes, ["600", "644", "600", "644"], "{said}");
    assert_eq!(said["next"].as_array().unwrap().len(), 4, "{said}");
    for (folder, key, facts) in [
        (
            site.clone(),
            &said["public_key"],
            &[
                "peer ground:",
                "path geo to 192.0.2.1:4600 over lo, cost 1.5",
                "low orbit",
                "socks5 proxy: 127.0.0.1:1080",
            ][..],
        ),
        (
            site.join("ground"),
            &said["peer_public_key"],
            &[
                "peer ship:",
                "listen: 0.0.0.0:4600",
                "egress: allow 10.0.0.0/8:*",
                "http://127.0.0.1:9464/",
            ],
        ),
    ] {
        let checked = run(&["gateway", "check", path(&folder.join("gateway.toml"))]);
        let described = text(&checked.stdout);
        assert!(checked.status.success(), "{checked:?}");
        for fact in facts {
            assert!(described.contains(fact), "{fact}: {described}");
        }
        assert!(described.contains(&format!("public key: {}", key.as_str().unwrap())));
        assert_eq!(mode(&folder.join("keys")), 0o700);
        assert_eq!(mode(&folder.join("keys/gateway.key")), 0o600);
    }
    let there = fs::read_to_string(site.join("ground/gateway.toml")).unwrap();
    assert!(
        there.contains(said["public_key"].as_str().unwrap()),
        "{there}"
    );
}

#[test]
fn nothing_is_overwritten_unasked_and_a_key_never() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    assert!(init(directory.path(), &[]).status.success());
    let all = [
        "gateway.toml",
        "keys/gateway.key",
        "ground/gateway.toml",
        "ground/keys/gateway.key",
    ];
    let read = || all.map(|name| fs::read_to_string(file(name)).unwrap());
    let before = read();
    for missing in ["", "gateway.toml"] {
        if !missing.is_empty() {
            // The other side's is still in the way.
            fs::rename(file(missing), file("aside")).unwrap();
        }
        let refused = init(directory.path(), &["--socks5", "none"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(
            text(&refused.stderr).contains("nothing was written: --force"),
            "{refused:?}"
        );
        if !missing.is_empty() {
            assert!(!file(missing).exists());
            fs::rename(file("aside"), file(missing)).unwrap();
        }
        assert_eq!(read(), before);
    }
    let forced = init(directory.path(), &["--socks5", "none", "--force"]);
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(
        text(&forced.stdout).matches("kept ").count(),
        2,
        "{forced:?}"
    );
    let after = read();
    assert!(!after[0].contains("socks5"), "{}", after[0]);
    assert_eq!((&after[1], &after[3]), (&before[1], &before[3]));
}

/// Its files are removed here once they are copied, as `init` says.
#[test]
fn the_other_side_keeps_its_key_when_the_configuration_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    let keys = || -> Vec<String> {
        let text = fs::read_to_string(&config).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("public_key"));
        lines.map(str::to_owned).collect()
    };
    assert!(init(directory.path(), &[]).status.success());
    let before = keys();
    assert_eq!(before.len(), 1);
    fs::remove_dir_all(directory.path().join("ground")).unwrap();
    let forced = init(directory.path(), &["--socks5", "none", "--force"]);
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(keys(), before);
    assert!(!directory.path().join("ground/keys").exists());
    // One that was not there before gets a key of its own.
    let other = init(directory.path(), &["--peer", "moon", "--force"]);
    assert!(other.status.success(), "{other:?}");
    assert_ne!(keys(), before);
    assert!(directory.path().join("moon/keys/gateway.key").exists());

    fs::write(&config, "listen = 5\n").unwrap();
    fs::remove_dir_all(directory.path().join("moon")).unwrap();
    let refused = init(directory.path(), &["--peer", "moon", "--force"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("the key of moon is not known"), "{said}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "listen = 5\n");
}

#[test]
fn a_peer_with_a_key_gets_none_and_what_is_wrong_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let key = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let site = directory.path().join("a");
    assert!(init(&site, &["--peer-key", key]).status.success());
    assert!(!site.join("ground/keys").exists());
    assert!(
        fs::read_to_string(site.join("gateway.toml"))
            .unwrap()
            .contains(key)
    );

    let none = directory.path().join("b");
    for (more, said) in [
        (&["--peer", ".."][..], "--peer: \"..\" is no name here"),
        (&["--peer", "field"], "both sides would be called field"),
        (
            &["--peer", "gateway.toml"],
            "\"gateway.toml\" is no name here: a file of this side has it",
        ),
        (
            &["--path", "leo=eth1"],
            "these answers make no configuration",
        ),
        (&["--path", "eth1"], "is not NAME=INTERFACE"),
        (&["--allow", "10.0.0.0/8"], "--allow"),
        (&["--metrics", "9464"], "for example 127.0.0.1:9464"),
    ] {
        let refused = init(&none, more);
        assert_eq!(refused.status.code(), Some(2), "{more:?}: {refused:?}");
        assert!(
            text(&refused.stderr).contains(said),
            "{more:?}: {refused:?}"
        );
    }
    // Its own key is no other side's, though it is right by itself.
    let own = directory.path().join("own");
    let key = own.join("keys/gateway.key");
    fs::create_dir_all(key.parent().unwrap()).unwrap();
    let made = run(&["keygen", "--out", path(&key)]);
    let refused = init(&own, &["--peer-key", text(&made.stdout).trim()]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("this is the key of field itself"), "{said}");
    assert!(!own.join("gateway.toml").exists() && !own.join("ground").exists());

    let bare = starhaul(&["init", "--directory", path(&none)]);
    let bare = { bare }.stdin(Stdio::null()).output().unwrap();
    assert_eq!(bare.status.code(), Some(2));
    assert!(text(&bare.stderr).contains("--remote"), "{bare:?}");
    assert!(!none.exists());
}

#[test]
fn on_a_terminal_it_asks_and_asks_again() {
    let directory = tempfile::tempdir().unwrap();
    let command = format!(
        "{} init --directory {}",
        env!("CARGO_BIN_EXE_starhaul"),
        path(directory.path())
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut script) = script else {
        return starhaul_needs::skip(starhaul_needs::Need::Script, "it is not there");
    };
    // Names, a wrong address and a right one, a path, no key, no proxy, what may be reached, and the default page.
    let answers =
        "ship\n\nnowhere\nground.example:4600\nleo=lo\n\nnone\n*.example.org:443 10.0.0.0/8:*\n\n";
    let mut to = script.stdin.take().unwrap();
    to.write_all(answers.as_bytes()).unwrap();
    let output = script.wait_with_output().unwrap();
    drop(to);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("HOST:PORT").count(), 2, "{said}");
    let there = fs::read_to_string(directory.path().join("ground/gateway.toml")).unwrap();
    assert!(
        there.contains("allow = [\"*.example.org:443\", \"10.0.0.0/8:*\"]"),
        "{there}"
    );
    assert!(there.contains("\"0.0.0.0:4600\", \"[::]:4600\""), "{there}");
    let here = fs::read_to_string(directory.path().join("gateway.toml")).unwrap();
    assert!(
        here.contains("ground.example:4600") && !here.contains("socks5"),
        "{here}"
    );
}

#[test]
fn variables_stand_for_keys_and_credentials_for_key_files() {
    let directory = tempfile::tempdir().unwrap();
    assert!(init(directory.path(), &[]).status.success());
    let config = directory.path().join("gateway.toml");
    let check = |variables: &[(&str, &str)]| {
        let mut check = starhaul(&["gateway", "check", path(&config)]);
        check.envs(variables.iter().copied()).output().unwrap()
    };
    let checked = check(&[
        ("STARHAUL_GATEWAY_METRICS", "127.0.0.1:9999"),
        ("STARHAUL_GATEWAY_MAX_STREAMS", "99"),
        ("STARHAUL_GATEWAY_EGRESS_ALLOW", "[\"10.0.0.0/8:*\"]"),
        ("STARHAUL_GATEWAY_SCHEDULER", ""),
    ]);
    let described = text(&checked.stdout);
    for said in [
        "http://127.0.0.1:9999/",
        "at most 99 streams",
        "egress: allow 10.0.0.0/8:*",
    ] {
        assert!(described.contains(said), "{said}: {checked:?}");
    }
    for (name, value, said) in [
        ("STARHAUL_GATEWAY_METRIC", "x", "did you mean \"METRICS\"?"),
        (
            "STARHAUL_GATEWAY_METRICS",
            "x",
            "error: STARHAUL_GATEWAY_METRICS: metrics: \"x\" is not address:port",
        ),
    ] {
        let refused = check(&[(name, value)]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(said), "{refused:?}");
    }

    // As under systemd: the key is where only the service reads it.
    let credentials = directory.path().join("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::rename(
        directory.path().join("keys/gateway.key"),
        credentials.join("keys_gateway.key"),
    )
    .unwrap();
    assert_eq!(check(&[]).status.code(), Some(2), "there is no key");
    let found = check(&[("CREDENTIALS_DIRECTORY", path(&credentials))]);
    assert!(found.status.success(), "{found:?}");
}
