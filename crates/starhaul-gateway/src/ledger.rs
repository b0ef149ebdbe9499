//! The counters of all streams with a peer since the gateway started, including those that have ended.

use std::collections::BTreeMap;

use starhaul_endpoint::{Session, StreamStats};

use crate::label::{Flow, Label};

/// Groups kept one by one for a peer, who chooses the names of its rules; further ones count as one without a name.
const MAX_GROUPS: usize = 256;

/// Streams that count together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Group {
    /// The rule behind them is one of ours.
    pub(crate) ours: bool,
    /// Its name; `None` where the label is not a gateway's.
    pub(crate) rule: Option<String>,
    /// Priority, 0 the most important.
    pub(crate) class: u8,
}

/// The counters of a group.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    /// Number of streams since the start.
    pub(crate) streams: u64,
    /// Number of open streams.
    pub(crate) open: u64,
    /// The sum of their counters; its stream number and label mean nothing.
    pub(crate) sum: StreamStats,
}

/// The groups of one peer.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<Group, Totals>);

impl Group {
    /// The group of a stream in a session that this side opened, or the peer.
    fn of(stats: &StreamStats, opened_by_us: bool) -> Self {
        let label = Label::parse(&stats.label).ok();
        let client = stats.stream.0 & 1 == 0;
        let replies = label
            .as_ref()
            .is_some_and(|label| matches!(label.flow, Flow::Reply { .. }));
        Self {
            // Replies belong to the rule whose flow they answer.
            ours: (client == opened_by_us) != replies,
            rule: label.map(|label| label.rule),
            class: stats.priority,
        }
    }
}

impl Totals {
    fn add(&mut self, stats: &StreamStats, open: bool) {
        self.streams += 1;
        self.open += u64::from(open);
        self.sum.add(stats);
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            streams: 0,
            open: 0,
            sum: StreamStats::none(),
        }
    }
}

impl Ledger {
    /// Adds the streams of a session that ended since the last call; returns its present streams.
    pub(crate) fn collect(&mut self, session: &Session, opened_by_us: bool) -> Vec<StreamStats> {
        let (ended, now) = session.collect_stream_stats();
        for stats in &ended {
            self.add(stats, opened_by_us, false);
        }
        now
    }

    /// The groups with these open streams added; the flag says whether this side opened their session.
    pub(crate) fn with_open<'s>(
        &self,
        open: impl IntoIterator<Item = (&'s StreamStats, bool)>,
    ) -> BTreeMap<Group, Totals> {
        let mut all = Self(self.0.clone());
        for (stats, opened_by_us) in open {
            all.add(stats, opened_by_us, true);
        }
        all.0
    }

    fn add(&mut self, stats: &StreamStats, opened_by_us: bool, open: bool) {
        let mut group = Group::of(stats, opened_by_us);
        if self.0.len() >= MAX_GROUPS && !self.0.contains_key(&group) {
            group = Group {
                ours: false,
                rule: None,
                class: u8::MAX,
            };
        }
        self.0.entry(group).or_default().add(stats, open);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use starhaul_endpoint::{Mode, StreamId};

    use super::*;

    fn stream(number: u32, label: Bytes, bytes: u64) -> StreamStats {
        let mut stats = StreamStats::none();
        stats.stream = StreamId(number);
        stats.label = label;
        stats.mode = Mode::FecRetransmit;
        stats.bytes_sent = bytes;
        stats
    }

    #[test]
    fn flows_and_their_replies_belong_to_the_side_whose_rule_they_serve() {
        let udp = Flow::Udp {
            id: 1,
            target: "192.0.2.1:9".parse().unwrap(),
        };
        let flow = Label::new("dns", udp).encode();
        let reply = Label::new("dns", Flow::Reply { id: 1 }).encode();
        let mut ledger = Ledger::default();
        // We opened the session, so even numbers are ours.
        ledger.add(&stream(2, flow.clone(), 5), true, false);
        ledger.add(&stream(3, reply, 7), true, false);
        ledger.add(&stream(5, flow, 11), true, false);
        let groups = ledger.with_open([]);
        let sent = |ours: bool| {
            let group = groups.iter().find(|(group, _)| group.ours == ours);
            group.map(|(_, totals)| (totals.streams, totals.sum.bytes_sent))
        };
        assert_eq!((sent(true), sent(false)), (Some((2, 12)), Some((1, 11))));
    }

    #[test]
    fn names_that_a_peer_invents_are_bounded_and_lose_no_byte() {
        let mut ledger = Ledger::default();
        for number in 0..2000 {
            let target = "192.0.2.1:9".parse().unwrap();
            let label = Label::new(
                &format!("r{number}"),
                Flow::Tcp {
                    target,
                    client: None,
                },
            );
            ledger.add(&stream(2 * number, label.encode(), 1), false, false);
        }
        let groups = ledger.with_open([]);
        assert_eq!(groups.len(), MAX_GROUPS + 1);
        let bytes: u64 = groups.values().map(|totals| totals.sum.bytes_sent).sum();
        assert_eq!(bytes, 2000);
    }
}
