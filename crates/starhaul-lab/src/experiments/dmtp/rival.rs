//! The same blocks over noq's multipath QUIC: each a stream of one connection, reliable, with New Reno.

use std::time::Duration;

use starhaul_cc::ControllerConfig;

use super::{
    BLOCKS_PER_STEP, DEADLINE, INTERVAL, Step, StepResult, links,
    run::{Carried, payload},
};
use crate::{
    Error,
    worlds::stack::{PathSetup, World},
};

const LABEL: &str = "blocks";

/// One result for each `per_row` blocks.
pub(super) fn run(seed: u64, steps: &[Step], per_row: u32) -> Result<Vec<StepResult>, Error> {
    let paths = links(true).into_iter().map(|(link, cost)| PathSetup {
        forward: link.clone(),
        backward: link,
        cost,
        controller: ControllerConfig::NewReno,
    });
    let paths: Vec<_> = paths.collect();
    let mut world = World::mpquic(seed, &paths, &[LABEL])?;
    let total = BLOCKS_PER_STEP * u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let mut results = vec![StepResult::default(); (total / per_row) as usize];
    let mut carried = Carried::default();
    let mut sent = 0;
    world.run(INTERVAL * total + Duration::from_secs(2), |world| {
        let elapsed = world.elapsed();
        while sent < total && INTERVAL * sent <= elapsed {
            if sent % BLOCKS_PER_STEP == 0 {
                carried.set_loss(world, steps.get((sent / BLOCKS_PER_STEP) as usize));
            }
            if sent % per_row == 0 {
                carried.begin(world, &mut results, (sent / per_row) as usize);
            }
            world.sender().send_block(LABEL, payload(sent));
            results[(sent / per_row) as usize].sent += 1;
            sent += 1;
        }
        while let Some((_, data)) = world.receiver().poll_block() {
            let Some(number) = data.first_chunk().map(|first| u32::from_be_bytes(*first)) else {
                continue;
            };
            if let Some(result) = results.get_mut((number / per_row) as usize) {
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
    Ok(results)
}
