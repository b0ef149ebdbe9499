//! The records that the content of a stream consists of. `docs/leotp.md` has them as a table.

use bytes::Bytes;

use crate::varint;

/// Bytes of a header at most.
pub(crate) const MOST_HEADER_BYTES: usize = 1024;
/// What a report takes at most.
pub(crate) const REPORT_BYTES: usize = 1 + 8 + 8;
/// What a window takes at most.
pub(crate) const WINDOW_BYTES: usize = 1 + 8;

const DATA: u8 = 0;
const REPORT: u8 = 1;
const END: u8 = 2;
const RESET: u8 = 3;
const HEADER: u8 = 4;
const CLOSE: u8 = 5;
const WINDOW: u8 = 6;
const SHORT: u8 = 7;

/// A record, or a part of one with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Data(Bytes),
    Report(Report),
    /// No data follow.
    End,
    /// The stream is broken off.
    Reset(u64),
    /// The first record of each side but for reports: what the application says, and how many bytes it lets wait.
    Header {
        window: u64,
        bytes: Bytes,
    },
    /// All data of the other side were read.
    Close,
    /// How many bytes the application lets wait from now on.
    Window(u64),
    /// The sender has sent all data that it may, and more wait.
    Short,
}

/// Whether the sender of a header knows [`Record::Window`] and [`Record::Short`]: sides that do not have windows of 1 MiB.
pub(crate) const fn may_change(window: u64) -> bool {
    window & 1 == 1
}

/// How much the sender of the record has of the receiver's content and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Bytes of the content that are not asked for any more.
    pub(crate) received: u64,
    /// Bytes of data that the application has read.
    pub(crate) read: u64,
}

/// What is no record of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// Reads records out of bytes in order.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The begin of a record.
    begun: Vec<u8>,
    /// Of the present record with data.
    data_left: u64,
}

impl Parser {
    /// Bytes that data of the next [`Parser::push`] of so many bytes keep in memory.
    pub(crate) fn held(&self, next: usize) -> usize {
        self.begun.len() + next
    }

    /// Takes the next bytes; returns the records that they complete.
    pub(crate) fn push(&mut self, bytes: Bytes) -> Result<Vec<Record>, Violation> {
        let mut bytes = match self.begun.is_empty() {
            true => bytes,
            false => Bytes::from([&self.begun[..], &bytes[..]].concat()),
        };
        self.begun.clear();
        let mut records = Vec::new();
        while !bytes.is_empty() {
            if self.data_left > 0 {
                let left = usize::try_from(self.data_left).unwrap_or(usize::MAX);
                let data = bytes.split_to(left.min(bytes.len()));
                self.data_left -= data.len() as u64;
                records.push(Record::Data(data));
                continue;
            }
            let mut rest = &bytes[..];
            let Some(record) = self.read(&mut rest)? else {
                self.begun.extend_from_slice(&bytes);
                break;
            };
            let used = bytes.len() - rest.len();
            drop(bytes.split_to(used));
            records.extend(record);
        }
        Ok(records)
    }

    /// Takes a record from the front; the outer `None`: it is not whole, the inner: its data follow.
    fn read(&mut self, from: &mut &[u8]) -> Result<Option<Option<Record>>, Violation> {
        let Some((kind, rest)) = from.split_first() else {
            return Ok(None);
        };
        let mut rest = rest;
        let mut integer = || varint::read(&mut rest);
        let record = match *kind {
            END => Record::End,
            CLOSE => Record::Close,
            SHORT => Record::Short,
            WINDOW => match integer() {
                Some(bytes) => Record::Window(bytes),
                None => return Ok(None),
            },
            RESET => match integer() {
                Some(code) => Record::Reset(code),
                None => return Ok(None),
            },
            REPORT => match (integer(), integer()) {
                (Some(received), Some(read)) => Record::Report(Report { received, read }),
                _ => return Ok(None),
            },
            DATA => {
                let Some(length) = integer() else {
                    return Ok(None);
                };
                if length == 0 {
                    return Err(Violation);
                }
                self.data_left = length;
                *from = rest;
                return Ok(Some(None));
            }
            HEADER => {
                let (Some(window), Some(length)) = (integer(), integer()) else {
                    return Ok(None);
                };
                let length = usize::try_from(length).map_err(|_| Violation)?;
                if length > MOST_HEADER_BYTES {
                    return Err(Violation);
                }
                let Some((bytes, behind)) = rest.split_at_checked(length) else {
                    return Ok(None);
                };
                rest = behind;
                let bytes = Bytes::copy_from_slice(bytes);
                Record::Header { window, bytes }
            }
            _ => return Err(Violation),
        };
        *from = rest;
        Ok(Some(Some(record)))
    }
}

/// Appends a record.
pub(crate) fn write(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::Data(data) => {
            write_data_head(data.len(), out);
            out.extend_from_slice(data);
        }
        Record::Report(report) => {
            out.push(REPORT);
            varint::write(report.received, out);
            varint::write(report.read, out);
        }
        Record::End => out.push(END),
        Record::Reset(code) => {
            out.push(RESET);
            varint::write(*code, out);
        }
        Record::Header { window, bytes } => {
            out.push(HEADER);
            varint::write(*window, out);
            varint::write(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Record::Close => out.push(CLOSE),
        Record::Window(bytes) => {
            out.push(WINDOW);
            varint::write(*bytes, out);
        }
        Record::Short => out.push(SHORT),
    }
}

/// Begins a record with this many bytes of data, which follow.
pub(crate) fn write_data_head(length: usize, out: &mut Vec<u8>) {
    out.push(DATA);
    varint::write(length as u64, out);
}

/// What the head of a record with data takes, for data that fit into a segment.
pub(crate) const DATA_HEAD_BYTES: usize = 1 + 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written_wherever_they_are_cut() {
        let records = [
            Record::Header {
                window: 1 << 20,
                bytes: Bytes::from(vec![7; MOST_HEADER_BYTES]),
            },
            Record::Data(Bytes::from_static(b"data")),
            Record::Report(Report {
                received: 1 << 40,
                read: 5,
            }),
            Record::Data(Bytes::from(vec![1; 100])),
            Record::End,
            Record::Reset(77),
            Record::Close,
            Record::Window(1 << 26),
            Record::Short,
        ];
        let mut all = Vec::new();
        records.iter().for_each(|record| write(record, &mut all));
        for step in [1, 2, 3, 50, all.len()] {
            let mut parser = Parser::default();
            let mut read: Vec<Record> = Vec::new();
            for bytes in all.chunks(step) {
                for record in parser.push(Bytes::copy_from_slice(bytes)).unwrap() {
                    match (read.last_mut(), record) {
                        // Two records with data do not follow each other here.
                        (Some(Record::Data(before)), Record::Data(more)) => {
                            *before = [&before[..], &more[..]].concat().into();
                        }
                        (_, record) => read.push(record),
                    }
                }
            }
            assert_eq!(read, records, "in steps of {step}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for wrong in [&[9][..], &[DATA, 0], &[HEADER, 0, 0x44, 1]] {
            assert_eq!(
                Parser::default().push(Bytes::copy_from_slice(wrong)),
                Err(Violation)
            );
        }
    }
}
