//! Networks of LEOTP nodes in virtual time, one program, which is linked once.

#![expect(clippy::unwrap_used, reason = "a test")]

mod acting;
mod crowded_links;
mod fast_hops;
mod late_hosts;
mod lost_tails;
mod reconfigurations;
mod restarts;
mod shared_links;
mod small_caches;
mod streams_path;
mod windows;
