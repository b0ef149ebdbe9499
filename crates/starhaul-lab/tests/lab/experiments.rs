//! The experiments of the seeds in virtual time, each with its table. `STARHAUL_SEEDS` asks for more seeds than the few of
//! an ordinary run.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its world has failed"
)]

mod aggregation;
mod dmtp;
mod hard;
mod mpdtp;

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use starhaul_demo::load::Class;
use starhaul_lab::{
    experiments::cut::{self, CutResult, CutSetup, Traffic},
    kit::Records,
    workload::bulk::Bulk,
    worlds::{pipe::Pipe, stack::World},
};
use starhaul_plot::Table;

fn seeds(few: u64) -> impl Iterator<Item = u64> {
    let count = std::env::var("STARHAUL_SEEDS").map_or(few, |text| {
        let count = text.parse().ok().filter(|count| *count > 0);
        count.unwrap_or_else(|| panic!("STARHAUL_SEEDS is a number of seeds: {text:?}"))
    });
    1..=count
}

/// The session comes up over whichever path is there, and works before the other one joins.
#[test]
fn any_path_may_be_the_first_one_up() {
    for missing in 0..2 {
        let pipes = [Pipe::new(20, 40, 0.01), Pipe::new(10, 120, 0.01)];
        let paths: Vec<_> = pipes.iter().map(|pipe| pipe.setup().unwrap()).collect();
        let mut world = World::starhaul_without(1, &paths, &[missing]).unwrap();
        let mut bulk = Bulk::open(&mut world).unwrap();
        world.run(Duration::from_secs(3), |world| bulk.pump(world));
        assert!(
            bulk.received > 1_000_000 && bulk.intact,
            "without path {missing}: {bulk:?}"
        );
        assert_eq!(world.sender().paths_up(), 1);

        let (now, late) = (world.now(), world.paths[missing]);
        world.sim().network.restore(now, late);
        world.run(Duration::from_secs(13), |world| bulk.pump(world));
        assert_eq!(world.sender().paths_up(), 2, "path {missing} did not join");
        let carried = world.delivered_bytes()[missing];
        assert!(
            carried > 1_000_000 && bulk.intact,
            "path {missing} carried {carried} bytes"
        );
    }
}

/// A path that is cut takes nothing with it that another path can still carry in time, and new data goes over the other one
/// within 1.5 RTT of the cut path and 50 ms.
#[test]
fn a_cut_path_loses_nothing() {
    let mut setups = Vec::new();
    for seed in seeds(2) {
        for traffic in [Traffic::Blocks, Traffic::Messages, Traffic::All] {
            setups.extend(cut::setups(false, seed, traffic));
        }
    }
    let (rows, failures): (Vec<_>, Vec<_>) = on_all_cores(&setups, check_cut).into_iter().unzip();
    println!("{}", Table::of(&cut::columns(), &rows).text());
    let failures = failures.concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs each case, as many at once as there are processors; gives what came of them in their order.
fn on_all_cores<C: Sync, R: Send>(cases: &[C], run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            Some((index, run(cases.get(index)?)))
        };
        std::iter::from_fn(mine).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|results| results.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs a cut; gives its row of the table and what is wrong.
fn check_cut(setup: &CutSetup) -> ((CutSetup, CutResult), Vec<String>) {
    let result = setup.run(&Records::default()).unwrap();
    let [_, other] = setup.pipes;
    let new_data = setup.new_data(&result).unwrap_or(Duration::MAX);
    let mut failures = Vec::new();
    let mut check = |is_right: bool, what: &str| {
        if !is_right {
            failures.push(format!("{what}: {setup:?}: {result:?}"));
        }
    };
    let [sent, received] = result.reliable_bytes;
    check(
        result.intact && sent == received,
        "reliable bytes are missing",
    );
    let before = match setup.traffic {
        Traffic::Messages => Duration::ZERO,
        // Older blocks are due sooner: those that the cut took are sent again first.
        Traffic::Blocks => other.rate.time_to_send(result.taken),
        // The full stream queues before the other path as well: another round trip.
        Traffic::All => other.rtt,
    };
    check(new_data <= setup.limit() + before, "new data came late");
    // In order it goes on when what was lost, about an RTT's worth, has followed behind the queue.
    check(
        setup.traffic == Traffic::Blocks || result.longest_stall <= setup.limit() + 2 * other.rtt,
        "the stream stood still",
    );
    check(result.comeback.is_some(), "the path did not come back");
    for class in Class::ALL {
        let score = result.classes.of(class);
        check(score.on_time == score.sent, class.name());
    }
    ((*setup, result), failures)
}
