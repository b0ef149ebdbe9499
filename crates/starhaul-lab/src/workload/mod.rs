//! What experiments offer: a reliable stream, blocks with deadlines.

pub mod bulk;
pub(crate) mod media;
