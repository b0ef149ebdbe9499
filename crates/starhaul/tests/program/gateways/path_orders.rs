//! `starhaul path` changes paths under a transfer: down, up, limited; and only who may.

use std::{
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
    time::{Duration, Instant},
};

use starhaul_needs::{Need, skip};

use super::{
    gateway::Pair,
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");

/// `starhaul path` at one side; what it said.
pub(super) fn path(pair: &Pair, side: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(STARHAUL);
    command.arg("path").args(arguments);
    let socket = pair.directory().join(format!("{side}.sock"));
    command.arg("--socket").arg(socket).output().unwrap()
}

pub(super) fn done(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn refused(output: Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_path_goes_down_and_up_under_a_download() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let (download, size) = (Transfer::download(&network), 1 << 20);
    download.wait_for_progress(size);
    done(path(&pair, "field", &["down", "link0"]));
    wait_for("the path is gone", || {
        pair.field.path_state("link0").is_none().then_some(())
    });
    download.wait_for_progress(size);
    // A computer with much to do may miss an answer of the other one for a moment.
    wait_for("the other path is up", || {
        let json = done(path(&pair, "field", &["list", "--json"]));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let paths = json["paths"].as_array().unwrap();
        let of = |name: &str| paths.iter().find(|path| path["name"] == name).unwrap();
        assert_eq!(of("link0")["out"], "ordered");
        assert_eq!(of("link0")["order"]["down"], true);
        assert_eq!(of("link1")["out"], serde_json::Value::Null);
        (of("link1")["state"] == "up").then_some(())
    });
    let listed = done(path(&pair, "field", &["list"]));
    let row = listed
        .lines()
        .find(|line| line.starts_with("link0"))
        .unwrap();
    assert_eq!(
        row.split_whitespace()
            .filter(|word| *word == "down")
            .count(),
        2,
        "{listed}"
    );
    // What was ordered is no failure.
    let check = Command::new(STARHAUL)
        .args(["status", "--check", "--socket"])
        .arg(pair.directory().join("field.sock"))
        .output();
    done(check.unwrap());
    let why = refused(path(&pair, "field", &["down", "link1"]));
    assert!(why.contains("last one in service"), "{why}");
    let why = refused(path(&pair, "field", &["down", "link7"]));
    assert!(why.contains("no path is called \"link7\""), "{why}");
    let why = refused(path(&pair, "ground", &["down", "link1"]));
    assert!(why.contains("the peer opens path"), "{why}");
    // A reload leaves the order.
    pair.field.reload(|text| text);
    wait_for("the reload", || {
        pair.field.log().contains("read again").then_some(())
    });
    assert!(pair.field.path_state("link0").is_none());
    done(path(&pair, "field", &["up", "link0"]));
    pair.wait_until_up(&["link0", "link1"]);
    done(path(&pair, "field", &["set", "link0", "cost=5"]));
    wait_for("the cost is known on both sides", || {
        let costs = [&pair.field, &pair.ground].map(|side| side.path("link0")["cost"].as_f64());
        (costs == [Some(5.0); 2]).then_some(())
    });
    download.wait_for_progress(size);
    download.finish();
}

/// The median of three rates: what a busy computer held up comes all in one of them.
fn settled_rate(transfer: &Transfer) -> f64 {
    let mut rates = [(); 3].map(|()| rate(transfer));
    rates.sort_by(f64::total_cmp);
    rates[1]
}

/// Bits per second of a transfer over some seconds.
fn rate(transfer: &Transfer) -> f64 {
    let (began, before) = (Instant::now(), transfer.received());
    std::thread::sleep(Duration::from_secs(4));
    (transfer.received() - before) as f64 * 8.0 / began.elapsed().as_secs_f64()
}

#[test]
fn a_limit_holds_for_a_download_until_it_is_lifted() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let download = Transfer::download(&network);
    download.wait_for_progress(4 << 20);
    // What the field downloads is what the ground sends.
    done(path(&pair, "ground", &["set", "link0", "limit=2mbit"]));
    let listed = done(path(&pair, "ground", &["set", "link1", "limit=1mbit"]));
    assert!(listed.contains("limit=1"), "{listed}");
    // What was on its way arrives meanwhile.
    download.wait_for_progress(1 << 20);
    let limited = settled_rate(&download);
    println!("limited to 3 Mbit/s: {:.2} Mbit/s", limited / 1e6);
    assert!((1.5e6..3.1e6).contains(&limited), "{limited}");
    // The limit outlives a connection.
    network.cut(0);
    pair.wait_for_state(&["link0"], "suspect");
    network.mend(0);
    pair.wait_until_up(&["link0"]);
    download.wait_for_progress(1 << 20);
    // What was lost with the connection may stop the download for a while, and all that waited behind it arrives in one window: the one
    // after a settled one tells.
    wait_for("the rate of both limits", || {
        let windows = [rate(&download), rate(&download)];
        let limited = windows.iter().all(|bps| (1.5e6..3.1e6).contains(bps));
        limited.then_some(())
    });
    let limited = settled_rate(&download);
    assert!(limited < 3.1e6, "{limited}");
    done(path(&pair, "ground", &["set", "link0", "limit=none"]));
    wait_for("a higher rate", || (rate(&download) > 6e6).then_some(()));
    download.finish();
}

#[test]
fn members_of_the_group_may_read_and_only_the_owner_may_change() {
    let mut probe = Command::new("setpriv");
    let probe = probe.args(["--reuid=65533", "--clear-groups", "--regid=65534", "true"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return skip(
            Need::Setpriv,
            "setpriv is missing, or may not change the user",
        );
    }
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start_with_top(&network, "control_group = \"65534\"\n");
    pair.wait_until_up(&["link0", "link1"]);
    let everyone = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(pair.directory(), everyone).unwrap();
    let socket = pair.directory().join("field.sock");
    let as_member = |group: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65533",
            "--clear-groups",
            &format!("--regid={group}"),
        ]);
        command
            .arg(STARHAUL)
            .args(arguments)
            .arg("--socket")
            .arg(&socket);
        network.run(Side::Field, &mut command).unwrap()
    };
    assert!(done(as_member("65534", &["status"])).contains("link0"));
    let why = refused(as_member("65534", &["path", "down", "link0"]));
    assert!(why.contains("only the gateway's own user"), "{why}");
    refused(as_member("65533", &["status"]));
    // The key is its owner's alone; the gateway has it, so nothing is wrong.
    let configuration = pair.directory().join("field.toml");
    let configuration = configuration.to_str().unwrap();
    let found = as_member("65534", &["doctor", "--config", configuration]);
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("note    key: "), "{found}");
    pair.wait_until_up(&["link0"]);
}
