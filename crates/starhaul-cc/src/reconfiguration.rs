//! The signal that a satellite path was reconfigured (LeoCC §3), the path phase boundary of draft-lai-ccwg-lsncc-01: a
//! best-effort hint that any controller may use or ignore and that must be safe when wrong.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

/// The operator moved the path to another satellite, beam or ground station, so that capacity, RTT and loss before this
/// moment do not predict those after it.
///
/// It is a hint. A false one may cost a controller one short adaptation and nothing lasting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reconfiguration {
    /// When the path began to carry packets again, on the clock of the receiving host.
    pub at: Instant,
    /// Length of the outage; zero when unknown.
    pub outage: Duration,
    /// The source of the signal.
    pub source: ReconfigurationSource,
    /// Probability that the signal is right, from 0 to 1.
    pub confidence: f64,
}

/// The source of a [`Reconfiguration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconfigurationSource {
    /// This host's probes to the nearest stable address behind the satellite (LeoCC §4.1.1).
    Probe,
    /// The peer's detector, through the session's acknowledgements (LeoCC §5.1).
    Peer,
    /// The operator's known timetable.
    Schedule,
    /// The trace or model of the link, in experiments.
    GroundTruth,
}

impl ReconfigurationSource {
    /// A short name for logs and tables, e.g. `probe`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Peer => "peer",
            Self::Schedule => "schedule",
            Self::GroundTruth => "ground_truth",
        }
    }
}

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    /// The end at this host.
    Local,
    /// The end at the peer.
    Remote,
}

/// What a source besides the path's own packets knows of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathSignal {
    /// The path may have been reconfigured.
    Reconfiguration(Reconfiguration),
    /// The RTT of the satellite segment alone, from the terminal to the PoP, at one end of the path (LeoCC §4.3).
    SegmentRtt {
        /// The end with the terminal.
        end: PathEnd,
        /// RTT from the terminal to the PoP.
        rtt: Duration,
    },
    /// The path carried a train of packets at this rate (the gap model, DMTP §V).
    TrainRate(Bandwidth),
}

/// Signals within this time concern one event: several detectors report it, each with a delay of its own, and no
/// operator reconfigures more often.
const SPACING: Duration = Duration::from_secs(1);
/// Older events are reflected in the flow's own samples.
const MAX_AGE: Duration = Duration::from_secs(2);
/// Acting on a less probable event would be wrong more often than right.
const MIN_CONFIDENCE: f64 = 0.5;

/// The reconfigurations of a path, and the one filter that decides whether a signal is news: no controller is signalled
/// an event twice, nor an old or doubtful one. A flood of signals costs no more than one short adaptation a second.
///
/// A [`Detector`](crate::Detector) has a refractory time besides, which is part of its measurement: it keeps one outage
/// from looking like two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reconfigurations {
    /// The number of events.
    pub count: u64,
    /// The last event, as described by its most confident signal, with the longest outage signalled.
    pub last: Option<Reconfiguration>,
}

impl Reconfigurations {
    /// Takes a signal that arrived at `now`. Returns the event if it is news, with its fields within their ranges.
    pub fn accept(&mut self, now: Instant, mut event: Reconfiguration) -> Option<Reconfiguration> {
        let is_old = now.saturating_duration_since(event.at) > MAX_AGE;
        if is_old || event.confidence.is_nan() || event.confidence < MIN_CONFIDENCE {
            return None;
        }
        event.confidence = event.confidence.min(1.0);
        event.at = event.at.min(now);
        if let Some(last) = &mut self.last
            && event.at < last.at + SPACING
        {
            last.outage = last.outage.max(event.outage);
            if event.confidence > last.confidence {
                (last.confidence, last.source) = (event.confidence, event.source);
            }
            return None;
        }
        self.count += 1;
        self.last = Some(event);
        Some(event)
    }
}

/// The path model of a controller, for people and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathModel {
    /// The aggressive bandwidth estimate (LeoCC's bBW_a).
    pub bandwidth_aggressive: Option<Bandwidth>,
    /// The moderate bandwidth estimate (LeoCC's bBW_m).
    pub bandwidth_moderate: Option<Bandwidth>,
    /// Range of the RTT without a queue (LeoCC's bRTT_l and bRTT_h).
    pub rtt_band: Option<(Duration, Duration)>,
    /// The last reconfiguration that the controller acted on.
    pub last_reconfiguration: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::{ReconfigurationSource::*, *};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_event_that_several_signal_is_news_once() {
        let start = Instant::now();
        let event = |at, outage_ms, source, confidence| Reconfiguration {
            at,
            outage: MS * outage_ms,
            source,
            confidence,
        };
        let mut known = Reconfigurations::default();
        let later = start + 80 * MS;
        let first = event(start, 0, Schedule, 0.5);
        assert_eq!(known.accept(start, first), Some(first));
        assert_eq!(known.accept(later, event(later, 70, Probe, 0.9)), None);
        assert_eq!(known.accept(later, event(start, 60, Peer, 0.6)), None);
        let merged = Some(event(start, 70, Probe, 0.9));
        assert_eq!((known.count, known.last), (1, merged), "best described");

        let next = start + 1000 * MS;
        // A time in the future and a confidence above 1 are impossible.
        let wild = event(next + 900 * MS, 50, Peer, f64::INFINITY);
        let tamed = Some(event(next, 50, Peer, 1.0));
        assert_eq!(known.accept(next, wild), tamed);
        assert_eq!((known.count, known.last), (2, tamed));
    }

    #[test]
    fn old_and_doubtful_signals_are_no_news_and_hide_none() {
        let start = Instant::now() + Duration::from_secs(100);
        let event = |at, confidence| Reconfiguration {
            at,
            outage: Duration::ZERO,
            source: Peer,
            confidence,
        };
        let mut known = Reconfigurations::default();
        for refused in [
            event(start - 2001 * MS, 1.0),
            event(start, 0.49),
            event(start, f64::NAN),
            event(start, f64::NEG_INFINITY),
        ] {
            assert_eq!(known.accept(start, refused), None, "{refused:?}");
        }
        assert_eq!(known, Reconfigurations::default());
        assert!(known.accept(start, event(start, 0.5)).is_some());
    }

    #[test]
    fn a_flood_of_signals_gives_one_event_a_second() {
        let start = Instant::now();
        let mut known = Reconfigurations::default();
        for ms in 0..10_000 {
            let now = start + MS * ms;
            let at = now - MS * (ms * 7919 % 2000).min(ms);
            let flood = Reconfiguration {
                at,
                outage: Duration::ZERO,
                source: Peer,
                confidence: 1.0,
            };
            known.accept(now, flood);
        }
        assert!((5..=10).contains(&known.count), "{}", known.count);
    }
}
