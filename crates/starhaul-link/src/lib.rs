//! One direction of a link: its capacity over time, and the one machine that decides when each packet leaves, in
//! virtual and in real time alike.
//!
//! A [`LinkSpec`] is built as a value or parsed from text; [`Link`] runs it. Nothing here owns a clock or a socket: the
//! caller passes `now`, and returns at [`Link::next_event`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use starhaul_link::{Link, LinkSpec, Outcome};
//!
//! let spec: LinkSpec = "rate=12mbit,delay=20ms".parse()?;
//! let start = Instant::now();
//! let mut link = Link::new(&spec, 1, start);
//! link.enqueue(start, 1500, "a packet");
//! assert_eq!(link.poll(start), None); // still on its way
//! // 1 ms to send 1500 bytes, then 20 ms of flight
//! let outcome = link.poll(start + Duration::from_millis(21));
//! assert!(matches!(outcome, Some(Outcome::Arrived(arrival)) if arrival.packet == "a packet"));
//! # Ok::<(), starhaul_link::Error>(())
//! ```

mod codel;
mod compare;
mod delays;
mod flight;
mod formats;
mod histogram;
mod ledger;
mod link;
mod loss;
mod opportunities;
mod outages;
mod passage;
mod queue;
mod seed;
mod series;
mod settings;
mod spec;
mod statistics;
mod synth;
mod text;
mod trace;
mod transmitter;

pub use codel::{Codel, CodelState, Head};
pub use compare::{CapacityComparison, Comparison, DelayComparison};
pub use delays::Delays;
pub use formats::{
    Format, parse_capacity, parse_csv, parse_delay, parse_leoem, write_capacity, write_csv,
    write_delay,
};
pub use histogram::Histogram;
pub use ledger::{Arrival, Cause, Dropped, LinkStats, Outcome};
pub use link::Link;
pub use loss::Loss;
pub use opportunities::{MAX_TRACE_DURATION, OPPORTUNITY_BYTES, OUTAGE, Opportunities};
pub use passage::Passage;
pub use queue::Band;
pub use seed::link_seed;
pub use series::{DelaySeries, LossSeries, Series};
pub use spec::{Delay, LinkSpec, QueueLimit, Rate, Reorder};
pub use statistics::{CapacitySummary, Comb, DelaySummary, Evidence, Summary};
pub use synth::{CellularModel, GeoModel, LeoModel, Model};
pub use trace::{Recording, Trace};

/// Errors in the description of a link, all caused by its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A trace file could not be read.
    #[error("cannot read trace {file}: {reason}")]
    Read {
        /// Path of the file.
        file: String,
        /// The system's error text.
        reason: String,
    },
    /// A line of a trace does not follow its format.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// Path of the file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// A trace with valid lines gives no usable link.
    #[error("{file}: {reason}")]
    Trace {
        /// Path of the file.
        file: String,
        /// What is wrong with the trace.
        reason: String,
    },
    /// Capacity and delay cannot repeat together.
    #[error(
        "the delays end after {period:?}, before the first delivery opportunity at {first:?}; give delays that last longer"
    )]
    NoCommonPeriod {
        /// Duration of the delays.
        period: std::time::Duration,
        /// Time of the first delivery opportunity.
        first: std::time::Duration,
    },
    /// The selected part of a trace is empty.
    #[error("nothing can be sent from {from:?} to {to:?} of a trace that lasts {period:?}")]
    EmptyPart {
        /// Start of the part.
        from: std::time::Duration,
        /// End of the part.
        to: std::time::Duration,
        /// Duration of the whole trace.
        period: std::time::Duration,
    },
    /// A setting has an impossible value.
    #[error("{key}={value}: {reason}")]
    Setting {
        /// The setting's name as in the text form.
        key: &'static str,
        /// The value as given.
        value: String,
        /// Why it is invalid, or what is valid.
        reason: String,
    },
    /// The text form of a link names a setting that does not exist.
    #[error("{0:?} is no link setting; {suggestion}", suggestion = settings::suggestion(.0))]
    UnknownSetting(String),
    /// A part of the text form of a link has no `KEY=VALUE` form.
    #[error(
        "{0:?} is no link setting; a link is written as comma-separated KEY=VALUE, for example rate=50mbit,delay=25ms"
    )]
    NoSetting(String),
}
