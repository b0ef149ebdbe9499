//! Capacity in the format of mahimahi (Netravali et al., USENIX ATC 2015) and LeoReplayer (LeoCC §5.2).

use std::io::{self, BufRead, Write};

use super::lines::Lines;
use crate::{Error, Opportunities, opportunities::Builder};

/// Parses mahimahi lines: each is an integer millisecond with one opportunity of 1500 bytes, not before that of the
/// line above; the series repeats at its last stamp. `name` is used in errors.
pub fn parse_capacity(name: &str, input: impl BufRead) -> Result<Opportunities, Error> {
    let mut lines = Lines::new(name, input);
    let mut builder = Builder::default();
    while let Some(line) = lines.next_line()? {
        let stamp = match line.parse() {
            // Rust's parser would accept a plus sign.
            Ok(stamp) if line.starts_with(|c: char| c.is_ascii_digit()) => stamp,
            _ => return Err(lines.error("is not a whole number of milliseconds")),
        };
        builder.push(stamp).map_err(|why| lines.error(&why))?;
    }
    builder.finish().map_err(|why| lines.whole(why))
}

/// Writes capacity as mahimahi lines. The series would repeat at its last opportunity, so if it ends with an empty
/// interval, that opportunity moves to the end.
///
/// # Errors
/// Errors of the writer.
pub fn write_capacity(capacity: &Opportunities, mut out: impl Write) -> io::Result<()> {
    let end = capacity.period();
    for number in 1..capacity.per_period() {
        writeln!(out, "{}", capacity.time_of(number).as_millis())?;
    }
    writeln!(out, "{}", end.as_millis())
}
