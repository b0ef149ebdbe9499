//! Constellations of satellites into paths over time between ground stations.
//!
//! A [`Constellation`] comes from TLE files or from a [`Shell`] by numbers, and moves by SGP4. A [`Network`] adds ground
//! stations and lasers; its shortest path between two stations, step by step, is a [`PathOverTime`], which is written and
//! read as JSON, written as CSV and as a path log for `replay` and the lab, and split into hops and routes for the
//! simulator. Nothing here owns a clock, a file or a socket.
//!
//! ```
//! use std::time::Duration;
//! use starhaul_orbit::{Constellation, End, Network, Rules, Shell};
//! use starhaul_units::Bandwidth;
//!
//! let shell: Shell = "starlink".parse()?;
//! let constellation = Constellation::of_shells(&[shell], "2000-01-01T00:00:00Z".parse()?)?;
//! let stations = vec!["Beijing".parse()?, "Paris".parse()?];
//! let network = Network::new(constellation, stations, Rules::default())?;
//! let path = network.path(0, 1, Duration::from_secs(10), Duration::from_secs(1))?;
//!
//! let first = path.steps().next().expect("a path has steps").1;
//! assert!(first.is_connected() && first.propagation() > Duration::from_millis(30));
//! // What its parts need: the simulator's links and routes, and the capacity of the first ground link.
//! assert!(path.hops().hops.len() >= first.links());
//! assert_eq!(path.gsl_capacity(End::From, Bandwidth::from_mbit(10)).len(), 10);
//! # Ok::<(), starhaul_orbit::Error>(())
//! ```

mod capacity;
mod cities;
mod constellation;
mod epoch;
mod figures;
mod geometry;
mod graph;
mod grid;
mod ground;
mod json;
mod network;
mod path;
mod published;
mod shell;
mod tables;
mod tle;

pub use capacity::gsl_rate;
pub use cities::CITIES;
pub use constellation::{Constellation, MAX_AGE, Satellite};
pub use epoch::Epoch;
pub use figures::Figures;
pub use geometry::{EARTH_RADIUS_KM, LIGHT_KM_PER_S, Position, propagation};
pub use graph::{Graph, Tree};
pub use grid::LEAST_GRAZING_KM;
pub use ground::GroundStation;
pub use network::{Network, Route, Rules, Snapshot};
pub use path::{End, Hop, Hops, MAX_STEP, MAX_STEPS, PathOverTime, Step};
pub use published::{LEOTP_PAIRS, LEOTP_SHELL, leotp_rules, leotp_table_2};
pub use shell::{Phasing, Shell};
pub use tables::{write_leoem, write_table};
pub use tle::{MAX_SATELLITES, Tle, read_tles};

/// Errors in the description of a constellation, of stations or of paths, all caused by their author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {file}: {reason}")]
    Read {
        /// Path of the file.
        file: String,
        /// The system's error text.
        reason: String,
    },
    /// A line of a TLE file does not follow its format.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// Path of the file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// A file with valid lines gives no constellation or path.
    #[error("{file}: {reason}")]
    File {
        /// Path of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting has an impossible value.
    #[error("{key}={value}: {reason}")]
    Setting {
        /// The setting's name.
        key: &'static str,
        /// The value as given.
        value: String,
        /// Why it is invalid, or what is valid.
        reason: String,
    },
    /// A shell is described by a setting or a name that does not exist.
    #[error("{text:?} is no setting of a shell; {suggestion}")]
    Shell {
        /// The part of the text.
        text: String,
        /// Values that are valid, as text for people.
        suggestion: String,
    },
    /// The text is no ground station.
    #[error("{text:?} is no ground station: {reason}")]
    Station {
        /// The text that was given.
        text: String,
        /// Why it is none, or what is valid.
        reason: String,
    },
}

/// The error for the value of a setting.
fn setting(key: &'static str, value: impl ToString, reason: impl ToString) -> Error {
    Error::Setting {
        key,
        value: value.to_string(),
        reason: reason.to_string(),
    }
}
