//! Which choice of a path lost a block: each departure of its fragments, with the arrivals that were predicted for it.

use std::{collections::BTreeMap, time::Duration};

use starhaul_session::{Datagram, PathId, Purpose};

/// The departures of a block's fragments, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Departures(Vec<Departure>);

/// A fragment left. Times count from the block's beginning.
#[derive(Clone, Debug)]
struct Departure {
    at: Duration,
    fragment: (u8, u8),
    datagram: Datagram,
    purpose: Purpose,
    /// When each usable path would have brought it, as predicted.
    expected: Vec<(PathId, Duration)>,
    is_lost: bool,
}

impl Departures {
    /// A fragment leaves at this time in this datagram; each usable path would take so long to bring it.
    pub(super) fn add(
        &mut self,
        at: Duration,
        fragment: (u8, u8),
        datagram: Datagram,
        purpose: Purpose,
        arrivals: &[(PathId, Duration)],
    ) {
        let expected = arrivals.iter().map(|(path, after)| (*path, at + *after));
        self.0.push(Departure {
            at,
            fragment,
            datagram,
            purpose,
            expected: expected.collect(),
            is_lost: false,
        });
    }

    /// What left in this datagram counts as lost.
    pub(super) fn lose(&mut self, datagram: Datagram) {
        let of_it = self.0.iter_mut();
        for departure in of_it.filter(|departure| departure.datagram == datagram) {
            departure.is_lost = true;
        }
    }

    /// The choice that lost the block: the last departure of a fragment that was lost each time or, if there is no such fragment, of the one
    /// that was expected last. Redundancy counts only where nothing else left. `None` if nothing left.
    pub(super) fn decision(&self) -> Option<String> {
        // Whether a fragment was lost each time, and its last departure.
        let mut fragments: BTreeMap<(u8, u8), (bool, &Departure)> = BTreeMap::new();
        for departure in &self.0 {
            if departure.purpose == Purpose::Query {
                continue;
            }
            let before = fragments.get(&departure.fragment);
            let is_lost = departure.is_lost && before.is_none_or(|(is_lost, _)| *is_lost);
            fragments.insert(departure.fragment, (is_lost, departure));
        }
        let last = fragments.into_values().max_by_key(|(is_lost, departure)| {
            let is_data = departure.purpose != Purpose::Redundancy;
            (is_data, *is_lost, departure.due())
        });
        last.map(|(is_lost, departure)| departure.text(is_lost))
    }
}

impl Departure {
    /// When it was expected over the path that it took.
    fn due(&self) -> Duration {
        let mut expected = self.expected.iter();
        let own = expected.find(|(path, _)| *path == self.datagram.path);
        own.map_or(self.at, |(_, at)| *at)
    }

    fn text(&self, is_lost: bool) -> String {
        let taken = self.datagram.path;
        let mut text = format!(
            "{} at {} ms on {}, expected at {} ms",
            self.purpose.name(),
            self.at.as_millis(),
            taken.0,
            self.due().as_millis()
        );
        for (other, at) in self.expected.iter().filter(|(path, _)| *path != taken) {
            text += &format!(", on {} at {} ms", other.0, at.as_millis());
        }
        // Whether it was lost may not be known when the block ends.
        text + if is_lost { ": lost" } else { ": not in time" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEO: PathId = PathId(0);
    const GEO: PathId = PathId(1);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Fragments by (time, index, path, purpose), each in a datagram of its own with the number of its place; and which of these were lost.
    fn decision(sent: &[(u64, u8, PathId, Purpose)], lost: &[u64]) -> Option<String> {
        let mut departures = Departures::default();
        for (sequence, (at, index, path, purpose)) in (0..).zip(sent) {
            let datagram = Datagram {
                path: *path,
                sequence,
            };
            let arrivals = [(LEO, ms(40)), (GEO, ms(310))];
            departures.add(ms(*at), (0, *index), datagram, *purpose, &arrivals);
        }
        for sequence in lost {
            for path in [LEO, GEO] {
                let datagram = Datagram {
                    path,
                    sequence: *sequence,
                };
                departures.lose(datagram);
            }
        }
        departures.decision()
    }

    #[test]
    fn the_last_departure_of_what_was_lost_each_time_is_named() {
        let sent = [
            (0, 0, LEO, Purpose::Data),
            (1, 1, LEO, Purpose::Data),
            (90, 1, GEO, Purpose::Retransmission),
            (95, 0, LEO, Purpose::Retransmission),
            (96, 2, LEO, Purpose::Redundancy),
        ];
        let decided = decision(&sent, &[0, 1, 2, 4]);
        let expected = "retransmission at 90 ms on 1, expected at 400 ms, on 0 at 130 ms: lost";
        assert_eq!(decided.as_deref(), Some(expected));
    }

    #[test]
    fn where_nothing_was_lost_each_time_what_was_expected_last_is_named() {
        let sent = [
            (0, 0, LEO, Purpose::Data),
            (1, 1, LEO, Purpose::Data),
            (700, 1, LEO, Purpose::Retransmission),
            (900, 0, LEO, Purpose::Query),
        ];
        let decided = decision(&sent, &[1]);
        let expected =
            "retransmission at 700 ms on 0, expected at 740 ms, on 1 at 1010 ms: not in time";
        assert_eq!(decided.as_deref(), Some(expected));
        assert_eq!(decision(&[], &[]), None);
    }
}
