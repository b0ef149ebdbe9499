//! Where experiments take place in virtual time: the whole stack, or chains of relays.

pub mod chain;
pub(crate) mod oracle;
pub mod pipe;
pub mod stack;
