//! Experiments and the demo: real applications beside the multipath QUIC baseline, scored by the same rule.
//!
//! ```
//! use std::time::Duration;
//! use starhaul_lab::{load::Class, score::ClassLog};
//!
//! let mut log = ClassLog::new(Class::Text);
//! log.on_sent(Duration::ZERO);
//! log.on_sent(Duration::from_millis(50));
//! log.on_received(0, Duration::from_millis(30)); // after 30 ms
//! assert_eq!((log.score().on_time, log.score().lost), (1, 1));
//! ```

pub mod agreement;
pub mod apps;
pub mod baseline;
pub mod catalogue;
pub mod demo;
pub mod experiments;
pub mod kit;
pub mod leocc;
pub mod load;
pub mod realtime;
pub mod report;
pub mod score;
pub mod systems;
pub mod traces;
pub mod transfer;
pub mod workload;
pub mod worlds;

mod error;
mod repeats;

pub use error::Error;
