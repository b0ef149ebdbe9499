//! What a node hears of the reconfigurations of its hops besides their packets: by timetables and times that are known before, and by probes
//! of a satellite hop.

use std::{
    net::{IpAddr, SocketAddr},
    path::{self, Path, PathBuf},
    time::{Duration, Instant},
};

use starhaul_cc::{Announcements, Reconfiguration, Timetable};
use starhaul_leotp::NeighbourId;

use super::{
    hop::HopSignals,
    probers::Probers,
    schedules::{Renewed, Schedules},
};
use crate::Waker;

/// The signals of all hops of a node.
#[derive(Debug)]
pub(super) struct Signals {
    announced: Vec<Announced>,
    schedules: Schedules,
    probers: Probers,
}

/// A hop of which times are known before, or will be.
#[derive(Debug)]
struct Announced {
    id: NeighbourId,
    timetable: Option<Timetable>,
    /// Where the times are, if they are in a file.
    file: Option<PathBuf>,
    announcements: Announcements,
}

impl Signals {
    /// News wakes the driver through `waker`. `local`: the address that the node is bound to.
    pub(super) fn new(waker: Waker, local: IpAddr) -> Self {
        Self {
            announced: Vec::new(),
            schedules: Schedules::new(waker.clone()),
            probers: Probers::new(waker, local),
        }
    }

    /// From now on the signals of a hop are these.
    pub(super) fn set(&mut self, id: NeighbourId, signals: HopSignals) {
        self.announced.retain(|hop| hop.id != id);
        // Who probes looks at the timetable itself: while no host answers it is all that there is.
        let is_probed = self.probers.set(id, signals.probe, signals.timetable);
        let timetable = signals.timetable.filter(|_| !is_probed);
        let (file, times) = (signals.schedule, signals.times);
        self.schedules.follow(id, file.clone(), times.clone());
        let announcements = Announcements::new(timetable, times);
        if !announcements.is_empty() || file.is_some() {
            self.announced.push(Announced {
                id,
                timetable,
                file,
                announcements,
            });
        }
    }

    /// Whether no hop has any.
    pub(super) fn is_empty(&self) -> bool {
        self.announced.is_empty() && self.probers.is_empty()
    }

    /// When [`Signals::poll`] and [`Signals::tend`] are due.
    pub(super) fn timeout(&self, now: Instant) -> Option<Instant> {
        let announced = self.announced.iter();
        let announced = announced.filter_map(|hop| hop.announcements.poll_timeout(now));
        announced.chain(self.probers.timeout(now)).min()
    }

    /// The next reconfiguration that is known, while the wall clock is `unix` since 1970.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        unix: Duration,
    ) -> Option<(NeighbourId, Reconfiguration)> {
        loop {
            for hop in &mut self.announced {
                if let Some(event) = hop.poll(now, unix) {
                    return Some((hop.id, event));
                }
            }
            // What the former times told until now is told: none is missed where others take their place.
            match self.schedules.poll() {
                Some(renewed) => self.renew(renewed),
                None => return self.probers.poll(now),
            }
        }
    }

    /// The file of a hop has other times now.
    fn renew(&mut self, Renewed { id, file, times }: Renewed) {
        let mut hops = self.announced.iter_mut();
        // It may have another one by now.
        let hop = hops.find(|hop| hop.id == id && hop.file.as_ref() == Some(&file));
        if let Some(hop) = hop {
            let count = times.iter().count();
            tracing::info!(neighbour = id.0, file = %file.display(), "its schedule was read again: {count} times");
            hop.announcements = Announcements::new(hop.timetable, times);
        }
    }

    /// Has the prober of a hop tell something.
    #[cfg(test)]
    pub(super) fn say(&self, id: NeighbourId, event: crate::prober::ProberEvent) {
        self.probers.say(id, event);
    }

    /// Gives hops their probers as far as it is known where neighbours are, and lets those rest while the node carries nothing. `carried`: how
    /// much it has, which grows when it does.
    pub(super) fn tend(
        &mut self,
        now: Instant,
        carried: impl FnOnce() -> u64,
        address: impl Fn(NeighbourId) -> Option<SocketAddr>,
    ) {
        self.probers.tend(now, carried, address);
    }
}

impl Announced {
    fn poll(&mut self, now: Instant, unix: Duration) -> Option<Reconfiguration> {
        let is_due = |at: Instant| at <= now;
        if !self.announcements.poll_timeout(now).is_some_and(is_due) {
            return None;
        }
        let was_over = self.announcements.is_over();
        let event = self.announcements.poll(now, unix);
        if self.announcements.is_over() && !was_over {
            match &self.file {
                Some(file) => {
                    tracing::warn!(neighbour = self.id.0, help = %renewal(file), "the last time of its schedule has passed");
                }
                None => {
                    tracing::warn!(
                        neighbour = self.id.0,
                        "the last time of its schedule has passed"
                    );
                }
            }
        }
        event
    }
}

/// How a file gets times that are to come, for people. The command that finds them goes by the ending of the file.
fn renewal(file: &Path) -> String {
    let file = path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let file = quoted(&file.display().to_string());
    let (out, then) = match file.ends_with(".times'") {
        true => (file, String::new()),
        false => ("next.times".to_owned(), format!(" && mv next.times {file}")),
    };
    format!(
        "write those that follow, which are read within seconds: starhaul orbit paths --tle ELEMENTS FROM TO \
         --at \"$(date -u +%FT%TZ)\" --duration 24h --out {out}{then}"
    )
}

/// Quotes the text as one argument of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use starhaul_cc::{KnownTimes, ProbeTarget};

    use super::*;
    use crate::{Poller, leotp::probers::MOST_PROBERS};

    const HOPS: [NeighbourId; 2] = [NeighbourId(1), NeighbourId(2)];
    /// 2026-01-01 00:00:00 UTC.
    const MIDNIGHT: Duration = Duration::from_secs(1_767_225_600);

    fn signals() -> Signals {
        let anywhere = [0, 0, 0, 0].into();
        Signals::new(Poller::new().unwrap().waker(), anywhere)
    }

    /// Drives them for so many seconds, from the begin of a minute on; returns which hop heard of one after how many milliseconds.
    fn heard(signals: &mut Signals, seconds: u64) -> Vec<(u32, u128)> {
        let start = Instant::now();
        let (mut now, mut heard) = (start, Vec::new());
        while now < start + Duration::from_secs(seconds) {
            let unix = MIDNIGHT + (now - start);
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

    /// Of hops beyond the limit the timetable was forgotten, too.
    #[test]
    fn a_hop_that_no_prober_is_left_for_hears_of_its_timetable() {
        let probe = HopSignals {
            timetable: Some(Timetable::STARLINK),
            probe: Some(ProbeTarget::Auto),
            ..HopSignals::default()
        };
        let mut signals = signals();
        for id in (0..=32).map(NeighbourId) {
            signals.set(id, probe.clone());
        }
        assert_eq!(signals.probers.hops(), MOST_PROBERS);
        let announced = signals.announced.iter().map(|hop| hop.id);
        assert_eq!(announced.collect::<Vec<_>>(), [NeighbourId(32)]);
        // One that has a prober may have it again.
        signals.set(NeighbourId(5), probe);
        assert_eq!(signals.probers.hops(), MOST_PROBERS);
        assert_eq!(signals.announced.len(), 1);
    }

    #[test]
    fn times_that_take_the_place_of_others_are_heard_and_none_is_missed_or_told_twice() {
        let times = |text: &str| -> KnownTimes { text.parse().unwrap() };
        let file = |name: &str| PathBuf::from("/nowhere at all").join(name);
        let mut signals = signals();
        let first = HopSignals {
            times: times("1767225610\n1767225620"),
            schedule: Some(file("hop.times")),
            ..HopSignals::default()
        };
        signals.set(HOPS[0], first);
        let (start, mut told) = (Instant::now(), Vec::new());
        for millis in (0..31_000).step_by(5) {
            // The second list comes when a time that is in both is due.
            let (name, text) = match millis {
                5000 => ("other.times", "1767225607"),
                10_135 => ("hop.times", "1767225610\n1767225630"),
                _ => ("", ""),
            };
            if !name.is_empty() {
                signals.schedules.say(Renewed {
                    id: HOPS[0],
                    file: file(name),
                    times: times(text),
                });
            }
            let passed = Duration::from_millis(millis);
            while let Some((_, event)) = signals.poll(start + passed, MIDNIGHT + passed) {
                told.push((event.at - start).as_millis());
            }
        }
        assert_eq!(told, [10_135, 30_135]);
    }

    #[test]
    fn a_list_that_is_over_is_told_with_the_command_that_renews_its_file() {
        let said = renewal(Path::new("/etc/starhaul/hop.times"));
        let command = "starhaul orbit paths --tle ELEMENTS FROM TO --at \"$(date -u +%FT%TZ)\" --duration 24h";
        let expected = format!("{command} --out '/etc/starhaul/hop.times'");
        assert!(said.ends_with(&expected), "{said}");
        // Times are only written to what ends so.
        let said = renewal(Path::new("/etc/it's/hop.txt"));
        let expected = " --out next.times && mv next.times '/etc/it'\\''s/hop.txt'";
        assert!(said.ends_with(expected), "{said}");
        let said = renewal(Path::new("hop.times"));
        assert!(said.contains(" --out '/"), "wherever it is run: {said}");
    }
}
