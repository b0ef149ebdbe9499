//! One reliable stream over several paths: it uses them all, and never suffers from having one more.

use starhaul_lab::{
    experiments::aggregation::{self, AggregationSetup, GRID, Goodputs},
    kit::Records,
    worlds::pipe::Pipe,
};
use starhaul_plot::Table;

use super::{on_all_cores, seeds};

/// Least share of what the best path carries alone.
const OF_BEST: f64 = 0.97;
/// Least share of the sum of what each path carries alone and, where nothing is lost, of what full packets carry at the links' rates: headers
/// take more than 0.05 of the rates themselves.
const OF_SUM: f64 = 0.95;
const TRIPS_MS: [u64; 3] = [30, 300, 600];

/// A bulk stream uses both paths, and never suffers from having one more.
#[test]
fn aggregation_grid() {
    let setups = seeds(1).flat_map(|seed| GRID.map(|(pipes, least)| (seed, pipes, least)));
    let rows = on_all_cores(
        &setups.collect::<Vec<_>>(),
        |&(seed, pipes, least_of_sum)| {
            let row = measure(&AggregationSetup {
                pipes: pipes.to_vec(),
                seed,
            });
            assert!(
                row.of_sum() >= least_of_sum && row.of_best() >= Some(OF_BEST),
                "seed {seed}: {row:?}"
            );
            // What is carried per sum of the rates is bounded by headers and losses, whatever a session does.
            assert!(
                row.of_sum() <= 1.01 * row.possible() && row.possible() < 0.95,
                "seed {seed}: {row:?}"
            );
            let has_clean_path = pipes.iter().any(|pipe| pipe.loss == 0.0);
            assert!(
                !has_clean_path || row.of_all_alone() >= Some(OF_SUM),
                "seed {seed}: {:?} of the sum of each path alone: {row:?}",
                row.of_all_alone()
            );
            row
        },
    );
    println!("{}", Table::of(&aggregation::columns(), &rows).text());
}

/// Every set-up of `lab aggregation`: 20 and 20, 50 and 10, 200, 50 and 10 Mbit/s, round trips of 30, 300 and 600 ms in every order, and
/// no, 1 and 3 % loss.
#[test]
#[ignore = "49 set-ups of up to 260 Mbit/s: STARHAUL_CI_LONG=1 .ci/run"]
fn every_set_up_uses_what_its_paths_carry() {
    let setups = seeds(1).flat_map(|seed| aggregation::setups(false, seed));
    let setups: Vec<AggregationSetup> = setups.collect();
    let rows = on_all_cores(&setups, measure);
    println!("{}", Table::of(&aggregation::columns(), &rows).text());
    let faults = setups.iter().zip(&rows).filter_map(|(setup, row)| {
        let of_ceiling = least_of_ceiling(&setup.pipes);
        let is_right = row.of_best() >= Some(OF_BEST)
            && row.of_all_alone() >= Some(OF_SUM)
            && row.of_ceiling() >= of_ceiling;
        (!is_right).then(|| {
            format!(
                "{setup:?}: {:.3?} of the best, {:.3?} of each alone, {:.3} of the ceiling, least {of_ceiling}",
                row.of_best(),
                row.of_all_alone(),
                row.of_ceiling()
            )
        })
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every rate, order of round trips and loss that the documentation names is among the set-ups, of which a table would not miss one.
#[test]
fn the_grid_is_complete() {
    let setups = aggregation::setups(false, 1);
    let has = |rates: &[u64], trips: &[u64], loss: f64| {
        let both = rates.iter().zip(trips);
        let pipes: Vec<Pipe> = both
            .map(|(rate, rtt)| Pipe::new(*rate, *rtt, loss))
            .collect();
        setups.iter().any(|setup| setup.pipes == pipes)
    };
    for loss in [0.0, 0.01, 0.03] {
        for first in TRIPS_MS {
            for second in TRIPS_MS.into_iter().filter(|second| *second != first) {
                let (low, high) = (first.min(second), first.max(second));
                // Two paths of the same rate are the same in either order.
                assert!(
                    has(&[20, 20], &[low, high], loss),
                    "{low} {high} ms, {loss}"
                );
                let of_two = [first, second];
                assert!(has(&[50, 10], &of_two, loss), "{of_two:?} ms, {loss}");
                let third = TRIPS_MS.iter().sum::<u64>() - first - second;
                let of_three = [first, second, third];
                assert!(
                    has(&[200, 50, 10], &of_three, loss),
                    "{of_three:?} ms, {loss}"
                );
            }
        }
    }
}

fn measure(setup: &AggregationSetup) -> Goodputs {
    setup.run(&Records::default()).unwrap()
}

/// What is lost is sent again, and a controller keeps less in flight.
fn least_of_ceiling(pipes: &[Pipe]) -> f64 {
    let greatest = pipes.iter().map(|pipe| pipe.loss).fold(0.0, f64::max);
    if greatest == 0.0 {
        OF_SUM
    } else if greatest <= 0.01 {
        0.92
    } else {
        0.9
    }
}
