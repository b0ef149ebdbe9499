//! The light flow: packets at a steady rate whose RTTs give delay and loss (LeoCC, Appendix B).

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::micros;
use crate::{Entry, Probe, wire::Stamp};

/// Interval of the light flow; as in LeoCC, Appendix B.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Interval of UDP echoes while nothing else is measured.
const CONTACT_INTERVAL: Duration = Duration::from_millis(100);
/// A packet of the light flow without an answer for this long is lost.
pub(super) const PROBE_LIFE: Duration = Duration::from_secs(3);
/// Number of RTTs kept for the test whether the light flow shares the queue.
pub(super) const MAX_ROUND_TRIPS: usize = 100_000;

/// Packets at a steady rate, and their answers.
#[derive(Debug)]
pub(super) struct LightFlow {
    pub(super) icmp: bool,
    pub(super) active: bool,
    /// Whether the heavy flow saturates the link now, if known.
    pub(super) loaded: Option<bool>,
    epoch: Instant,
    next: Instant,
    next_echo: Instant,
    number: u32,
    /// Packets without an answer: send time, whether ICMP, and `loaded` at that time.
    pub(super) outstanding: BTreeMap<u32, (Instant, bool, Option<bool>)>,
    /// ICMP echo requests whose arrival the server may still report, and their send times.
    unstamped: BTreeMap<u32, Instant>,
    /// Whether the server reports arrivals at all.
    stamps: bool,
    pub(super) newest: Option<Duration>,
    pub(super) quiet_us: Vec<u32>,
    pub(super) loaded_us: Vec<u32>,
}

impl LightFlow {
    pub(super) fn new(icmp: bool, epoch: Instant, now: Instant) -> Self {
        Self {
            icmp,
            active: true,
            loaded: Some(false),
            epoch,
            next: now,
            next_echo: now,
            number: 0,
            outstanding: BTreeMap::new(),
            unstamped: BTreeMap::new(),
            stamps: false,
            newest: None,
            quiet_us: Vec::new(),
            loaded_us: Vec::new(),
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<u32> {
        if !self.active || now < self.next {
            return None;
        }
        self.next = next_in_pace(self.next, PROBE_INTERVAL, now);
        Some(self.launch(now, self.icmp))
    }

    /// The number of the next UDP echo. It is the light flow itself; or it runs beside an ICMP flow without stamps, to
    /// measure each direction separately; or it only keeps the session alive.
    pub(super) fn poll_echo(&mut self, now: Instant) -> Option<u32> {
        if !self.icmp
            && let Some(number) = self.poll(now)
        {
            return Some(number);
        }
        let interval = self.echo_interval()?;
        if now < self.next_echo {
            return None;
        }
        self.next_echo = next_in_pace(self.next_echo, interval, now);
        Some(self.launch(now, false))
    }

    fn echo_interval(&self) -> Option<Duration> {
        match (self.icmp, self.active, self.loaded) {
            (true, true, _) if !self.stamps => Some(PROBE_INTERVAL),
            (_, false, Some(false)) => Some(CONTACT_INTERVAL),
            _ => None,
        }
    }

    fn launch(&mut self, now: Instant, icmp: bool) -> u32 {
        let number = self.number;
        self.number = self.number.wrapping_add(1);
        self.outstanding.insert(number, (now, icmp, self.loaded));
        if icmp {
            self.unstamped.insert(number, now);
        }
        number
    }

    pub(super) fn answered(
        &mut self,
        arrived: Instant,
        number: u32,
        server_us: Option<u64>,
        entries: &mut VecDeque<Entry>,
    ) {
        let by_icmp = server_us.is_none();
        let Some(&(sent, icmp, loaded)) = self.outstanding.get(&number) else {
            return;
        };
        if icmp != by_icmp {
            return;
        }
        self.outstanding.remove(&number);
        let round_trip = arrived.saturating_duration_since(sent);
        let rtt_us = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX);
        if icmp == self.icmp {
            self.newest = Some(round_trip);
            let kept = match loaded {
                Some(true) => &mut self.loaded_us,
                _ => &mut self.quiet_us,
            };
            if loaded.is_some() && kept.len() < MAX_ROUND_TRIPS {
                kept.push(rtt_us);
            }
        }
        let at_us = micros(sent.saturating_duration_since(self.epoch));
        entries.push_back(Entry::Probe(Probe {
            icmp,
            at_us,
            rtt_us: Some(rtt_us),
            server_us,
        }));
    }

    /// Takes the server's report of arrivals of echo requests, each of which is repeated several times.
    pub(super) fn stamped(&mut self, stamps: &[Stamp], entries: &mut VecDeque<Entry>) {
        for stamp in stamps {
            if let Some(sent) = self.unstamped.remove(&stamp.number) {
                self.stamps = true;
                entries.push_back(Entry::Stamp {
                    at_us: micros(sent.saturating_duration_since(self.epoch)),
                    server_us: stamp.received_us,
                });
            }
        }
    }

    pub(super) fn expire(&mut self, now: Instant, entries: &mut VecDeque<Entry>) {
        while let Some(first) = self.unstamped.first_entry()
            && now >= *first.get() + PROBE_LIFE
        {
            first.remove();
        }
        while let Some(first) = self.outstanding.first_entry() {
            let (sent, icmp, _) = *first.get();
            if now < sent + PROBE_LIFE {
                return;
            }
            first.remove();
            let at_us = micros(sent.saturating_duration_since(self.epoch));
            entries.push_back(Entry::Probe(Probe {
                icmp,
                at_us,
                rtt_us: None,
                server_us: None,
            }));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let probe = self.active.then_some(self.next);
        let echo = self.echo_interval().map(|_| self.next_echo);
        probe.into_iter().chain(echo).min()
    }
}

/// The next instant of a steady interval after `now`; missed ones are skipped.
fn next_in_pace(last: Instant, interval: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(last).as_nanos() / interval.as_nanos().max(1);
    let steps = u32::try_from(late).unwrap_or(u32::MAX - 1) + 1;
    last + interval * steps
}
