//! The lines of a text file, counted and bounded.

use std::io::{self, BufRead, Read as _, Take};

use super::read_error;
use crate::Error;

/// Of two hours at more than 5 Gbit/s, a line for each packet. What is read of it takes little memory: a number for each millisecond.
const MAX_FILE_BYTES: u64 = 1 << 34;
const MAX_LINE_BYTES: usize = 4096;
/// U+FEFF in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads the lines of a file, with line numbers and bounded lengths.
pub(super) struct Lines<'a, R> {
    file: &'a str,
    input: Take<R>,
    line: Vec<u8>,
    number: u32,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(file: &'a str, input: R) -> Self {
        Self {
            file,
            input: input.take(MAX_FILE_BYTES),
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line without its end; invalid UTF-8 becomes a text that no parser accepts.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>, Error> {
        self.line.clear();
        let mut bounded = (&mut self.input).take(MAX_LINE_BYTES as u64);
        let read = bounded
            .read_until(b'\n', &mut self.line)
            .map_err(|error| read_error(self.file, &error))?;
        if read == 0 {
            return match self.input.limit() {
                0 => Err(self.whole(format!("is larger than {MAX_FILE_BYTES} bytes"))),
                _ => Ok(None),
            };
        }
        self.number = self.number.saturating_add(1);
        // Some programs begin a file so (a byte order mark).
        if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        if read == MAX_LINE_BYTES {
            return Err(self.error(&format!("is longer than {MAX_LINE_BYTES} bytes")));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Empty lines at the end of a file say nothing; elsewhere one is an error, which the parser of the format reports.
        if line.is_empty() && is_blank(&mut self.input).map_err(|e| read_error(self.file, &e))? {
            return Ok(None);
        }
        Ok(Some(std::str::from_utf8(line).unwrap_or("\u{fffd}")))
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn error(&self, reason: &str) -> Error {
        Error::Line {
            file: self.file.to_owned(),
            line: usize::try_from(self.number).unwrap_or(usize::MAX),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn whole(&self, reason: String) -> Error {
        Error::Trace {
            file: self.file.to_owned(),
            reason,
        }
    }
}

/// Whether nothing but empty lines is left, which are taken.
fn is_blank(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let ahead = input.fill_buf()?;
        let blank = ahead.iter().take_while(|byte| b"\r\n".contains(byte));
        match blank.count() {
            0 => return Ok(ahead.is_empty()),
            count => input.consume(count),
        }
    }
}
