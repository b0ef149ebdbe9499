//! Readers of recorded links: mahimahi and LeoReplayer files (LeoCC §5.2) and CSV tables. All are strict: a bad line is an
//! error with file, line and reason.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Take},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Duration,
};

use starhaul_units::Bandwidth;

use crate::{DelaySeries, Error, LossSeries, Opportunities, opportunities::Builder, text};

/// The longest trace that is read or made.
pub const MAX_TRACE_DURATION: Duration = Duration::from_secs(2 * 3600);
const MAX_FILE_BYTES: u64 = 1 << 30;
const MAX_LINE_BYTES: usize = 4096;
const MAX_DELAY_MS: f64 = 600_000.0;
const DELAY_GRID: Duration = Duration::from_millis(10);

/// One direction of a path over time: what it can carry and how long that takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Capacity over time.
    pub capacity: Arc<Opportunities>,
    /// One-way delay over time, where it is known; repeats together with the capacity.
    pub delay: Option<Arc<DelaySeries>>,
    /// Random loss over time, where it is known; repeats together with the capacity.
    pub loss: Option<Arc<LossSeries>>,
}

impl Trace {
    /// A trace of both series, which from now on repeat together: after the shorter of their two periods, so that nothing is
    /// made up; a delay that never changes fits any period.
    ///
    /// # Errors
    /// [`Error::NoCommonPeriod`] where the delays end before the first delivery opportunity.
    pub fn new(capacity: Opportunities, delay: Option<DelaySeries>) -> Result<Self, Error> {
        let Some(delay) = delay else {
            return Ok(Self {
                capacity: Arc::new(capacity),
                delay: None,
                loss: None,
            });
        };
        let first = capacity.time_of(1);
        let capacity = match delay.period() {
            period if delay.is_constant() || period >= capacity.period() => capacity,
            period => capacity
                .cut(&(Duration::ZERO..period))
                .ok_or(Error::NoCommonPeriod { period, first })?,
        };
        let delay = delay.with_period(capacity.period());
        Ok(Self {
            capacity: Arc::new(capacity),
            delay: Some(Arc::new(delay)),
            loss: None,
        })
    }

    /// The part of the trace in `span`, which begins again after the length of that part.
    ///
    /// # Errors
    /// [`Error::EmptyPart`] where that part offers no capacity.
    pub fn cut(&self, span: Range<Duration>) -> Result<Self, Error> {
        let nothing = || Error::EmptyPart {
            from: span.start,
            to: span.end,
            period: self.capacity.period(),
        };
        let capacity = self.capacity.cut(&span).ok_or_else(nothing)?;
        let span = span.start..span.start + capacity.period();
        let delay = self.delay.as_ref().and_then(|delay| delay.cut(&span));
        let loss = self.loss.as_ref().and_then(|loss| loss.cut(&span));
        let part = Self::new(capacity, delay)?;
        Ok(match loss {
            Some(loss) => part.with_loss(loss),
            None => part,
        })
    }

    /// The same with random loss, cut or held to the period of the capacity.
    pub fn with_loss(mut self, loss: LossSeries) -> Self {
        self.loss = Some(Arc::new(loss.with_period(self.capacity.period())));
        self
    }

    /// Reads a LeoReplayer pair, or with no `delay` file a mahimahi trace alone.
    pub fn read(capacity: &Path, delay: Option<&Path>) -> Result<Self, Error> {
        let capacity = parse_capacity(&capacity.to_string_lossy(), open(capacity)?)?;
        let delay = delay.map(read_delay).transpose()?;
        Self::new(capacity, delay)
    }

    /// Reads a CSV table; see [`parse_csv`].
    pub fn read_csv(file: &Path) -> Result<Self, Error> {
        parse_csv(&file.to_string_lossy(), open(file)?)
    }
}

pub(crate) fn read_delay(file: &Path) -> Result<DelaySeries, Error> {
    parse_delay(&file.to_string_lossy(), open(file)?)
}

/// Parses mahimahi lines: each an integer millisecond that offers one opportunity of 1500 bytes, none before the one
/// above; the series repeats at its last stamp. `name` stands in errors.
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

/// Parses a LeoReplayer delay file: line *i* is the one-way delay in milliseconds during [10·*i*, 10·*i* + 10) ms. Zeros
/// at the start mean that nothing was measured yet, and take the first measured value.
pub fn parse_delay(name: &str, input: impl BufRead) -> Result<DelaySeries, Error> {
    let mut lines = Lines::new(name, input);
    let mut values = Vec::new();
    let mut missing = 0_u32;
    while let Some(line) = lines.next_line()? {
        let value = delay_ms(line).ok_or_else(|| lines.error("is not a delay in milliseconds"))?;
        if values.is_empty() && value.is_zero() {
            missing += 1;
        } else {
            values.push((DELAY_GRID, value));
        }
        if DELAY_GRID * lines.number() > MAX_TRACE_DURATION {
            return Err(lines.error("is beyond the longest trace"));
        }
    }
    if let Some((time, _)) = values.first_mut() {
        *time += DELAY_GRID * missing;
    }
    DelaySeries::from_steps(values).ok_or_else(|| lines.whole("holds no measured delay".to_owned()))
}

/// Parses a CSV table with a header line. Columns: `t_s` (increasing), `capacity_mbps`, and `owd_ms` or else `rtt_ms`
/// (halved); others are not read. A row holds until the next one, the last one as long as the one before it.
pub fn parse_csv(name: &str, input: impl BufRead) -> Result<Trace, Error> {
    let mut lines = Lines::new(name, input);
    let Some(header) = lines.next_line()? else {
        return Err(lines.whole("is empty".to_owned()));
    };
    let columns = Columns::find(header).map_err(|why| lines.error(&why))?;
    let mut rows: Vec<(Duration, Row)> = Vec::new();
    let mut begin = None;
    while let Some(line) = lines.next_line()? {
        let row = columns.parse(line).map_err(|why| lines.error(&why))?;
        let begin = *begin.get_or_insert(row.time);
        if row.time.saturating_sub(begin) > MAX_TRACE_DURATION {
            return Err(lines.error("is beyond the longest trace"));
        }
        if let Some((time, last)) = rows.last_mut() {
            *time = row
                .time
                .checked_sub(last.time)
                .filter(|time| *time >= Duration::from_millis(1))
                .ok_or_else(|| lines.error("does not lie at least 1 ms after the row above"))?;
        }
        let time = rows.last().map_or(Duration::ZERO, |&(time, _)| time);
        rows.push((time, row));
    }
    if rows.len() < 2 {
        return Err(lines.whole("needs at least two rows".to_owned()));
    }
    let capacity = Opportunities::from_rates(rows.iter().map(|(time, row)| (*time, row.capacity)))
        .map_err(|why| lines.whole(why))?;
    let delay = DelaySeries::from_steps(rows.iter().map(|(time, row)| (*time, row.delay)));
    Trace::new(capacity, delay)
}

fn delay_ms(text: &str) -> Option<Duration> {
    let ms = text::decimal(text).filter(|ms| *ms <= MAX_DELAY_MS)?;
    Duration::try_from_secs_f64(ms / 1e3).ok()
}

struct Row {
    time: Duration,
    capacity: Bandwidth,
    delay: Duration,
}

/// Where the table keeps what we read.
struct Columns {
    time: usize,
    capacity: usize,
    delay: usize,
    delay_share: f64,
}

impl Columns {
    fn find(header: &str) -> Result<Self, String> {
        let find = |wanted| header.split(',').position(|name| name.trim() == wanted);
        let need = |wanted| find(wanted).ok_or_else(|| format!("header has no column {wanted}"));
        let (delay, delay_share) = match find("owd_ms") {
            Some(column) => (column, 1.0),
            None => (
                find("rtt_ms").ok_or("header has neither column owd_ms nor rtt_ms")?,
                0.5,
            ),
        };
        Ok(Self {
            time: need("t_s")?,
            capacity: need("capacity_mbps")?,
            delay,
            delay_share,
        })
    }

    fn parse(&self, line: &str) -> Result<Row, String> {
        let field = |column: usize, name| {
            line.split(',')
                .nth(column)
                .and_then(|value| text::decimal(value.trim()))
                .ok_or_else(|| format!("has no number in column {name}"))
        };
        // Whole milliseconds, the grid of opportunities, so that no fraction is cut off row after row.
        let time_ms = (field(self.time, "t_s")? * 1e3).round();
        let mbit = field(self.capacity, "capacity_mbps")?;
        if mbit > 1e6 {
            return Err("has a capacity beyond 1 Tbit/s".to_owned());
        }
        let delay = field(self.delay, "delay")? * self.delay_share;
        Ok(Row {
            time: Duration::try_from_secs_f64(time_ms / 1e3).map_err(|e| e.to_string())?,
            capacity: Bandwidth::from_mbit(1).scaled(mbit),
            delay: Some(delay)
                .filter(|ms| *ms <= MAX_DELAY_MS)
                .and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok())
                .ok_or("has an impossible delay")?,
        })
    }
}

fn open(file: &Path) -> Result<BufReader<File>, Error> {
    File::open(file)
        .map(BufReader::new)
        .map_err(|error| read_error(&file.to_string_lossy(), &error))
}

fn read_error(file: &str, error: &std::io::Error) -> Error {
    Error::Read {
        file: file.to_owned(),
        reason: error.to_string(),
    }
}

/// The lines of a file, counted and bounded.
struct Lines<'a, R> {
    file: &'a str,
    input: Take<R>,
    line: Vec<u8>,
    number: u32,
}

impl<'a, R: BufRead> Lines<'a, R> {
    fn new(file: &'a str, input: R) -> Self {
        Self {
            file,
            input: input.take(MAX_FILE_BYTES),
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line without its end; a text whose bytes are not UTF-8 becomes one that no parser accepts.
    fn next_line(&mut self) -> Result<Option<&str>, Error> {
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
        self.number += 1;
        if read == MAX_LINE_BYTES {
            return Err(self.error(&format!("is longer than {MAX_LINE_BYTES} bytes")));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some(std::str::from_utf8(line).unwrap_or("\u{fffd}")))
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn error(&self, reason: &str) -> Error {
        Error::Line {
            file: self.file.to_owned(),
            line: usize::try_from(self.number).unwrap_or(usize::MAX),
            reason: reason.to_owned(),
        }
    }

    fn whole(&self, reason: String) -> Error {
        Error::Trace {
            file: self.file.to_owned(),
            reason,
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
