//! Which connections over TCPCLv4 a node has, and which of them go where they would be too many or hold too much: a machine without
//! sockets and clock. Nobody is authenticated, so what is shared out is shared among addresses.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

/// Connections that others have made, in all and of one address.
pub(super) const MOST: usize = 256;
pub(super) const MOST_OF_ONE: usize = 32;

/// Who a connection is with, as far as its address tells: of IPv6 the network of a host, which has all addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

#[derive(Debug)]
struct Entry {
    origin: Origin,
    /// Whether the other side has made the connection.
    has_come: bool,
    has_session: bool,
    /// Bytes of transfers that have not ended.
    held: u64,
    /// Whether it is told to end. What the node has of it, it holds until it has ended.
    is_ending: bool,
}

/// The connections of a node by their numbers, which grow.
#[derive(Debug)]
pub(super) struct Roster {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    /// What all of them hold, and what those of it that are ending do.
    held: u64,
    ending: u64,
    most_held: u64,
}

impl Roster {
    /// No connection; all of them together may hold `most_held` bytes of transfers that have not ended.
    pub(super) const fn new(most_held: u64) -> Self {
        Self {
            next: 0,
            entries: BTreeMap::new(),
            held: 0,
            ending: 0,
            most_held,
        }
    }

    /// A connection of another host: its number, and the one that is to end for it. `None` refuses it.
    ///
    /// Where there are as many as may be, the oldest that has no session goes; where all have one, the latest of the address that has
    /// most, unless the newcomer's would have as many then, or as many as may be are ending and have not ended.
    pub(super) fn accept(&mut self, from: IpAddr) -> Option<(u64, Option<u64>)> {
        let origin = Origin::from(from);
        let counts = self.counts();
        let of_one = counts.get(&origin).copied().unwrap_or(0);
        let instead_of = if of_one >= MOST_OF_ONE {
            Some(self.oldest_without_session(|entry| entry.origin == origin)?)
        } else if counts.values().sum::<usize>() >= MOST {
            let oldest = self.oldest_without_session(|_| true);
            let ending = self.entries.values().filter(|entry| entry.is_ending);
            let may_end = ending.count() < MOST;
            let latest = || self.latest_of_busiest(&counts, of_one + 2);
            Some(oldest.or_else(|| latest().filter(|_| may_end))?)
        } else {
            None
        };
        if let Some(number) = instead_of {
            self.end(number);
        }
        Some((self.insert(origin, true), instead_of))
    }

    /// A connection that this node makes; these have no limit but that of its neighbours.
    pub(super) fn connect(&mut self, to: IpAddr) -> u64 {
        self.insert(to.into(), false)
    }

    /// Whether a connection may go on.
    pub(super) fn has(&self, number: u64) -> bool {
        let entry = self.entries.get(&number);
        entry.is_some_and(|entry| !entry.is_ending)
    }

    /// Whether a connection that may not go on can be dropped as it is: the node has nothing of it.
    pub(super) fn is_empty(&self, number: u64) -> bool {
        let entry = self.entries.get(&number);
        entry.is_none_or(|entry| !entry.has_session && entry.held == 0)
    }

    /// Whether more may come: what those hold that are ending is not free yet.
    pub(super) const fn has_room(&self) -> bool {
        self.held <= self.most_held
    }

    /// Notes that a connection has a session.
    pub(super) fn begin_session(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.has_session = true;
        }
    }

    /// Notes how many bytes a connection holds, and returns those that are to end: of the address that holds most, the one with most.
    pub(super) fn hold(&mut self, number: u64, bytes: u64) -> Vec<u64> {
        let Some(entry) = self.entries.get_mut(&number) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut entry.held, bytes);
        self.held = self.held.saturating_sub(before).saturating_add(bytes);
        if entry.is_ending {
            self.ending = self.ending.saturating_sub(before).saturating_add(bytes);
        }
        let mut ended = Vec::new();
        while self.held.saturating_sub(self.ending) > self.most_held
            && let Some(number) = self.largest()
        {
            self.end(number);
            ended.push(number);
        }
        ended
    }

    /// A connection may not go on.
    fn end(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number)
            && !std::mem::replace(&mut entry.is_ending, true)
        {
            self.ending = self.ending.saturating_add(entry.held);
        }
    }

    /// Forgets a connection that has ended: nothing is held of it.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.held = self.held.saturating_sub(entry.held);
        if entry.is_ending {
            self.ending = self.ending.saturating_sub(entry.held);
        }
    }

    fn insert(&mut self, origin: Origin, has_come: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        let entry = Entry {
            origin,
            has_come,
            has_session: false,
            held: 0,
            is_ending: false,
        };
        self.entries.insert(number, entry);
        number
    }

    /// Connections that have come, by address.
    fn counts(&self) -> BTreeMap<Origin, usize> {
        let mut counts: BTreeMap<Origin, usize> = BTreeMap::new();
        let come = |entry: &&Entry| entry.has_come && !entry.is_ending;
        for entry in self.entries.values().filter(come) {
            *counts.entry(entry.origin).or_default() += 1;
        }
        counts
    }

    fn oldest_without_session(&self, is_one: impl Fn(&Entry) -> bool) -> Option<u64> {
        let mut entries = self.entries.iter();
        let found = entries.find(|(_, entry)| {
            let is_silent = entry.has_come && !entry.has_session && !entry.is_ending;
            is_silent && is_one(entry)
        });
        found.map(|(number, _)| *number)
    }

    fn latest_of_busiest(&self, counts: &BTreeMap<Origin, usize>, least: usize) -> Option<u64> {
        let (origin, count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let mut entries = self.entries.iter().rev();
        let latest = entries
            .find(|(_, entry)| entry.has_come && !entry.is_ending && entry.origin == *origin);
        latest
            .filter(|_| *count >= least)
            .map(|(number, _)| *number)
    }

    /// Of the address that holds most, of those with connections that may go on, the one of these with most.
    fn largest(&self) -> Option<u64> {
        let mut sums: BTreeMap<Origin, u64> = BTreeMap::new();
        for entry in self.entries.values() {
            let sum = sums.entry(entry.origin).or_default();
            *sum = sum.saturating_add(entry.held);
        }
        let live = self.entries.iter().filter(|(_, entry)| !entry.is_ending);
        let sum = |entry: &Entry| sums.get(&entry.origin).copied().unwrap_or(0);
        let largest = live.max_by_key(|(_, entry)| (sum(entry), entry.origin, entry.held));
        largest.map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    fn accepted(roster: &mut Roster, from: IpAddr) -> u64 {
        let (number, instead_of) = roster.accept(from).unwrap();
        assert_eq!(instead_of, None);
        number
    }

    #[test]
    fn connections_that_say_nothing_make_room_for_later_ones_of_their_host() {
        let mut roster = Roster::new(1000);
        let silent: Vec<_> = (0..MOST_OF_ONE)
            .map(|_| accepted(&mut roster, host(1)))
            .collect();
        let (next, instead_of) = roster.accept(host(1)).unwrap();
        assert_eq!(instead_of, Some(silent[0]));
        for number in silent.into_iter().skip(1).chain([next]) {
            roster.begin_session(number);
        }
        assert_eq!(roster.accept(host(1)), None, "all have sessions");
        roster.remove(next);
        accepted(&mut roster, host(1));
    }

    #[test]
    fn an_address_with_many_sessions_shuts_no_other_out() {
        let mut roster = Roster::new(1000);
        let hosts = u8::try_from(MOST / MOST_OF_ONE).unwrap();
        let mut last = 0;
        for from in (0..hosts).map(host) {
            for _ in 0..MOST_OF_ONE {
                last = accepted(&mut roster, from);
                roster.begin_session(last);
            }
        }
        // Of the busiest, the last in the order of addresses.
        let (next, instead_of) = roster.accept(host(hosts)).unwrap();
        assert_eq!(instead_of, Some(last));
        assert!(roster.has(next) && !roster.has(last));
        // The node's own are beside these.
        let own = roster.connect(host(hosts));
        assert!(roster.has(own));
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let mut roster = Roster::new(1000);
        for number in 0..MOST_OF_ONE {
            let tail = u16::try_from(number).unwrap();
            let from = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, tail, 0, 0, tail);
            let number = accepted(&mut roster, from.into());
            roster.begin_session(number);
        }
        let from = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 9, 9, 9, 9);
        assert_eq!(roster.accept(from.into()), None);
        let from = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 9, 9, 9, 9);
        accepted(&mut roster, from.into());
        // The same hosts by their names in IPv6.
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(
            Origin::from(IpAddr::from(v4)),
            Origin::from(IpAddr::from(v4.to_ipv6_mapped()))
        );
    }

    #[test]
    fn the_address_that_holds_most_pays_for_what_is_too_much() {
        let mut roster = Roster::new(1000);
        let honest = accepted(&mut roster, host(1));
        let hoard: Vec<_> = (0..6).map(|_| accepted(&mut roster, host(2))).collect();
        assert!(roster.hold(honest, 400).is_empty());
        for number in &hoard {
            let _ = roster.hold(*number, 100);
        }
        assert_eq!(roster.hold(hoard[3], 150), [hoard[3]]);
        assert!(roster.has(honest));
        // The node holds it until the connection has ended, which ends no other: more may not come for as long.
        assert!(!roster.has(hoard[3]) && !roster.has_room());
        assert!(roster.hold(honest, 450).is_empty());
        roster.remove(hoard[3]);
        assert!(roster.has_room());
        // What is given back is there for others.
        assert!(roster.hold(honest, 0).is_empty());
        assert!(roster.hold(honest, 500).is_empty());
        assert_eq!(roster.hold(honest, 501), [honest]);
    }

    /// What the node has of connections that end may wait for room in its store: none more is ended for a new one then.
    #[test]
    fn connections_that_do_not_end_are_bounded() {
        let mut roster = Roster::new(0);
        let mut ending = Vec::new();
        for number in 0..MOST {
            let from = host(u8::try_from(number / 2).unwrap());
            let number = accepted(&mut roster, from);
            roster.begin_session(number);
            assert_eq!(roster.hold(number, 1), [number]);
            ending.push(number);
        }
        for number in 0..MOST {
            let from = host(u8::try_from(number / MOST_OF_ONE).unwrap());
            let number = accepted(&mut roster, from);
            roster.begin_session(number);
        }
        assert_eq!(roster.accept(host(200)), None);
        roster.remove(ending[0]);
        let (_, instead_of) = roster.accept(host(200)).unwrap();
        assert!(instead_of.is_some());
    }

    /// One that ends while its last bytes are counted gives back all that it holds, and nothing else.
    #[test]
    fn what_ends_is_counted_until_it_has_ended() {
        let mut roster = Roster::new(100);
        let [first, second] = [1, 2].map(|number| accepted(&mut roster, host(number)));
        assert!(roster.is_empty(first));
        assert_eq!(roster.hold(first, 101), [first]);
        assert!(!roster.is_empty(first) && !roster.has_room());
        assert!(roster.hold(first, 120).is_empty());
        assert!(roster.hold(second, 100).is_empty());
        roster.remove(first);
        assert!(roster.has_room() && roster.is_empty(first));
        assert_eq!(roster.hold(second, 101), [second]);
    }
}
