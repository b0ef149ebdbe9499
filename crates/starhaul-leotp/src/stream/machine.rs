//! One side of one stream: what the other side sends becomes data for the application, and the reverse.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    Outcome, StreamConfig, StreamEvent, StreamId, StreamRead,
    content::{Asker, Growing},
    fetch::LiveFetch,
    id::{self, Number, Salt},
    inbox::Inbox,
    memory::Limits,
    outgoing::Outgoing,
    record::{self, Parser, Record, Report, Violation},
    window::Window,
};
use crate::{
    keys::ContentSecret,
    name::{ContentId, Segment},
    requester::Taken,
};

/// What was read is reported after this, unless it is much or goes with other records.
const REPORT_AFTER: Duration = Duration::from_millis(200);
/// Reports go with full segments this far apart.
const REPORT_ALONG: Duration = Duration::from_secs(1);

/// What happened to a stream, for its table.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) events: Vec<StreamEvent>,
    pub(super) outcome: Option<Outcome>,
}

/// One side of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) number: Number,
    pub(super) is_opener: bool,
    /// The random number that the accepting side drew.
    salt: Option<Salt>,
    pub(super) fetch: LiveFetch,
    /// The content that this side serves.
    content: Option<Growing>,
    out: Outgoing,
    parser: Parser,
    /// Data that the application did not read.
    inbox: Inbox,
    pub(super) window: Window,
    /// As what it counts in [`Limits::reserved`].
    pub(super) counted: usize,
    /// What the other side's application said.
    pub(super) header: Option<Bytes>,
    has_header: bool,
    has_answered: bool,
    /// Bytes of data that the other side lets wait, and that it has read.
    peer_window: u64,
    peer_read: u64,
    has_ended: bool,
    is_end_read: bool,
    has_closed: bool,
    wants_room: bool,
    pub(super) begun: Instant,
    /// The last that came from the other side, and its last Interest.
    heard: Instant,
    asked: Instant,
    reported: Report,
    reported_at: Instant,
    report_at: Option<Instant>,
    is_report_due: bool,
    /// When a report leaves to show that this side is there.
    alive_at: Instant,
    /// The end of a segment that the other side did not report yet, and when it was sealed.
    timed: Option<(u64, Instant)>,
    /// Of a stream that is over: until when the other side may still ask for the end of it, and at most.
    pub(super) lingers: Option<(Instant, Instant)>,
}

impl Stream {
    /// A stream that this side opens.
    pub(super) fn open(
        now: Instant,
        id: StreamId,
        number: Number,
        limits: &Limits,
        header: &[u8],
    ) -> Self {
        let mut stream = Self::new(now, id, number, true, limits);
        stream.answer(limits, header);
        stream
    }

    /// A stream that a neighbour asks for.
    pub(super) fn accept(
        now: Instant,
        id: StreamId,
        number: Number,
        salt: Salt,
        limits: &Limits,
        secret: &ContentSecret,
    ) -> Self {
        let mut stream = Self::new(now, id, number, false, limits);
        stream.set_salt(salt, secret);
        stream
    }

    fn new(now: Instant, id: StreamId, number: Number, is_opener: bool, limits: &Limits) -> Self {
        // What is sent is bounded by the window that the other side is told of.
        let ahead = limits.first_window as u64 * 5 / 4;
        Self {
            id,
            number,
            is_opener,
            salt: None,
            fetch: LiveFetch::new(ahead, limits.refresh, is_opener),
            content: None,
            out: Outgoing::new(),
            parser: Parser::default(),
            inbox: Inbox::default(),
            window: Window::new(now),
            counted: 0,
            header: None,
            has_header: false,
            has_answered: false,
            peer_window: StreamConfig::LEAST_WINDOW as u64,
            peer_read: 0,
            has_ended: false,
            is_end_read: false,
            has_closed: false,
            wants_room: false,
            begun: now,
            heard: now,
            asked: now,
            reported: Report::default(),
            reported_at: now,
            report_at: None,
            is_report_due: false,
            alive_at: now + limits.alive,
            timed: None,
            lingers: None,
        }
    }

    fn set_salt(&mut self, salt: Salt, secret: &ContentSecret) {
        self.salt = Some(salt);
        let (backward, forward) = (id::backward(self.number), id::forward(self.number, salt));
        let (own, other) = match self.is_opener {
            true => (forward, backward),
            false => (backward, forward),
        };
        self.content = Some(Growing::new(secret.of_stream(own, &salt)));
        self.fetch.set_key(secret.of_stream(other, &salt));
    }

    /// The accepting side asks: from now on there is something to serve. Returns whether it is the one that asked first.
    pub(super) fn bind(&mut self, now: Instant, salt: Salt, secret: &ContentSecret) -> bool {
        if self.salt.is_none() {
            self.set_salt(salt, secret);
            let sample = now.saturating_duration_since(self.begun);
            self.fetch.add_round_trip(sample);
            self.heard = now;
        }
        self.salt == Some(salt)
    }

    /// The content that is asked for here.
    pub(super) fn fetched(&self) -> ContentId {
        match self.salt.filter(|_| !self.is_opener) {
            Some(salt) => id::forward(self.number, salt),
            None => id::backward(self.number),
        }
    }

    /// The content that is served here, once it has a name.
    pub(super) fn served(&self) -> Option<ContentId> {
        let salt = self.salt?;
        Some(match self.is_opener {
            true => id::forward(self.number, salt),
            false => id::backward(self.number),
        })
    }

    /// Whether the other side has not proven yet that it lives and has the secret.
    pub(super) fn is_half_open(&self) -> bool {
        !self.is_opener && !self.has_header
    }

    pub(super) fn is_over(&self) -> bool {
        self.lingers.is_some()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.unreleased_memory() + self.out.memory() + self.unread_memory()
    }

    /// The same with what the other side may send.
    pub(super) fn reserved(&self) -> usize {
        let promised = match self.is_over() {
            true => 0,
            false => self.window.promised(),
        };
        self.unreleased_memory() + self.out.memory() + self.unread_memory().max(promised)
    }

    fn unreleased_memory(&self) -> usize {
        self.content.as_ref().map_or(0, Growing::memory)
    }

    fn unread_memory(&self) -> usize {
        self.fetch.memory() + self.inbox.held()
    }

    // What the application does.

    /// Says what its application does when it begins.
    pub(super) fn answer(&mut self, limits: &Limits, header: &[u8]) {
        if !self.has_answered {
            self.has_answered = true;
            let window = self.window.open(limits.first_window_of(self.counted));
            self.out.set_header(window, header);
        }
    }

    /// How much more may be written: what waits to leave is little, and what the other side does not have follows from its window.
    fn room(&self, limits: &Limits) -> usize {
        let waiting = self.out.waiting();
        let unreleased = self.content.as_ref().map_or(0, Growing::unreleased);
        let held = waiting + self.unreleased_memory();
        let room = limits.waiting.saturating_sub(waiting);
        room.min(limits.buffer.saturating_sub(waiting + unreleased))
            .min(limits.share(self.counted).saturating_sub(held))
    }

    fn note_room(&mut self, limits: &Limits, news: &mut News) {
        let much = limits.waiting.min(limits.share(self.counted)) / 4;
        if self.wants_room && !self.is_over() && self.room(limits) >= much {
            self.wants_room = false;
            news.events.push(StreamEvent::Writable(self.id));
        }
    }

    /// Takes as much as there is room for.
    pub(super) fn write(&mut self, limits: &Limits, data: &[u8]) -> usize {
        if !self.out.is_open() || !self.has_answered || self.is_over() {
            return 0;
        }
        let taken = data.len().min(self.room(limits));
        self.out.write(&data[..taken]);
        self.wants_room |= taken < data.len();
        taken
    }

    pub(super) fn finish(&mut self) {
        if self.has_answered {
            self.out.finish();
        }
    }

    pub(super) fn read(&mut self, now: Instant, limits: &Limits) -> Option<StreamRead> {
        if let Some(data) = self.inbox.pop() {
            self.window.note_read(data.len());
            self.widen(limits);
            self.note_progress(now, true);
            return Some(StreamRead::Data(data));
        }
        if !self.has_ended || self.is_end_read {
            return None;
        }
        self.is_end_read = true;
        self.out.allow_close();
        self.is_report_due = true;
        Some(StreamRead::End)
    }

    /// Ends this side's part; what is to leave still leaves, for a while.
    pub(super) fn end(&mut self, now: Instant, limits: &Limits, reset: Option<u64>) {
        if let Some(code) = reset {
            self.out.reset(code);
        }
        self.inbox = Inbox::default();
        self.header = None;
        self.parser = Parser::default();
        self.fetch.abandon();
        // What was abandoned was not received.
        self.is_report_due = false;
        self.lingers = Some((now + limits.linger, now + limits.give_up));
    }

    // What the other side does.

    /// A neighbour asks for a range of what this side serves; returns what can be served now.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        limits: &Limits,
        asker: Asker,
        range: (u64, u64),
    ) -> Option<(u64, u64)> {
        self.asked = now;
        if let Some((until, most)) = &mut self.lingers {
            *until = (now + limits.linger).min(*most);
        }
        let can_grow = self.can_grow();
        self.content.as_mut()?.ask(now, asker, range, can_grow)
    }

    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        limits: &Limits,
        segment: &Segment,
        news: &mut News,
    ) -> Taken {
        // What is out of order is a part of what was promised. Behind the end of data, where nothing is, reports come still.
        let most = self.window.promised().max(StreamConfig::LEAST_WINDOW);
        if segment.offset > self.fetch.in_order() && self.fetch.is_crowded(most) {
            return Taken::Known;
        }
        let taken = self.fetch.handle_segment(now, segment);
        if self.fetch.is_hopeless() {
            news.outcome = Some(Outcome::Broken);
        }
        if taken != Taken::New {
            return taken;
        }
        self.heard = now;
        let mut is_reported = false;
        while let Some(bytes) = self.fetch.read() {
            let held = self.parser.held(bytes.len());
            let records = self.parser.push(bytes);
            let taken = records.and_then(|records| {
                records.into_iter().try_for_each(|record| {
                    is_reported |= !matches!(record, Record::Report(_));
                    self.take(limits, record, held, news)
                })
            });
            if taken.is_err() {
                news.outcome = Some(Outcome::Broken);
            }
            if news.outcome.is_some() {
                return Taken::New;
            }
        }
        self.widen(limits);
        self.note_progress(now, is_reported);
        self.check_done(news);
        Taken::New
    }

    /// Takes a record; `held`: the memory that its data are a part of.
    fn take(
        &mut self,
        limits: &Limits,
        record: Record,
        held: usize,
        news: &mut News,
    ) -> Result<(), Violation> {
        match record {
            Record::Header { window, bytes } => {
                if self.has_header {
                    return Err(Violation);
                }
                self.has_header = true;
                self.header = Some(bytes);
                if !self.is_opener {
                    let sample = self.heard.saturating_duration_since(self.begun);
                    self.fetch.add_round_trip(sample);
                }
                self.set_credit(window, 0);
                if record::may_change(window) {
                    self.window.allow_changes();
                    self.out.allow_changes();
                }
                news.events.push(match self.is_opener {
                    true => StreamEvent::Answered(self.id),
                    false => StreamEvent::Accepted(self.id),
                });
            }
            Record::Report(report) => {
                let content = self.content.as_mut().ok_or(Violation)?;
                if report.received > content.end() || report.read > self.out.sent() {
                    return Err(Violation);
                }
                content.release(report.received);
                self.window.has_heard(report.received);
                // Whatever was lost or waited: the round trip is not longer.
                if let Some((_, sealed)) = self.timed.take_if(|(end, _)| *end <= report.received) {
                    let most = self.heard.saturating_duration_since(sealed);
                    self.fetch.bound_round_trip(most);
                }
                self.set_credit(self.peer_window, report.read);
                self.note_room(limits, news);
            }
            Record::Data(data) => {
                let is_excess = !self.window.take(self.heard, data.len());
                if !self.has_header || self.has_ended || is_excess {
                    return Err(Violation);
                }
                if self.inbox.is_empty() {
                    news.events.push(StreamEvent::Readable(self.id));
                }
                self.inbox.push(data, held);
            }
            Record::End => {
                if !self.has_header || self.has_ended {
                    return Err(Violation);
                }
                self.has_ended = true;
                self.window.note_end();
                if self.inbox.is_empty() {
                    news.events.push(StreamEvent::Readable(self.id));
                }
            }
            Record::Reset(code) => {
                let is_refusal = self.is_opener && !self.has_header;
                news.outcome = Some(match is_refusal {
                    true => Outcome::Refused(code),
                    false => Outcome::Reset(code),
                });
            }
            Record::Close => self.has_closed = self.has_ended,
            Record::Window(window) if self.has_header => self.set_credit(window, 0),
            Record::Short if self.has_header => self.window.note_short(),
            Record::Window(_) | Record::Short => return Err(Violation),
        }
        Ok(())
    }

    /// The other side lets so many bytes wait, and has read this much.
    fn set_credit(&mut self, window: u64, read: u64) {
        self.peer_window = window.max(StreamConfig::LEAST_WINDOW as u64);
        self.peer_read = self.peer_read.max(read);
        let end = self.peer_read.saturating_add(self.peer_window);
        self.out.set_credit(end);
    }

    /// The window grows where it is what the other side waits for.
    fn widen(&mut self, limits: &Limits) {
        if let Some(window) = self.window.grow(limits, self.counted) {
            self.out.tell_window(window);
            self.fetch.widen(self.window.ahead());
        }
    }

    /// The window becomes as small as this.
    pub(super) fn shrink(&mut self, to: usize) {
        if let Some(window) = self.window.shrink(to) {
            self.out.tell_window(window);
        }
    }

    /// Both sides have read all.
    fn check_done(&self, news: &mut News) {
        if self.has_closed && self.out.is_complete() {
            news.outcome.get_or_insert(Outcome::Done);
        }
    }

    // What this side serves.

    /// Whether there is something that is not in a segment yet.
    pub(super) fn can_grow(&self) -> bool {
        self.content.is_some()
            && (self.out.has_any() || self.is_report_due && !self.out.is_complete())
    }

    /// Seals what there is, at most `room` bytes.
    pub(super) fn grow(&mut self, now: Instant, limits: &Limits, room: usize, news: &mut News) {
        if !self.can_grow() {
            return;
        }
        let report = self.progress();
        let has_room = self.out.waiting() < room / 2;
        let is_old = now.saturating_duration_since(self.reported_at) >= REPORT_ALONG;
        let goes_along = !self.is_over() && report != self.reported && (has_room || is_old);
        let mut waits = Some(report).filter(|_| self.is_report_due || goes_along);
        let has_report = waits.is_some();
        let has_window = self.out.has_window();
        let mut records = Vec::with_capacity(room);
        let is_last = self.out.compose(room, &mut waits, &mut records);
        if let Some(content) = self.content.as_mut().filter(|_| !records.is_empty()) {
            content.grow(&records, is_last);
            self.timed.get_or_insert((content.end(), now));
            if has_window && !self.out.has_window() {
                self.window.note_told(content.end());
            }
        }
        if has_report && waits.is_none() {
            self.reported = report;
            self.reported_at = now;
            self.report_at = None;
            self.is_report_due = false;
        }
        self.alive_at = now + limits.alive;
        self.note_room(limits, news);
        self.check_done(news);
    }

    pub(super) fn content(&self) -> Option<&Growing> {
        self.content.as_ref()
    }

    pub(super) fn content_mut(&mut self) -> Option<&mut Growing> {
        self.content.as_mut()
    }

    fn progress(&self) -> Report {
        Report {
            received: self.fetch.in_order(),
            read: self.window.read(),
        }
    }

    /// What the other side may forget became more: it is told at once if it is much.
    fn note_progress(&mut self, now: Instant, is_reported: bool) {
        let much = self.window.report_after();
        let progress = self.progress();
        let is_much = progress.received - self.reported.received >= much
            || progress.read - self.reported.read >= much;
        self.is_report_due |= is_much;
        if is_reported && !self.is_report_due {
            self.report_at.get_or_insert(now + REPORT_AFTER);
        }
    }

    // Time.

    fn gives_up_at(&self, limits: &Limits) -> Instant {
        let patience = match self.is_half_open() {
            true => limits.patience.min(limits.give_up),
            false => limits.give_up,
        };
        // One that has sent its last record still asks.
        let shown = if self.has_closed {
            self.asked.max(self.heard)
        } else {
            self.heard
        };
        shown + patience
    }

    pub(super) fn timeout(&self, limits: &Limits) -> Option<Instant> {
        if let Some((until, _)) = self.lingers {
            return self.fetch.timeout().into_iter().chain([until]).min();
        }
        let alive = self.is_alive().then_some(self.alive_at);
        [
            self.fetch.timeout(),
            self.report_at,
            self.window.ends_at(limits),
            alive,
            Some(self.gives_up_at(limits)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn is_alive(&self) -> bool {
        self.content.is_some() && !self.is_half_open() && !self.out.is_complete()
    }

    /// Handles what is due; returns how many ranges are asked for again.
    pub(super) fn handle_timeout(&mut self, now: Instant, limits: &Limits, news: &mut News) -> u64 {
        if self.report_at.is_some_and(|at| at <= now) {
            self.report_at = None;
            self.is_report_due = true;
        }
        if self.is_alive() && self.alive_at <= now {
            self.alive_at = now + limits.alive;
            self.is_report_due = true;
        }
        if self.window.ends_at(limits).is_some_and(|at| at <= now) {
            self.shrink(limits.first_window);
        }
        if self.gives_up_at(limits) <= now {
            news.outcome = Some(Outcome::Silent);
        }
        self.fetch.handle_timeout(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{keys::ContentKey, stream::record};

    const NUMBER: Number = [7; 8];
    const SALT: Salt = [9; 8];
    const LIMITS: Limits = Limits {
        first_window: 1 << 16,
        window: 1 << 18,
        waiting: 1 << 16,
        buffer: 1 << 18,
        memory: 1 << 24,
        reserved: 0,
        refresh: Duration::from_secs(4),
        patience: Duration::from_secs(10),
        alive: Duration::from_secs(10),
        give_up: Duration::from_secs(30),
        linger: Duration::from_secs(10),
    };

    /// A stream that was accepted, and what its opener sends.
    struct Accepted {
        stream: Stream,
        key: ContentKey,
        sent: u64,
    }

    impl Accepted {
        fn new(now: Instant) -> Self {
            let secret = ContentSecret::new(&[1; 32]);
            Self {
                stream: Stream::accept(now, StreamId(1), NUMBER, SALT, &LIMITS, &secret),
                key: secret.of_stream(id::forward(NUMBER, SALT), &SALT),
                sent: 0,
            }
        }

        /// Takes a segment, `skipped` bytes behind the last.
        fn take(&mut self, now: Instant, skipped: u64, records: &[Record]) {
            while self.stream.fetch.poll_want(now).is_some() {}
            let mut bytes = Vec::new();
            records.iter().for_each(|it| record::write(it, &mut bytes));
            let segment = self.key.seal(self.sent + skipped, false, &bytes);
            self.sent = segment.end();
            let mut news = News::default();
            let taken = self
                .stream
                .handle_segment(now, &LIMITS, &segment, &mut news);
            assert_eq!((taken, news.outcome), (Taken::New, None));
        }
    }

    fn header() -> Record {
        Record::Header {
            window: 1 << 16,
            bytes: Bytes::new(),
        }
    }

    #[test]
    fn bytes_that_come_alone_in_long_segments_do_not_keep_them() {
        const COUNT: usize = 4000;
        let now = Instant::now();
        let mut accepted = Accepted::new(now);
        accepted.take(now, 0, &[header()]);
        let mut records = vec![Record::Report(Report::default()); 300];
        records.insert(150, Record::Data(Bytes::from_static(b"x")));
        for _ in 0..COUNT {
            accepted.take(now, 0, &records);
        }
        let held = accepted.stream.memory();
        assert!((COUNT..3 * COUNT).contains(&held), "{held} bytes are held");
        let mut read = 0;
        while let Some(StreamRead::Data(data)) = accepted.stream.read(now, &LIMITS) {
            read += data.len();
        }
        assert_eq!((read, accepted.stream.memory()), (COUNT, 0));
    }

    /// What a stream that was accepted sends, as its opener takes it.
    struct Sent {
        key: ContentKey,
        parser: Parser,
        taken: u64,
    }

    impl Sent {
        fn new() -> Self {
            let secret = ContentSecret::new(&[1; 32]);
            Self {
                key: secret.of_stream(id::backward(NUMBER), &SALT),
                parser: Parser::default(),
                taken: 0,
            }
        }

        /// All records that may leave now.
        fn take(&mut self, now: Instant, stream: &mut Stream) -> Vec<Record> {
            while stream.can_grow() {
                stream.grow(now, &LIMITS, 1000, &mut News::default());
            }
            let mut records = Vec::new();
            while let Some(segment) = stream.content().unwrap().segment(self.taken) {
                let bytes = self.key.open(segment).unwrap();
                self.taken = segment.end();
                records.extend(self.parser.push(bytes).unwrap());
            }
            records
        }
    }

    #[test]
    fn only_a_side_that_takes_other_windows_hears_of_them() {
        const WINDOW: u64 = 1 << 16;
        let now = Instant::now();
        for (window, changes) in [(WINDOW, false), (WINDOW | 1, true)] {
            let (mut accepted, mut sent) = (Accepted::new(now), Sent::new());
            let bytes = Bytes::new();
            accepted.take(now, 0, &[Record::Header { window, bytes }]);
            accepted.stream.answer(&LIMITS, b"");
            for taken in [1 << 16, 1 << 16] {
                assert_eq!(accepted.stream.write(&LIMITS, &[5; 1 << 17]), taken);
                let records = sent.take(now, &mut accepted.stream);
                let is_short = records.contains(&Record::Short);
                let is_full = accepted.stream.out.sent() == window;
                assert_eq!(is_short, changes && is_full, "{window}");
            }
            assert_eq!(accepted.stream.out.sent(), window);
            let data = Bytes::from(vec![1; (1 << 16) | 1]);
            accepted.take(now, 0, &[Record::Data(data), Record::Short]);
            while accepted.stream.read(now, &LIMITS).is_some() {}
            let records = sent.take(now, &mut accepted.stream);
            let grown = records.contains(&Record::Window((2 * (WINDOW | 1)) | 1));
            assert_eq!(grown, changes, "{records:?}");
            let others = |it: &Record| matches!(it, Record::Window(_));
            assert_eq!(records.iter().any(others), changes);
        }
    }

    #[test]
    fn a_reader_that_stops_stops_the_writer() {
        let now = Instant::now();
        let (mut accepted, mut sent) = (Accepted::new(now), Sent::new());
        accepted.take(now, 0, &[header()]);
        accepted.stream.answer(&LIMITS, b"");
        let mut written = 0;
        for _ in 0..100 {
            written += accepted.stream.write(&LIMITS, &[5; 1 << 16]);
            sent.take(now, &mut accepted.stream);
            let received = accepted.stream.content().unwrap().end();
            // All of it arrived, and nothing was read.
            accepted.take(now, 0, &[Record::Report(Report { received, read: 0 })]);
        }
        assert_eq!((accepted.stream.out.sent(), written), (1 << 16, 2 << 16));
        let received = accepted.stream.content().unwrap().end();
        let read = 1 << 15;
        accepted.take(now, 0, &[Record::Report(Report { received, read })]);
        sent.take(now, &mut accepted.stream);
        assert_eq!(accepted.stream.out.sent(), 3 << 15);
    }

    /// All but the first were dropped and asked for again one by one, and what the other side takes meanwhile was not known.
    #[test]
    fn reports_behind_the_end_of_data_are_taken_out_of_order() {
        let now = Instant::now();
        let mut accepted = Accepted::new(now);
        accepted.take(now, 0, &[header(), Record::End]);
        for skipped in [10, 0, 0, 10, 0] {
            accepted.take(now, skipped, &[Record::Report(Report::default())]);
        }
        assert!(accepted.stream.fetch.memory() > 0);
    }

    #[test]
    fn a_report_bounds_the_round_trip_where_the_first_answer_tells_none() {
        let mut now = Instant::now();
        let mut accepted = Accepted::new(now);
        accepted.stream.fetch.change_path(now);
        now += Duration::from_millis(1080);
        accepted.take(now, 0, &[header()]);
        accepted.stream.answer(&LIMITS, b"");
        let mut news = News::default();
        accepted.stream.grow(now, &LIMITS, 1000, &mut news);
        let received = accepted.stream.content().unwrap().end();
        now += Duration::from_millis(90);
        let report = Record::Report(Report { received, read: 0 });
        accepted.take(now, 0, &[report]);
        accepted.take(
            now,
            10,
            &[Record::Data(Bytes::from_static(b"behind a hole"))],
        );
        let hole = accepted.stream.fetch.timeout();
        assert_eq!(hole, Some(now + Duration::from_millis(270)));
    }
}
