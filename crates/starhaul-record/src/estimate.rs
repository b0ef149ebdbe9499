//! Converts a journal to a trace: capacity from the saturated arrivals, one-way delay from the light flow, random loss
//! from the flow below the capacity.

use std::{collections::HashMap, time::Duration};

use starhaul_link::{Opportunities, Trace};
use starhaul_units::Bandwidth;

use crate::{
    Begin, Direction, Entry, Error, Interval, LossEstimate, Phase, Probe,
    bunches::spread_bunches,
    clocks::{Exchange, ServerClock},
    delay::{DelayCurve, median, shares_queue},
    outages::leave_after_outages,
    ways::beside,
};

/// Source of a recording's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DelaySource {
    /// ICMP echo beside the heavy flow, in a band of its own. UDP echoes in the unloaded direction separate the delays
    /// of both directions for changes within 15 s; over such a time both get the same median.
    Icmp,
    /// ICMP echo after the heavy flow, whose queue it would share: half of each round trip.
    IcmpAlone,
    /// UDP echo after the heavy flow: each direction by both clocks, whose offset is that of the faster RTTs.
    UdpAlone,
    /// Half of the median RTT of the idle path for the whole trace, as the recording was interrupted early.
    Constant,
}

/// One direction of a path as measured.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The parameters of the recording.
    pub begin: Begin,
    /// Capacity and one-way delay of the path.
    pub trace: Trace,
    /// Random loss of the path.
    pub loss: LossEstimate,
    /// Start of the trace, by the client's clock.
    pub started: Duration,
    /// Source of the delay.
    pub delay_source: DelaySource,
    /// Packets of the light flow while the link was saturated, or alone, and the number without an answer.
    pub light: (u64, u64),
    /// Additional delay of packets behind the full queue over their least.
    pub queue: Duration,
    /// Seconds of the trace in which the link may not have been saturated: the capacity may be greater there.
    pub unsaturated_seconds: Vec<u32>,
    /// Time without feedback about arrivals.
    pub missing: Duration,
    /// Whether the recording was completed.
    pub complete: bool,
}

impl Recording {
    /// Converts a journal to a trace. `name` is used in errors.
    ///
    /// # Errors
    /// [`Error::TooLittle`] when the link was not yet saturated, or there is no measurement of its delay.
    pub fn from_journal(name: &str, entries: &[Entry]) -> Result<Self, Error> {
        let too_little = |reason: &str| Error::TooLittle {
            file: name.to_owned(),
            reason: reason.to_owned(),
        };
        let Some(Entry::Begin(begin)) = entries.first() else {
            return Err(too_little("the journal is empty"));
        };
        let facts = Facts::collect(begin, entries);
        let mut saturated = Arrivals::of(&facts.intervals).ok_or_else(|| {
            too_little("it was interrupted before the link was saturated; no capacity is known")
        })?;
        let clock = match begin.direction {
            Direction::Down => ServerClock::default(),
            Direction::Up => facts.server_clock().ok_or_else(|| {
                too_little("the server's clock was not seen: no packet of the light flow came back")
            })?,
        };
        let loss = facts.loss();
        let unsaturated_seconds = unsaturated(&facts.intervals, saturated.first_ms, loss.share);
        let arrivals_begin_us;
        (arrivals_begin_us, saturated.bins) = clock.by_client(saturated.first_ms, &saturated.bins);
        let arrivals_end_us = arrivals_begin_us + 1000 * saturated.count();
        let (curve, delay_source) = facts
            .delay_curve(&clock, arrivals_begin_us, &saturated.bins)
            .ok_or_else(|| too_little("the light flow had no answer; no delay is known"))?;
        // A band of its own does not wait for opportunities.
        let curve = match delay_source {
            DelaySource::Icmp => curve,
            _ => curve.shortened(saturated.mean_wait_us()),
        };
        // The earliest departure: all arrivals are later than this plus its delay.
        let begin_us = curve.next_step(arrivals_begin_us - curve.at(arrivals_begin_us));
        let end_us = arrivals_end_us - curve.at(arrivals_end_us);
        let longest_us = i64::from(begin.seconds) * 1_000_000;
        let count = usize::try_from((end_us - begin_us).min(longest_us) / 1000).unwrap_or(0);
        let mut departures = curve.departures(arrivals_begin_us, &saturated.bins, begin_us, count);
        spread_bunches(&mut departures);
        let capacity = capacity(&departures, loss.share).map_err(|why| {
            too_little(&format!("the heavy flow hardly arrived: the trace {why}"))
        })?;
        let end_us = begin_us + 1000 * i64::try_from(count).unwrap_or(0);
        let delay = curve.series(begin_us, end_us);
        let queue_us = facts.queue_us();
        let trace = Trace::new(capacity, delay).map_err(|why| too_little(&why.to_string()))?;
        Ok(Self {
            begin: begin.clone(),
            trace,
            loss,
            started: Duration::from_micros(u64::try_from(begin_us).unwrap_or(0)),
            delay_source,
            light: facts.light(delay_source, begin_us, end_us),
            queue: Duration::from_micros(u64::try_from(queue_us).unwrap_or(0)),
            unsaturated_seconds,
            missing: Duration::from_millis(saturated.missing_ms),
            complete: facts.complete,
        })
    }

    /// Whether `--max-rate` limited the heavy flow for at least a second.
    pub fn is_limited(&self) -> bool {
        !self.unsaturated_seconds.is_empty()
            && self.trace.capacity.mean_rate() > self.begin.max_rate.scaled(0.7)
    }
}

/// The contents of a journal, sorted.
struct Facts<'a> {
    intervals: Vec<&'a Interval>,
    probes: Vec<Probe>,
    alone: Option<(i64, i64)>,
    complete: bool,
    direction: Direction,
    least_us: i64,
    full_us: Option<i64>,
}

impl<'a> Facts<'a> {
    fn collect(begin: &Begin, entries: &'a [Entry]) -> Self {
        let mut facts = Self {
            intervals: Vec::new(),
            probes: Vec::new(),
            alone: None,
            complete: false,
            direction: begin.direction,
            least_us: 0,
            full_us: None,
        };
        let mut stamps = HashMap::new();
        for entry in entries {
            match entry {
                Entry::Begin(_) => {}
                Entry::Received(seen) => facts.intervals.push(seen),
                Entry::Probe(probe) => facts.probes.push(*probe),
                Entry::Stamp { at_us, server_us } => {
                    stamps.insert(*at_us, *server_us);
                }
                Entry::Alone {
                    at_us,
                    stands_for_us,
                } => {
                    facts.alone = Some((signed(*at_us), signed(*stands_for_us)));
                }
                Entry::End { .. } => facts.complete = true,
            }
        }
        facts.intervals.sort_by_key(|seen| seen.first_ms);
        facts.intervals.dedup_by_key(|seen| seen.first_ms);
        facts.probes.sort_by_key(|probe| probe.at_us);
        for probe in facts.probes.iter_mut().filter(|probe| probe.icmp) {
            probe.server_us = stamps.get(&probe.at_us).copied();
        }
        let arrived = || facts.intervals.iter().filter(|seen| seen.received > 0);
        facts.least_us = arrived().map(|seen| seen.way_min_us).min().unwrap_or(0);
        // Intervals after the last packet do not belong to the flow.
        let last = facts.intervals.iter().rposition(|seen| seen.received > 0);
        facts.intervals.truncate(last.map_or(0, |last| last + 1));
        let full = facts
            .intervals
            .iter()
            .filter(|seen| seen.phase == Phase::Saturated);
        facts.full_us = median(
            full.filter(|seen| seen.received > 0)
                .map(|seen| seen.way_max_us),
        );
        facts
    }

    fn queue_us(&self) -> i64 {
        self.full_us
            .map_or(0, |full| full.saturating_sub(self.least_us))
    }

    fn loss(&self) -> LossEstimate {
        LossEstimate::of(self.intervals.iter().copied(), self.least_us, self.full_us)
    }

    /// The server's clock, by exchanges that waited in no queue of the heavy flow; by all, where no other is known.
    fn server_clock(&self) -> Option<ServerClock> {
        let is_alone = |probe: &&Probe| {
            self.alone
                .is_some_and(|(at_us, _)| signed(probe.at_us) >= at_us)
        };
        let exchange = |probe: &Probe| {
            Some(Exchange {
                at_us: signed(probe.at_us),
                rtt_us: i64::from(probe.rtt_us?),
                server_us: signed(probe.server_us?),
            })
        };
        let all: Vec<_> = self.probes.iter().filter_map(exchange).collect();
        let idle = self
            .quiet(i64::MAX)
            .chain(self.probes.iter().filter(is_alone));
        let idle: Vec<_> = idle.filter_map(exchange).collect();
        let loaded_from = self
            .quiet(i64::MAX)
            .last()
            .map_or(0, |probe| signed(probe.at_us));
        match idle.is_empty() || self.alone.is_none() && !self.icmp_shares_queue(loaded_from) {
            true => ServerClock::fit(&idle, &all),
            false => ServerClock::fit(&idle, &idle),
        }
    }

    /// The one-way delay over the client's time, and its source.
    fn delay_curve(
        &self,
        clock: &ServerClock,
        arrivals_begin_us: i64,
        arrivals: &[u64],
    ) -> Option<(DelayCurve, DelaySource)> {
        // Departures precede arrivals by at most this.
        const MARGIN_US: i64 = 2_000_000;
        let arrivals_us = 1000 * i64::try_from(arrivals.len()).ok()?;
        let begin_us = arrivals_begin_us - MARGIN_US;
        let end_us = arrivals_begin_us + arrivals_us + MARGIN_US;
        let curve = |points: &[(i64, i64)]| DelayCurve::new(begin_us, end_us, points);
        if let Some((at_us, stands_for_us)) = self.alone {
            let alone = self
                .probes
                .iter()
                .filter(|probe| signed(probe.at_us) >= at_us);
            let icmp = alone.clone().any(|probe| probe.icmp);
            let points: Vec<_> = alone
                .filter(|probe| probe.icmp == icmp)
                .filter_map(|probe| self.one_way(probe, clock))
                .map(|(at, delay)| (at - at_us + stands_for_us, delay))
                .collect();
            let source = if icmp {
                DelaySource::IcmpAlone
            } else {
                DelaySource::UdpAlone
            };
            if let Some(curve) = curve(&points) {
                return Some((curve, source));
            }
        }
        let mut beside = beside(&self.probes, self.direction, begin_us, end_us);
        leave_after_outages(&mut beside, arrivals_begin_us, arrivals);
        if self.alone.is_none()
            && !self.icmp_shares_queue(begin_us + MARGIN_US)
            && let Some(curve) = curve(&beside)
        {
            return Some((curve, DelaySource::Icmp));
        }
        let quiet = self
            .quiet(begin_us + MARGIN_US)
            .filter_map(|probe| probe.rtt_us);
        let half = i64::from(median(quiet)? / 2);
        Some((curve(&[(begin_us, half)])?, DelaySource::Constant))
    }

    /// Probes of the first second, when the path was idle.
    fn quiet(&self, before_us: i64) -> impl Iterator<Item = &Probe> {
        let begin = self.probes.first().map_or(0, |probe| probe.at_us);
        let idle = crate::sender::IDLE.as_micros();
        self.probes.iter().filter(move |probe| {
            u128::from(probe.at_us - begin) < idle && signed(probe.at_us) < before_us
        })
    }

    fn icmp_shares_queue(&self, saturated_us: i64) -> bool {
        let icmp = |probe: &&Probe| probe.icmp;
        let loaded = self.probes.iter().filter(icmp);
        let loaded = loaded.filter(|probe| signed(probe.at_us) >= saturated_us);
        shares_queue(
            self.quiet(saturated_us)
                .filter(icmp)
                .filter_map(|probe| probe.rtt_us),
            loaded.filter_map(|probe| probe.rtt_us),
            self.queue_us(),
        )
    }

    /// When a packet of the light flow left in our direction, by the client's clock, and its one-way delay.
    fn one_way(&self, probe: &Probe, clock: &ServerClock) -> Option<(i64, i64)> {
        let (at, rtt) = (signed(probe.at_us), i64::from(probe.rtt_us?));
        let server_at = probe
            .server_us
            .map(|server| clock.client_us(signed(server)));
        let up = match (server_at, self.direction) {
            (Some(server_at), Direction::Up) => (server_at - at).clamp(0, rtt),
            _ => rtt / 2,
        };
        Some(match self.direction {
            Direction::Up => (at, up),
            Direction::Down => (at + up, rtt - up),
        })
    }

    fn light(&self, source: DelaySource, begin_us: i64, end_us: i64) -> (u64, u64) {
        let (icmp, from, to) = match (source, self.alone) {
            (DelaySource::Icmp, _) => (true, begin_us, end_us),
            (DelaySource::IcmpAlone, Some((at, _))) => (true, at, i64::MAX),
            (DelaySource::UdpAlone, Some((at, _))) => (false, at, i64::MAX),
            _ => return (0, 0),
        };
        let counted = self
            .probes
            .iter()
            .filter(|probe| probe.icmp == icmp && (from..to).contains(&signed(probe.at_us)));
        counted.fold((0, 0), |(all, lost), probe| {
            (all + 1, lost + u64::from(probe.rtt_us.is_none()))
        })
    }
}

/// Bytes that arrived while the link was saturated, by the receiver's clock.
struct Arrivals {
    first_ms: i64,
    bins: Vec<u64>,
    missing_ms: u64,
}

impl Arrivals {
    fn of(intervals: &[&Interval]) -> Option<Self> {
        // The first interval still contains packets of the phase before.
        let mut saturated = intervals
            .iter()
            .filter(|seen| seen.phase == Phase::Saturated)
            .skip(2);
        let first = saturated.next()?;
        let mut arrivals = Self {
            first_ms: i64::from(first.first_ms),
            bins: first.bins.iter().map(|bin| u64::from(*bin)).collect(),
            missing_ms: 0,
        };
        for seen in saturated {
            let place = usize::try_from(i64::from(seen.first_ms) - arrivals.first_ms).ok()?;
            let missing = place.saturating_sub(arrivals.bins.len());
            arrivals.missing_ms += missing as u64;
            // Duplicate reports count once.
            arrivals.bins.resize(place, 0);
            arrivals
                .bins
                .extend(seen.bins.iter().map(|bin| u64::from(*bin)));
        }
        Some(arrivals)
    }

    /// The mean time that a packet waits for the next opportunity. A link adds it again when the trace is replayed, so
    /// it is no part of the delay. Outages are left out.
    fn mean_wait_us(&self) -> i64 {
        const OUTAGE_MS: u64 = 45;
        let (mut time, mut squares, mut gap) = (0, 0, 0);
        for bin in &self.bins {
            gap += 1;
            if *bin > 0 {
                if gap <= OUTAGE_MS {
                    time += gap;
                    squares += gap * gap;
                }
                gap = 0;
            }
        }
        let wait = (squares * 500).checked_div(time).unwrap_or(0);
        i64::try_from(wait).unwrap_or(0)
    }

    fn count(&self) -> i64 {
        i64::try_from(self.bins.len()).unwrap_or(i64::MAX / 2000)
    }
}

/// Delivery opportunities that carried these bytes, of which a share was lost afterwards.
#[expect(clippy::cast_precision_loss, reason = "bytes of one millisecond")]
fn capacity(departures: &[u64], loss: f64) -> Result<Opportunities, String> {
    let scale = 1.0 / (1.0 - loss.clamp(0.0, 0.9));
    Opportunities::from_rates(departures.iter().map(|bytes| {
        let rate = Bandwidth::from_bytes_per_second(1000).scaled(*bytes as f64 * scale);
        (Duration::from_millis(1), rate)
    }))
}

/// Seconds with no more than random loss: nothing shows that the link was full.
fn unsaturated(intervals: &[&Interval], first_ms: i64, random_loss: f64) -> Vec<u32> {
    let mut seconds: Vec<(u64, u64)> = Vec::new();
    for seen in intervals
        .iter()
        .filter(|seen| seen.phase == Phase::Saturated)
    {
        let Ok(second) = usize::try_from((i64::from(seen.first_ms) - first_ms).div_euclid(1000))
        else {
            continue;
        };
        if second >= seconds.len() {
            seconds.resize(second + 1, (0, 0));
        }
        if let Some((received, lost)) = seconds.get_mut(second) {
            *received += u64::from(seen.received);
            *lost += u64::from(seen.lost);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "packets of one second")]
    let is_full = |(received, lost): (u64, u64)| {
        let all = received + lost;
        all > 0 && lost as f64 / all as f64 > random_loss + 0.01
    };
    // The last second is incomplete.
    seconds.pop();
    (0..)
        .zip(seconds)
        .filter(|(_, counts)| !is_full(*counts))
        .map(|(second, _)| second)
        .collect()
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
