//! What applications of a bundle node need: its control socket, and byte streams and datagrams as bundles.
//!
//! The node itself is `starhaul-dtn`, with the agent, the stores and the convergence layers.

pub mod carriage;
pub mod control;
pub mod flows;
pub mod random;
pub mod status;

mod endpoint;
mod error;

pub use endpoint::endpoint_of;
pub use error::Error;
