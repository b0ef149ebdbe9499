//! `starhaul doctor` names each planted cause first and no other problem, and none on a healthy pair.

mod bench;
mod hosts;
mod keys;
mod links;
mod rules;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use self::bench::Bench;
pub(crate) use self::hosts::faketime;
use super::{gateway::Pair, network::Network, transfer::Transfer};

/// A set-up with one fault: plants it, and says so by [`Bench`].
type Case = (&'static str, fn());

/// Every set-up; those of one row of the issue stand together.
const CASES: [Case; 34] = [
    ("a path narrower than its interface", links::narrow),
    ("UDP is blocked on the way", links::blocked),
    ("UDP is blocked here", links::blocked_here),
    ("a path loses packets", links::lossy),
    ("a path works from us to the peer alone", links::one_way),
    ("a path is silent", links::silent),
    ("a NAT forgets within a second", links::forgetful_nat),
    ("an interface is missing", links::no_interface),
    ("an interface is down", links::interface_down),
    ("there is no route", links::no_route),
    (
        "answers come where no route leads back",
        links::strict_filter,
    ),
    ("a name has no address", links::no_such_name),
    ("no name server answers", links::silent_resolver),
    ("a path reached its limit", links::limited),
    ("a path's quota is reached", links::quota_reached),
    ("a path is told too low a rate", links::told_a_low_rate),
    ("the peer does not know our key", keys::ours_unknown),
    ("the peer has another key", keys::other_peer),
    ("others may read the key", keys::readable),
    ("the key is missing", keys::missing),
    ("the clocks differ by an hour", hosts::clock),
    ("a disk is full", hosts::full_disk),
    (
        "a control group limits the processor",
        hosts::limited_processor,
    ),
    ("the socket's buffer is too small", hosts::small_buffers),
    ("no gateway runs", hosts::no_gateway),
    ("the peer's gateway does not run", hosts::no_peer),
    ("/dev/net/tun is missing", hosts::no_tun),
    ("nft is missing", hosts::no_nft),
    ("the far application does not read", rules::far_reader),
    ("the near application does not read", rules::near_reader),
    ("the device of a tunnel is gone", rules::no_device),
    ("the target is not allowed", rules::not_allowed),
    ("the target refuses", rules::refused),
    ("a rule has as many connections as it may", rules::limit),
];
/// How many run at once: they mostly wait.
const AT_ONCE: usize = 8;

#[test]
fn each_planted_cause_is_named_first_and_alone() {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let run_some = || {
        while let Some((name, case)) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
            if catch_unwind(AssertUnwindSafe(case)).is_err() {
                failed.lock().unwrap().push(*name);
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..AT_ONCE {
            // The name is that of the test, for what is said to be skipped.
            let thread = thread::Builder::new()
                .name(format!("gateways::doctor::planted ({number})"))
                .spawn_scoped(scope, run_some);
            thread.unwrap();
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "not named, or not alone: {failed:?}");
}

#[test]
fn a_healthy_pair_has_no_problem_and_its_bottleneck_is_told() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let bench = Bench::new(network, pair);
    // Idle, and under load.
    bench.ask_healthy();
    let upload = Transfer::upload(&bench.network);
    upload.wait_for_progress(4 << 20);
    let report = bench.ask_healthy();
    assert_eq!(report.exit_code, Some(0));
    let told = report
        .others
        .iter()
        .find(|finding| finding.subject == "bottleneck toward ground");
    assert!(told.is_some(), "{:?}", report.others);
    // What the kernel has is told whether a rule needs it or not.
    for subject in [
        "UDP segmentation offload",
        "UDP receive offload",
        "TUN devices",
        "network namespaces",
        "transparent sockets",
        "net.core.rmem_max",
    ] {
        let told = report.others.iter().any(|other| other.subject == subject);
        assert!(told, "no {subject}: {:?}", report.others);
    }
    upload.finish();
    // The side that only listens.
    let bench = bench.on_ground();
    bench.ask_healthy();
}
