//! Where experiments take place in virtual time: the whole stack, or chains of relays.

pub mod chain;
pub mod pipe;
pub mod stack;
