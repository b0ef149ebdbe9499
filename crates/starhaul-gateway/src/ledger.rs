//! The counters of all streams with a peer since the gateway started, including those that have ended.

use std::collections::BTreeMap;

use starhaul_endpoint::{Session, StreamStats};

use crate::label::{Flow, Label};

/// Groups kept one by one of the streams whose labels a peer invents; further ones count as one without a name.
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

/// A stream, its group, and whether the peer chose the name of that: the name of its own rule, or one that it claims to answer.
struct Grouped<'s> {
    stats: &'s StreamStats,
    group: Group,
    invented: bool,
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    groups: BTreeMap<Group, Totals>,
    /// Those of them that began with a stream of the peer.
    invented: usize,
}

impl<'s> Grouped<'s> {
    /// Streams of a session that this side opened, or the peer.
    fn all(streams: impl Iterator<Item = &'s StreamStats>, opened_by_us: bool) -> Vec<Self> {
        streams.map(|stats| Self::of(stats, opened_by_us)).collect()
    }

    /// A stream in a session that this side opened, or the peer. It reads the label, which takes a while: keep it.
    fn of(stats: &'s StreamStats, opened_by_us: bool) -> Self {
        let label = Label::parse(&stats.label).ok();
        let ours = is_ours(stats, opened_by_us);
        let replies = label
            .as_ref()
            .is_some_and(|label| matches!(label.flow, Flow::Reply { .. }));
        let group = Group {
            // Replies belong to the rule whose flow they answer.
            ours: ours != replies,
            rule: label.map(|label| label.rule),
            class: stats.priority,
        };
        Self {
            stats,
            group,
            invented: !ours || replies,
        }
    }
}

/// Whether this side opened the stream, in a session that it opened, or the peer.
const fn is_ours(stats: &StreamStats, opened_by_us: bool) -> bool {
    (stats.stream.0 & 1 == 0) == opened_by_us
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
        let ended = Grouped::all(ended.iter(), opened_by_us);
        self.make_room(&ended);
        // The others need none, and their labels are not read: they may be thousands, each time.
        let ours = now.iter().filter(|stats| is_ours(stats, opened_by_us));
        self.make_room(&Grouped::all(ours, opened_by_us));
        for stream in ended {
            self.add(stream, false);
        }
        now
    }

    /// The groups with these open streams added; the flag says whether this side opened their session.
    pub(crate) fn with_open<'s>(
        &self,
        open: impl IntoIterator<Item = (&'s StreamStats, bool)>,
    ) -> BTreeMap<Group, Totals> {
        let open = open.into_iter();
        let open: Vec<_> = open
            .map(|(stats, by_us)| Grouped::of(stats, by_us))
            .collect();
        let mut all = self.clone();
        all.make_room(&open);
        for stream in open {
            all.add(stream, true);
        }
        all.groups
    }

    /// Gives the groups of our own flows a place before others are counted, so that replies of the peer find them.
    fn make_room(&mut self, streams: &[Grouped<'_>]) {
        for Grouped { group, .. } in streams.iter().filter(|stream| !stream.invented) {
            self.groups.entry(group.clone()).or_default();
        }
    }

    fn add(&mut self, stream: Grouped<'_>, open: bool) {
        let Grouped {
            stats,
            mut group,
            invented,
        } = stream;
        if invented && group.ours && !self.groups.contains_key(&group) {
            // A reply to no flow of ours: the rule that it names may be none.
            group.ours = false;
            group.rule = None;
        }
        if invented && !self.groups.contains_key(&group) {
            match self.invented < MAX_GROUPS {
                true => self.invented += 1,
                false => {
                    group = Group {
                        ours: false,
                        rule: None,
                        class: u8::MAX,
                    }
                }
            }
        }
        self.groups.entry(group).or_default().add(stats, open);
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
        let ended = [
            stream(2, flow.clone(), 5),
            stream(3, reply, 7),
            stream(5, flow, 11),
        ];
        for stats in &ended {
            ledger.add(Grouped::of(stats, true), false);
        }
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
            let flow = stream(2 * number, label.encode(), 1);
            ledger.add(Grouped::of(&flow, false), false);
            // A reply to no flow of ours claims one of our rules.
            let label = Label::new(&format!("s{number}"), Flow::Reply { id: 1 });
            let reply = stream(2 * number, label.encode(), 1);
            ledger.add(Grouped::of(&reply, false), false);
        }
        // A rule of ours that is used later keeps its name, and has its replies.
        let udp = Flow::Udp {
            id: 1,
            target: "192.0.2.1:9".parse().unwrap(),
        };
        let flow = stream(4001, Label::new("dns", udp).encode(), 5);
        let reply = stream(4000, Label::new("dns", Flow::Reply { id: 1 }).encode(), 7);
        let groups = ledger.with_open([(&reply, false), (&flow, false)]);
        assert_eq!(groups.len(), MAX_GROUPS + 2);
        let ours = Group {
            ours: true,
            rule: Some("dns".to_owned()),
            class: flow.priority,
        };
        assert_eq!(groups[&ours].sum.bytes_sent, 12);
        // The rules that the other replies claim are not told as ours.
        let told_as_ours = groups.keys().filter(|group| group.ours);
        assert_eq!(told_as_ours.collect::<Vec<_>>(), [&ours]);
        let bytes: u64 = groups.values().map(|totals| totals.sum.bytes_sent).sum();
        assert_eq!(bytes, 4012);
    }
}
