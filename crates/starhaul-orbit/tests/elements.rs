//! Real satellites by their elements.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use starhaul_needs::trace;
use starhaul_orbit::{Constellation, Network, Rules, read_tles};

const SECOND: Duration = Duration::from_secs(1);

fn constellation(file: &str) -> Option<Constellation> {
    let text = fs::read(trace(&format!("tle/{file}.tle"))?).unwrap();
    Some(Constellation::of_tles(read_tles(file, &*text).unwrap(), None).unwrap())
}

/// Links of each satellite.
fn degrees(constellation: &Constellation) -> Vec<usize> {
    let mut degrees = BTreeMap::new();
    for (a, b) in constellation.lasers() {
        *degrees.entry(*a).or_insert(0) += 1;
        *degrees.entry(*b).or_insert(0) += 1;
    }
    degrees.into_values().collect()
}

#[test]
fn every_satellite_of_a_file_is_taken_once_and_has_at_most_four_lasers() {
    for file in ["Starlink", "OneWeb", "Iridium", "Dove", "SkySat", "Telesat"] {
        let Some(path) = trace(&format!("tle/{file}.tle")) else {
            return;
        };
        let text = fs::read_to_string(path).unwrap();
        let numbers: BTreeSet<&str> = text
            .lines()
            .filter(|line| line.starts_with("1 "))
            .map(|line| &line[2..7])
            .collect();
        let Some(constellation) = constellation(file) else {
            return;
        };
        let known = constellation.satellites().len() + constellation.left_out();
        assert_eq!(known, numbers.len(), "{file}");
        assert!(
            degrees(&constellation).iter().all(|degree| *degree <= 4),
            "{file}"
        );
    }
}

#[test]
fn starlink_carries_across_the_atlantic() {
    let Some(constellation) = constellation("Starlink") else {
        return;
    };
    let names = constellation.satellites().iter().map(|one| one.name());
    assert!(names.clone().all(|name| !name.ends_with(" DEB")), "debris");
    assert_eq!((names.count(), constellation.left_out()), (2990, 33));
    let four = degrees(&constellation)
        .iter()
        .filter(|degree| **degree == 4)
        .count();
    assert!(
        four * 2 > constellation.satellites().len(),
        "{four} have four lasers"
    );
    let stations = vec!["London".parse().unwrap(), "New York".parse().unwrap()];
    let network = Network::new(constellation, stations, Rules::default()).unwrap();
    let figures = network
        .path(0, 1, 60 * SECOND, 5 * SECOND)
        .unwrap()
        .figures();
    assert_eq!(figures.connected, figures.steps, "{figures:?}");
    // 5570 km along the ground are 18.6 ms; the mesh is not straight.
    let mean_ms = figures.propagation_mean().unwrap().as_secs_f64() * 1e3;
    assert!((20.0..40.0).contains(&mean_ms), "{mean_ms} ms");
}
