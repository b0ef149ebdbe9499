//! Files and texts that describe constellations, stations and paths.

use std::time::Duration;

use starhaul_orbit::{
    Constellation, End, Epoch, GroundStation, Network, PathOverTime, Rules, Shell, read_tles,
    write_leoem, write_table,
};
use starhaul_units::Bandwidth;

/// A file of two-line elements, the constellation that it gives, and a path over it; as it is, and with its checksums
/// corrected, which a fuzzer does not guess.
pub fn orbit_elements(data: &[u8]) {
    elements(data);
    let summed = |line: &[u8]| match line {
        [kind @ (b'1' | b'2'), b' ', ..] if line.len() >= 69 => {
            let digits = line[..68].iter().map(|byte| match byte {
                b'-' => 1,
                b'0'..=b'9' => u32::from(byte - b'0'),
                _ => 0,
            });
            let sum = u8::try_from(digits.sum::<u32>() % 10).expect("a digit");
            [&[*kind, b' '], &line[2..68], &[b'0' + sum], &line[69..]].concat()
        }
        _ => line.to_vec(),
    };
    let lines: Vec<_> = data.split(|byte| *byte == b'\n').map(summed).collect();
    elements(&lines.join(&b'\n'));
}

fn elements(data: &[u8]) {
    let Ok(tles) = read_tles("fuzz", data) else {
        return;
    };
    let read = tles.len();
    let Ok(constellation) = Constellation::of_tles(tles, None) else {
        return;
    };
    let satellites = constellation.satellites().len();
    assert!(satellites + constellation.left_out() <= read);
    let mut degrees = vec![0; satellites];
    for &(a, b) in constellation.lasers() {
        assert_ne!(a, b, "a laser to itself");
        for end in [a, b] {
            degrees[end as usize] += 1;
        }
    }
    assert!(
        degrees.iter().all(|degree| *degree <= 4),
        "more than four lasers"
    );
    let stations = ["Quito=-0.2,-78.5", "Oslo"].map(|text| text.parse().expect("a station"));
    let rules = Rules {
        min_elevation_deg: 0.0,
        relay: true,
        ..Rules::default()
    };
    let network = Network::new(constellation, stations.to_vec(), rules).expect("possible rules");
    let hour = Duration::from_secs(3600);
    let path = network.path(0, 1, 2 * hour, hour).expect("two steps");
    assert_eq!(path.steps().count(), 2);
    again(&path);
}

/// Texts of shells, stations and instants, and paths as JSON.
pub fn orbit_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(station) = text.parse::<GroundStation>() {
        let from_centre = station.position().norm();
        assert!((6_356.0..6_379.0).contains(&from_centre), "{station:?}");
    }
    if let Ok(epoch) = text.parse::<Epoch>() {
        assert_eq!(epoch.to_string().parse(), Ok(epoch));
    }
    if let Ok(shell) = text.parse::<Shell>() {
        assert!((100.0..2_100.0).contains(&shell.altitude_km()), "{shell}");
        let small = u32::from(shell.planes) * u32::from(shell.satellites) <= 200;
        let start = "2000-01-01".parse().expect("an instant");
        if small && let Ok(constellation) = Constellation::of_shells(&[shell], start) {
            let there = constellation.positions(Duration::from_secs(60));
            assert!(there.iter().all(Option::is_some), "{shell} has decayed");
        }
    }
    if let Ok(path) = PathOverTime::from_json("fuzz", text) {
        again(&path);
    }
}

/// What is written of a path can be read, and its parts agree.
fn again(path: &PathOverTime) {
    assert_eq!(
        PathOverTime::from_json("fuzz", &path.to_json()).as_ref(),
        Ok(path)
    );
    let base = Bandwidth::from_kbit(100);
    let steps = path.steps().count();
    for end in [End::From, End::To] {
        let capacity = path.gsl_capacity(end, base);
        assert_eq!(capacity.len(), steps);
        assert!(
            capacity.iter().all(|(_, rate)| *rate <= base),
            "more than all"
        );
        assert!(path.handovers(end).len() < steps);
        let mut table = Vec::new();
        write_table(path, Some((end, base)), &mut table).expect("memory takes all");
        let _ = path.link(Some((end, base)));
    }
    let hops = path.hops();
    let known = |route: &Vec<usize>| route.iter().all(|hop| *hop < hops.hops.len());
    assert!(hops.routes.iter().all(|(_, route)| known(route)));
    let _ = write_leoem(path, &mut Vec::new());
}
