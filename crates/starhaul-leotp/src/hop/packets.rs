//! Packets that leave to a neighbour: frames and data in packets that are numbered, stamped and authenticated.

use std::time::{Duration, Instant};

use super::{Carried, Hop, Left, departures::Horizon, stamps, tail};
use crate::{
    config::Scope,
    keys::MAC_BYTES,
    wire::{Data, Frame, Head, ShortNumber},
};

/// Bytes of a control packet at most.
pub(crate) const CONTROL_BYTES: usize = 1200;
/// Frames that wait at most; requesters ask again for what was dropped.
const MOST_FRAMES: usize = 1 << 13;
/// What left longer ago is not repaired, unless nobody soon asks for it again: after such an outage, requesters have done so, perhaps over another path.
const REPAIRED_ROUNDS: u32 = 4;
const REPAIRED_FOR: Duration = Duration::from_millis(250);
/// The neighbour's packets tell the round trip: what is remembered must not grow with all that they say. A hop over a geostationary satellite has
/// 0.6 s.
const REPAIRED_AT_MOST: Duration = Duration::from_secs(4);

impl Hop {
    /// Adds a frame to the next control packet; without room it is dropped and counted.
    pub(crate) fn queue_frame(&mut self, frame: Frame) {
        match self.has_room_for_frames() {
            true => self.frames.push_back(frame),
            false => self.dropped_frames += 1,
        }
    }

    /// Whether another frame may wait.
    pub(crate) fn has_room_for_frames(&self) -> bool {
        self.frames.len() < MOST_FRAMES
    }

    /// Frames that were dropped since the neighbour was added.
    pub(crate) fn dropped_frames(&self) -> u64 {
        self.dropped_frames
    }

    /// Whether a control packet is due.
    pub(crate) fn is_control_due(&self, now: Instant) -> bool {
        self.is_met()
            && (!self.frames.is_empty() || self.control_due_at().is_some_and(|at| at <= now))
    }

    pub(super) fn control_due_at(&self) -> Option<Instant> {
        [self.control_at, self.tail.follows_at(), self.probe_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When a control packet leaves at the latest, if one is to.
    pub(crate) fn sends_control_at(&self) -> Option<Instant> {
        self.control_at
    }

    /// Sends a control packet at this time at the latest.
    pub(crate) fn send_control_by(&mut self, at: Instant) {
        self.control_at = Some(self.control_at.map_or(at, |known| known.min(at)));
    }

    /// When this rate should be reported to the neighbour, if it differs from the one reported last: not too often.
    pub(crate) fn report_at(&self, now: Instant, rate: f64) -> Option<Instant> {
        let Some((reported, at)) = self.reported else {
            return Some(now);
        };
        let is_first = self.has_news && self.beginning.reports();
        let wait = if is_first || (rate - reported).abs() > 0.02 * reported {
            self.round() / 8
        } else {
            self.round() / 2
        };
        Some(now.max(at + wait)).filter(|_| is_first || rate != reported)
    }

    /// The report may not have arrived.
    pub(crate) fn forget_reported(&mut self) {
        self.reported = None;
    }

    /// The rate was reported.
    pub(crate) fn note_reported(&mut self, now: Instant, rate: f64) {
        self.reported = Some((rate, now));
        self.has_news = false;
    }

    /// Whether a report may say more than the last one.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news || self.reported.is_none()
    }

    /// Writes the control packet that is due; `rates` follow the frames that wait, which may name their contents first.
    pub(crate) fn write_control(&mut self, now: Instant, rates: &[Frame], out: &mut Vec<u8>) {
        let begin = out.len();
        let (number, head) = self.head(now, self.scope == Scope::Hop);
        head.write_control(out);
        let mut again = Vec::new();
        let mut write = |frame: &Frame, out: &mut Vec<u8>| {
            frame.write(out);
            if !matches!(frame, Frame::Rate { .. } | Frame::Flow { .. }) {
                again.push(*frame);
            }
        };
        let reserved = (1 + rates.len()) * Frame::MAX_BYTES + MAC_BYTES;
        while out.len() - begin + reserved <= CONTROL_BYTES {
            let Some(frame) = self.frames.pop_front() else {
                break;
            };
            write(&frame, out);
        }
        rates.iter().for_each(|frame| write(frame, out));
        // A requester repeats its Interests; a report of losses leaves again only when the loss of this packet shows.
        let has_report = again
            .iter()
            .any(|frame| matches!(frame, Frame::Lost { .. }));
        let has_want = again
            .iter()
            .any(|frame| matches!(frame, Frame::Want { .. }));
        // The neighbour answers what tells nothing but rates.
        let is_probe = self.is_probe_due(now) && again.is_empty() && !rates.is_empty();
        let carried = Carried::Frames {
            frames: again.into(),
            reports_live: has_report && self.reports_live,
        };
        self.control_at = None;
        let rtt = self.rtt();
        self.tail.follows_control(now, rtt, has_report);
        self.owes_answer = false;
        self.control_sent_at = Some(now);
        self.finish(now, number, begin, carried, out);
        if is_probe {
            self.tail.probed(now);
        }
        if has_want {
            self.expect_answer(now);
        }
    }

    /// Answers a packet that asks nothing but whether this node is there, unless data leave soon.
    pub(crate) fn answer(&mut self, now: Instant) {
        if self.queue.is_empty() {
            self.owes_answer = true;
            self.send_control_by(now);
        }
    }

    /// Whether the next control packet is an answer.
    pub(crate) fn owes_answer(&self) -> bool {
        self.owes_answer
    }

    /// Writes a data packet, which could have left from `since` on, and lets it count for the pace. `left`: how it left its
    /// responder, where that alone is paced.
    pub(crate) fn write_data(
        &mut self,
        now: Instant,
        since: Instant,
        data: &Data<'_>,
        carried: Carried,
        left: Option<Left>,
        out: &mut Vec<u8>,
    ) {
        let (begin, rate) = (out.len(), self.pace_rate());
        let is_echo_due = self.is_echo_due(now, data.is_repair, left);
        let (number, mut head) = self.head(now, is_echo_due);
        if let Some(left) = left {
            head.sent = left.stamp;
            head.echo = head.echo.zip(left.beyond).map(stamps::further);
        }
        head.write_data(data, out);
        self.beginning.sent(number);
        self.finish(now, number, begin, carried, out);
        // By the rate at which it takes them.
        self.expect_answer(now);
        if left.is_none() {
            let bytes = f64::from(u32::try_from(out.len() - begin).unwrap_or(u32::MAX));
            self.pace.sent(since, bytes, rate);
        }
        let (rtt, is_last) = (self.rtt(), self.queue.is_empty());
        self.tail.follows_data(now, rtt, is_last);
    }

    /// When what is not confirmed is probed.
    fn probe_at(&self) -> Option<Instant> {
        self.tail
            .probe_at(self.rtt(), self.rtt.timeout().unwrap_or_default())
    }

    /// Whether the next packet asks the neighbour to answer, since what was sent is not confirmed.
    pub(crate) fn is_probe_due(&self, now: Instant) -> bool {
        self.probe_at().is_some_and(|at| at <= now)
    }

    /// Losses that are reported from now on are those of streams, among others, or not.
    pub(crate) fn note_reports(&mut self, are_live: bool) {
        self.reports_live = are_live;
    }

    /// How long what left can be repaired.
    pub(super) fn repaired_for(&self) -> Duration {
        let horizon = self.rtt() * REPAIRED_ROUNDS + REPAIRED_FOR;
        horizon.min(REPAIRED_AT_MOST)
    }

    pub(super) fn head(&mut self, now: Instant, with_echo: bool) -> (u64, Head) {
        let number = self.departures.next_number();
        let echo = with_echo.then(|| self.poll_echo(now)).flatten();
        // 16 bits are enough while far fewer packets are in doubt.
        let is_long = std::mem::take(&mut self.shows_number)
            || number.saturating_sub(self.received) > 1 << 13;
        let head = Head {
            number: ShortNumber::of(number, is_long),
            sent: self.stamp(now),
            echo,
        };
        (number, head)
    }

    pub(super) fn finish(
        &mut self,
        now: Instant,
        number: u64,
        begin: usize,
        carried: Carried,
        out: &mut Vec<u8>,
    ) {
        if let Some(session) = &self.session {
            let mac = session.seal.mac(number, &out[begin..]);
            out.extend_from_slice(&mac);
        }
        let must_arrive = self.confirms && carried.must_arrive();
        let stamped = self.micros(now);
        self.tail.sent(now, number, stamped, must_arrive);
        let horizon = Horizon {
            all: self.repaired_for(),
            kept: match self.confirms {
                true => tail::GIVE_UP,
                false => Duration::ZERO,
            },
        };
        self.dropped_frames += self.departures.push(now, carried, horizon) as u64;
    }
}
