//! Hashes of files.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use sha2::{Digest as _, Sha256};

/// SHA-256 of a file in hexadecimal digits.
pub(super) fn hash_of(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
