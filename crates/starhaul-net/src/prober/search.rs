//! Finds the nearest stable address behind the satellite (LeoCC §4.1.1's PoP): requests with small hop limits make the
//! routers on the path answer, and the first one after a jump of the RTT is selected. Sans-IO.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

/// Greatest number of hops probed; the PoP is the first or second behind a dish.
const MAX_HOPS: u8 = 10;
/// Requests per hop. Routers answer few at once: Linux six, and then one per second.
const ROUNDS: u8 = 5;
const ROUND_INTERVAL: Duration = Duration::from_millis(300);
/// Interval of requests, so that they do not wait for each other.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Wait after the last request.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Least number of answers of a steady hop: all but one.
const STEADY: usize = 4;
/// Least RTT over a low orbit; the best RTT of a local network is lower.
const SATELLITE_RTT: Duration = Duration::from_millis(7);

/// A request to send now, with this hop limit and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopProbe {
    /// Hop limit, from 1.
    pub hops: u8,
    /// Number of the request.
    pub sequence: u16,
}

/// Why an address was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The RTT jumps there: it is behind the satellite.
    Leap,
    /// It is the first hop behind the local network; no hop shows a jump.
    FirstOutside,
    /// It is the destination, and no hop before it qualifies.
    End,
}

impl FoundBy {
    /// The reason as text, for logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Leap => "the round trip leaps there",
            Self::FirstOutside => "the first steady hop outside the local network",
            Self::End => "the end of the way",
        }
    }
}

/// The selected address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundHop {
    /// Address of the router, or of the destination.
    pub address: IpAddr,
    /// Its distance in hops, from 1.
    pub hops: u8,
    /// The least RTT.
    pub rtt: Duration,
    /// The rule by which it was selected.
    pub by: FoundBy,
}

/// A search for the nearest stable address behind the satellite.
#[derive(Clone, Debug)]
pub struct HopSearch {
    start: Instant,
    asked: u16,
    sent: Vec<Option<Instant>>,
    hops: Vec<Hop>,
}

/// Answers of one hop.
#[derive(Clone, Debug, Default)]
struct Hop {
    from: Option<IpAddr>,
    answers: usize,
    best: Option<Duration>,
    /// Whether other addresses answered, too.
    changing: bool,
    reached: bool,
}

impl HopSearch {
    /// Creates a search that begins at `now`.
    pub fn new(now: Instant) -> Self {
        let questions = usize::from(ROUNDS) * usize::from(MAX_HOPS);
        Self {
            start: now,
            asked: 0,
            sent: vec![None; questions],
            hops: vec![Hop::default(); usize::from(MAX_HOPS)],
        }
    }

    /// The next request due by `now`; call it until `None`.
    pub fn poll_probe(&mut self, now: Instant) -> Option<HopProbe> {
        loop {
            let (due, hops) = self.next_question()?;
            if due > now {
                return None;
            }
            let sequence = self.asked;
            self.asked += 1;
            // There are no hops behind the destination.
            if self.end().is_some_and(|end| hops > end) {
                continue;
            }
            if let Some(sent) = self.sent.get_mut(usize::from(sequence)) {
                *sent = Some(now);
            }
            return Some(HopProbe { hops, sequence });
        }
    }

    /// The time at which to call again.
    pub fn poll_timeout(&self) -> Instant {
        match self.next_question() {
            Some((due, _)) => due,
            None => self.over_at(),
        }
    }

    /// Takes an answer; `reached` if it is from the destination. Unknown and duplicate answers are ignored.
    pub fn on_answer(&mut self, arrived: Instant, sequence: u16, from: IpAddr, reached: bool) {
        let Some(sent) = self.sent.get_mut(usize::from(sequence)) else {
            return;
        };
        let Some(sent) = sent.take() else {
            return;
        };
        let hop = sequence % u16::from(MAX_HOPS);
        let Some(hop) = self.hops.get_mut(usize::from(hop)) else {
            return;
        };
        hop.changing |= hop.from.is_some_and(|known| known != from);
        hop.from = Some(from);
        hop.answers += 1;
        hop.reached |= reached;
        let rtt = arrived.saturating_duration_since(sent);
        hop.best = Some(hop.best.map_or(rtt, |best| best.min(rtt)));
    }

    /// Whether all requests were sent and their time has passed.
    pub fn is_over(&self, now: Instant) -> bool {
        self.next_question().is_none() && (now >= self.over_at() || self.all_answered())
    }

    /// The best address that is not `excluded` for unsteady answers.
    pub fn choose(&self, excluded: &[IpAddr]) -> Option<FoundHop> {
        let mut nearest: Option<Duration> = None;
        let (mut outside, mut last) = (None, None);
        for (number, hop) in (1u8..).zip(&self.hops) {
            let (Some(address), Some(rtt)) = (hop.from, hop.best) else {
                continue;
            };
            // Without a hop before it, the reference is this host itself.
            let before = nearest.unwrap_or_default();
            let leaps = rtt.saturating_sub(before) >= SATELLITE_RTT;
            let found = |by| FoundHop {
                address,
                hops: number,
                rtt,
                by,
            };
            let will_do = hop.answers >= STEADY && !hop.changing && !excluded.contains(&address);
            if will_do && leaps {
                return Some(found(FoundBy::Leap));
            }
            if will_do && outside.is_none() && !is_local(address) {
                outside = Some(found(FoundBy::FirstOutside));
            }
            if will_do {
                last = Some(found(FoundBy::End));
            }
            if hop.reached {
                break;
            }
            if !leaps {
                nearest = Some(nearest.map_or(rtt, |nearest| nearest.min(rtt)));
            }
        }
        outside.or(last)
    }

    /// Distance of the destination in hops, once it answered.
    fn end(&self) -> Option<u8> {
        let mut hops = (1u8..).zip(&self.hops);
        hops.find(|(_, hop)| hop.reached).map(|(number, _)| number)
    }

    fn next_question(&self) -> Option<(Instant, u8)> {
        let max = u16::from(MAX_HOPS);
        let (round, hop) = (self.asked / max, self.asked % max);
        if round >= u16::from(ROUNDS) {
            return None;
        }
        let due = self.start + ROUND_INTERVAL * u32::from(round) + PROBE_INTERVAL * u32::from(hop);
        Some((due, u8::try_from(hop).unwrap_or(0) + 1))
    }

    fn all_answered(&self) -> bool {
        self.end().is_some() && self.sent.iter().all(Option::is_none)
    }

    fn over_at(&self) -> Instant {
        self.start + ROUND_INTERVAL * u32::from(ROUNDS) + PATIENCE
    }
}

/// Whether the address is of a local network (RFC 1918, RFC 4193, RFC 3927). Operators' own networks (RFC 6598) are
/// not.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_private() || address.is_link_local() || address.is_loopback()
        }
        IpAddr::V6(address) => {
            address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A router: its address, its RTT, and how many requests it answers.
    type Router = (&'static str, u32, usize);

    /// A search over these routers; the last one is the destination.
    fn search(way: &[Router]) -> HopSearch {
        let start = Instant::now();
        let mut search = HopSearch::new(start);
        let mut answered = vec![0; way.len()];
        let mut now = start;
        let mut in_flight: Vec<(Instant, u16, IpAddr, bool)> = Vec::new();
        while !search.is_over(now) {
            while let Some(probe) = search.poll_probe(now) {
                let hop = usize::from(probe.hops).min(way.len()) - 1;
                let (address, rtt, answers) = way[hop];
                answered[hop] += 1;
                if answered[hop] <= answers {
                    let address = address.parse().unwrap();
                    let reached = hop + 1 == way.len();
                    in_flight.push((now + MS * rtt, probe.sequence, address, reached));
                }
            }
            now += MS;
            in_flight.retain(|(at, sequence, from, reached)| {
                let there = *at <= now;
                if there {
                    search.on_answer(*at, *sequence, *from, *reached);
                }
                !there
            });
        }
        search
    }

    fn chosen(way: &[Router]) -> Option<(String, u8, FoundBy)> {
        let found = search(way).choose(&[])?;
        Some((found.address.to_string(), found.hops, found.by))
    }

    const HOME: Router = ("192.168.1.1", 1, 5);
    const END: Router = ("203.0.113.9", 60, 60);

    #[test]
    fn the_first_hop_behind_the_leap_is_the_one() {
        for (way, address, hops, by) in [
            (
                &[HOME, ("100.64.0.1", 24, 5), ("206.224.64.1", 25, 5), END][..],
                "100.64.0.1",
                2,
                FoundBy::Leap,
            ),
            // The dish is probed directly.
            (
                &[("100.64.0.1", 31, 5), ("172.16.251.2", 32, 5), END],
                "100.64.0.1",
                1,
                FoundBy::Leap,
            ),
            // It answers only some requests: the next one after the same jump is selected.
            (
                &[HOME, ("100.64.0.1", 24, 2), ("206.224.64.1", 25, 5), END],
                "206.224.64.1",
                3,
                FoundBy::Leap,
            ),
            // No router between this host and a destination one hop away.
            (&[("198.18.0.1", 40, 60)], "198.18.0.1", 1, FoundBy::Leap),
            // A path without a satellite.
            (
                &[HOME, ("198.51.100.1", 2, 5), ("203.0.113.9", 6, 60)],
                "198.51.100.1",
                2,
                FoundBy::FirstOutside,
            ),
            (&[("10.0.0.9", 1, 60)], "10.0.0.9", 1, FoundBy::End),
        ] {
            assert_eq!(chosen(way), Some((address.to_owned(), hops, by)), "{way:?}");
        }
    }

    #[test]
    fn who_turned_out_unsteady_is_passed_over_and_silence_is_said() {
        let way = [HOME, ("100.64.0.1", 24, 5), END];
        let search = search(&way);
        let excluded = ["100.64.0.1".parse().unwrap()];
        assert_eq!(search.choose(&excluded).unwrap().hops, 3);
        let silent = [("10.0.0.1", 1, 0), ("203.0.113.9", 60, 0)];
        assert_eq!(chosen(&silent), None);
    }

    #[test]
    fn answers_nobody_asked_for_and_second_ones_count_for_nothing() {
        let start = Instant::now();
        let mut search = HopSearch::new(start);
        let probe = search.poll_probe(start).unwrap();
        let stranger = "192.0.2.66".parse().unwrap();
        let router = "100.64.0.1".parse().unwrap();
        for sequence in [probe.sequence + 1, 40_000, u16::MAX] {
            search.on_answer(start, sequence, stranger, false);
        }
        for _ in 0..5 {
            search.on_answer(start + 20 * MS, probe.sequence, router, false);
        }
        assert_eq!(search.choose(&[]), None, "one answer was taken for five");
    }
}
