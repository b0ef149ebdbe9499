//! DMTP fig. 5–9: blocks of 24 kB over a path that loses more and more, by each scheduler.

use starhaul_lab::{
    experiments::dmtp::{
        BLOCKS_PER_STEP, DmtpSetup, LOSS_STEPS, MODES, Step, StepResult, least_extra_share,
        needed_bytes,
    },
    kit::Records,
};
use starhaul_session::{Mode, SchedulerChoice};

use super::{on_all_cores, seeds};

/// Twice as much is lost as at most in the paper.
const TWICE: f64 = 0.2;
/// Redundancy of the prototype of the paper, whatever is lost, and the loss below which ours is less.
const FIXED_CODE: f64 = 0.2;
const FEW_LOSSES: f64 = 0.05;
/// Of what the linear program puts on the dear path.
const OF_NEEDED: f64 = 1.15;
/// Of what the model says must leave beside the data.
const OF_LEAST: f64 = 1.25;

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
    assert!(ratio <= OF_NEEDED, "{ratio}");
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
fn dmtp_at_twice_the_greatest_loss() {
    let steps = [0.1, TWICE].map(alone);
    for scheduler in SchedulerChoice::ALL {
        hardly_any_is_late(scheduler, &steps, |loss| OF_LEAST * loss + 0.03);
    }
}

/// Each packet is lost by itself.
const fn alone(loss: f64) -> Step {
    Step { loss, burst: 1.0 }
}

fn in_a_row() -> Vec<Step> {
    let losses = [0.01, 0.02, 0.05, 0.1, TWICE];
    let steps = [5.0, 20.0].map(|burst| losses.map(|loss| Step { loss, burst }));
    steps.concat()
}

/// 99.9 % of the blocks are in time, and no more leaves beside the data than this share at each loss.
fn hardly_any_is_late(scheduler: SchedulerChoice, steps: &[Step], most_extra: impl Fn(f64) -> f64) {
    let mut of_steps = vec![(0_u32, 0_u32); steps.len()];
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
        for ((step, result), (sent, late)) in steps.iter().zip(&results).zip(&mut of_steps) {
            let extra = result.extra_share().unwrap();
            println!(
                "{}, seed {seed}, {step:?}: {} late, {extra:.3} extra",
                scheduler.name(),
                result.sent - result.on_time
            );
            *sent += result.sent;
            *late += result.sent - result.on_time;
            assert!(
                extra <= most_extra(step.loss),
                "seed {seed}, {step:?}: {extra} extra"
            );
        }
    }
    // One of the few blocks of a step is more than one in a thousand.
    for (step, (sent, late)) in steps.iter().zip(&of_steps) {
        assert!(
            late * 1_000 <= (*sent).max(1_000),
            "{}, {step:?}: {late} of {sent} late",
            scheduler.name()
        );
    }
    let (sent, late) = of_steps
        .iter()
        .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert!(
        late * 1_000 <= sent,
        "{}: {late} of {sent} late",
        scheduler.name()
    );
}

/// All that fig. 7 and 9 ask for, with the bounds as they stand, which few seeds would meet or miss by chance: up to 10 % loss every block is in
/// time, and at 20 % and in bursts of the same means 99.9 % at each loss; beside the data leaves less than the fixed code of the prototype wherever less
/// than 5 % is lost, also in bursts, and where each packet is lost by itself 1.25 × what the model says is the least, but for four standard deviations of
/// the number of losses; and the dear path carries 1.15 × what the linear program puts there.
#[test]
#[ignore = "120 runs of a minute: STARHAUL_CI_LONG=1 .ci/run"]
fn dmtp_over_twenty_seeds() {
    let losses: Vec<f64> = LOSS_STEPS.into_iter().chain([TWICE]).collect();
    let lossy = losses.iter().copied().filter(|loss| *loss > 0.0);
    let in_a_row = |burst| lossy.clone().map(move |loss| Step { loss, burst });
    let courses: [Vec<Step>; 3] = [
        losses.iter().copied().map(alone).collect(),
        in_a_row(5.0).collect(),
        in_a_row(20.0).collect(),
    ];
    let mut faults = Vec::new();
    for scheduler in SchedulerChoice::ALL {
        for course in &courses {
            faults.extend(faults_of(scheduler, course));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs a course of losses with twenty seeds; says what is missed at which loss.
fn faults_of(scheduler: SchedulerChoice, course: &[Step]) -> Vec<String> {
    let setups: Vec<DmtpSetup> = seeds(20)
        .map(|seed| DmtpSetup {
            mode: Mode::FecRetransmit,
            scheduler,
            both_paths: true,
            seed,
        })
        .collect();
    let runs = on_all_cores(&setups, |setup| {
        setup
            .run_steps(course, BLOCKS_PER_STEP, &Records::default())
            .unwrap()
    });
    let mut faults = Vec::new();
    let (mut carried, mut needed) = (0.0, 0.0);
    for (at, step) in course.iter().enumerate() {
        let found: Vec<&StepResult> = runs.iter().map(|run| &run[at]).collect();
        let sent: u32 = found.iter().map(|step| step.sent).sum();
        let late = sent - found.iter().map(|step| step.on_time).sum::<u32>();
        let fragments = found.iter().filter_map(|step| step.fragments);
        let (data, extra) = fragments.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let (data, extra) = (number(data), number(extra));
        let dear: u64 = found.iter().map(|step| step.dear_datagram_bytes).sum();
        let least = least_extra_share(setups[0], *step);
        let told = format!(
            "{}, {step:?}: {late} of {sent} late, {:.4} extra, least {least:?}, {dear} B over the dear path",
            scheduler.name(),
            extra / data
        );
        println!("{told}");
        let is_alone = step.burst == 1.0;
        let most_late = if is_alone && step.loss <= 0.1 {
            0
        } else {
            sent / 1_000
        };
        let mut is_right = late <= most_late;
        if let Some(least) = least.filter(|_| is_alone) {
            // Where nothing is lost, one fragment in 10 000.
            let by_chance = 4.0 * (step.loss * data).sqrt() + data / 10_000.0;
            is_right &= extra <= OF_LEAST * least * data + by_chance;
        }
        is_right &= step.loss >= FEW_LOSSES || extra < FIXED_CODE * data;
        if !is_right {
            faults.push(told);
        }
        if is_alone && step.loss <= 0.1 {
            carried += number(dear);
            needed += needed_bytes(step.loss) * number(runs.len() as u64);
        }
    }
    // Rules have no linear program to follow: a fragment goes where it is in time, and the price is a preference.
    if scheduler == SchedulerChoice::Optimizer && needed > 0.0 && carried > OF_NEEDED * needed {
        faults.push(format!(
            "{carried} B over the dear path, needed {needed:.0}"
        ));
    }
    faults
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// A block is whole when all its 20 fragments came. Four standard deviations either way.
fn as_unprotected(step: &StepResult, loss: f64) -> bool {
    let sent = f64::from(step.sent);
    let share = (1.0 - loss).powi(20);
    let spread = 4.0 * (sent * share * (1.0 - share)).sqrt();
    // Of few expected losses one or two more are no surprise.
    (f64::from(step.on_time) - sent * share).abs() <= spread + 1.0
}
