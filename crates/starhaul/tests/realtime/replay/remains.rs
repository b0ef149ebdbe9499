//! Killed runs leave nothing behind. The test runs again inside namespaces of its own, where every device, route and
//! network namespace counted by the kernel belongs to these runs.

use std::{env, fs, path::PathBuf, process::Command, time::Duration};

use starhaul_needs::Need;

use super::{QUICK, Started, wait_until};
use crate::{
    emulated::{probe, replay},
    turn::{Load, turn},
};

const NAME: &str = "replay::remains::nothing_remains_of_runs_that_were_killed";
const INSIDE: &str = "STARHAUL_TEST_INSIDE";
const LIMIT: &str = "/proc/sys/user/max_net_namespaces";
/// Runs that are killed, and at most so many more where a busy computer takes long to start one.
const CYCLES: u64 = 50;
const MORE_CYCLES: u64 = 250;

#[test]
fn nothing_remains_of_runs_that_were_killed() {
    if env::var_os(INSIDE).is_some() {
        return kill_runs();
    }
    let _turn = turn(Load::Middle);
    // In a user namespace the kernel counts only our network namespaces; without permission for one, root runs the rest
    // of the test.
    for namespaces in [&["--user", "--map-root-user", "--net"][..], &["--net"]] {
        let works = Command::new("unshare")
            .args(namespaces)
            .arg("true")
            .output();
        if !works.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let output = Command::new("unshare")
            .args(namespaces)
            .arg(env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    starhaul_needs::skip(
        Need::Netns,
        "unshare(1) is missing, or the right to make network namespaces",
    );
}

fn kill_runs() {
    if !super::allowed() {
        return;
    }
    wait_until("the run before is gone", || devices() == ["lo"]);
    let routes_before = routes();
    let marker = format!("STARHAUL_TEST_RUN={}", std::process::id());
    let (name, value) = marker.split_once('=').unwrap();
    let server = format!("{} sink /dev/null", probe());
    // A process that leaves its session and its parent is terminated as well.
    let script = "setsid sleep 1000 & (setsid sleep 1000 &) ; sleep 1000";
    let (mut most_devices, mut most_routes) = (0, 0);
    for cycle in 0..CYCLES + MORE_CYCLES {
        if cycle >= CYCLES && most_devices > 1 && most_routes > routes_before.len() {
            break;
        }
        let mut arguments = QUICK.to_vec();
        if cycle % 2 == 0 {
            arguments.extend(["--server", &server]);
        }
        arguments.extend(["--", "sh", "-c", script]);
        let mut command = replay(&arguments);
        command.env(name, value);
        let mut running = Started::new(command);
        // From before the first kernel object until well after the last one.
        std::thread::sleep(Duration::from_millis(cycle * 3));
        most_devices = most_devices.max(devices().len());
        most_routes = most_routes.max(routes().len());
        running.child.kill().unwrap();
        running.child.wait().unwrap();
    }
    assert!(
        most_devices > 1 && most_routes > routes_before.len(),
        "nothing was there to remain"
    );
    wait_until("no process remains", || processes_with(&marker).is_empty());
    wait_until("no device remains", || devices() == ["lo"]);
    wait_until("no route or rule remains", || routes() == routes_before);
    // Room for the namespaces of this test and two of a run: with any of the hundred earlier ones left, there would be
    // none.
    if let Err(error) = fs::write(LIMIT, "3") {
        println!("network namespaces were not counted: {LIMIT}: {error}");
        return;
    }
    let run = || super::run(&[&QUICK[..], &["--server", &server, "--", "true"]].concat());
    // The kernel frees them with a delay, and a run that gets too few leaves one more to free.
    let freed = || {
        std::thread::sleep(Duration::from_secs(1));
        run().status.success()
    };
    wait_until("no network namespace remains", freed);
    // The limit takes effect.
    fs::write(LIMIT, "2").unwrap();
    let said = String::from_utf8_lossy(&run().stderr).into_owned();
    assert!(said.contains("cannot make a network namespace"), "{said}");
}

fn devices() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let names = text.lines().filter_map(|line| line.split_once(':'));
    // Devices that the kernel creates in each network namespace are down, and not ours.
    let names = names.map(|(name, _)| name.trim().to_owned());
    names
        .filter(|name| name == "lo" || name.starts_with("starhaul"))
        .collect()
}

/// The routes of both families.
fn routes() -> Vec<String> {
    let tables = ["route", "ipv6_route"].map(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        let lines = text.unwrap_or_default();
        // Routes of the loopback interface come and go with it.
        let lines = lines.lines().filter(|line| line.contains("starhaul"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    tables.concat()
}

fn processes_with(marker: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    all.filter(|process| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == marker.as_bytes())
    })
    .collect()
}
