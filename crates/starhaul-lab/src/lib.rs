//! The lab: experiments over satellite links in virtual and in real time, each a command of `starhaul lab`.

pub mod agreement;
pub mod catalogue;
pub mod experiments;
pub mod kit;
pub mod leocc;
pub mod realtime;
pub mod systems;
pub mod traces;
pub mod transfer;
pub mod workload;
pub mod worlds;

mod error;
mod repeats;

pub use error::Error;
