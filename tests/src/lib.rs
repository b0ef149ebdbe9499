//! What no single crate can test of itself: the rules of the house.

pub mod house;
