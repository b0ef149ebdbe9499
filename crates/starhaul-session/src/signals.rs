//! Reconfigurations of satellite paths on their way to the other end, whose controller needs them when only this end has a
//! dish (LeoCC §5.1, where they ride in a TCP option). They ride in acknowledgements, which are not acknowledged: so each
//! is said several times, over longer than losses in a row last.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use starhaul_cc::{PathEnd, PathSignal, Reconfiguration, ReconfigurationSource};
use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

use crate::wire::{MAX_ACK_PATHS, ReconfigurationReport, SegmentReport};

/// When each event is said, after it was told; by the next acknowledgement, which is made when there is none.
const SAID_AFTER: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(70),
    Duration::from_millis(150),
    Duration::from_millis(310),
];
/// The longest outage worth telling apart.
const MAX_OUTAGE: Duration = Duration::from_secs(10);
/// Events under way, of all paths.
const MAX_EVENTS: usize = 8;
/// A segment's RTT is said at most so often, and only in acknowledgements that leave anyway.
const SEGMENT_INTERVAL: Duration = Duration::from_millis(100);
/// The longest round trip of a satellite segment that is believed.
const MAX_SEGMENT_RTT: Duration = Duration::from_secs(10);
/// Signals that were not taken.
const MAX_UNTAKEN: usize = 64;

/// What the detectors of both sides say of paths.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    outgoing: OutgoingSignals,
    incoming: IncomingSignals,
}

impl Signals {
    /// Takes a signal of this end; the peer knows what it signalled itself.
    pub(crate) fn tell(&mut self, now: Instant, path: PathId, signal: PathSignal) {
        self.outgoing.tell(now, path, signal);
    }

    /// The path is gone: nothing more is said of it.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.outgoing.forget(path);
    }

    /// When an acknowledgement must leave for their sake.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.outgoing.due()
    }

    /// What the acknowledgement that leaves now says.
    pub(crate) fn say(&mut self, now: Instant) -> (Vec<ReconfigurationReport>, Vec<SegmentReport>) {
        let events = self.outgoing.take_events(now);
        (events, self.outgoing.take_segments(now))
    }

    /// What an acknowledgement of the peer says; `way` tells how long it was under way.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        events: &[ReconfigurationReport],
        segments: &[SegmentReport],
        way: impl FnOnce() -> Duration,
    ) {
        if !events.is_empty() {
            let way = way();
            for report in events {
                self.incoming.on_event(now, way, report);
            }
        }
        for report in segments {
            self.incoming.on_segment(report);
        }
    }

    /// A train of ours was carried at this rate.
    pub(crate) fn on_train(&mut self, path: PathId, rate: Bandwidth) {
        self.incoming.push(path.0, PathSignal::TrainRate(rate));
    }

    /// What the peer said, and what trains showed, oldest first.
    pub(crate) fn take(&mut self) -> Option<(PathId, PathSignal)> {
        self.incoming.take()
    }
}

/// What this side tells the peer.
#[derive(Debug, Default)]
struct OutgoingSignals {
    next_number: u32,
    events: VecDeque<Telling>,
    segments: BTreeMap<PathId, Segment>,
}

#[derive(Debug)]
struct Telling {
    number: u32,
    path: PathId,
    event: Reconfiguration,
    told: Instant,
    said: usize,
}

#[derive(Debug)]
struct Segment {
    rtt: Duration,
    is_news: bool,
    said: Option<Instant>,
}

impl OutgoingSignals {
    fn tell(&mut self, now: Instant, path: PathId, signal: PathSignal) {
        match signal {
            PathSignal::Reconfiguration(event) if event.source != ReconfigurationSource::Peer => {
                self.tell_event(now, path, event);
            }
            PathSignal::SegmentRtt {
                end: PathEnd::Local,
                rtt,
            } => self.tell_segment(path, rtt),
            _ => {}
        }
    }

    fn tell_event(&mut self, now: Instant, path: PathId, event: Reconfiguration) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Telling {
            number: self.next_number,
            path,
            event,
            told: now,
            said: 0,
        });
        self.next_number = self.next_number.wrapping_add(1);
    }

    fn tell_segment(&mut self, path: PathId, rtt: Duration) {
        if self.segments.len() >= MAX_ACK_PATHS && !self.segments.contains_key(&path) {
            return;
        }
        let segment = self.segments.entry(path).or_insert(Segment {
            rtt,
            is_news: true,
            said: None,
        });
        (segment.rtt, segment.is_news) = (rtt, true);
    }

    fn forget(&mut self, path: PathId) {
        self.events.retain(|telling| telling.path != path);
        self.segments.remove(&path);
    }

    fn due(&self) -> Option<Instant> {
        self.events.iter().filter_map(Telling::due).min()
    }

    /// What the acknowledgement that leaves now says of events: all that are under way when one is due, so that who hears of a
    /// later one has heard of those before.
    fn take_events(&mut self, now: Instant) -> Vec<ReconfigurationReport> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let say = |telling: &mut Telling| {
            telling.said += usize::from(telling.due().is_some_and(|due| due <= now));
            telling.report(now)
        };
        let reports = self.events.iter_mut().map(say).collect();
        self.events.retain(|telling| telling.due().is_some());
        reports
    }

    /// … and of segments.
    fn take_segments(&mut self, now: Instant) -> Vec<SegmentReport> {
        let is_due = |segment: &Segment| {
            let waited = segment.said.map(|said| now.saturating_duration_since(said));
            segment.is_news && waited.is_none_or(|waited| waited >= SEGMENT_INTERVAL)
        };
        let due = self.segments.iter_mut().filter(|(_, one)| is_due(one));
        let report = |(path, segment): (&PathId, &mut Segment)| {
            (segment.is_news, segment.said) = (false, Some(now));
            SegmentReport {
                path: path.0,
                rtt_micros: micros(segment.rtt),
            }
        };
        due.map(report).collect()
    }
}

impl Telling {
    fn due(&self) -> Option<Instant> {
        Some(self.told + *SAID_AFTER.get(self.said)?)
    }

    fn report(&self, now: Instant) -> ReconfigurationReport {
        ReconfigurationReport {
            path: self.path.0,
            number: self.number,
            age_micros: micros(now.saturating_duration_since(self.event.at)),
            outage_micros: micros(self.event.outage),
            confidence: to_255ths(self.event.confidence),
        }
    }
}

/// What the peer tells this side.
#[derive(Debug, Default)]
struct IncomingSignals {
    /// The number that follows the last one acted on.
    next_number: Option<u32>,
    untaken: VecDeque<(PathId, PathSignal)>,
}

impl IncomingSignals {
    /// The peer reports an event in an acknowledgement that was on its `way` for so long.
    fn on_event(&mut self, now: Instant, way: Duration, report: &ReconfigurationReport) {
        let is_new = |next: u32| report.number.wrapping_sub(next) < u32::MAX / 2;
        if !self.next_number.is_none_or(is_new) {
            return;
        }
        self.next_number = Some(report.number.wrapping_add(1));
        let age = Duration::from_micros(report.age_micros.into()).saturating_add(way);
        let Some(at) = now.checked_sub(age) else {
            return;
        };
        let event = Reconfiguration {
            at,
            outage: Duration::from_micros(report.outage_micros.into()).min(MAX_OUTAGE),
            source: ReconfigurationSource::Peer,
            confidence: f64::from(report.confidence) / 255.0,
        };
        self.push(report.path, PathSignal::Reconfiguration(event));
    }

    fn on_segment(&mut self, report: &SegmentReport) {
        let rtt = Duration::from_micros(report.rtt_micros.into());
        if rtt <= MAX_SEGMENT_RTT {
            let end = PathEnd::Remote;
            self.push(report.path, PathSignal::SegmentRtt { end, rtt });
        }
    }

    fn take(&mut self) -> Option<(PathId, PathSignal)> {
        self.untaken.pop_front()
    }

    fn push(&mut self, path: u32, signal: PathSignal) {
        if self.untaken.len() >= MAX_UNTAKEN {
            self.untaken.pop_front();
        }
        self.untaken.push_back((PathId(path), signal));
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float-to-int casts saturate, and no number is 0"
)]
fn to_255ths(share: f64) -> u8 {
    (share * 255.0).round() as u8
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATH: PathId = PathId(3);

    fn event(at: Instant) -> PathSignal {
        PathSignal::Reconfiguration(Reconfiguration {
            at,
            outage: 68 * MS,
            source: ReconfigurationSource::Probe,
            confidence: 0.9,
        })
    }

    fn report(number: u32, age_micros: u32) -> ReconfigurationReport {
        ReconfigurationReport {
            path: 3,
            number,
            age_micros,
            outage_micros: u32::MAX,
            confidence: 255,
        }
    }

    fn taken(incoming: &mut IncomingSignals) -> Vec<(PathId, PathSignal)> {
        std::iter::from_fn(|| incoming.take()).collect()
    }

    #[test]
    fn an_event_is_said_at_growing_distances_and_then_no_more() {
        let start = Instant::now();
        let mut outgoing = OutgoingSignals::default();
        outgoing.tell(start, PATH, event(start - 20 * MS));
        let mut said = Vec::new();
        while let Some(due) = outgoing.due() {
            let reports = outgoing.take_events(due);
            let ages = reports.iter().map(|report| report.age_micros / 1000);
            said.push(((due - start).as_millis(), ages.collect::<Vec<_>>()));
            assert_eq!(outgoing.take_events(due), [], "once each time");
        }
        let expected = [0, 10, 30, 70, 150, 310].map(|ms| (u128::from(ms), vec![ms + 20]));
        assert_eq!(said, expected);
    }

    #[test]
    fn what_the_peer_told_is_not_told() {
        let start = Instant::now();
        let mut outgoing = OutgoingSignals::default();
        let of_peer = PathSignal::Reconfiguration(Reconfiguration {
            at: start,
            outage: 68 * MS,
            source: ReconfigurationSource::Peer,
            confidence: 0.9,
        });
        outgoing.tell(start, PATH, of_peer);
        assert_eq!(outgoing.due(), None);
        outgoing.tell(start, PATH, event(start));
        outgoing.forget(PATH);
        assert_eq!(outgoing.due(), None, "the path is gone");
    }

    #[test]
    fn a_peer_that_tells_nonsense_or_too_much_is_bounded() {
        let now = Instant::now() + 100_000 * MS;
        let mut incoming = IncomingSignals::default();
        incoming.on_event(now, 20 * MS, &report(u32::MAX, 5000));
        let first = PathSignal::Reconfiguration(Reconfiguration {
            at: now - 25 * MS,
            outage: MAX_OUTAGE,
            source: ReconfigurationSource::Peer,
            confidence: 1.0,
        });
        assert_eq!(taken(&mut incoming), [(PATH, first)]);
        // Said before, numbered before, from a clock gone wrong.
        incoming.on_event(now, 20 * MS, &report(u32::MAX, 5000));
        incoming.on_event(now, 20 * MS, &report(u32::MAX - 9, 5000));
        incoming.on_event(now, Duration::MAX, &report(1, 0));
        let rtt_micros = 10_000_001;
        incoming.on_segment(&SegmentReport {
            path: 3,
            rtt_micros,
        });
        assert!(taken(&mut incoming).is_empty());
        for number in 2..10_000 {
            incoming.on_event(now, 20 * MS, &report(number, 0));
        }
        assert_eq!(taken(&mut incoming).len(), MAX_UNTAKEN);
    }

    #[test]
    fn many_events_and_segments_are_bounded_too() {
        let start = Instant::now();
        let mut outgoing = OutgoingSignals::default();
        for path in 0..100 {
            outgoing.tell(start, PathId(path), event(start));
            outgoing.tell_segment(PathId(path), 30 * MS);
        }
        let numbers: Vec<_> = outgoing.take_events(start);
        let numbers: Vec<_> = numbers.iter().map(|report| report.number).collect();
        assert_eq!(numbers, (92..100).collect::<Vec<_>>());
        assert_eq!(outgoing.take_segments(start).len(), MAX_ACK_PATHS);
        outgoing.tell_segment(PathId(0), 31 * MS);
        assert_eq!(outgoing.take_segments(start + 99 * MS), []);
        let report = SegmentReport {
            path: 0,
            rtt_micros: 31_000,
        };
        assert_eq!(outgoing.take_segments(start + 100 * MS), [report]);
        assert_eq!(outgoing.take_segments(start + 300 * MS), [], "no news");
    }

    proptest! {
        /// Whatever acknowledgements are lost, doubled or late: each event that comes through is acted on once and at its time,
        /// and when none overtakes another, all that come through are.
        #[test]
        fn each_event_is_heard_once_if_any_saying_of_it_arrives(
            told_at in proptest::collection::btree_set(0..400_u32, 1..5),
            fates in proptest::collection::vec((any::<bool>(), 0..40_u32), 1..40),
            overtakes in any::<bool>(),
        ) {
            let start = Instant::now();
            let mut outgoing = OutgoingSignals::default();
            let mut arriving = Vec::new();
            let mut fates = fates.iter().cycle();
            for ms in 0..600 {
                let now = start + MS * ms;
                if told_at.contains(&ms) {
                    outgoing.tell(now, PathId(ms), event(now));
                }
                let reports = outgoing.take_events(now);
                if !reports.is_empty() && let Some(&(true, late)) = fates.next() {
                    let way = if overtakes { late } else { 20 };
                    arriving.extend([(ms + way, way, reports.clone()), (ms + way, way, reports)]);
                }
            }
            arriving.sort_by_key(|(at, ..)| *at);
            let mut incoming = IncomingSignals::default();
            for (at, way, reports) in &arriving {
                for report in reports {
                    incoming.on_event(start + MS * *at, MS * *way, report);
                }
            }
            let mut heard = BTreeSet::new();
            for (path, signal) in taken(&mut incoming) {
                let PathSignal::Reconfiguration(told) = signal else {
                    panic!("{signal:?}")
                };
                prop_assert!(heard.insert(path.0), "twice");
                prop_assert_eq!(told.at, start + MS * path.0);
            }
            let arrived = arriving.iter().flat_map(|(.., reports)| reports);
            let arrived: BTreeSet<_> = arrived.map(|report| report.path).collect();
            prop_assert!(heard.is_subset(&arrived));
            prop_assert!(overtakes || heard == arrived, "{:?} of {:?}", heard, arrived);
        }
    }
}
