//! The paths of LEOTP's table II, and what becomes of them in other readings of the table.

use std::time::Duration;

use starhaul_orbit::{
    Constellation, End, Epoch, LEOTP_PAIRS, Network, Rules, Shell, leotp_table_2,
};
use starhaul_units::Bandwidth;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn ten_minutes_of_hypatia_give_the_paths_of_table_2() {
    let network = leotp_table_2().unwrap();
    for ((name, propagation_ms, links), far) in LEOTP_PAIRS.into_iter().zip(1..) {
        let path = network.path(0, far, 600 * SECOND, SECOND).unwrap();
        let figures = path.figures();
        assert_eq!(
            (path.from(), path.to(), figures.connected),
            ("Beijing", name, 600)
        );
        let mean_ms = figures.propagation_mean().unwrap().as_secs_f64() * 1e3;
        let mean_links = figures.links_mean().unwrap();
        println!("{name}: {mean_ms:.3} ms, {mean_links:.3} links, {figures:?}");
        assert!(
            (mean_ms - propagation_ms).abs() < 0.1,
            "{name}: {mean_ms} ms"
        );
        assert!(
            (mean_links - links).abs() < 0.03,
            "{name}: {mean_links} links"
        );
        // The bottleneck: between half of its base and all of it, at its least around handovers.
        let base = Bandwidth::from_mbit(10);
        let capacity = path.gsl_capacity(End::To, base);
        let half = Bandwidth::from_mbit(5);
        assert!(
            capacity
                .iter()
                .all(|(_, rate)| (half..=base).contains(rate))
        );
        for handover in path.handovers(End::To) {
            let step = usize::try_from(handover.as_secs()).unwrap();
            assert!(
                capacity[step].1 < capacity[step + 1].1,
                "{name} at {handover:?}"
            );
        }
    }
}

/// Phase and links are told apart by the table: with Walker's phasing no factor gives all three rows.
#[test]
fn no_factor_of_walker_gives_table_2() {
    let start: Epoch = "2000-01-01T00:00:00Z".parse().unwrap();
    for factor in (0..72).step_by(6) {
        let shell: Shell = format!("starlink,phasing={factor}").parse().unwrap();
        let constellation = Constellation::of_shells(&[shell], start).unwrap();
        let names = ["Beijing"]
            .into_iter()
            .chain(LEOTP_PAIRS.iter().map(|pair| pair.0));
        let stations = names.map(|name| name.parse().unwrap()).collect();
        let network = Network::new(constellation, stations, Rules::default()).unwrap();
        let pairs = [(0, 1), (0, 2), (0, 3)];
        let figures = network
            .figures(&pairs, 600 * SECOND, 20 * SECOND, |_, _| ())
            .unwrap();
        let near = figures
            .iter()
            .zip(LEOTP_PAIRS)
            .filter(|(figures, (_, ms, links))| {
                let mean_ms = figures.propagation_mean().unwrap().as_secs_f64() * 1e3;
                (mean_ms - ms).abs() < 1.0 && (figures.links_mean().unwrap() - links).abs() < 0.5
            });
        assert!(near.count() < 3, "factor {factor}");
    }
}
