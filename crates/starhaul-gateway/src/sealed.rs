//! Texts of the state folder: a line with kind, version and checksum before them, so that what is not whole is not trusted.

/// Why a text is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Something else is there.
    #[error("it is no file of {0:?}")]
    Foreign(&'static str),
    /// It was not written to its end, or changed since.
    #[error("its checksum does not fit: it is torn or was edited")]
    Torn,
}

/// The text with its seal.
pub(crate) fn seal(kind: &'static str, text: &str) -> Vec<u8> {
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{kind} {sum:08x}\n{text}").into_bytes()
}

/// The text of a file of this kind.
///
/// # Errors
/// It is of another kind, or not whole.
pub(crate) fn unseal<'b>(kind: &'static str, bytes: &'b [u8]) -> Result<&'b str, SealError> {
    // Empty is what a crash leaves of a file that was never synced.
    if bytes.is_empty() {
        return Err(SealError::Torn);
    }
    let foreign = SealError::Foreign(kind);
    let text = std::str::from_utf8(bytes).map_err(|_| foreign.clone())?;
    let (head, text) = text.split_once('\n').unwrap_or((text, ""));
    let sum = head.strip_prefix(kind).ok_or(foreign)?;
    let fits = sum.strip_prefix(' ') == Some(&format!("{:08x}", crc32c::crc32c(text.as_bytes())));
    fits.then_some(text).ok_or(SealError::Torn)
}
