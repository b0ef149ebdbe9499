//! The lab: experiments over satellite links in virtual and in real time, each a command of `starhaul lab`.

pub mod catalogue;
pub mod dialogue;
pub mod experiments;
pub mod kit;
pub mod realtime;
pub mod systems;
pub mod traces;
pub mod transfer;
pub mod workload;
pub mod worlds;

mod error;

pub use error::Error;
