//! Numbers that cannot be guessed.

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::Error;

/// Random bytes of the system.
///
/// # Errors
/// [`Error::NoRandom`] on a system that has none.
pub fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::NoRandom)?;
    Ok(bytes)
}
