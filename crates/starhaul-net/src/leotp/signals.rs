//! What a node hears of the reconfigurations of its hops besides their packets: by timetables and times that are known before, and by probes
//! of a satellite hop.

use std::{
    fs::File,
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use starhaul_cc::{
    Announcements, Detection, KnownTimes, ProbeMethod, ProbeTarget, Reconfiguration, Timetable,
};
use starhaul_leotp::NeighbourId;
use starhaul_log::Seldom;

use crate::{
    Waker,
    prober::{Prober, ProberConfig, ProberEvent, Stage, Via},
};

/// Each prober has a thread of high priority; a host has a few dishes at most.
const MOST_PROBERS: usize = 32;
/// How often it is looked at where neighbours are and whether anything is carried.
const TENDED: Duration = Duration::from_secs(1);
/// Probers rest when nothing was carried for so long.
const REST_AFTER: Duration = Duration::from_secs(10);
/// News of probers that waits at most; more of it is none.
const MOST_NEWS: usize = 256;
/// Of a file with times: more than are taken.
const MOST_TIMES_BYTES: u64 = 64 << 20;

/// How a node hears of reconfigurations of the hop to a neighbour; by default it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopSignals {
    /// The operator's timetable. One without an offset serves a prober alone.
    pub timetable: Option<Timetable>,
    /// Times that are known before, as of a constellation that was computed.
    pub times: KnownTimes,
    /// What is probed by ICMP echo, on the way to the neighbour or elsewhere.
    pub probe: Option<ProbeTarget>,
}

impl HopSignals {
    /// What of them has no effect, for people; `None` if all has.
    pub fn problem(&self) -> Option<String> {
        let undated = self.timetable.filter(|it| it.offset.is_none());
        let undated = undated.filter(|_| self.probe.is_none())?;
        Some(format!(
            "\"{undated}\" tells no time by itself: add link = \"leo\", or an offset, as in \"12s every 15s\""
        ))
    }

    /// By what it is known, for people; `None`: not at all.
    pub fn summary(&self) -> Option<String> {
        let probes = self.probe.map(|_| "probes".to_owned());
        let timetable = self.timetable.map(|timetable| timetable.to_string());
        let count = self.times.iter().count();
        let times = (count > 0).then(|| format!("a list of {count}"));
        let by: Vec<String> = [probes, timetable, times].into_iter().flatten().collect();
        (!by.is_empty()).then(|| by.join(", "))
    }

    /// The times in a file, a line of seconds since 1970 each.
    ///
    /// # Errors
    /// It cannot be read, or has no times; a text for people.
    pub fn read_times(file: &Path) -> Result<KnownTimes, String> {
        let cannot = |error: io::Error| format!("cannot read {}: {error}", file.display());
        let mut bytes = Vec::new();
        let open = File::open(file).map_err(cannot)?;
        let read = open
            .take(MOST_TIMES_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(cannot)?;
        // The end of a part of it may be a part of a time.
        if read as u64 > MOST_TIMES_BYTES {
            let most = MOST_TIMES_BYTES >> 20;
            return Err(format!("{}: it is longer than {most} MiB", file.display()));
        }
        // Comments may be of any characters.
        String::from_utf8_lossy(&bytes)
            .parse::<KnownTimes>()
            .map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// The signals of all hops of a node.
#[derive(Debug)]
pub(super) struct Signals {
    announced: Vec<(NeighbourId, Announcements)>,
    probed: Vec<Probed>,
    news: Receiver<(NeighbourId, ProberEvent)>,
    tell: SyncSender<(NeighbourId, ProberEvent)>,
    waker: Waker,
    /// Where packets leave, and so do probes, if it is a certain address.
    local: Option<IpAddr>,
    tended: Option<Instant>,
    /// What had been carried, and when that became more.
    carried: u64,
    used: Option<Instant>,
}

/// A hop that is probed.
#[derive(Debug)]
struct Probed {
    id: NeighbourId,
    detection: Detection,
    /// Where the neighbour was when it began.
    toward: Option<IpAddr>,
    prober: Option<Prober>,
    /// Its lines of what it watches, and of why it cannot.
    watches: Seldom,
    fails: Seldom,
}

impl Signals {
    /// Whoever waits for these is woken by news. `local`: the address that the node is bound to.
    pub(super) fn new(waker: Waker, local: IpAddr) -> Self {
        let (tell, news) = sync_channel(MOST_NEWS);
        Self {
            announced: Vec::new(),
            probed: Vec::new(),
            news,
            tell,
            waker,
            local: Some(local).filter(|local| !local.is_unspecified()),
            tended: None,
            carried: 0,
            used: None,
        }
    }

    /// From now on the signals of a hop are these.
    pub(super) fn set(&mut self, id: NeighbourId, signals: HopSignals) {
        self.announced.retain(|(known, _)| *known != id);
        self.probed.retain(|probed| probed.id != id);
        let has_room = self.probed.len() < MOST_PROBERS;
        if signals.probe.is_some() && !has_room {
            tracing::warn!(
                neighbour = id.0,
                "reconfigurations of a hop are not watched: {MOST_PROBERS} probers run already"
            );
        }
        let probe = signals.probe.filter(|_| has_room);
        // Who probes looks at the timetable itself: while no host answers it is all that there is.
        let by_probes = signals.timetable.filter(|_| probe.is_some());
        let alone = signals.timetable.filter(|_| probe.is_none());
        let announcements = Announcements::new(alone, signals.times);
        if !announcements.is_empty() {
            self.announced.push((id, announcements));
        }
        let Some(target) = probe else {
            return;
        };
        self.probed.push(Probed {
            id,
            detection: Detection {
                target,
                method: ProbeMethod::Icmp,
                timetable: by_probes,
                ..Detection::default()
            },
            toward: None,
            prober: None,
            watches: Seldom::default(),
            fails: Seldom::default(),
        });
        self.tended = None;
    }

    /// Whether no hop has any.
    pub(super) fn is_empty(&self) -> bool {
        self.announced.is_empty() && self.probed.is_empty()
    }

    /// When [`Signals::poll`] and [`Signals::tend`] are due.
    pub(super) fn timeout(&self, now: Instant) -> Option<Instant> {
        let announced = self.announced.iter();
        let announced = announced.filter_map(|(_, announced)| announced.poll_timeout(now));
        let tended = (!self.probed.is_empty()).then(|| self.tended.map_or(now, |at| at + TENDED));
        announced.chain(tended).min()
    }

    /// The next reconfiguration that is known, while the wall clock is `unix` since 1970.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        unix: Duration,
    ) -> Option<(NeighbourId, Reconfiguration)> {
        for (id, announced) in &mut self.announced {
            let is_due = announced.poll_timeout(now).is_some_and(|at| at <= now);
            if !is_due {
                continue;
            }
            let was_over = announced.is_over();
            let event = announced.poll(now, unix);
            if announced.is_over() && !was_over {
                tracing::warn!(neighbour = id.0, "the last time of its schedule has passed");
            }
            if let Some(event) = event {
                return Some((*id, event));
            }
        }
        while let Ok((id, event)) = self.news.try_recv() {
            let Some(probed) = self.probed.iter().find(|probed| probed.id == id) else {
                continue;
            };
            match event {
                ProberEvent::Reconfiguration(event) => return Some((id, event)),
                ProberEvent::Stage(stage) => probed.tell(now, stage),
                ProberEvent::SegmentRtt { .. } => {}
            }
        }
        None
    }

    /// Starts probers toward where neighbours are, and lets them rest while the node carries nothing. `carried`: how much it has, which grows
    /// when it does.
    pub(super) fn tend(
        &mut self,
        now: Instant,
        carried: impl FnOnce() -> u64,
        address: impl Fn(NeighbourId) -> Option<SocketAddr>,
    ) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < TENDED;
        if self.probed.is_empty() || self.tended.is_some_and(is_recent) {
            return;
        }
        self.tended = Some(now);
        let carried = carried();
        if self.carried != carried {
            (self.carried, self.used) = (carried, Some(now));
        }
        let idle = self.used.map(|at| now.saturating_duration_since(at));
        let rests = idle.is_none_or(|idle| idle > REST_AFTER);
        for probed in &mut self.probed {
            if probed.is_to_start(address(probed.id)) {
                let way = (address(probed.id), self.local);
                probed.start(now, way, (&self.tell, &self.waker));
            }
            if let Some(prober) = &probed.prober {
                prober.rest(rests);
            }
        }
    }
}

impl Probed {
    /// A hop on the way to the neighbour is found again where that has moved; without an address a timetable may serve that tells times.
    fn is_to_start(&self, address: Option<SocketAddr>) -> bool {
        let ip = address.map(|address| address.ip());
        let is_found = self.detection.target == ProbeTarget::Auto;
        let timetable = self.detection.timetable;
        let is_dated = timetable.is_some_and(|timetable| timetable.offset.is_some());
        match self.prober {
            Some(_) => is_found && ip.is_some() && ip != self.toward,
            None => !is_found || ip.is_some() || is_dated,
        }
    }

    /// What a prober does: by the way that packets to the neighbour take.
    fn config(&self, toward: Option<SocketAddr>, local: Option<IpAddr>) -> ProberConfig {
        let target = match self.detection.target {
            ProbeTarget::Auto => toward.map(|toward| toward.ip()),
            ProbeTarget::Host(host) => Some(host),
        };
        // A host of another version of IP is not reached from there.
        let is_alike =
            |local: &IpAddr| target.is_none_or(|target| target.is_ipv4() == local.is_ipv4());
        ProberConfig {
            detection: self.detection,
            toward,
            via: Via {
                local: local.filter(is_alike),
                interface: None,
            },
        }
    }

    fn start(
        &mut self,
        now: Instant,
        (toward, local): (Option<SocketAddr>, Option<IpAddr>),
        (tell, waker): (&SyncSender<(NeighbourId, ProberEvent)>, &Waker),
    ) {
        let (id, tell, waker) = (self.id, tell.clone(), waker.clone());
        let each = move |event: ProberEvent| {
            let is_news = !matches!(event, ProberEvent::SegmentRtt { .. });
            if is_news && tell.try_send((id, event)).is_ok() {
                waker.wake();
            }
        };
        // That of another way tells nothing of this one, also while there is none.
        self.prober = None;
        self.toward = toward.map(|toward| toward.ip());
        match Prober::start(self.config(toward, local), each) {
            Ok(prober) => self.prober = Some(prober),
            Err(error) => {
                if self.fails.is_due(now).is_some() {
                    tracing::warn!(neighbour = id.0, %error, "reconfigurations are not watched");
                }
            }
        }
    }

    /// Whether there is a way on which a host could be found, or a host.
    fn knows_way(&self) -> bool {
        self.toward.is_some() || self.detection.target != ProbeTarget::Auto
    }

    /// Logs what it watches now, or why it cannot.
    fn tell(&self, now: Instant, stage: Stage) {
        let neighbour = self.id.0;
        match stage {
            Stage::Probing { target, found, by } => {
                let reason = found.map_or("configured", |found| found.by.reason());
                if let Some(others) = self.watches.is_due(now) {
                    tracing::info!(neighbour, to = %target, by = by.name(), reason, others, "watches for reconfigurations");
                }
            }
            // That the neighbour has not called yet is no problem.
            Stage::Waiting { .. } if !self.knows_way() => {}
            Stage::Waiting { problem } => {
                if let Some(others) = self.fails.is_due(now) {
                    tracing::warn!(neighbour, %problem, others, "cannot watch for reconfigurations, will try again");
                }
            }
            Stage::Searching => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Poller;

    const MS: Duration = Duration::from_millis(1);
    const HOPS: [NeighbourId; 2] = [NeighbourId(1), NeighbourId(2)];

    fn signals() -> Signals {
        let anywhere = [0, 0, 0, 0].into();
        Signals::new(Poller::new().unwrap().waker(), anywhere)
    }

    /// Drives them for so many seconds, from the begin of a minute on; returns which hop heard of one after how many milliseconds.
    fn heard(signals: &mut Signals, seconds: u64) -> Vec<(u32, u128)> {
        let start = Instant::now();
        let (mut now, mut heard) = (start, Vec::new());
        while now < start + Duration::from_secs(seconds) {
            let unix = Duration::from_secs(1_767_225_600) + (now - start);
            while let Some((id, event)) = signals.poll(now, unix) {
                heard.push((id.0, (event.at - start).as_millis()));
            }
            let due = signals.timeout(now).unwrap();
            assert!(due > now, "a driver would never wait");
            now = due;
        }
        heard
    }

    #[test]
    fn each_hop_hears_of_its_own_times_when_the_outage_is_over() {
        let mut signals = signals();
        assert!(signals.is_empty() && signals.timeout(Instant::now()).is_none());
        let timetable = HopSignals {
            timetable: Some(Timetable::STARLINK),
            ..HopSignals::default()
        };
        signals.set(HOPS[0], timetable.clone());
        let times = HopSignals {
            times: "1767225620\n1767225628".parse().unwrap(),
            ..HopSignals::default()
        };
        signals.set(HOPS[1], times);
        let expected = [(1, 12_135), (2, 20_135), (1, 27_135), (2, 28_135)];
        assert_eq!(heard(&mut signals, 30), expected);
        signals.set(HOPS[0], HopSignals::default());
        signals.set(HOPS[1], timetable);
        assert_eq!(heard(&mut signals, 20), [(2, 12_135)]);
        signals.set(HOPS[1], HopSignals::default());
        assert!(signals.is_empty());
    }

    #[test]
    fn what_a_prober_finds_is_heard_by_its_hop_alone() {
        let mut signals = signals();
        let probe = HopSignals {
            probe: Some(ProbeTarget::Auto),
            ..HopSignals::default()
        };
        signals.set(HOPS[1], probe);
        let now = Instant::now();
        let event = Reconfiguration {
            at: now,
            outage: 80 * MS,
            source: starhaul_cc::ReconfigurationSource::Probe,
            confidence: 0.9,
        };
        for id in HOPS {
            let found = ProberEvent::Reconfiguration(event);
            signals.tell.send((id, found)).unwrap();
        }
        let unix = Duration::from_secs(1_767_225_600);
        assert_eq!(signals.poll(now, unix), Some((HOPS[1], event)));
        assert_eq!(signals.poll(now, unix), None);
    }

    #[test]
    fn a_timetable_without_an_offset_needs_probes() {
        let alone = HopSignals {
            timetable: Some(Timetable::ONEWEB),
            ..HopSignals::default()
        };
        let said = alone.problem().unwrap();
        assert!(said.starts_with("\"every 11s\" tells no time"), "{said}");
        let dated = HopSignals {
            timetable: Some(Timetable::STARLINK),
            ..HopSignals::default()
        };
        let probed = HopSignals {
            probe: Some(ProbeTarget::Auto),
            ..alone
        };
        assert!(dated.problem().is_none() && probed.problem().is_none());
    }

    #[test]
    fn a_hop_is_probed_once_it_is_known_where_or_when() {
        let here = Some(SocketAddr::from(([192, 0, 2, 1], 1)));
        let auto = HopSignals {
            probe: Some(ProbeTarget::Auto),
            ..HopSignals::default()
        };
        let dated = HopSignals {
            timetable: Some(Timetable::STARLINK),
            ..auto.clone()
        };
        let undated = HopSignals {
            timetable: Some(Timetable::ONEWEB),
            ..auto.clone()
        };
        let host = HopSignals {
            probe: Some(ProbeTarget::Host([100, 64, 0, 1].into())),
            ..HopSignals::default()
        };
        let mut signals = signals();
        for (signal, address, is_to_start, knows_way) in [
            (auto.clone(), None, false, false),
            (auto, here, true, false),
            (dated, None, true, false),
            (undated, None, false, false),
            (host, None, true, true),
        ] {
            signals.set(HOPS[0], signal);
            let [probed] = &signals.probed[..] else {
                panic!("{signals:?}");
            };
            assert_eq!(probed.is_to_start(address), is_to_start, "{probed:?}");
            assert_eq!(probed.knows_way(), knows_way, "{probed:?}");
        }
    }

    /// A host with several links sends from each address over another one: probes showed the reconfigurations of a link that carried nothing.
    #[test]
    fn probes_leave_from_the_address_from_which_packets_leave() {
        let bound: IpAddr = [192, 0, 2, 9].into();
        let here = SocketAddr::from(([192, 0, 2, 1], 1));
        let six: IpAddr = std::net::Ipv6Addr::LOCALHOST.into();
        for (local, target, expected) in [
            (bound, ProbeTarget::Auto, Some(bound)),
            (
                bound,
                ProbeTarget::Host([100, 64, 0, 1].into()),
                Some(bound),
            ),
            (bound, ProbeTarget::Host(six), None),
            ([0, 0, 0, 0].into(), ProbeTarget::Auto, None),
        ] {
            let mut signals = Signals::new(Poller::new().unwrap().waker(), local);
            let probe = HopSignals {
                probe: Some(target),
                ..HopSignals::default()
            };
            signals.set(HOPS[0], probe);
            let [probed] = &signals.probed[..] else {
                panic!("{signals:?}");
            };
            let config = probed.config(Some(here), signals.local);
            assert_eq!(config.via.local, expected, "{local}, {target:?}");
            assert_eq!(config.toward, Some(here));
        }
    }

    /// Of hops beyond the limit the timetable was forgotten, too.
    #[test]
    fn a_hop_that_no_prober_is_left_for_hears_of_its_timetable() {
        let probe = HopSignals {
            timetable: Some(Timetable::STARLINK),
            times: KnownTimes::default(),
            probe: Some(ProbeTarget::Auto),
        };
        let mut signals = signals();
        for id in (0..=32).map(NeighbourId) {
            signals.set(id, probe.clone());
        }
        assert_eq!(signals.probed.len(), MOST_PROBERS);
        let announced = signals.announced.iter().map(|(id, _)| *id);
        assert_eq!(announced.collect::<Vec<_>>(), [NeighbourId(32)]);
        // One that has a prober may have it again.
        signals.set(NeighbourId(5), probe);
        assert_eq!(signals.probed.len(), MOST_PROBERS);
        assert_eq!(signals.announced.len(), 1);
    }

    #[test]
    fn times_are_read_from_a_file_that_is_named_where_they_are_wrong() {
        let folder = std::env::temp_dir().join(format!("starhaul-times-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("hop.times");
        let read = || HopSignals::read_times(&file);
        assert!(read().unwrap_err().starts_with("cannot read "));
        std::fs::write(&file, "# a hop\n1767225620.25\n").unwrap();
        let times = read().unwrap();
        let expected = Duration::from_millis(1_767_225_620_250);
        assert_eq!(times.iter().collect::<Vec<_>>(), [expected]);
        std::fs::write(&file, b"# Gr\xf6\xdfe\n1767225620.25\n").unwrap();
        assert_eq!(read().unwrap(), times, "a comment of other characters");
        std::fs::write(&file, "12s every 15s\n").unwrap();
        let error = read().unwrap_err();
        assert!(error.contains("hop.times: line 1: "), "{error}");
        // Of such a file a part was taken.
        std::fs::write(&file, "1767225620\n# ").unwrap();
        let long = File::options().write(true).open(&file).unwrap();
        long.set_len(MOST_TIMES_BYTES + 1).unwrap();
        let error = read().unwrap_err();
        assert!(
            error.ends_with("hop.times: it is longer than 64 MiB"),
            "{error}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
