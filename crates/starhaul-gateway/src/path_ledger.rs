//! The counters of all paths to a peer since the gateway started, including those of sessions that have ended.

use std::collections::{BTreeMap, HashMap};

use starhaul_endpoint::{ClassBytes, PathId, PathStatus};

/// Names kept one by one of the paths that a peer opens, who invents them; further ones count together. Ours are configured.
const MAX_NAMES: usize = 64;
/// The name under which they do.
const OTHERS: &str = "(others)";

/// Paths that count together: those of one name over all sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathKey {
    /// The peer opened their session.
    pub(crate) of_peer: bool,
    pub(crate) name: String,
}

/// Counters of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathCounters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_lost: u64,
    pub(crate) reconfigurations: u64,
    pub(crate) sent_by_class: ClassBytes,
    pub(crate) received_by_class: ClassBytes,
}

/// The paths to one peer.
#[derive(Debug, Default)]
pub(crate) struct PathLedger {
    totals: BTreeMap<PathKey, PathCounters>,
    /// The counters of the present paths when they were read last, by session and path.
    read: HashMap<(u64, PathId), PathCounters>,
}

impl From<&PathStatus> for PathCounters {
    fn from(path: &PathStatus) -> Self {
        Self {
            bytes_sent: path.totals.bytes_sent,
            bytes_received: path.totals.bytes_received,
            datagrams_sent: path.totals.datagrams_sent,
            datagrams_lost: path.totals.datagrams_lost,
            reconfigurations: path.reconfigurations.count,
            sent_by_class: path.totals.sent_by_class.clone(),
            received_by_class: path.totals.received_by_class.clone(),
        }
    }
}

impl PathCounters {
    /// What was counted now, of which losses that were taken back, as their acknowledgements came late, count as before: a path that has sent no
    /// less has not begun again.
    fn without_taking_back(mut self, before: &Self) -> Self {
        if self.datagrams_sent >= before.datagrams_sent {
            self.datagrams_lost = self.datagrams_lost.max(before.datagrams_lost);
        }
        self
    }

    /// Adds what was counted from `before` to `now`; a counter that fell has begun again at zero.
    fn advance(&mut self, before: &Self, now: &Self) {
        let since = |before: u64, now: u64| now.checked_sub(before).unwrap_or(now);
        self.bytes_sent += since(before.bytes_sent, now.bytes_sent);
        self.bytes_received += since(before.bytes_received, now.bytes_received);
        self.datagrams_sent += since(before.datagrams_sent, now.datagrams_sent);
        self.datagrams_lost += since(before.datagrams_lost, now.datagrams_lost);
        self.reconfigurations += since(before.reconfigurations, now.reconfigurations);
        self.sent_by_class
            .add_all(&now.sent_by_class.since(&before.sent_by_class));
        self.received_by_class
            .add_all(&now.received_by_class.since(&before.received_by_class));
    }
}

impl PathLedger {
    /// Reads the paths of all present sessions: each with the session's number, and whether the peer opened it.
    pub(crate) fn read(&mut self, present: impl IntoIterator<Item = (u64, bool, PathStatus)>) {
        let mut read = HashMap::new();
        for (session, of_peer, path) in present {
            let before = self.read.remove(&(session, path.path));
            let before = before.unwrap_or_default();
            let now = PathCounters::from(&path).without_taking_back(&before);
            let name = path.name;
            self.total(PathKey { of_peer, name }).advance(&before, &now);
            read.insert((session, path.path), now);
        }
        self.read = read;
    }

    fn total(&mut self, mut key: PathKey) -> &mut PathCounters {
        let of_peer = || self.totals.keys().filter(|known| known.of_peer).count();
        if key.of_peer && !self.totals.contains_key(&key) && of_peer() >= MAX_NAMES {
            key.name = OTHERS.to_owned();
        }
        self.totals.entry(key).or_default()
    }

    /// The totals with a row for each of the names `configured` at this side.
    pub(crate) fn totals(&self, configured: &[String]) -> BTreeMap<PathKey, PathCounters> {
        let mut totals = self.totals.clone();
        for name in configured {
            let (of_peer, name) = (false, name.clone());
            totals.entry(PathKey { of_peer, name }).or_default();
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(bytes_sent: u64) -> PathCounters {
        PathCounters {
            bytes_sent,
            ..PathCounters::default()
        }
    }

    #[test]
    fn a_counter_that_begins_again_loses_nothing_of_what_it_counted() {
        let mut total = PathCounters::default();
        for (before, now) in [(0, 100), (100, 130), (130, 20), (20, 25)] {
            total.advance(&counters(before), &counters(now));
        }
        assert_eq!(total, counters(155));
    }

    #[test]
    fn a_loss_that_is_taken_back_counts_no_other_again() {
        let counters = |datagrams_sent, datagrams_lost| PathCounters {
            datagrams_sent,
            datagrams_lost,
            ..PathCounters::default()
        };
        let (mut total, mut before) = (PathCounters::default(), PathCounters::default());
        // The last is another life of the path.
        for (sent, lost) in [(100, 10), (110, 9), (120, 10), (130, 12), (5, 1)] {
            let now = counters(sent, lost).without_taking_back(&before);
            total.advance(&before, &now);
            before = now;
        }
        assert_eq!(total, counters(135, 13));
    }

    #[test]
    fn names_that_a_peer_invents_are_bounded_and_lose_no_byte() {
        let mut ledger = PathLedger::default();
        for number in 0..1000 {
            let name = format!("p{number}");
            let path = ledger.total(PathKey {
                of_peer: true,
                name,
            });
            path.advance(&counters(0), &counters(1));
        }
        // One of ours that comes later keeps its name.
        let mine = PathKey {
            of_peer: false,
            name: "mine".to_owned(),
        };
        ledger
            .total(mine.clone())
            .advance(&counters(0), &counters(7));
        let totals = ledger.totals(&["mine".to_owned()]);
        assert_eq!(totals.len(), MAX_NAMES + 2);
        assert_eq!(totals[&mine], counters(7));
        let bytes: u64 = totals.values().map(|path| path.bytes_sent).sum();
        assert_eq!(bytes, 1007);
    }
}
