//! Experiments and the demo: real applications beside the multipath QUIC baseline, scored by the same rule.

pub mod apps;
pub mod baseline;
pub mod demo;
pub mod experiments;
pub mod load;
pub mod report;
pub mod score;

mod error;

pub use error::Error;
