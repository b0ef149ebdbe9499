//! Probes of satellite hops: one prober for each host that is probed, for all hops to neighbours that it tells of. Which interface probes leave by
//! follows from the host, as all leave from one address.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use starhaul_cc::{Detection, ProbeMethod, ProbeTarget, Reconfiguration, Timetable};
use starhaul_leotp::NeighbourId;
use starhaul_log::Seldom;

use crate::{
    Error, Waker,
    prober::{Prober, ProberConfig, ProberEvent, Stage, Via},
};

/// Each prober has a thread of high priority; a host has a few dishes at most.
pub(super) const MOST_PROBERS: usize = 32;
/// How often it is looked at where neighbours are and whether anything is carried.
const TENDED: Duration = Duration::from_secs(1);
/// Probers rest when nothing was carried for so long.
const REST_AFTER: Duration = Duration::from_secs(10);
/// News of probers that waits at most; more of it is none.
const MOST_NEWS: usize = 256;

/// The hops of a node that are probed, and their probers.
#[derive(Debug)]
pub(super) struct Probers {
    hops: Vec<Probed>,
    running: Vec<Running>,
    /// How many were started: each has its number.
    started: u64,
    news: Receiver<News>,
    tell: SyncSender<News>,
    waker: Waker,
    /// What was found, for the hops that have yet to hear of it.
    found: VecDeque<(NeighbourId, Reconfiguration)>,
    /// Where packets leave, and so do probes, if it is a certain address.
    local: Option<IpAddr>,
    tended: Option<Instant>,
    /// What had been carried, and when that became more.
    carried: u64,
    used: Option<Instant>,
}

/// What the prober of this number tells.
type News = (u64, ProberEvent);

/// A hop that is probed.
#[derive(Debug)]
struct Probed {
    id: NeighbourId,
    detection: Detection,
    /// Where the neighbour was when it got its prober.
    toward: Option<IpAddr>,
    /// The number of that.
    by: Option<u64>,
    /// Its lines of what it watches, and of why it cannot.
    watches: Seldom,
    fails: Seldom,
}

/// A prober, for one hop or several.
#[derive(Debug)]
struct Running {
    number: u64,
    config: ProberConfig,
    prober: Prober,
    stage: Stage,
}

impl Probers {
    /// News wakes the driver through `waker`. `local`: the address that the node is bound to.
    pub(super) fn new(waker: Waker, local: IpAddr) -> Self {
        let (tell, news) = sync_channel(MOST_NEWS);
        Self {
            hops: Vec::new(),
            running: Vec::new(),
            started: 0,
            news,
            tell,
            waker,
            found: VecDeque::new(),
            local: Some(local).filter(|local| !local.is_unspecified()),
            tended: None,
            carried: 0,
            used: None,
        }
    }

    /// From now on this is probed for a hop, if anything. Returns whether it is: it is not if too many are.
    pub(super) fn set(
        &mut self,
        id: NeighbourId,
        target: Option<ProbeTarget>,
        timetable: Option<Timetable>,
    ) -> bool {
        self.hops.retain(|hop| hop.id != id);
        self.found.retain(|(hop, _)| *hop != id);
        let detection = target.map(|target| Detection {
            target,
            method: ProbeMethod::Icmp,
            timetable,
            ..Detection::default()
        });
        let has_room = detection.is_some_and(|detection| self.has_room(&detection));
        if detection.is_some() && !has_room {
            tracing::warn!(
                neighbour = id.0,
                "reconfigurations of a hop are not watched: {MOST_PROBERS} probers run already"
            );
        }
        if let Some(detection) = detection.filter(|_| has_room) {
            self.hops.push(Probed::new(id, detection));
            self.tended = None;
        }
        self.end_unheard();
        has_room
    }

    /// Whether one of the probers that there may be is left for this, or serves it, too. Which hops will share those that are found is not known before.
    fn has_room(&self, detection: &Detection) -> bool {
        let shares = |before: &[Probed], detection: &Detection| {
            let is_named = detection.target != ProbeTarget::Auto;
            is_named && before.iter().any(|hop| hop.detection == *detection)
        };
        let hops = self.hops.iter().enumerate();
        let own = hops.filter(|(at, hop)| {
            let before = self.hops.get(..*at).unwrap_or_default();
            !shares(before, &hop.detection)
        });
        shares(self.hops.as_slice(), detection) || own.count() < MOST_PROBERS
    }

    /// Whether no hop is probed.
    pub(super) fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// The time at which [`Probers::tend`] is due.
    pub(super) fn timeout(&self, now: Instant) -> Option<Instant> {
        (!self.hops.is_empty()).then(|| self.tended.map_or(now, |at| at + TENDED))
    }

    /// The next reconfiguration that was found, and a hop that hears of it.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(NeighbourId, Reconfiguration)> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(found);
            }
            let (number, event) = self.news.try_recv().ok()?;
            match event {
                ProberEvent::Reconfiguration(event) => {
                    let hops = self.hops.iter().filter(|hop| hop.by == Some(number));
                    self.found.extend(hops.map(|hop| (hop.id, event)));
                }
                ProberEvent::Stage(stage) => self.take_stage(now, number, stage),
                ProberEvent::SegmentRtt { .. } => {}
            }
        }
    }

    /// What a prober does now. Hops that one host is probed for have one prober: that of a host that is named, or else the first that found it.
    fn take_stage(&mut self, now: Instant, number: u64, stage: Stage) {
        // It may have ended since.
        let Some(running) = self.running.iter_mut().find(|it| it.number == number) else {
            return;
        };
        let before = running.host();
        running.stage = stage;
        let is_other = running.host() != before;
        for hop in self.hops.iter_mut().filter(|hop| hop.by == Some(number)) {
            hop.tell(now, &running.stage);
            // Whatever is found next is on the way to another neighbour.
            if is_other && !running.is_for(&hop.detection, hop.toward) {
                hop.by = None;
            }
        }
        if let Some((stays, goes)) = self.twins(number) {
            let hops = self.hops.iter_mut().filter(|hop| hop.by == Some(goes));
            hops.for_each(|hop| hop.by = Some(stays));
        }
        self.end_unheard();
    }

    /// A prober and another one that probes the same host, if there is one: that which stays, and that which is not needed.
    fn twins(&self, number: u64) -> Option<(u64, u64)> {
        let running = self.running.iter().find(|it| it.number == number)?;
        let mut others = self.running.iter().filter(|it| it.number != number);
        let other = others.find(|other| other.probes_as(running))?;
        Some(match running.is_found() {
            true => (other.number, number),
            false => (number, other.number),
        })
    }

    fn end_unheard(&mut self) {
        let hops = &self.hops;
        let is_heard = |running: &Running| hops.iter().any(|hop| hop.by == Some(running.number));
        self.running.retain(is_heard);
    }

    /// Gives hops their probers as far as it is known where neighbours are, and lets probers rest while the node carries nothing. `carried`: how
    /// much it has, which grows when it does.
    pub(super) fn tend(
        &mut self,
        now: Instant,
        carried: impl FnOnce() -> u64,
        address: impl Fn(NeighbourId) -> Option<SocketAddr>,
    ) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < TENDED;
        if self.hops.is_empty() || self.tended.is_some_and(is_recent) {
            return;
        }
        self.tended = Some(now);
        let carried = carried();
        if self.carried != carried {
            (self.carried, self.used) = (carried, Some(now));
        }
        let idle = self.used.map(|at| now.saturating_duration_since(at));
        let rests = idle.is_none_or(|idle| idle > REST_AFTER);
        for hop in &mut self.hops {
            let toward = address(hop.id);
            if !hop.is_to_start(toward) {
                continue;
            }
            hop.toward = toward.map(|toward| toward.ip());
            // That of another way tells nothing of this one, also while there is none.
            hop.by = None;
            let mut running = self.running.iter();
            if let Some(running) = running.find(|it| it.is_for(&hop.detection, hop.toward)) {
                hop.by = Some(running.number);
                hop.tell(now, &running.stage);
                continue;
            }
            self.started += 1;
            let (number, config) = (self.started, hop.config(toward, self.local));
            match start(number, config, &self.tell, &self.waker) {
                Ok(running) => {
                    hop.by = Some(number);
                    self.running.push(running);
                }
                Err(error) => {
                    if hop.fails.is_due(now).is_some() {
                        tracing::warn!(neighbour = hop.id.0, %error, "reconfigurations are not watched");
                    }
                }
            }
        }
        self.end_unheard();
        for running in &self.running {
            running.prober.rest(rests);
        }
    }

    /// Has the prober of a hop tell something, as if its probes had shown it.
    #[cfg(test)]
    pub(super) fn say(&self, id: NeighbourId, event: ProberEvent) {
        let hop = self.hops.iter().find(|hop| hop.id == id);
        if let Some(by) = hop.and_then(|hop| hop.by) {
            let _ = self.tell.try_send((by, event));
            self.waker.wake();
        }
    }

    /// Hops that are probed.
    #[cfg(test)]
    pub(super) fn hops(&self) -> usize {
        self.hops.len()
    }
}

fn start(
    number: u64,
    config: ProberConfig,
    tell: &SyncSender<News>,
    waker: &Waker,
) -> Result<Running, Error> {
    let (tell, waker) = (tell.clone(), waker.clone());
    let each = move |event: ProberEvent| {
        let is_news = !matches!(event, ProberEvent::SegmentRtt { .. });
        if is_news && tell.try_send((number, event)).is_ok() {
            waker.wake();
        }
    };
    let prober = Prober::start(config.clone(), each)?;
    Ok(Running {
        number,
        config,
        prober,
        stage: Stage::Searching,
    })
}

impl Running {
    /// Whether it looks for its host by itself.
    fn is_found(&self) -> bool {
        self.config.detection.target == ProbeTarget::Auto
    }

    /// Whether it does what is asked for a hop whose neighbour is there: a host that is named is the same for any neighbour behind it.
    fn is_for(&self, detection: &Detection, toward: Option<IpAddr>) -> bool {
        let own = self.config.toward.map(|toward| toward.ip());
        self.config.detection == *detection && (!self.is_found() || own == toward)
    }

    /// The host that it probes now.
    fn host(&self) -> Option<IpAddr> {
        match &self.stage {
            Stage::Probing { target, .. } => Some(*target),
            Stage::Searching | Stage::Waiting { .. } => None,
        }
    }

    /// Whether it probes the same host in the same way, whichever of both found it.
    fn probes_as(&self, other: &Self) -> bool {
        let of_host = |it: &Self| Detection {
            target: ProbeTarget::Auto,
            ..it.config.detection
        };
        self.host().is_some()
            && self.host() == other.host()
            && self.config.via == other.config.via
            && of_host(self) == of_host(other)
    }
}

impl Probed {
    fn new(id: NeighbourId, detection: Detection) -> Self {
        Self {
            id,
            detection,
            toward: None,
            by: None,
            watches: Seldom::default(),
            fails: Seldom::default(),
        }
    }

    /// A hop on the way to the neighbour is found again where that has moved; without an address a timetable may serve that tells times.
    fn is_to_start(&self, address: Option<SocketAddr>) -> bool {
        let ip = address.map(|address| address.ip());
        let is_found = self.detection.target == ProbeTarget::Auto;
        let timetable = self.detection.timetable;
        let is_dated = timetable.is_some_and(|timetable| timetable.offset.is_some());
        match self.by {
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

    /// Whether there is a way on which a host could be found, or a host.
    fn knows_way(&self) -> bool {
        self.toward.is_some() || self.detection.target != ProbeTarget::Auto
    }

    /// Logs what is watched now, or why that cannot be.
    fn tell(&self, now: Instant, stage: &Stage) {
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
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{
        Poller,
        prober::{FoundBy, FoundHop, ProbedBy},
    };

    const MS: Duration = Duration::from_millis(1);
    const HOPS: [NeighbourId; 3] = [NeighbourId(1), NeighbourId(2), NeighbourId(3)];

    fn probers_at(local: IpAddr) -> Probers {
        Probers::new(Poller::new().unwrap().waker(), local)
    }

    fn probers() -> Probers {
        probers_at([0, 0, 0, 0].into())
    }

    /// Where the neighbour behind a hop is.
    fn at(id: NeighbourId) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, id.0.to_le_bytes()[0]], 1))
    }

    fn host(last: u8) -> IpAddr {
        [100, 64, 0, last].into()
    }

    fn event(now: Instant) -> Reconfiguration {
        Reconfiguration {
            at: now,
            outage: 80 * MS,
            source: starhaul_cc::ReconfigurationSource::Probe,
            confidence: 0.9,
        }
    }

    /// Gives a hop a prober of its own, of which nothing is heard but what the test says.
    fn runs(probers: &mut Probers, id: NeighbourId) -> u64 {
        let local = probers.local;
        probers.started += 1;
        let number = probers.started;
        let hop = probers.hops.iter_mut().find(|hop| hop.id == id).unwrap();
        let config = hop.config(Some(at(id)), local);
        (hop.by, hop.toward) = (Some(number), Some(at(id).ip()));
        let elsewhere = ProberConfig {
            detection: Detection {
                target: ProbeTarget::Host(Ipv4Addr::LOCALHOST.into()),
                method: ProbeMethod::Icmp,
                ..Detection::default()
            },
            toward: None,
            via: Via::default(),
        };
        probers.running.push(Running {
            number,
            config,
            prober: Prober::start(elsewhere, |_| {}).unwrap(),
            stage: Stage::Searching,
        });
        number
    }

    /// Lets a prober say something; returns which hops hear of a reconfiguration.
    fn says(probers: &mut Probers, number: u64, event: ProberEvent) -> Vec<NeighbourId> {
        probers.tell.send((number, event)).unwrap();
        let now = Instant::now();
        let heard = std::iter::from_fn(|| probers.poll(now));
        heard.map(|(id, _)| id).collect()
    }

    fn probing(host: IpAddr, is_found: bool) -> ProberEvent {
        let found = FoundHop {
            address: host,
            hops: 3,
            rtt: 30 * MS,
            by: FoundBy::Leap,
        };
        ProberEvent::Stage(Stage::Probing {
            target: host,
            found: Some(found).filter(|_| is_found),
            by: ProbedBy::RawSocket,
        })
    }

    /// The numbers of probers that run, and that of each hop.
    fn numbers(probers: &Probers) -> (Vec<u64>, Vec<Option<u64>>) {
        let running = probers.running.iter().map(|running| running.number);
        let hops = probers.hops.iter().map(|hop| hop.by);
        (running.collect(), hops.collect())
    }

    #[test]
    fn what_a_prober_finds_is_heard_by_its_hop_alone() {
        let mut probers = probers();
        for id in &HOPS[..2] {
            assert!(probers.set(*id, Some(ProbeTarget::Auto), None));
        }
        let number = runs(&mut probers, HOPS[1]);
        let now = Instant::now();
        for number in [number, number + 1] {
            let found = ProberEvent::Reconfiguration(event(now));
            probers.tell.send((number, found)).unwrap();
        }
        assert_eq!(probers.poll(now), Some((HOPS[1], event(now))));
        assert_eq!(probers.poll(now), None);
    }

    /// Each had a prober of its own: two neighbours behind one dish had the host behind it pinged 200 times a second.
    #[test]
    fn hops_for_which_one_host_is_named_share_a_prober() {
        let mut probers = probers();
        let named = ProbeTarget::Host(Ipv4Addr::LOCALHOST.into());
        let other = ProbeTarget::Host([127, 0, 0, 2].into());
        for (id, target) in HOPS.into_iter().zip([named, named, other]) {
            assert!(probers.set(id, Some(target), None));
        }
        probers.tend(Instant::now(), || 0, |id| Some(at(id)));
        // What they find here is not heard.
        (probers.tell, probers.news) = sync_channel(MOST_NEWS);
        let (running, by) = numbers(&probers);
        assert_eq!(running.len(), 2);
        assert_eq!(by, [running[0], running[0], running[1]].map(Some));
        let found = ProberEvent::Reconfiguration(event(Instant::now()));
        let heard = says(&mut probers, running[0], found.clone());
        assert_eq!(heard, HOPS[..2], "all that share it hear of it");
        // It ends with the last of them.
        probers.set(HOPS[0], None, None);
        assert_eq!(says(&mut probers, running[0], found), [HOPS[1]]);
        probers.set(HOPS[1], None, None);
        assert_eq!(numbers(&probers).0, [running[1]]);
    }

    #[test]
    fn hops_that_find_one_host_share_a_prober_while_it_answers() {
        let mut probers = probers();
        for id in HOPS {
            assert!(probers.set(id, Some(ProbeTarget::Auto), None));
        }
        let [first, second, third] = HOPS.map(|id| runs(&mut probers, id));
        assert!(says(&mut probers, first, probing(host(1), true)).is_empty());
        assert!(says(&mut probers, third, probing(host(2), true)).is_empty());
        assert!(says(&mut probers, second, probing(host(1), true)).is_empty());
        let both = [first, first, third].map(Some);
        assert_eq!(numbers(&probers), (vec![first, third], both.to_vec()));
        let found = || ProberEvent::Reconfiguration(event(Instant::now()));
        assert_eq!(says(&mut probers, first, found()), HOPS[..2]);
        assert!(says(&mut probers, second, found()).is_empty(), "it ended");
        // The same host again: nothing changes.
        assert!(says(&mut probers, first, probing(host(1), true)).is_empty());
        assert_eq!(numbers(&probers).1, both);
        // It is silent: what is found now is on the way to the first neighbour.
        let searching = ProberEvent::Stage(Stage::Searching);
        assert!(says(&mut probers, first, searching).is_empty());
        assert_eq!(numbers(&probers).1, [Some(first), None, Some(third)]);
        assert!(probers.hops[1].is_to_start(Some(at(HOPS[1]))));
    }

    #[test]
    fn a_host_that_is_named_and_found_is_probed_by_the_prober_that_has_its_name() {
        for is_named_first in [false, true] {
            let mut probers = probers();
            let targets = [ProbeTarget::Auto, ProbeTarget::Host(host(1))];
            for (id, target) in HOPS.into_iter().zip(targets) {
                assert!(probers.set(id, Some(target), None));
            }
            let [found, named] = [HOPS[0], HOPS[1]].map(|id| runs(&mut probers, id));
            let mut told = [(found, true), (named, false)];
            if is_named_first {
                told.reverse();
            }
            for (number, is_found) in told {
                says(&mut probers, number, probing(host(1), is_found));
            }
            let both = vec![Some(named); 2];
            assert_eq!(numbers(&probers), (vec![named], both), "{is_named_first}");
            // One that is named stays with its hop, whatever it answers.
            let problem = "it does not answer".to_owned();
            let silent = ProberEvent::Stage(Stage::Waiting { problem });
            says(&mut probers, named, silent);
            assert_eq!(numbers(&probers).1, [None, Some(named)]);
        }
    }

    #[test]
    fn hops_that_share_what_is_named_take_the_room_of_one() {
        let mut probers = probers();
        let ids = || (0..).map(NeighbourId);
        for id in ids().take(100) {
            assert!(probers.set(id, Some(ProbeTarget::Host(host(1))), None));
        }
        let found = ids().skip(100);
        let taken = found.take(100).filter(|id| {
            let target = Some(ProbeTarget::Auto);
            probers.set(*id, target, None)
        });
        assert_eq!(taken.count(), MOST_PROBERS - 1);
        assert!(!probers.set(NeighbourId(999), Some(ProbeTarget::Host(host(2))), None));
        assert!(probers.set(NeighbourId(999), Some(ProbeTarget::Host(host(1))), None));
    }

    #[test]
    fn a_hop_is_probed_once_it_is_known_where_or_when() {
        let here = Some(SocketAddr::from(([192, 0, 2, 1], 1)));
        let (auto, host) = (ProbeTarget::Auto, ProbeTarget::Host(host(1)));
        let (dated, undated) = (Some(Timetable::STARLINK), Some(Timetable::ONEWEB));
        let mut probers = probers();
        for (target, timetable, address, is_to_start, knows_way) in [
            (auto, None, None, false, false),
            (auto, None, here, true, false),
            (auto, dated, None, true, false),
            (auto, undated, None, false, false),
            (host, None, None, true, true),
        ] {
            probers.set(HOPS[0], Some(target), timetable);
            let [probed] = &probers.hops[..] else {
                panic!("{probers:?}");
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
            (bound, ProbeTarget::Host(host(1)), Some(bound)),
            (bound, ProbeTarget::Host(six), None),
            ([0, 0, 0, 0].into(), ProbeTarget::Auto, None),
        ] {
            let mut probers = probers_at(local);
            probers.set(HOPS[0], Some(target), None);
            let [probed] = &probers.hops[..] else {
                panic!("{probers:?}");
            };
            let config = probed.config(Some(here), probers.local);
            assert_eq!(config.via.local, expected, "{local}, {target:?}");
            assert_eq!(config.toward, Some(here));
        }
    }
}
