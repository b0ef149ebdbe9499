//! What one side of a stream has to send: records are composed when a segment may leave, not before, so that a segment holds
//! what there is at that moment and nothing waits for more.

use std::collections::VecDeque;

use bytes::Bytes;

use super::record::{self, DATA_HEAD_BYTES, REPORT_BYTES, Record, Report, WINDOW_BYTES};

/// Memory that an empty buffer keeps at most.
const KEPT_BYTES: usize = 1 << 14;

/// Data that the other side lets wait before its header tells.
pub(crate) const FIRST_CREDIT: usize = 1 << 14;

/// What waits for its turn.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The header, as far as it did not leave.
    header: VecDeque<u8>,
    data: VecDeque<u8>,
    /// Bytes of data that left, and that may leave.
    sent: u64,
    credit: u64,
    /// Where the other side was told last that more wait than may leave, if it takes that.
    short_at: Option<u64>,
    /// The window that the other side is to be told of.
    window: Option<u64>,
    is_finishing: bool,
    is_end_sent: bool,
    reset: Option<u64>,
    may_close: bool,
    is_complete: bool,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self {
            header: VecDeque::new(),
            data: VecDeque::new(),
            sent: 0,
            credit: FIRST_CREDIT as u64,
            short_at: None,
            window: None,
            is_finishing: false,
            is_end_sent: false,
            reset: None,
            may_close: false,
            is_complete: false,
        }
    }

    /// Adds the header.
    pub(crate) fn set_header(&mut self, window: u64, bytes: &[u8]) {
        let mut written = Vec::new();
        let bytes = Bytes::copy_from_slice(bytes);
        record::write(&Record::Header { window, bytes }, &mut written);
        self.header = written.into();
    }

    /// Adds data behind what waits.
    pub(crate) fn write(&mut self, data: &[u8]) {
        self.data.extend(data);
    }

    /// Bytes of data that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.data.len()
    }

    /// Bytes of data that left.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.header.len() + self.data.capacity()
    }

    /// Data may leave up to here.
    pub(crate) fn set_credit(&mut self, to: u64) {
        self.credit = to.max(self.sent);
    }

    /// The other side takes news of what is short and of windows.
    pub(crate) fn allow_changes(&mut self) {
        self.short_at.get_or_insert(0);
    }

    /// Tells of another window.
    pub(crate) fn tell_window(&mut self, bytes: u64) {
        self.window = Some(bytes);
    }

    /// Whether a window is to be told of that did not leave.
    pub(crate) fn has_window(&self) -> bool {
        self.window.is_some()
    }

    /// Data wait, none of them may leave, and the other side does not know.
    fn is_short(&self) -> bool {
        let is_news = self.short_at.is_some_and(|at| at < self.credit);
        is_news && self.credit <= self.sent && !self.data.is_empty()
    }

    /// No data follow.
    pub(crate) fn finish(&mut self) {
        self.is_finishing = true;
    }

    /// Whether data may be added.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_finishing && self.reset.is_none() && !self.is_complete
    }

    /// Breaks off: what waits is dropped.
    pub(crate) fn reset(&mut self, code: u64) {
        self.data = VecDeque::new();
        self.reset = Some(code);
    }

    /// The application has read all that the other side sent.
    pub(crate) fn allow_close(&mut self) {
        self.may_close = true;
    }

    /// Whether the last record left.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether a segment can be composed without a report.
    pub(crate) fn has_any(&self) -> bool {
        let has_data = !self.data.is_empty() && self.credit > self.sent;
        let ends = self.is_finishing && !self.is_end_sent && self.data.is_empty();
        !self.is_complete
            && (!self.header.is_empty()
                || has_data
                || self.has_window()
                || self.is_short()
                || ends
                || self.reset.is_some()
                || self.is_end_sent && self.may_close)
    }

    /// Appends records of at most `room` bytes, with the `report` if there is room; returns whether they are the last.
    pub(crate) fn compose(
        &mut self,
        room: usize,
        report: &mut Option<Report>,
        out: &mut Vec<u8>,
    ) -> bool {
        let begin = out.len();
        let header = self.header.len().min(room);
        out.extend(self.header.drain(..header));
        if !self.header.is_empty() {
            return false;
        }
        let left = |out: &Vec<u8>| room.saturating_sub(out.len() - begin);
        if left(out) >= REPORT_BYTES
            && let Some(report) = report.take()
        {
            record::write(&Record::Report(report), out);
        }
        if left(out) >= WINDOW_BYTES
            && let Some(bytes) = self.window.take()
        {
            record::write(&Record::Window(bytes), out);
        }
        if let Some(code) = self.reset.filter(|_| left(out) >= REPORT_BYTES) {
            record::write(&Record::Reset(code), out);
            self.is_complete = true;
            return true;
        }
        let credit = usize::try_from(self.credit.saturating_sub(self.sent)).unwrap_or(usize::MAX);
        let data = left(out).saturating_sub(DATA_HEAD_BYTES);
        let data = data.min(self.data.len()).min(credit);
        if data > 0 {
            self.compose_data(data, out);
        }
        if self.is_short() && left(out) > 0 {
            record::write(&Record::Short, out);
            self.short_at = Some(self.credit);
        }
        if self.is_finishing && self.data.is_empty() && !self.is_end_sent && left(out) > 0 {
            record::write(&Record::End, out);
            self.is_end_sent = true;
        }
        if self.is_end_sent && self.may_close && left(out) > 0 {
            record::write(&Record::Close, out);
            self.is_complete = true;
        }
        self.is_complete
    }

    fn compose_data(&mut self, length: usize, out: &mut Vec<u8>) {
        record::write_data_head(length, out);
        let (first, second) = self.data.as_slices();
        let cut = length.min(first.len());
        out.extend_from_slice(&first[..cut]);
        out.extend_from_slice(&second[..length - cut]);
        self.data.drain(..length);
        self.sent += length as u64;
        if self.data.is_empty() && self.data.capacity() > KEPT_BYTES {
            self.data = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_leave_whole_within_room_and_credit() {
        let mut out = Outgoing::new();
        out.set_header(9, &[1; 100]);
        assert!(out.has_any());
        let mut bytes = Vec::new();
        out.write(&vec![2; FIRST_CREDIT + 10]);
        let report = Report {
            received: 1,
            read: 2,
        };
        while out.has_any() {
            let before = bytes.len();
            assert!(!out.compose(64, &mut Some(report), &mut bytes));
            assert!((1..=64).contains(&(bytes.len() - before)));
        }
        assert_eq!((out.sent(), out.waiting()), (FIRST_CREDIT as u64, 10));
        out.finish();
        assert!(!out.has_any() && !out.is_open());
        out.set_credit(1 << 20);
        assert!(
            !out.compose(64, &mut None, &mut bytes),
            "the end is none yet"
        );
        assert!(!out.has_any());
        out.allow_close();
        assert!(out.has_any() && out.compose(64, &mut None, &mut bytes));
        assert!(!out.has_any() && out.is_complete());
        let records = record::Parser::default().push(bytes.into()).unwrap();
        let data: usize = records
            .iter()
            .map(|record| match record {
                Record::Data(data) => data.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(data, FIRST_CREDIT + 10);
        assert_eq!(records[records.len() - 2..], [Record::End, Record::Close]);
    }

    #[test]
    fn the_other_side_learns_once_that_more_waits_than_may_leave() {
        let mut out = Outgoing::new();
        out.write(&[2; 3 * FIRST_CREDIT]);
        let leaves = |out: &mut Outgoing| {
            let mut bytes = Vec::new();
            while out.has_any() {
                out.compose(1000, &mut None, &mut bytes);
            }
            let records = record::Parser::default().push(bytes.into()).unwrap();
            let is_short = |record: &&Record| **record == Record::Short;
            records.iter().filter(is_short).count()
        };
        assert_eq!(
            leaves(&mut out),
            0,
            "one that does not know of it is not told"
        );
        out.allow_changes();
        assert_eq!(leaves(&mut out), 1);
        assert_eq!(leaves(&mut out), 0);
        out.set_credit(2 * FIRST_CREDIT as u64);
        assert_eq!((leaves(&mut out), out.waiting()), (1, FIRST_CREDIT));
        // What left cannot be taken back.
        out.set_credit(1);
        assert_eq!((leaves(&mut out), out.waiting()), (0, FIRST_CREDIT));
        out.tell_window(77);
        out.set_credit(1 << 20);
        assert_eq!((leaves(&mut out), out.waiting()), (0, 0));
        assert!(!out.has_window());
    }

    #[test]
    fn a_reset_drops_what_waits() {
        let mut out = Outgoing::new();
        out.write(&[1; 5000]);
        out.reset(7);
        assert_eq!(out.memory(), 0);
        let mut bytes = Vec::new();
        assert!(out.compose(1000, &mut None, &mut bytes));
        let records = record::Parser::default().push(bytes.into());
        assert_eq!(records, Ok(vec![Record::Reset(7)]));
    }
}
