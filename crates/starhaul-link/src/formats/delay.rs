//! One-way delay in the format of LeoReplayer (LeoCC §5.2).

use std::{
    io::{self, BufRead, Write},
    time::Duration,
};

use starhaul_units::parse_number;

use super::lines::Lines;
use crate::{DelaySeries, Error, MAX_TRACE_DURATION};

const GRID: Duration = Duration::from_millis(10);
pub(super) const MAX_DELAY_MS: f64 = 600_000.0;

/// Parses a LeoReplayer delay file: line *i* is the one-way delay in milliseconds during [10·*i*, 10·*i* + 10) ms.
/// Zeros at the start are missing measurements and take the first measured value.
pub fn parse_delay(name: &str, input: impl BufRead) -> Result<DelaySeries, Error> {
    let mut lines = Lines::new(name, input);
    let mut values = Vec::new();
    let mut missing = 0_u32;
    while let Some(line) = lines.next_line()? {
        let value = delay_ms(line).ok_or_else(|| lines.error("is not a delay in milliseconds"))?;
        if values.is_empty() && value.is_zero() {
            missing += 1;
        } else {
            values.push((GRID, value));
        }
        if GRID * lines.number() > MAX_TRACE_DURATION {
            return Err(lines.error("is beyond the longest trace"));
        }
    }
    if let Some((time, _)) = values.first_mut() {
        *time += GRID * missing;
    }
    DelaySeries::from_steps(values).ok_or_else(|| lines.whole("holds no measured delay".to_owned()))
}

/// Writes delays as LeoReplayer lines, in milliseconds with at most three decimals: the delay at the start of each 10
/// ms. A delay of zero at the start would mean a missing value and is written as 0.001.
///
/// # Errors
/// Errors of the writer.
pub fn write_delay(delay: &DelaySeries, mut out: impl Write) -> io::Result<()> {
    let mut measured = false;
    for (span, value) in delay.steps() {
        let mut line = milliseconds(value);
        measured |= line != "0";
        if !measured {
            "0.001".clone_into(&mut line);
        }
        let lines = |at: Duration| at.as_nanos().div_ceil(GRID.as_nanos());
        for _ in lines(span.start)..lines(span.end) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

pub(super) fn milliseconds(value: Duration) -> String {
    let us = (value + Duration::from_nanos(500)).as_micros();
    match us % 1000 {
        0 => (us / 1000).to_string(),
        rest => format!("{}.{rest:03}", us / 1000)
            .trim_end_matches('0')
            .to_owned(),
    }
}

pub(super) fn delay_ms(text: &str) -> Option<Duration> {
    let ms = parse_number(text).filter(|ms| *ms <= MAX_DELAY_MS)?;
    Duration::try_from_secs_f64(ms / 1e3).ok()
}
