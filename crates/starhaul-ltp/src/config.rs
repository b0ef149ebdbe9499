//! Configuration of an engine and of its peers. Light time and rate of a link determine all other defaults.

use std::time::Duration;

use starhaul_units::Bandwidth;

use crate::{
    AuthKey, Coding, EngineId, NumberWidth, Profile, RepairRate, SegmentSize,
    path::{AnswerTime, MOST_DOUBLINGS},
};

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The number of this engine.
    pub id: EngineId,
    /// Determines session and serial numbers. From the system's randomness, so that a host that does not see the segments cannot guess the
    /// numbers (RFC 5326 §9.1), and so that a restarted engine does not use numbers of its former life.
    pub seed: [u8; 32],
    /// The width of session numbers.
    pub numbers: NumberWidth,
    /// Greatest memory, in bytes, for blocks received in part, of all peers. Segments that find none are dropped, as if
    /// they were lost; new sessions start only while half of it is free.
    pub receive_memory: usize,
    /// Greatest sum of bytes of unfinished blocks being sent, to all peers; beyond it, sending is refused.
    pub send_bytes: u64,
    /// What to do with segments of engines that were not added as peers.
    pub unknown_peers: UnknownPeers,
    /// Whether a complete red part is reported only when the client service accepts it with [`crate::Engine::accept`]: one
    /// that stores blocks is then asked for what it has not stored, should it end before. A client service without room
    /// cancels the session instead.
    pub awaits_acceptance: bool,
}

/// What to do with segments of unknown engines.
#[derive(Clone, Debug, Default)]
pub enum UnknownPeers {
    /// They are dropped and counted.
    #[default]
    Refuse,
    /// Each becomes a peer for as long as it has sessions.
    Accept {
        /// Greatest number of such peers at a time.
        most: usize,
        /// Configuration of each of these peers.
        config: Box<PeerConfig>,
    },
}

/// Configuration of a peer and of the link to it.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// What both engines agree on; the peer must be told the same.
    pub profile: Profile,
    /// Time that a signal takes to the peer; the greater one if the ways differ.
    pub one_way_light_time: Duration,
    /// Rate at which segments leave; without it, or with one of zero, reports limit the red data under way.
    pub rate: Option<Bandwidth>,
    /// Bytes of block data in a data segment; where they adapt, until the path's MTU is known.
    pub segment_data: usize,
    /// Whether the bytes of data in a segment follow the path's MTU, once [`crate::Engine::set_path_mtu`] has told it, losses and speed.
    pub adapts_segments: bool,
    /// Bytes that lower layers add to a segment; counted in the rate.
    pub overhead: usize,
    /// Added to the round trip before an unanswered segment is sent again; doubles with each attempt, six times at
    /// most.
    pub margin: Duration,
    /// How often the margin doubles at most while neither a light time nor an answer tells how far the peer is; six times by default, too.
    /// Each time more doubles the light time up to which a first answer is awaited, and the time until a dead peer is given up.
    pub blind_doublings: u32,
    /// Times that a checkpoint, a report or a cancellation is sent again before its session is cancelled (§6.7, §6.8,
    /// §6.16).
    pub retransmission_limit: u32,
    /// Rounds of retransmissions of one range of a block before its session is cancelled (§6.22).
    pub cycle_limit: u32,
    /// A checkpoint at every so many data segments besides that at the end of the red part.
    pub checkpoint_every: Option<u32>,
    /// Greatest number of unfinished sessions in each direction.
    pub sessions: usize,
    /// Greatest length of a block from the peer in bytes.
    pub block_bytes: u64,
    /// Greatest memory for the peer's blocks received in part, in bytes.
    pub receive_memory: usize,
    /// Whether the red part carries its CRC32C, green segments theirs, and reports the number of their reception, where the profile has
    /// that. Engines that do not know the extensions ignore them.
    pub integrity: bool,
    /// Repair segments for the red part, so that losses cost no round trip; only to peers that know them.
    pub coding: Option<Coding>,
    /// Whether red parts have repair segments for the loss that reports show where no [`coding`](Self::coding) is given: none while nothing
    /// is lost, while a round trip takes less than a second, and to peers that do not tell what was lost. Segments have one packet each while
    /// red parts have some.
    pub adapts_coding: bool,
    /// Whether the peer cannot answer: nothing is reported, acknowledged or sent again, and a session that sends ends when
    /// its block has left. Red data arrive if their repair segments suffice.
    pub is_one_way: bool,
    /// How often a block is sent in all to a peer that cannot answer, once at least: what one pass lost the others bring. Each pass follows
    /// the one before at once, as the same session. To other peers blocks are sent once.
    pub passes: u32,
    /// The key of RFC 5327 authentication.
    pub auth: Option<AuthKey>,
}

/// The data of a segment that fills an Ethernet frame: 1500 bytes less IPv6, UDP and the longest header of a data segment
/// with serial numbers, a key and a checksum.
pub const ETHERNET_SEGMENT_DATA: usize = 1360;
/// IPv4 and UDP.
const UDP_OVERHEAD: usize = 28;
/// Margin for queues and processing of both engines, and the least time that a busy host may need to answer.
const LEAST_MARGIN: Duration = Duration::from_millis(100);
/// With half of all segments lost, a checkpoint and its report both arrive in one of four attempts; 20 retransmissions
/// fail three times in a thousand, and at a fifth lost once in 10⁹.
const RETRANSMISSION_LIMIT: u32 = 20;
/// With half of all segments lost, a million segments are complete after 40 rounds but for one time in a million.
const CYCLE_LIMIT: u32 = 40;
const GIBIBYTE: u64 = 1 << 30;
/// Memory that a block takes beside its bytes, but for many losses.
const BESIDE_BLOCK: usize = 1 << 17;
/// Round trips for which blocks are under way: the first transmission, two repairs, and the last report.
const ROUND_TRIPS: u32 = 4;
/// Bytes of a typical block, for the number of sessions that fill a link.
const TYPICAL_BLOCK: u64 = 1_000_000;
/// Limits of the computed number of sessions; each costs about half a kilobyte at either end.
const SESSIONS: std::ops::Range<u64> = 4096..1 << 20;
/// Limits of the computed memory.
const RECEIVE_MEMORY: std::ops::Range<u64> = GIBIBYTE / 2..8 * GIBIBYTE;
/// Memory that a host has to have for each byte of received blocks: sockets, the client service and other programs need some, too.
const HOST_PER_BYTE: u64 = 4;
/// However little the host has: four of the blocks in which files are sent.
const LEAST_MEMORY: u64 = 64 << 20;

impl EngineConfig {
    /// The defaults: 32-bit numbers, 8 GiB for received blocks until [`EngineConfig::fit_memory`] is told how much the host has, no limit for
    /// blocks to send, unknown engines refused.
    pub fn new(id: EngineId, seed: [u8; 32]) -> Self {
        Self {
            id,
            seed,
            numbers: NumberWidth::default(),
            receive_memory: narrow(RECEIVE_MEMORY.end),
            send_bytes: u64::MAX,
            unknown_peers: UnknownPeers::default(),
            awaits_acceptance: false,
        }
    }

    /// Has received blocks take no more than a quarter of a host with this memory, in bytes, but 64 MiB in any case. An engine does not
    /// ask its host itself; whoever runs it does.
    pub fn fit_memory(&mut self, host_bytes: u64) {
        self.receive_memory = self.receive_memory.min(share_of(host_bytes));
    }
}

impl PeerConfig {
    /// The defaults for a link of this light time and, if known, this rate.
    pub fn new(one_way_light_time: Duration, rate: Option<Bandwidth>) -> Self {
        let margin = LEAST_MARGIN.max(one_way_light_time / 50);
        let under_way = (one_way_light_time * 2 + margin).saturating_mul(ROUND_TRIPS);
        let bytes = rate.map_or(0, |rate| rate.bytes_in(under_way));
        Self {
            profile: Profile::default(),
            one_way_light_time,
            rate,
            segment_data: ETHERNET_SEGMENT_DATA,
            adapts_segments: true,
            overhead: UDP_OVERHEAD,
            // A peer's clock and queues are uncertain in proportion to the distance.
            margin,
            blind_doublings: MOST_DOUBLINGS,
            retransmission_limit: RETRANSMISSION_LIMIT,
            cycle_limit: CYCLE_LIMIT,
            checkpoint_every: None,
            sessions: narrow((bytes / TYPICAL_BLOCK).clamp(SESSIONS.start, SESSIONS.end)),
            block_bytes: GIBIBYTE,
            // New sessions begin only while half of it is free.
            receive_memory: narrow(
                bytes
                    .saturating_mul(2)
                    .clamp(RECEIVE_MEMORY.start, RECEIVE_MEMORY.end),
            ),
            integrity: true,
            coding: None,
            adapts_coding: false,
            is_one_way: false,
            passes: 1,
            auth: None,
        }
    }

    /// Has received blocks of this peer take no more than a quarter of a host with this memory, as [`EngineConfig::fit_memory`].
    pub fn fit_memory(&mut self, host_bytes: u64) {
        self.receive_memory = self.receive_memory.min(share_of(host_bytes));
    }

    /// Has segments of this size, or has it follow the path.
    pub fn set_segment_size(&mut self, size: SegmentSize) {
        self.adapts_segments = size == SegmentSize::Auto;
        if let SegmentSize::Bytes(bytes) = size {
            self.segment_data = bytes;
        }
    }

    /// Has as many repair segments, or has them follow the losses; without a rate, has none.
    pub fn set_repair(&mut self, rate: Option<RepairRate>) {
        self.adapts_coding = rate == Some(RepairRate::Auto);
        self.coding = match rate {
            Some(RepairRate::Fixed(loss)) => Some(Coding::new(loss)),
            Some(RepairRate::Auto) | None => None,
        };
    }

    /// Whether red parts may have repair segments.
    pub(crate) const fn may_code(&self) -> bool {
        self.coding.is_some() || self.adapts_coding
    }

    /// This configuration without what the profile does not have: peers that are accepted although unknown are not refused for it.
    pub(crate) fn in_profile(mut self) -> Self {
        self.integrity = self.has_integrity();
        self.coding = self.coding.filter(|_| self.profile.has_additions());
        self.adapts_coding &= self.profile.has_additions();
        self
    }

    const fn has_integrity(&self) -> bool {
        self.integrity && self.profile.has_additions()
    }

    /// Greatest length of a block that is taken, in bytes: it fits into the memory, too, of which an engine has so much for all.
    pub fn longest_block(&self, engine_memory: usize) -> u64 {
        let memory = self.receive_memory.min(engine_memory);
        self.block_bytes
            .min(memory.saturating_sub(BESIDE_BLOCK) as u64)
    }

    /// How long the peer may be silent before nothing more is expected of it: as long as it tries itself, whatever it has measured at the
    /// stated light time.
    pub fn longest_silence(&self) -> Duration {
        let mut answer = self.answer_time();
        answer.reported();
        answer.patience(self.retransmission_limit)
    }

    /// How long answers take at first. Over a slow link a checkpoint and its report need a time of their own to leave.
    pub(crate) fn answer_time(&self) -> AnswerTime {
        let bytes = (self.segment_data + self.overhead) as u64;
        let segments = self.rate.filter(|rate| *rate > Bandwidth::ZERO);
        let segments = segments.map_or(Duration::ZERO, |rate| rate.time_to_send(2 * bytes));
        AnswerTime::new(
            self.one_way_light_time,
            self.margin.saturating_add(segments),
            self.blind_doublings,
        )
    }

    /// Each value with the reason for its default.
    pub fn explain(&self) -> Vec<Explained> {
        let rate = self.rate.map_or("unknown".into(), |rate| rate.to_string());
        let every = self
            .checkpoint_every
            .map_or("the end of the red part".into(), |every| {
                format!("every {every} segments and the end of the red part")
            });
        let answer = AnswerTime::new(self.one_way_light_time, self.margin, self.blind_doublings);
        let rows: [(&'static str, String, &'static str); 13] = [
            (
                "profile",
                self.profile.to_string(),
                "given, or RFC 5326; both ends must have the same encoding of segments",
            ),
            (
                "one-way light time",
                format!("{:?}", self.one_way_light_time),
                "given, or zero: answers are measured, up to two minutes away",
            ),
            (
                "rate",
                rate,
                "given; without it, twice what is reported in a round trip is under way, 8 MiB at least, and near by what the other end's socket holds",
            ),
            match self.adapts_segments {
                true => (
                    "segment data",
                    format!("auto, {} bytes at first", self.segment_data),
                    "fills a packet of the path's MTU; IP fragments where they carry more, and arrive",
                ),
                false => (
                    "segment data",
                    format!("{} bytes", self.segment_data),
                    "given; 1360 fill an Ethernet frame of 1500 bytes",
                ),
            },
            (
                "margin",
                format!("{:?}", self.margin),
                "100 ms or a 50th of the light time, doubling per attempt",
            ),
            (
                "first timeout",
                format!("{:?}", answer.timeout(0)),
                "two light times and the margin",
            ),
            (
                "retransmission limit",
                self.retransmission_limit.to_string(),
                "fails once in 10⁹ with 20 % of segments lost",
            ),
            (
                "cycle limit",
                self.cycle_limit.to_string(),
                "a million segments arrive with half of them lost",
            ),
            (
                "checkpoints",
                every,
                "each costs a report; more help only blocks longer than a round trip",
            ),
            (
                "session given up",
                format!("{:?}", self.longest_silence()),
                "of silence: the peer has given up by then",
            ),
            (
                "sessions",
                self.sessions.to_string(),
                "in each direction: blocks of 1 MB in four round trips, 4096 at least",
            ),
            (
                "receive memory",
                format!("{} bytes", self.receive_memory),
                "twice the data of four round trips, from 512 MiB to 8 GiB, and a quarter of the host's memory at most: blocks begin while half of it is free; beyond it, segments are dropped and asked for again",
            ),
            (
                "integrity",
                self.has_integrity().to_string(),
                "CRC32C of each red part; other engines ignore it, and the profile ccsds-734.1 leaves it out",
            ),
        ];
        let rows = rows.into_iter();
        rows.map(|(name, value, reason)| Explained::new(name, value, reason))
            .collect()
    }
}

/// What received blocks may take of a host with this memory.
fn share_of(host_bytes: u64) -> usize {
    narrow((host_bytes / HOST_PER_BYTE).max(LEAST_MEMORY))
}

fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A value of the configuration, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Name of the value.
    pub name: &'static str,
    /// Its value with its unit.
    pub value: String,
    /// Why it has this value: what it was set or computed from.
    pub reason: &'static str,
}

impl Explained {
    /// A value and its reason.
    pub const fn new(name: &'static str, value: String, reason: &'static str) -> Self {
        Self {
            name,
            value,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of a gigabit over ten minutes would take all that a configuration may hold.
    #[test]
    fn received_blocks_take_a_quarter_of_the_host_within_bounds() {
        let rate = Some(Bandwidth::from_mbit(1000));
        for (host, taken) in [
            (0, 64 << 20),
            (GIBIBYTE / 8, 64 << 20),
            (GIBIBYTE, GIBIBYTE / 4),
            (8 * GIBIBYTE, 2 * GIBIBYTE),
            (u64::MAX, 8 * GIBIBYTE),
        ] {
            let mut engine = EngineConfig::new(EngineId(1), [7; 32]);
            let mut peer = PeerConfig::new(Duration::from_secs(600), rate);
            engine.fit_memory(host);
            peer.fit_memory(host);
            let memory = [engine.receive_memory, peer.receive_memory];
            assert_eq!(memory, [narrow(taken); 2], "of {host}");
        }
        // What is less needs no more.
        let mut near = PeerConfig::new(Duration::ZERO, None);
        near.fit_memory(100 * GIBIBYTE);
        assert_eq!(near.receive_memory, narrow(GIBIBYTE / 2));
    }
}
