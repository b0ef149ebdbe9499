//! Tables of capacity, delay and loss over time.

use std::{
    io::{self, BufRead, Write},
    time::Duration,
};

use starhaul_units::{Bandwidth, parse_number};

use super::{
    delay::{MAX_DELAY_MS, milliseconds},
    lines::Lines,
};
use crate::{
    Error, MAX_TRACE_DURATION, OPPORTUNITY_BYTES, Opportunities, Recording, Trace,
    series::SeriesBuilder,
};

/// The greatest `t_s` in milliseconds: all whole numbers up to it are exact.
const MAX_TIME_MS: f64 = 1e15;

/// Parses a CSV table with a header line. Columns: `t_s` (increasing), `capacity_mbps`, and optionally `owd_ms` or else
/// `rtt_ms` (halved), and `loss_p` (a probability); others are ignored. A row holds until the next one, the last one as
/// long as the one before it.
pub fn parse_csv(name: &str, input: impl BufRead) -> Result<Trace, Error> {
    let mut lines = Lines::new(name, input);
    let Some(header) = lines.next_line()? else {
        return Err(lines.whole("is empty".to_owned()));
    };
    let columns = Columns::find(header).map_err(|why| lines.error(&why))?;
    let mut rows = Rows {
        lines,
        columns,
        begin: Duration::ZERO,
        ahead: None,
        distance: None,
    };
    let (mut delay, mut loss) = (SeriesBuilder::default(), SeriesBuilder::default());
    let mut failure = None;
    let rates = std::iter::from_fn(|| match rows.next() {
        Ok(next) => {
            let (holds, row) = next?;
            delay.push(holds, row.delay.unwrap_or_default());
            loss.push(holds, row.loss.unwrap_or_default());
            Some((holds, row.capacity))
        }
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let capacity = Opportunities::from_rates(rates);
    if let Some(error) = failure {
        return Err(error);
    }
    let capacity = capacity.map_err(|why| rows.lines.whole(why))?;
    let delay = delay.finish().filter(|_| rows.columns.delay.is_some());
    let trace = Trace::new(capacity, delay)?;
    Ok(
        match loss.finish().filter(|_| rows.columns.loss.is_some()) {
            Some(loss) => trace.with_loss(loss),
            None => trace,
        },
    )
}

/// Writes a table for [`parse_csv`] with a row for each `step` (whole milliseconds, at least one): the mean capacity in
/// it, and the delay and loss at its start. With steps of 1 ms the capacity is exact. An incomplete last step is
/// written as a whole one with the same number of bytes.
///
/// # Errors
/// Errors of the writer; [`io::ErrorKind::InvalidInput`] without a capacity.
pub fn write_csv(recording: &Recording, step: Duration, mut out: impl Write) -> io::Result<()> {
    let Some(capacity) = &recording.capacity else {
        let problem = "a table needs a capacity, and there are only delays";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    };
    let step_ms = step.as_millis().max(1);
    write!(out, "t_s,capacity_mbps")?;
    if recording.delay.is_some() {
        write!(out, ",owd_ms")?;
    }
    if recording.loss.is_some() {
        write!(out, ",loss_p")?;
    }
    writeln!(out)?;
    let at = |row: u128| Duration::from_millis(u64::try_from(row * step_ms).unwrap_or(u64::MAX));
    for row in 0..capacity.period().as_millis().div_ceil(step_ms) {
        let (from, to) = (at(row), at(row + 1).min(capacity.period()));
        let bytes = (capacity.until(to) - capacity.until(from)) * OPPORTUNITY_BYTES;
        // bits in a millisecond are kbit/s, and 1 kbit/s is 0.001 Mbit/s
        let mbit = u128::from(bytes) as f64 * 8.0 / (step_ms as f64 * 1e3);
        write!(out, "{}.{:03},{mbit}", from.as_secs(), from.subsec_millis())?;
        if let Some(delay) = &recording.delay {
            write!(out, ",{}", milliseconds(delay.at(from)))?;
        }
        if let Some(loss) = &recording.loss {
            write!(out, ",{}", loss.at(from))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

struct Row {
    time: Duration,
    capacity: Bandwidth,
    delay: Option<Duration>,
    loss: Option<f64>,
}

/// Reads the rows of a table one by one.
struct Rows<'a, R> {
    lines: Lines<'a, R>,
    columns: Columns,
    begin: Duration,
    /// The row read ahead, since the next row ends it.
    ahead: Option<Row>,
    /// Time between the last two rows.
    distance: Option<Duration>,
}

impl<R: BufRead> Rows<'_, R> {
    /// The next row and how long it holds.
    fn next(&mut self) -> Result<Option<(Duration, Row)>, Error> {
        if self.ahead.is_none() && self.distance.is_none() {
            self.ahead = self.read()?;
            self.begin = self.ahead.as_ref().map_or(self.begin, |row| row.time);
        }
        let Some(row) = self.ahead.take() else {
            return Ok(None);
        };
        self.ahead = self.read()?;
        if let Some(next) = &self.ahead {
            if next.time.saturating_sub(self.begin) > MAX_TRACE_DURATION {
                return Err(self.lines.error("is beyond the longest trace"));
            }
            let distance = next.time.checked_sub(row.time);
            self.distance = distance.filter(|time| *time >= Duration::from_millis(1));
            if self.distance.is_none() {
                let problem = "does not lie at least 1 ms after the row above";
                return Err(self.lines.error(problem));
            }
        }
        match self.distance {
            Some(distance) => Ok(Some((distance, row))),
            None => Err(self.lines.whole("needs at least two rows".to_owned())),
        }
    }

    fn read(&mut self) -> Result<Option<Row>, Error> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let row = self.columns.parse(line);
        row.map(Some).map_err(|why| self.lines.error(&why))
    }
}

/// The nearest whole milliseconds, the grid of opportunities, so that rounding does not accumulate. Seconds since 1970 as
/// a fraction would be no whole milliseconds.
fn whole_ms(seconds: f64) -> Option<Duration> {
    let ms = (seconds * 1e3).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number in this range"
    )]
    (0.0..=MAX_TIME_MS)
        .contains(&ms)
        .then(|| Duration::from_millis(ms as u64))
}

/// Tables that a user of `starhaul orbit` has have no capacity unless one is asked for.
const OF_ORBIT: &str =
    "; `starhaul orbit paths` writes one with --rate, and delays alone as .log or .txt";

/// Indices of the columns in the table.
struct Columns {
    time: usize,
    capacity: usize,
    /// The column of the delay, and the factor from its value to the one-way delay.
    delay: Option<(usize, f64)>,
    loss: Option<usize>,
}

impl Columns {
    fn find(header: &str) -> Result<Self, String> {
        let find = |wanted| header.split(',').position(|name| name.trim() == wanted);
        let need = |wanted, hint: &str| {
            find(wanted).ok_or_else(|| format!("header has no column {wanted}{hint}"))
        };
        let one_way = find("owd_ms").map(|column| (column, 1.0));
        let both_ways = || find("rtt_ms").map(|column| (column, 0.5));
        Ok(Self {
            time: need("t_s", "")?,
            capacity: need("capacity_mbps", OF_ORBIT)?,
            delay: one_way.or_else(both_ways),
            loss: find("loss_p"),
        })
    }

    fn parse(&self, line: &str) -> Result<Row, String> {
        let field = |column: usize, name| {
            line.split(',')
                .nth(column)
                .and_then(|value| parse_number(value.trim()))
                .ok_or_else(|| format!("has no number in column {name}"))
        };
        let time = whole_ms(field(self.time, "t_s")?).ok_or("has an impossible t_s")?;
        let mbit = field(self.capacity, "capacity_mbps")?;
        if mbit > 1e6 {
            return Err("has a capacity beyond 1 Tbit/s".to_owned());
        }
        let delay = match self.delay {
            Some((column, share)) => Some(field(column, "owd_ms or rtt_ms")? * share),
            None => None,
        };
        let loss = match self.loss {
            Some(column) => Some(field(column, "loss_p")?),
            None => None,
        };
        if loss.is_some_and(|loss| loss > 1.0) {
            return Err("has a loss_p that is no probability from 0 to 1".to_owned());
        }
        Ok(Row {
            time,
            // Rounds to the nearest bit per second, so that written values are read back exactly.
            capacity: Bandwidth::from_mbit(1).scaled(mbit + 5e-7),
            delay: match delay {
                Some(ms) if ms > MAX_DELAY_MS => return Err("has an impossible delay".to_owned()),
                Some(ms) => Duration::try_from_secs_f64(ms / 1e3).ok(),
                None => None,
            },
            loss,
        })
    }
}
