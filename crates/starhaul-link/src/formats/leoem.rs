//! Path logs of LeoEM: a line is `t$[node ids]$number of hops$[one-way delay of each hop, s]$total one-way delay, s`,
//! one per second (github.com/XuyangCaoUCSD/LeoEM).

use std::{io::BufRead, sync::Arc, time::Duration};

use starhaul_units::parse_number;

use super::{delay::MAX_DELAY_MS, lines::Lines};
use crate::{DelaySeries, Error, LossSeries, MAX_TRACE_DURATION, Recording};

/// Parses the total delays of a LeoEM path log; the last line holds as long as the one before it. A second without a
/// path (`t$NULL`) keeps the delay before it and loses all packets.
pub fn parse_leoem(name: &str, input: impl BufRead) -> Result<Recording, Error> {
    let mut lines = Lines::new(name, input);
    let mut rows: Vec<(Duration, Option<Duration>)> = Vec::new();
    let (mut begin, mut last) = (None, Duration::ZERO);
    while let Some(line) = lines.next_line()? {
        let (time, delay) = parse_line(line).map_err(|why| lines.error(why))?;
        let begin = *begin.get_or_insert(time);
        if time.saturating_sub(begin) > MAX_TRACE_DURATION {
            return Err(lines.error("is beyond the longest trace"));
        }
        if let Some((holds, _)) = rows.last_mut() {
            if time <= last {
                return Err(lines.error("does not lie after the line above"));
            }
            *holds = time - last;
        }
        last = time;
        let holds = rows.last().map_or(Duration::from_secs(1), |row| row.0);
        rows.push((holds, delay));
    }
    let Some(first) = rows.iter().find_map(|(_, delay)| *delay) else {
        return Err(lines.whole("has no path at any time".to_owned()));
    };
    let mut latest = first;
    let delays = rows.iter().map(|(holds, delay)| {
        latest = delay.unwrap_or(latest);
        (*holds, latest)
    });
    let delay = DelaySeries::from_steps(delays).map(Arc::new);
    let broken = rows.iter().any(|(_, delay)| delay.is_none());
    let losses = rows
        .iter()
        .map(|(holds, delay)| (*holds, if delay.is_some() { 0.0 } else { 1.0 }));
    let loss = LossSeries::from_steps(losses).filter(|_| broken);
    Ok(Recording {
        capacity: None,
        delay,
        loss: loss.map(Arc::new),
    })
}

/// The time and, if there is a path, its delay.
fn parse_line(line: &str) -> Result<(Duration, Option<Duration>), &'static str> {
    let fields: Vec<&str> = line.split('$').collect();
    let time = match fields.first().map(|time| time.parse::<u64>()) {
        Some(Ok(time)) if time <= MAX_START_S => Duration::from_secs(time),
        _ => return Err("does not begin with a whole number of seconds"),
    };
    let (nodes, hops, delays, total) = match fields[1..] {
        ["NULL"] => return Ok((time, None)),
        [nodes, hops, delays, total] => (nodes, hops, delays, total),
        _ => return Err("is neither t$[nodes]$hops$[delays]$total nor t$NULL"),
    };
    let list = |text: &str| text.starts_with('[') && text.ends_with(']');
    if !list(nodes) || !list(delays) || hops.parse::<u16>().is_err() {
        return Err("has no list of nodes, number of hops and list of delays");
    }
    parse_number(total)
        .filter(|seconds| seconds * 1e3 <= MAX_DELAY_MS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(|delay| (time, Some(delay)))
        .ok_or("does not end with a delay in seconds")
}

/// Bound of the first second of a log.
const MAX_START_S: u64 = 100 * 366 * 86_400;
