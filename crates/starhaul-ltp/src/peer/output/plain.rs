//! What leaves most: red data that were never sent, in segments that neither ask for a report nor end anything. How many of one length may
//! leave is found once for all of them, and so is what they have in common; then each costs its offset and, unless they are lent, the copy of
//! its data.

use super::{Context, Peer};
use crate::{
    Batch, SessionId,
    batch::begin_below,
    sdnv,
    segment::{Encoding, begin_plain},
    send::Run,
    window::Load,
};

/// Bytes of the header of such a segment, at most: five numbers, and two bytes of types and extensions.
const LONGEST_HEADER: usize = 2 + 5 * sdnv::MAX_BYTES;

impl Peer {
    /// Writes such segments of a block, as many as may leave and the batch takes.
    pub(super) fn write_plain(&mut self, cx: &mut Context<'_>, number: u64, batch: &mut Batch) {
        let (id, burst) = (self.sent_id(cx, number), self.pacer.burst());
        let (every, integrity) = (self.config.checkpoint_every, self.config.integrity);
        let Some(session) = self.sends.get_mut(&number) else {
            return;
        };
        // Signatures, codes, and what may be sent to a stranger are a matter of each segment.
        if self.config.auth.is_some() || self.credit.is_limited() || session.is_coded() {
            return;
        }
        let mut header = Header::new(self.config.profile.encoding(), id, session.service);
        loop {
            let data = self.sizes.next(session.fresh_red());
            let bytes = data as u64;
            let packets = self.sizes.packets(bytes);
            let window = self.window.as_ref();
            let room = window.map_or(u64::MAX, |window| {
                window.run(cx.now, Load { bytes, packets })
            });
            let most = room.min(self.sizes.run(cx.now));
            let sizes = (data, self.sizes.single_packet());
            let Some(run) = session.plan_run(sizes, every, most) else {
                return;
            };
            let (segment, alike) = header.begin(&run);
            let fitting = alike.min(batch.takes(segment, burst) as u64);
            let segments = run.segments.min(fitting);
            if segments == 0 {
                return;
            }
            let run = Run { segments, ..run };
            if integrity {
                session.check_run_ahead(&run);
            }
            if batch.lends(run.bytes) {
                let data = (session.lend_run(&run), narrow(run.bytes));
                batch.push_lent(segment, data, |out| header.write_alone(&run, out));
            } else {
                let data = session.data_of_run(&run);
                batch.push_run(segment, |out| header.write(&run, data, out));
            }
            cx.stats.data_segments_sent += segments;
            if let Some(window) = &mut self.window {
                window.sent(Load {
                    bytes: run.length(),
                    packets: segments * self.sizes.packets(run.bytes),
                });
            }
            if self.sizes.counts(run.bytes) {
                session.watch_run(&run);
            }
            self.sizes.sent(cx.now, run.length());
            session.commit_run(&run, integrity);
        }
    }
}

/// The header of the segments of a run.
struct Header {
    encoding: Encoding,
    bytes: Vec<u8>,
    /// Where the offset is.
    at: usize,
}

impl Header {
    fn new(encoding: Encoding, id: SessionId, service: u64) -> Self {
        let mut bytes = Vec::with_capacity(LONGEST_HEADER);
        begin_plain(encoding, id, service, &mut bytes);
        let at = bytes.len();
        Self {
            encoding,
            bytes,
            at,
        }
    }

    /// Makes it that of the first segment of a run; how long the segment is, and how many of the run have a header of this length: of larger
    /// offsets it is longer.
    fn begin(&mut self, run: &Run) -> (usize, u64) {
        self.bytes.truncate(self.at);
        self.encoding.write_number(run.start, &mut self.bytes);
        self.encoding.write_number(run.bytes, &mut self.bytes);
        let longer = self.encoding.first_longer(run.start);
        let alike = begin_below(longer, run.start, run.bytes);
        (self.bytes.len().saturating_add(narrow(run.bytes)), alike)
    }

    /// Appends the headers of a run, all of the present length, without the data.
    fn write_alone(&mut self, run: &Run, out: &mut Vec<u8>) {
        let offset = self.at..self.at + self.encoding.number_len(run.start);
        for number in 0..run.segments {
            let start = run.start + number * run.bytes;
            let field = &mut self.bytes[offset.clone()];
            self.encoding.overwrite_number(start, field);
            out.extend_from_slice(&self.bytes);
        }
    }

    /// Appends a run with these data, all of whose segments have headers of the present length.
    fn write(&mut self, run: &Run, data: &[u8], out: &mut Vec<u8>) {
        let offset = self.at..self.at + self.encoding.number_len(run.start);
        let (mut start, bytes) = (run.start, narrow(run.bytes));
        for payload in data.chunks(bytes.max(1)) {
            let field = &mut self.bytes[offset.clone()];
            self.encoding.overwrite_number(start, field);
            out.extend_from_slice(&self.bytes);
            out.extend_from_slice(payload);
            start += run.bytes;
        }
    }
}

/// A segment has as many bytes as a `usize` said.
fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
