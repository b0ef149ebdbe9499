//! What the session receives.

pub(crate) mod blocks;
pub(crate) mod bytes;
pub(crate) mod inbound;
mod pages;
pub(crate) mod shares;

pub use pages::SparePage;
