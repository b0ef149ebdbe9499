//! The names of a stream: two contents whose ids begin with the number that the opener drew.
//!
//! The accepting side serves the one that ends with zeros, the opener the one that ends with what the accepting side drew.
//! So no cache has anything of a stream's former life, and neither side seals other bytes under the same name.

use crate::name::ContentId;

/// The random number that the opener draws.
pub(crate) type Number = [u8; 8];
/// The random number that the accepting side draws: never zeros.
pub(crate) type Salt = [u8; 8];

const NONE: Salt = [0; 8];

/// The content that the accepting side serves.
pub(crate) fn backward(number: Number) -> ContentId {
    forward(number, NONE)
}

/// The content that the opener serves.
pub(crate) fn forward(number: Number, salt: Salt) -> ContentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number);
    id[8..].copy_from_slice(&salt);
    ContentId(id)
}

/// The stream that a live content belongs to, and the salt if it is the opener's content.
pub(crate) fn parts(content: ContentId) -> (Number, Option<Salt>) {
    let number = std::array::from_fn(|at| content.0[at]);
    let salt = std::array::from_fn(|at| content.0[8 + at]);
    (number, Some(salt).filter(|salt| *salt != NONE))
}
