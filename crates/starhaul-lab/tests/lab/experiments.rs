//! The experiments of the seeds in virtual time, each with its table. `STARHAUL_SEEDS` asks for more seeds than the few of
//! an ordinary run.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its world has failed"
)]

mod aggregation;
mod mpdtp;

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use starhaul_demo::{
    baseline::Controller,
    load::{Class, Classes},
    score::ClassScore,
};
use starhaul_lab::{
    experiments::{
        cut::{self, CutResult, CutSetup, Traffic},
        dmtp::{BLOCKS_PER_STEP, DmtpSetup, LOSS_STEPS, MODES, Step, StepResult, needed_bytes},
        hard::{HardSetup, System},
    },
    kit::Records,
    workload::bulk::Bulk,
    worlds::{pipe::Pipe, stack::World},
};
use starhaul_plot::Table;
use starhaul_session::{Mode, SchedulerChoice};

fn seeds(few: u64) -> impl Iterator<Item = u64> {
    let count = std::env::var("STARHAUL_SEEDS").map_or(few, |text| {
        let count = text.parse().ok().filter(|count| *count > 0);
        count.unwrap_or_else(|| panic!("STARHAUL_SEEDS is a number of seeds: {text:?}"))
    });
    1..=count
}

/// DMTP fig. 7: with both protections nothing is late up to 10 % loss.
#[test]
fn dmtp_blocks_on_time_by_loss_and_mode() {
    println!("blocks on time of {BLOCKS_PER_STEP} per step, by loss of the cheap path in %");
    println!(
        "{:<16} seed {}",
        "mode",
        LOSS_STEPS
            .map(|loss| format!("{:>7}", loss * 100.0))
            .concat()
    );
    for mode in MODES {
        let mut totals = LOSS_STEPS.map(|_| StepResult::default());
        for seed in seeds(1) {
            let setup = DmtpSetup {
                scheduler: SchedulerChoice::Rules,
                mode,
                both_paths: true,
                seed,
            };
            let steps = setup.run(&Records::default()).unwrap();
            let row: String = steps
                .iter()
                .map(|step| format!("{:>7}", step.on_time))
                .collect();
            println!("{:<16} {seed:>4} {row}", mode.name());
            for ((total, step), loss) in totals.iter_mut().zip(&steps).zip(LOSS_STEPS) {
                total.sent += step.sent;
                total.on_time += step.on_time;
                let all = matches!(mode, Mode::Retransmit | Mode::FecRetransmit);
                assert!(
                    !all || step.on_time == step.sent,
                    "{mode:?}, seed {seed}, loss {loss}: {step:?}"
                );
                // Each lost fragment is sent once more, and few that only came late; of few losses a few more are no surprise. Where that is in time,
                // there is no redundancy beside it.
                let extra = step.extra_share().unwrap();
                let most = 1.25 * loss + 0.005;
                assert!(
                    !all || extra <= most,
                    "{mode:?}, seed {seed}, loss {loss}: {extra} extra"
                );
            }
        }
        for (total, loss) in totals.iter().zip(LOSS_STEPS).filter(|_| mode == Mode::None) {
            assert!(as_unprotected(total, loss), "loss {loss}: {total:?}");
        }
    }
}

/// DMTP §V: with the optimizer nothing is late either, and the dear path carries at most 1.15 × the data that the linear program puts there.
#[test]
fn dmtp_by_the_optimizer_needs_little_of_the_dear_path() {
    let (mut carried, mut needed) = (0.0, 0.0);
    for seed in seeds(2) {
        let setup = DmtpSetup {
            mode: Mode::FecRetransmit,
            scheduler: SchedulerChoice::Optimizer,
            both_paths: true,
            seed,
        };
        let steps = setup.run(&Records::default()).unwrap();
        for (step, loss) in steps.iter().zip(LOSS_STEPS) {
            assert_eq!(
                step.on_time, step.sent,
                "seed {seed}, loss {loss}: {step:?}"
            );
            let extra = step.extra_share().unwrap();
            assert!(
                extra <= 1.25 * loss + 0.003,
                "seed {seed}, loss {loss}: {extra} extra"
            );
            let bytes = f64::from(u32::try_from(step.dear_datagram_bytes).unwrap());
            println!(
                "seed {seed}, loss {loss}: {bytes} B, needed {:.0} B",
                needed_bytes(loss)
            );
            carried += bytes;
            needed += needed_bytes(loss);
        }
    }
    let ratio = carried / needed;
    println!("all steps: {ratio:.3} of what is needed");
    assert!(ratio <= 1.15, "{ratio}");
}

/// Losses in a row: 99.9 % are in time, and not much more is sent than was lost.
#[test]
fn dmtp_by_the_optimizer_survives_losses_in_a_row() {
    hardly_any_is_late(SchedulerChoice::Optimizer, &in_a_row(), |loss| {
        // A step of 5 s has few bursts, and may have twice as many as its mean.
        2.5 * loss + 0.03
    });
}

/// The rules code what would be too late to be sent again, which after a burst may be a whole block.
#[test]
fn dmtp_by_rules_survives_losses_in_a_row() {
    hardly_any_is_late(SchedulerChoice::Rules, &in_a_row(), |loss| 3.0 * loss + 0.1);
}

/// Twice as much as in the paper is lost: what leaves beside the data is still what was lost and little more. Acknowledgements are lost as often, and
/// what they name seems to be lost, too.
#[test]
fn dmtp_by_rules_at_twice_the_greatest_loss() {
    let steps = [0.1, 0.2].map(|loss| Step { loss, burst: 1.0 });
    hardly_any_is_late(SchedulerChoice::Rules, &steps, |loss| 1.25 * loss + 0.03);
}

fn in_a_row() -> Vec<Step> {
    let losses = [0.01, 0.02, 0.05, 0.1];
    let steps = [5.0, 20.0].map(|burst| losses.map(|loss| Step { loss, burst }));
    steps.concat()
}

/// 99.9 % of the blocks are in time, and no more leaves beside the data than this share at each loss.
fn hardly_any_is_late(scheduler: SchedulerChoice, steps: &[Step], most_extra: impl Fn(f64) -> f64) {
    let (mut sent, mut late) = (0, 0);
    for seed in seeds(2) {
        let setup = DmtpSetup {
            mode: Mode::FecRetransmit,
            scheduler,
            both_paths: true,
            seed,
        };
        let results = setup
            .run_steps(steps, BLOCKS_PER_STEP, &Records::default())
            .unwrap();
        for (step, result) in steps.iter().zip(&results) {
            let extra = result.extra_share().unwrap();
            println!(
                "seed {seed}, {step:?}: {} late, {extra:.3} extra",
                result.sent - result.on_time
            );
            sent += result.sent;
            late += result.sent - result.on_time;
            assert!(
                extra <= most_extra(step.loss),
                "seed {seed}, {step:?}: {extra} extra"
            );
        }
    }
    assert!(late * 1_000 <= sent, "{late} of {sent} late");
}

/// A block is whole when all its 20 fragments came. Four standard deviations either way.
fn as_unprotected(step: &StepResult, loss: f64) -> bool {
    let sent = f64::from(step.sent);
    let share = (1.0 - loss).powi(20);
    let spread = 4.0 * (sent * share * (1.0 - share)).sqrt();
    // Of few expected losses one or two more are no surprise.
    (f64::from(step.on_time) - sent * share).abs() <= spread + 1.0
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

/// Over a link that pauses and changes all that fits in time, as the oracle shows; ours loses little of it, and tells each loss.
#[test]
fn over_hard_links_little_is_late_and_every_late_block_is_named() {
    let run = |system| {
        let setup = HardSetup {
            system,
            link: 1,
            seed: 1,
        };
        setup.run(&Records::default()).unwrap()
    };
    let failed = |classes: &Classes<ClassScore>| {
        Class::ALL.map(|class| {
            let score = classes.of(class);
            score.sent - score.on_time
        })
    };
    assert_eq!(failed(&run(System::Oracle).classes), [0; 3]);
    let theirs = run(System::MpQuic(Controller::NewReno)).classes;
    let ours = run(System::Starhaul(SchedulerChoice::Optimizer));
    let [named, missed] = [
        Class::ALL.map(|class| ours.lost.iter().filter(|lost| lost.class == class).count() as u64),
        failed(&ours.classes),
    ];
    println!("ours {missed:?}, multipath QUIC {:?}", failed(&theirs));
    assert_eq!(named, missed, "{:?} {:?}", ours.lost, ours.classes);
    for class in Class::ALL {
        let [ours, theirs] = [&ours.classes, &theirs].map(|classes| classes.of(class));
        assert!(ours.on_time_share() >= 0.998, "{class:?}: {ours:?}");
        assert!(ours.on_time >= theirs.on_time, "{class:?}: {theirs:?}");
    }
    assert!(ours.download.is_some_and(|rate| rate.mbit() > 5.0));
}
