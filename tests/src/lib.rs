//! What no single crate can test of itself: the rules of the house, and a pair of sessions under random operations.

pub mod house;
pub mod pair;
