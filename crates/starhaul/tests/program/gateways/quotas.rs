//! Quotas, hours and kept orders of a running pair: what a path carries is counted over restarts, and ends where it is to end.

use std::{
    process::{Command, Output},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    alerts::get,
    doctor::faketime,
    gateway::{METRICS, PORT, Pair},
    network::{Network, Side},
    path_orders::{done, path, refused},
    transfer::Transfer,
    wait_for,
};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");
const QUOTA_BYTES: u64 = 8_000_000;
/// More than the transfer needs on one path in a second, with acknowledgements, headers and redundancy.
const SECOND_BYTES: u64 = 5_000_000;

/// A path over each link; `link0` is the cheapest and has these keys.
fn paths(network: &Network, of_first: &str) -> String {
    let path = |link| {
        let remote = Network::address(Side::Ground, link);
        let more = match link {
            0 => of_first,
            _ => "cost = 1",
        };
        format!(
            "[[session.path]]\nname = \"link{link}\"\ninterface = \"wan{link}\"\nremote = \"{remote}:{PORT}\"\n{more}\n"
        )
    };
    (0..network.links).map(path).collect()
}

fn used(pair: &Pair) -> u64 {
    let service = pair.field.service("link0");
    service["quota"]["used_bytes"].as_u64().unwrap_or(0)
}

fn wait_until_out(pair: &Pair, reason: &str) {
    wait_until_out_of(pair, "link0", reason);
}

fn wait_until_out_of(pair: &Pair, path: &str, reason: &str) {
    wait_for("the path is out of service", || {
        let is_out = pair.field.service(path)["out"] == reason;
        (is_out && pair.field.path_state(path).is_none()).then_some(())
    });
}

fn check(pair: &Pair) -> Output {
    let mut command = Command::new(STARHAUL);
    command.args(["status", "--check", "--socket"]);
    let socket = pair.directory().join("field.sock");
    command.arg(socket).output().unwrap()
}

fn doctor(network: &Network, pair: &Pair) -> String {
    let mut command = Command::new(STARHAUL);
    let socket = pair.directory().join("field.sock");
    command.arg("doctor").arg("--socket").arg(socket);
    let output = network.run(Side::Field, &mut command).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_path_ends_at_its_quota_and_the_count_outlives_the_gateway() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let quota = format!("monthly = \"{QUOTA_BYTES}B\"");
    let mut pair = Pair::start_with(&network, &paths(&network, &quota), "", "");
    pair.wait_until_up(&["link0", "link1"]);
    let download = Transfer::download(&network);
    wait_until_out(&pair, "quota");
    download.wait_for_progress(4 << 20);
    download.finish();
    let counted = used(&pair);
    assert!(
        (QUOTA_BYTES..QUOTA_BYTES + SECOND_BYTES).contains(&counted),
        "{counted} bytes"
    );
    // Out of service on purpose, for the peer too: it has no such path.
    done(check(&pair));
    wait_for("the ground has no such path", || {
        pair.ground.path_state("link0").is_none().then_some(())
    });
    let listed = done(path(&pair, "field", &["list"]));
    assert!(listed.contains("down, quota"), "{listed}");
    let metrics = get(&network, METRICS, "/metrics").unwrap();
    for (series, value) in [
        (
            "starhaul_path_out_of_service{peer=\"ground\",path=\"link0\",reason=\"quota\"} ",
            1.0,
        ),
        (
            "starhaul_path_quota_bytes{peer=\"ground\",path=\"link0\"} ",
            QUOTA_BYTES as f64,
        ),
    ] {
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(series));
        let found = lines.next().and_then(|found| found.parse::<f64>().ok());
        assert_eq!(found, Some(value), "{series} in {metrics}");
    }
    let found = doctor(&network, &pair);
    assert!(found.contains("quota reached"), "{found}");
    let why = refused(path(&pair, "field", &["up", "link0"]));
    assert!(why.contains("its quota of the month is used up"), "{why}");
    let why = refused(path(&pair, "field", &["down", "link1"]));
    assert!(why.contains("last one in service"), "{why}");
    let log = pair.field.log();
    assert_eq!(log.matches("a quota is reached").count(), 1, "{log}");

    // Ended in order, it counts to the byte; nothing is sent on the path from the start.
    let counted = used(&pair);
    pair.field.restart(&network, Side::Field, "TERM");
    pair.wait_until_up(&["link1"]);
    assert_eq!(used(&pair), counted);
    wait_until_out(&pair, "quota");
    assert_eq!(used(&pair), counted);

    // A peer that does not answer is waited for, until a second signal: the count is as exact.
    pair.ground.signal("STOP");
    let ends = |pair: &Pair| pair.field.log().matches("gateway ends").count();
    let before = ends(&pair);
    pair.field.signal("TERM");
    wait_for("it is ending", || (ends(&pair) > before).then_some(()));
    pair.field.restart(&network, Side::Field, "TERM");
    pair.ground.signal("CONT");
    pair.wait_until_up(&["link1"]);
    assert_eq!(used(&pair), counted);

    // More is ordered, and kept: it holds after a kill, which never takes bytes from the count.
    done(path(
        &pair,
        "field",
        &["set", "link0", "monthly=1GB", "--keep"],
    ));
    pair.wait_until_up(&["link0", "link1"]);
    let counted = used(&pair);
    pair.field.restart(&network, Side::Field, "KILL");
    pair.wait_until_up(&["link0", "link1"]);
    assert!(used(&pair) >= counted, "{} of {counted}", used(&pair));
    let listed = done(path(&pair, "field", &["list"]));
    assert!(listed.contains("monthly=1000000000B (kept)"), "{listed}");
    // Given back, and that kept: the configuration holds again, now and after a restart.
    done(path(
        &pair,
        "field",
        &["set", "link0", "monthly=configured", "--keep"],
    ));
    wait_until_out(&pair, "quota");
    pair.field.restart(&network, Side::Field, "TERM");
    wait_until_out(&pair, "quota");
    // The provider counted less.
    done(path(&pair, "field", &["set", "link0", "used=1MB"]));
    pair.wait_until_up(&["link0", "link1"]);
}

#[test]
fn the_last_path_ends_at_its_quota_too_and_streams_go_on_when_it_gets_more() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let quota = format!("monthly = \"{QUOTA_BYTES}B\"");
    let pair = Pair::start_with(&network, &paths(&network, &quota), "", "");
    pair.wait_until_up(&["link0"]);
    let download = Transfer::download(&network);
    wait_until_out(&pair, "quota");
    let counted = used(&pair);
    let why = refused(check(&pair));
    assert!(why.contains("no path to ground is in service"), "{why}");
    std::thread::sleep(Duration::from_secs(2));
    // The socket still hears what was on its way for a second.
    assert!(used(&pair) - counted < SECOND_BYTES);
    done(path(&pair, "field", &["set", "link0", "monthly=none"]));
    download.wait_for_progress(4 << 20);
    download.finish();
}

#[test]
fn a_path_outside_of_its_hours_is_out_of_service_without_being_a_failure() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let days = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"];
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let other = usize::try_from(since.as_secs() / 86_400 + 3).unwrap() % 7;
    let hours = format!("active = \"{}\"", days[other]);
    let pair = Pair::start_with(&network, &paths(&network, &hours), "", "");
    pair.wait_until_up(&["link1"]);
    wait_until_out(&pair, "hours");
    done(check(&pair));
    let found = doctor(&network, &pair);
    assert!(found.contains("outside of its hours"), "{found}");
    let why = refused(path(&pair, "field", &["up", "link0"]));
    assert!(why.contains("outside of its hours"), "{why}");
    done(path(&pair, "field", &["set", "link0", "active=always"]));
    pair.wait_until_up(&["link0", "link1"]);
    done(path(&pair, "field", &["set", "link0", "active=configured"]));
    wait_until_out(&pair, "hours");
}

/// The gateway's clock begins 20 s before the hours of one path begin and those of the other one end, on a Monday.
#[test]
fn paths_come_and_go_with_their_hours() {
    let Some(library) = faketime() else { return };
    let Some(network) = Network::create(2) else {
        return;
    };
    let begin = "FAKETIME='@2026-11-23 21:59:40' TZ=UTC FAKETIME_DONT_FAKE_MONOTONIC=1";
    let pair = Pair::start_changed(&network, |side, launch| {
        if side == Side::Field {
            let preload = format!("LD_PRELOAD={}", library.display());
            launch.by_script(&format!("export {begin} {preload}; exec \"$@\""));
            for (link, hours) in [
                ("link0", "mon 22:00-06:00"),
                ("link1", "mon-fri 06:00-22:00"),
            ] {
                let name = format!("name = \"{link}\"\n");
                let active = format!("{name}active = \"{hours}\"\n");
                launch.configuration = launch.configuration.replacen(&name, &active, 1);
            }
        }
    });
    pair.wait_until_up(&["link1"]);
    assert_eq!(pair.field.service("link0")["out"], "hours");
    let download = Transfer::download(&network);
    download.wait_for_progress(1 << 20);
    // A path that is out for its hours gives way to the one whose hours begin.
    pair.wait_until_up(&["link0"]);
    wait_until_out_of(&pair, "link1", "hours");
    download.wait_for_progress(1 << 20);
    download.finish();
    let log = pair.field.log();
    for (link, message) in [
        ("link0", "a path is in service again"),
        ("link1", "a path is out of service"),
    ] {
        let mut lines = log.lines().filter(|line| line.contains(message));
        assert!(lines.any(|line| line.contains(link)), "{log}");
    }
}

#[test]
fn orders_that_are_kept_come_back_and_others_do_not() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let mut pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    done(path(&pair, "field", &["down", "link0", "--keep"]));
    done(path(&pair, "field", &["set", "link1", "cost=7"]));
    pair.field.restart(&network, Side::Field, "KILL");
    pair.wait_until_up(&["link1"]);
    let listed = done(path(&pair, "field", &["list"]));
    assert!(
        listed.contains("down (kept)") && !listed.contains("cost=7"),
        "{listed}"
    );
    // Up for this life only, and told so.
    let listed = done(path(&pair, "field", &["up", "link0"]));
    assert!(listed.contains("(kept: down)"), "{listed}");
    pair.wait_until_up(&["link0", "link1"]);
    pair.field.restart(&network, Side::Field, "TERM");
    pair.wait_until_up(&["link1"]);
    assert_eq!(pair.field.path_state("link0"), None);
    done(path(&pair, "field", &["up", "link0", "--keep"]));
    pair.field.restart(&network, Side::Field, "TERM");
    pair.wait_until_up(&["link0", "link1"]);
    let listed = done(path(&pair, "field", &["list"]));
    assert!(!listed.contains("kept"), "{listed}");
}
