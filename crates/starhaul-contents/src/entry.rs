//! What a server says of a file.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use starhaul_leotp::{ContentId, ContentSecret, NodeConfig};

/// A file that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name: a path below the folder that is served, with `/`.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// Bytes of data in its segments, where these are not [`NodeConfig::SEGMENT_BYTES`]: segments of two sizes must not be sealed with one key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<usize>,
}

impl Entry {
    /// The same, in segments of this size.
    pub(crate) fn in_segments(self, bytes: usize) -> Self {
        Self {
            segment_bytes: (bytes != NodeConfig::SEGMENT_BYTES).then_some(bytes),
            ..self
        }
    }

    /// The content of the file's bytes: other bytes have another id.
    pub(crate) fn content(&self, secret: &ContentSecret) -> ContentId {
        let segments = self.segment_bytes.map(|size| format!(" in {size}"));
        let segments = segments.unwrap_or_default();
        secret.id_of_name(&format!("file {} {}{segments}", self.sha256, self.bytes))
    }
}

/// Bits of [`hash`].
pub(crate) const HASH_BITS: u32 = 20;

/// The part of a slot's number in the catalogue that stands for a name.
pub(crate) fn hash(name: &str) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(name));
    u32::from_be_bytes([a, b, c, d]) >> (32 - HASH_BITS)
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
