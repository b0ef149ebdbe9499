//! The control socket of a node: status, and endpoints for applications.

mod client;
pub mod wire;

pub use self::{
    client::{Bundle, Client, Message},
    wire::{Report, ReportedStatus},
};
