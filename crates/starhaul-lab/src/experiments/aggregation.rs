//! Does a reliable stream over several paths use them all, and is it never slower than over the best one alone?

use std::time::Duration;

use starhaul_units::Bandwidth;

use crate::{
    Error,
    workload::bulk::Bulk,
    worlds::{pipe::Pipe, stack::World},
};

/// What a reliable stream over `pipes` delivers to the receiving application per second, after `warm_up`, for `measured`.
///
/// # Errors
/// The session does not come up, or a byte of the stream is not the one that was sent.
pub fn goodput(
    pipes: &[Pipe],
    warm_up: Duration,
    measured: Duration,
    seed: u64,
) -> Result<Bandwidth, Error> {
    let paths = pipes
        .iter()
        .map(Pipe::setup)
        .collect::<Result<Vec<_>, _>>()?;
    let mut world = World::starhaul(seed, &paths)?;
    let mut bulk = Bulk::open(&mut world)?;
    world.run(warm_up, |world| bulk.pump(world));
    let before = bulk.received;
    world.run(warm_up + measured, |world| bulk.pump(world));
    if !bulk.intact {
        return Err(Error::Failed(format!(
            "the stream was damaged before byte {}",
            bulk.received
        )));
    }
    Ok(Bandwidth::from_bytes_over(bulk.received - before, measured))
}
