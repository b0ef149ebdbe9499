//! Tests above single crates: the rules of the house, a pair of sessions under random operations, and the bodies of the
//! fuzz targets.

pub mod fuzz;
pub mod house;
pub mod pair;
pub mod seeds;
