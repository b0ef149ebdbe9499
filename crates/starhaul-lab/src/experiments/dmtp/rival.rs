//! The same blocks over noq's multipath QUIC: each a stream of one connection, reliable.

use std::time::Duration;

use starhaul_cc::ControllerConfig;
use starhaul_demo::baseline::Controller;

use super::{
    BLOCKS_PER_STEP, DEADLINE, INTERVAL, Step, StepResult, WARM_UP_BLOCKS, begun_by, links, row_of,
    run::{Carried, payload},
};
use crate::{
    Error,
    worlds::stack::{PathSetup, World},
};

const LABEL: &str = "blocks";

/// One result for each `per_row` blocks.
pub(super) fn run(
    seed: u64,
    mpquic: Controller,
    steps: &[Step],
    per_row: u32,
) -> Result<Vec<StepResult>, Error> {
    let paths = links(true).into_iter().map(|(link, cost)| PathSetup {
        forward: link.clone(),
        backward: link,
        cost,
        controller: ControllerConfig::NewReno,
    });
    let paths: Vec<_> = paths.collect();
    let mut world = World::mpquic(seed, mpquic, &paths, &[LABEL])?;
    let counted = BLOCKS_PER_STEP * u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let total = WARM_UP_BLOCKS + counted;
    let mut results = vec![StepResult::default(); (counted / per_row) as usize];
    let mut carried = Carried::default();
    let mut sent = 0;
    world.run(INTERVAL * total + Duration::from_secs(2), |world| {
        let elapsed = world.elapsed();
        while sent < total && INTERVAL * sent <= elapsed {
            carried.advance(world, steps, sent);
            if let Some(row) = begun_by(sent, per_row) {
                carried.begin(world, &mut results, row);
            }
            if let Some(row) = row_of(sent, per_row) {
                results[row].sent += 1;
            }
            world.sender().send_block(LABEL, payload(sent));
            sent += 1;
        }
        while let Some((_, data)) = world.receiver().poll_block() {
            let Some(number) = data.first_chunk().map(|first| u32::from_be_bytes(*first)) else {
                continue;
            };
            let row = row_of(number, per_row).and_then(|row| results.get_mut(row));
            if let Some(result) = row {
                let latency = elapsed.saturating_sub(INTERVAL * number);
                result.arrived(latency, latency <= DEADLINE && data == payload(number));
            }
        }
        if elapsed >= INTERVAL * total {
            carried.end(world, &mut results);
            return None;
        }
        Some(INTERVAL * sent)
    });
    world.check()?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use super::*;

    #[test]
    fn without_a_loss_all_counted_blocks_are_in_time() {
        for seed in 1..4 {
            let steps = [Step::single(0.0)];
            let [found] = run(seed, Controller::NewReno, &steps, BLOCKS_PER_STEP)
                .unwrap()
                .try_into()
                .unwrap();
            let StepResult { sent, on_time, .. } = found;
            assert_eq!(sent, BLOCKS_PER_STEP);
            assert!(
                on_time * 100 >= sent * 99,
                "seed {seed}: {on_time} of {sent}"
            );
        }
    }
}
