//! Where experiments take place: the whole stack in virtual time.

pub mod pipe;
pub mod stack;
