//! Whole nodes over simulated links, in virtual time.

mod attacks;
mod data;
mod net;
mod paths;
mod reconfiguration;
mod rogue;
