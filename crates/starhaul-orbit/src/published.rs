//! The constellation of LEOTP's emulation (Jiang et al., ICDCS 2023, table II), whose routes are Hypatia's.

use crate::{Constellation, Error, Network, Rules, Shell};

/// The paths of table II from Beijing: name of the far station, mean propagation in ms, and mean number of links.
pub const LEOTP_PAIRS: [(&str, f64, f64); 3] = [
    ("Hong Kong", 11.2, 3.15),
    ("Paris", 36.4, 7.53),
    ("New York", 69.1, 16.88),
];

/// Radius of the circle in which a satellite of Hypatia's Starlink serves stations, km: its height over the tangent of the
/// elevation of 25 degrees, rounded up, over a flat Earth.
const CONE_RADIUS_KM: f64 = 940.7;
const ALTITUDE_KM: f64 = 550.0;

/// The shell of table II, by its name in [`Shell::PRESETS`].
pub const LEOTP_SHELL: &str = "hypatia";

/// The rules of table II: a satellite serves a station within a slant range that stands for an elevation of 25 degrees.
pub fn leotp_rules() -> Rules {
    Rules {
        min_elevation_deg: 0.0,
        max_range_km: Some(CONE_RADIUS_KM.hypot(ALTITUDE_KM)),
        ..Rules::default()
    }
}

/// The network of table II. Station 0 is Beijing, and 1 to 3 are those of [`LEOTP_PAIRS`].
///
/// Hypatia's Starlink is the shell [`Shell::PRESETS`] calls `hypatia`: 72 × 22 satellites at 53 degrees with a mean motion
/// of 15.19 revolutions per day, every second plane ahead by half a slot, from 2000-01-01 on. A satellite serves a station
/// within a slant range of √(940.7² + 550²) km, which stands for an elevation of 25 degrees.
///
/// # Errors
/// None, unless the presets are broken.
pub fn leotp_table_2() -> Result<Network, Error> {
    let shell: Shell = LEOTP_SHELL.parse()?;
    let constellation = Constellation::of_shells(&[shell], "2000-01-01T00:00:00Z".parse()?)?;
    let far = LEOTP_PAIRS.iter().map(|(name, ..)| *name);
    let stations = ["Beijing"].into_iter().chain(far).map(str::parse);
    let stations = stations.collect::<Result<_, _>>()?;
    Network::new(constellation, stations, leotp_rules())
}
