//! Whole nodes over simulated links, in virtual time.

mod asked;
mod attacks;
mod data;
mod idle;
mod moves;
mod net;
mod packet_size;
mod paths;
mod qlog;
mod rate_limit;
mod recycled;
mod rejoin;
mod rogue;
mod shares;
mod signals;
mod train;
mod transfer;
