//! The optimizer: divides what streams offer over the paths (DMTP §V, after Chuat, Perrig, Hu, DSN 2017).
//!
//! Each bit of a stream is sent by one [`Strategy`]. A [`Plan`] gives every strategy its share, in lexicographic order: first the
//! greatest quality of the most important streams, then that of the next, then the least cost at these qualities. Unlike the
//! publication's model, redundancy is charged too: codes and retransmissions compete for the same bandwidth and budget.
//!
//! [`optimize`] solves the linear program by a solver crate and is the reference; [`plan_quickly`] takes microseconds, never leaves
//! what is feasible, and stops after a bounded number of steps. Where paths lose several packets in a row, [`plan_quickly_in_bursts`] makes
//! codes as large as that takes.
//!
//! ```
//! use std::time::Duration;
//! use starhaul_paths::optimizer::{Demand, OfferedPath, Problem, Protection, Strategy, optimize};
//! use starhaul_units::Bandwidth;
//!
//! // A cheap path that loses 10 % and a dear one that loses nothing.
//! let path = |loss, cost| OfferedPath {
//!     bandwidth: Bandwidth::from_mbit(15),
//!     delay: Duration::from_millis(60),
//!     loss,
//!     cost,
//!     loss_known_after: None,
//! };
//! let demand = Demand {
//!     rate: Bandwidth::from_kbit(9_600),
//!     lifetime: Duration::from_millis(200),
//!     priority: 0,
//!     protection: Protection::RETRANSMISSION,
//!     negligible_loss: 0.0,
//! };
//! let paths = [path(0.1, 1.0), path(0.0, 3.0)];
//! let plan = optimize(&Problem { paths: &paths, demands: &[demand], budget: None })?;
//! let best = plan.streams[0].shares[0];
//! assert_eq!(best.strategy, Strategy::Retransmit { path: 0, again: 1 });
//! # Ok::<(), starhaul_paths::optimizer::OptimizerError>(())
//! ```

mod columns;
mod model;
mod plan;
mod quick;
mod solve;

pub use model::{CodeSize, Demand, OfferedPath, OptimizerError, Problem, Protection, Strategy};
pub use plan::{Plan, Share, StreamPlan};
pub use quick::{plan_quickly, plan_quickly_in_bursts};
pub use solve::optimize;
/// What plans count losses by.
pub use starhaul_fec::Losses;

#[cfg(test)]
mod tests;
