//! What leaves: for a path that may send now, the datagrams that should.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use starhaul_paths::{PathId, RangeSet};

use super::{
    Session,
    blocks::MAX_MISSING_EVENTS,
    frames::{item_of, note_frame},
};
use crate::{
    batch::{Batch, Budget, PathDatagram},
    control::{Control, MAX_DROPPED},
    facts::{Datagram, Fact, Purpose},
    item::{BlockKey, Item},
    paths::{LAST_RESORT, Path},
    scheduler::{Frame, Thrift, View},
    send::{
        self, Asked,
        block::{LastSent, SendBlock},
        bytes::{NextFrame, Origin},
        pick::{self, Choice},
    },
    streams::{Kind, Stream},
    types::{BlockId, StreamId},
    wire::{self, Ack, MAX_ACK_PATHS, PathAck, STREAM_FRAME_HEADER_BYTES, StreamFrame, wrap},
};

/// After waiting this long for the fastest path an acknowledgement takes any.
pub(super) const ACK_PATIENCE: Duration = Duration::from_millis(2);
/// The same before it takes one that is spared: a window that is full opens as often as the path's acknowledgements come.
pub(super) const SPARED_ACK_PATIENCE: Duration = Duration::from_millis(100);

impl Session {
    /// What should leave on `path` now, one datagram of it; see [`Session::poll_datagrams`].
    pub fn poll_datagram(&mut self, now: Instant, path: PathId) -> Option<PathDatagram> {
        let mut one = Vec::with_capacity(1);
        self.poll_datagrams(now, path, Budget::ONE, &mut one);
        one.pop()
    }

    /// Adds to `datagrams` what should leave on `path` now, within `budget`. True when the session has nothing more for the path
    /// until there is new input: also because another path is the better choice for what waits.
    pub fn poll_datagrams(
        &mut self,
        now: Instant,
        path: PathId,
        budget: Budget,
        datagrams: &mut Vec<PathDatagram>,
    ) -> bool {
        self.advance(now);
        if self.closed || self.paths.get(path).is_none() {
            return true;
        }
        self.tell_state();
        let overview = self.paths.overview(path);
        self.scheduler
            .refresh(&View::new(self.clocks.now(), &self.paths, path, overview));
        let mut batch = Batch {
            path,
            overview,
            budget,
            datagrams,
            previous: None,
            is_full: budget.datagrams == 0 || budget.bytes < budget.packet_bytes,
        };
        let most = self.paths.get(path).map_or(0, Path::max_datagram);
        self.slab.begin_batch(most.saturating_mul(budget.datagrams));
        while !batch.is_full {
            if !self.add_next(&mut batch) {
                break;
            }
        }
        let drained = !batch.is_full;
        if drained {
            self.paths.on_drained(path);
        }
        self.bytes_out.note_backlog(self.clocks.now());
        self.settle();
        drained
    }

    /// Adds what goes first: one datagram, or a run of fragments of a block or of frames of a stream.
    fn add_next(&mut self, batch: &mut Batch<'_>) -> bool {
        if self.add_ack(batch).is_some() || self.add_probe(batch).is_some() {
            return true;
        }
        batch.overview.is_usable
            && (self.add_control(batch).is_some()
                || self.may_spend(batch.path)
                    && (self.add_query(batch, Asked::InTime).is_some() || self.add_data(batch)))
    }

    /// Whether the budget pays for data on the path; what waits for it is tried again soon.
    fn may_spend(&mut self, path: PathId) -> bool {
        let now = self.clocks.now();
        let may = self.paths.may_pay(now, path);
        if !may && (self.blocks_out.waits() || self.blocks_out.asks() || self.bytes_out.waits()) {
            self.timers.recheck(now);
        }
        may
    }

    /// A datagram of `bytes` without content, to find out whether packets of that size come through on `path`; `None` when the session
    /// has no such path. Its fate is for the caller alone: do not report it.
    pub fn poll_size_probe(
        &mut self,
        now: Instant,
        path: PathId,
        bytes: usize,
    ) -> Option<PathDatagram> {
        self.poll_one(now, path, |session, batch| {
            session.add(batch, Item::Padding, bytes, |header, out| {
                wire::encode_probe(header, bytes, out);
            })
        })
    }

    /// So many datagrams of `bytes` without content, to leave one right after the other, of which each takes `overhead_bytes` more on the
    /// path: what the path carried of them is told by [`Session::poll_path_signal`]. None when the session has no such path, or it is one of the
    /// last resort, which carries nothing that is not needed. Their fates are for the caller alone, as those of [`Session::poll_size_probe`].
    pub fn poll_train(
        &mut self,
        now: Instant,
        path: PathId,
        packets: usize,
        bytes: usize,
        overhead_bytes: u64,
    ) -> Vec<PathDatagram> {
        let entry = self.paths.get_mut(path);
        let Some(entry) = entry.filter(|path| path.monitor.cost() < LAST_RESORT) else {
            return Vec::new();
        };
        entry.begin_train(now, packets, bytes as u64 + overhead_bytes);
        let datagrams = (0..packets).map(|_| self.poll_size_probe(now, path, bytes));
        datagrams.flatten().collect()
    }

    /// The probe of a silent path that is due on `path`: it may leave although the window is full (RFC 9002 §7.5), for without it a path
    /// on which everything was lost would be found again late.
    pub fn poll_silence_probe(&mut self, now: Instant, path: PathId) -> Option<PathDatagram> {
        self.poll_one(now, path, |session, batch| {
            let is_silent = session.paths.get(path)?.monitor.is_suspect();
            is_silent.then(|| session.add_probe(batch))?
        })
    }

    /// The acknowledgement that is due on `path`: it may leave although the pacer would keep data waiting (RFC 9002 §7.7), but for one
    /// that says nothing new.
    pub fn poll_ack(&mut self, now: Instant, path: PathId) -> Option<PathDatagram> {
        // Asked for each input of a path that the pacer keeps waiting.
        let news = self.acks.news_due().into_iter();
        news.chain(self.signals.due())
            .min()
            .filter(|due| *due <= now)?;
        self.poll_one(now, path, Self::add_ack)
    }

    /// A single datagram on `path`, if `add` has one.
    fn poll_one(
        &mut self,
        now: Instant,
        path: PathId,
        add: impl FnOnce(&mut Self, &mut Batch<'_>) -> Option<()>,
    ) -> Option<PathDatagram> {
        self.advance(now);
        if self.closed {
            return None;
        }
        let mut one = Vec::with_capacity(1);
        let mut batch = Batch {
            path,
            overview: self.paths.overview(path),
            budget: Budget::ONE,
            datagrams: &mut one,
            previous: None,
            is_full: false,
        };
        add(self, &mut batch)?;
        one.pop()
    }

    fn add_data(&mut self, batch: &mut Batch<'_>) -> bool {
        if self.bytes_out.is_starved() && self.add_bytes(batch, 1) {
            return true;
        }
        let most = self.bytes_out.fragments_before_share();
        let before = batch.datagrams.len();
        if self.add_block(batch, most).is_some() {
            self.bytes_out.on_fragments(batch.datagrams.len() - before);
            return true;
        }
        let added = self.add_bytes(batch, usize::MAX)
            || self.add_query(batch, Asked::Late).is_some()
            || self.add_straggler(batch).is_some()
            || self.add_spare(batch).is_some();
        if !added && (self.blocks_out.waits() || self.bytes_out.waits()) {
            self.timers.recheck(self.clocks.now());
        }
        added
    }

    fn add_ack(&mut self, batch: &mut Batch<'_>) -> Option<()> {
        let path = batch.path;
        let due = self.ack_due().filter(|due| *due <= self.clocks.now())?;
        let fastest = self.paths.fastest(self.clocks.now());
        // A repetition tries another path than the first saying, if there is one about as fast and no dearer.
        let here = fastest == Some(path)
            || due + self.ack_patience(path) <= self.clocks.now()
            || (self.acks.is_repeat()
                && self.is_about_as_fast(path)
                && self.is_no_dearer(path, fastest)
                && !self.paths.is_spared(self.clocks.now(), path));
        if !here {
            return None;
        }
        let clocks = &self.clocks;
        let paths = self
            .paths
            .iter()
            .filter(|(_, path)| path.received.newest_at.is_some())
            .take(MAX_ACK_PATHS);
        let paths = paths.map(|(id, path)| {
            let received = path
                .received
                .newest_at
                .map(|at| clocks.micros(at))
                .unwrap_or_default();
            PathAck::new(id.0, wrap(received), &path.received.ranges)
        });
        let paths = paths.collect();
        let (reconfigurations, segments) = self.signals.say(self.clocks.now());
        let mut ack = Ack {
            paths,
            blocks: self.acks.take(self.clocks.now()),
            reconfigurations,
            segments,
        };
        ack.fit(self.paths.get(path)?.max_datagram());
        self.add(batch, Item::Ack, 0, |header, out| ack.encode(header, out))
    }

    /// When an acknowledgement should leave next.
    pub(super) fn ack_due(&self) -> Option<Instant> {
        let signals = self.signals.due();
        self.acks.due().into_iter().chain(signals).min()
    }

    /// How long an acknowledgement waits for the fastest path before it takes this one.
    fn ack_patience(&self, path: PathId) -> Duration {
        match self.paths.is_spared(self.clocks.now(), path) {
            true => SPARED_ACK_PATIENCE,
            false => ACK_PATIENCE,
        }
    }

    fn is_about_as_fast(&self, path: PathId) -> bool {
        let least = self.paths.least_delay();
        self.paths.is_usable(path)
            && self
                .paths
                .get(path)
                .is_some_and(|path| path.monitor.one_way_delay() <= least * 2)
    }

    fn is_no_dearer(&self, path: PathId, than: Option<PathId>) -> bool {
        let cost = |id: PathId| self.paths.get(id).map(|path| path.monitor.cost());
        than.is_none_or(|than| cost(path) <= cost(than))
    }

    fn add_probe(&mut self, batch: &mut Batch<'_>) -> Option<()> {
        if self.paths.get(batch.path)?.probe_at > self.clocks.now() {
            return None;
        }
        self.add(batch, Item::Probe, 0, |header, out| {
            wire::encode_probe(header, 0, out);
        })
    }

    fn add_control(&mut self, batch: &mut Batch<'_>) -> Option<()> {
        let path = batch.path;
        if let Some((mut frame, first)) = self.control.copy
            && first != path
            && !self.paths.is_spared(self.clocks.now(), path)
        {
            self.control.copy = None;
            frame.origin = Origin::Copy;
            // It was cut for the other path.
            frame.end = frame.end.min(frame.start + self.frame_capacity(path)?);
            if self.add_control_frame(batch, frame).is_some() {
                return Some(());
            }
        }
        if !self.control.send.has_something_to_send() {
            return None;
        }
        let frame = self
            .control
            .send
            .next_frame_within(self.frame_capacity(path)?)?;
        let wanted = Frame {
            backlog: self.control.send.unsent(),
            bytes: frame.end - frame.start,
            is_due: false,
            thrift: Thrift::None,
        };
        if !self.scheduler.takes_frame(&self.view(batch), wanted) {
            return None;
        }
        self.control.send.on_sent(frame);
        self.control.copy = (self.paths.len() > 1).then_some((frame, path));
        self.add_control_frame(batch, frame)
    }

    fn add_control_frame(&mut self, batch: &mut Batch<'_>, frame: NextFrame) -> Option<()> {
        let slices = self.control.send.slices(frame.start, frame.end);
        let bytes = slices.flatten().copied().collect::<Vec<u8>>();
        // A copy may have been overtaken by the acknowledgement of the first.
        if bytes.len() as u64 != frame.end - frame.start {
            return None;
        }
        let stream = StreamId::CONTROL;
        let sequence = self.paths.get(batch.path)?.monitor.next_sequence();
        self.add(batch, item_of(stream, frame), bytes.len(), |header, out| {
            let data = std::iter::once(bytes.as_slice());
            StreamFrame::encode(stream, frame.start, frame.fin, data, header, out);
        })?;
        let (now, sent) = (self.clocks.now(), (batch.path, sequence));
        note_frame(&mut self.observers, now, sent, stream, frame);
        Some(())
    }

    /// Asks for a block that may still be in time before anything else leaves, for others when nothing else does.
    fn add_query(&mut self, batch: &mut Batch<'_>, asked: Asked) -> Option<()> {
        if !self.blocks_out.has_queries() {
            return None;
        }
        let path = batch.path;
        let others = |id: PathId| !self.paths.is_last_resort(id);
        if self.paths.is_last_resort(path) && self.paths.usable().any(|(id, _)| others(id)) {
            return None;
        }
        let query = self
            .blocks_out
            .next_query(self.clocks.now(), &self.paths, path, asked)?;
        self.add_fragments(batch, query, 1)
    }

    fn add_block(&mut self, batch: &mut Batch<'_>, most: usize) -> Option<()> {
        let view = View::new(self.clocks.now(), &self.paths, batch.path, batch.overview);
        let choice = self.blocks_out.pick(&view, self.scheduler.as_ref());
        self.settle();
        self.add_fragments(batch, choice?, most)
    }

    fn add_spare(&mut self, batch: &mut Batch<'_>) -> Option<()> {
        let view = self.view(batch);
        let choice = self.blocks_out.pick_spare(&view, self.scheduler.as_ref())?;
        self.add_fragments(batch, choice, 1)
    }

    /// Adds the fragment that was chosen, and, as long as the path takes them too, what follows it in its block: at most `most`.
    fn add_fragments(
        &mut self,
        batch: &mut Batch<'_>,
        mut choice: Choice,
        most: usize,
    ) -> Option<()> {
        let (id, now, key) = (batch.path, self.clocks.now(), choice.block);
        let was_coded = self.observers.is_empty() || self.blocks_out.get(key)?.is_split();
        let view = View::new(now, &self.paths, id, batch.overview);
        let scheduler = self.scheduler.as_mut();
        if !self.blocks_out.split(&view, choice, scheduler) {
            self.settle();
            return None;
        }
        if !was_coded {
            self.note_coded(key);
        }
        let arrivals = self.predict_arrivals(key);
        let monitor = &self.paths.get(id)?.monitor;
        let leaving = LastSent {
            path: id,
            at: now,
            acknowledged_by: now + monitor.acknowledged_after(),
            doubtful_at: now + monitor.doubtful_after(),
            overdue_at: now + monitor.overdue_after(),
        };
        let block = self.blocks_out.get_mut(key)?;
        let class = send::class_of(block);
        let born_micros = wrap(self.clocks.micros(block.born));
        let (mut sent, mut redundant) = (0, 0);
        loop {
            let (fragment, length) = block.fragment(choice.fragment, born_micros)?;
            let path = self.paths.get_mut(id)?;
            // The path's largest datagram may have shrunk since the block was cut.
            if length + wire::FRAGMENT_HEADER_BYTES > path.max_datagram() {
                break;
            }
            let item = Item::Fragment {
                block: key,
                fragment: choice.fragment,
            };
            let sequence = path.monitor.next_sequence();
            let header = self.clocks.header(sequence);
            let bytes = wire::FRAGMENT_HEADER_BYTES + length;
            let payload = self
                .slab
                .write(bytes, |out| fragment.encode(header, length, out));
            path.sent_by_class
                .add(Some(class.priority), payload.len() as u64);
            batch.push(path.send(now, payload, item, batch.budget));
            self.paths.pay(now, id, batch.last_packet());
            block.on_sent(choice.fragment, leaving, choice.purpose);
            if matches!(choice.purpose, Purpose::Redundancy | Purpose::Copy) {
                redundant += length as u64;
            }
            if choice.purpose == Purpose::Data {
                self.scheduler.on_data_sent(class, id, bytes as u64);
            }
            self.observers.note(now, || Fact::FragmentSent {
                stream: key.0,
                block: BlockId(wrap(key.1)),
                fragment: (choice.fragment.code, choice.fragment.index),
                datagram: Datagram { path: id, sequence },
                purpose: choice.purpose,
                arrivals: &arrivals,
            });
            sent += 1;
            if batch.is_full || sent == most || choice.purpose != Purpose::Data {
                break;
            }
            let view = View::new(now, &self.paths, id, batch.overview);
            match pick::choose(block, &view, self.scheduler.as_ref(), choice.place) {
                Some((fragment, Purpose::Data)) => choice.fragment = fragment,
                _ => break,
            }
        }
        if sent > 0 && choice.purpose == Purpose::Retransmission {
            let view = View::new(now, &self.paths, id, batch.overview);
            self.blocks_out.insist(&view, key, choice.fragment);
        }
        self.blocks_out.requeue(now, key);
        if let Some(stream) = self.streams.get_mut(key.0).filter(|_| redundant > 0) {
            stream.stats.redundancy_bytes += redundant;
        }
        (sent > 0).then(|| self.after_use(id))
    }

    fn note_coded(&mut self, key: BlockKey) {
        let Some(block) = self.blocks_out.get(key) else {
            return;
        };
        let (data, redundancy) = block.fragment_counts();
        let fragment_bytes = block.largest_fragment().unwrap_or_default();
        self.observers.note(self.clocks.now(), || Fact::BlockCoded {
            stream: key.0,
            block: BlockId(wrap(key.1)),
            data,
            redundancy,
            fragment_bytes,
        });
    }

    /// For observers: in how much time each usable path would carry a fragment of the block there.
    fn predict_arrivals(&self, key: BlockKey) -> Vec<(PathId, Duration)> {
        if self.observers.is_empty() {
            return Vec::new();
        }
        let block = self.blocks_out.get(key);
        let bytes = block.and_then(SendBlock::largest_fragment);
        bytes.map_or_else(Vec::new, |bytes| {
            let bytes = (bytes + wire::FRAGMENT_HEADER_BYTES) as u64;
            let arrives = |path: &Path| path.monitor.predict_arrival(self.clocks.now(), 0, bytes);
            self.paths
                .usable()
                .map(|(id, path)| {
                    (
                        id,
                        arrives(path).saturating_duration_since(self.clocks.now()),
                    )
                })
                .collect()
        })
    }

    pub(super) fn view(&self, batch: &Batch<'_>) -> View<'_> {
        View::new(self.clocks.now(), &self.paths, batch.path, batch.overview)
    }

    pub(super) fn frame_capacity(&self, path: PathId) -> Option<u64> {
        let capacity = self
            .paths
            .get(path)?
            .max_datagram()
            .checked_sub(STREAM_FRAME_HEADER_BYTES)?;
        (capacity > 0).then_some(capacity as u64)
    }

    /// Adds a datagram of about `bytes` that `encode` writes.
    fn add(
        &mut self,
        batch: &mut Batch<'_>,
        item: Item,
        bytes: usize,
        encode: impl FnOnce(wire::Header, &mut BytesMut),
    ) -> Option<()> {
        let (id, now) = (batch.path, self.clocks.now());
        let path = self.paths.get_mut(id)?;
        let header = self.clocks.header(path.monitor.next_sequence());
        let payload = self
            .slab
            .write(bytes + MAX_HEADERS, |out| encode(header, out));
        batch.push(path.send(now, payload, item, batch.budget));
        if item.elicits_ack() {
            path.delay_probe(now, self.config.keepalive);
        }
        self.paths.pay(now, id, batch.last_packet());
        if item.is_use() {
            self.after_use(id);
        }
        Some(())
    }

    /// Data left on a path.
    pub(super) fn after_use(&mut self, id: PathId) {
        let (now, keepalive) = (self.clocks.now(), self.config.keepalive);
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let wakes = path.on_use(now);
        path.delay_probe(now, keepalive);
        if wakes {
            self.paths.wake(now, id);
        }
    }

    /// Tells the peer what had to wait for room on the control stream: which blocks it need not wait for, how much it may send, how
    /// many streams it may open.
    fn tell_state(&mut self) {
        while self.control.has_room()
            && let Some(stream) = self.control.crediting.pop_first()
        {
            self.offer_credit(stream);
        }
        self.offer_streams();
        // All streams together, or none but the hurried ones: what is told of one holds up no other.
        let all = self.control.may_tell_dropped();
        while self.control.has_room()
            && let Some(stream) = self.control.next_dropping(all)
        {
            self.tell_dropped(stream);
            if all {
                self.control.on_dropped_told();
            }
        }
    }

    /// Tells the peer of blocks of a stream that it need not wait for.
    fn tell_dropped(&mut self, stream: StreamId) {
        let Some(Stream {
            kind: Kind::Sending(blocks),
            ..
        }) = self.streams.get_mut(stream)
        else {
            return;
        };
        for ranges in dropped_ranges(&blocks.take_untold()) {
            self.tell(&Control::Dropped { stream, ranges });
        }
        self.forget_if_done(stream);
    }
}

/// Blocks as the ranges of one message or more. The application of the peer is told of each block of a message up to a bound: none has more.
fn dropped_ranges(blocks: &RangeSet) -> Vec<Vec<(BlockId, BlockId)>> {
    let most = MAX_MISSING_EVENTS as u64;
    let (mut messages, mut message, mut left) = (Vec::new(), Vec::new(), most);
    for (mut first, last) in blocks.iter_rev() {
        while first <= last {
            let end = last.min(first + (left - 1));
            message.push((BlockId(wrap(first)), BlockId(wrap(end))));
            left -= end - first + 1;
            first = end + 1;
            if left == 0 || message.len() == MAX_DROPPED {
                messages.push(std::mem::take(&mut message));
                left = most;
            }
        }
    }
    messages.extend(Some(message).filter(|message| !message.is_empty()));
    messages
}

/// More than the headers of any datagram, or all of an acknowledgement, usually have.
const MAX_HEADERS: usize = 512;
