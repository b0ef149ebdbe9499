//! What experiments offer: a reliable stream, blocks with deadlines.

pub(crate) mod blocks;
pub mod bulk;
pub(crate) mod media;
