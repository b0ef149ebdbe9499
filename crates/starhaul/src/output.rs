//! Standard output, which may be a pipe whose reader leaves early; and what was typed.

use std::io::{self, Write as _};

/// Nobody reads standard output any more.
#[derive(Debug)]
pub(crate) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl std::error::Error for Closed {}

/// Prints text as it is.
///
/// # Errors
/// [`Closed`] when the reader left, or what the system says.
pub(crate) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        other => Ok(other?),
    }
}

/// What was typed, with the program's bare name.
pub(crate) fn command_line() -> String {
    let arguments = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once("starhaul".to_owned())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}
