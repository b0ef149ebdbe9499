//! What the session receives.

pub(crate) mod blocks;
pub(crate) mod bytes;
mod pages;
