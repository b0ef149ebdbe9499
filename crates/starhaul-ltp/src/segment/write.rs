//! Writing of segments (RFC 5326 §3), in either encoding.

use super::{Body, Data, DataKind, Encoding, End, Parity, Repair, Report, Segment, SessionId};

/// Appends what stands before the offset in a segment of red data that is no checkpoint and has no extensions. Offset, length and data
/// follow.
pub(crate) fn begin_plain(encoding: Encoding, session: SessionId, service: u64, out: &mut Vec<u8>) {
    // Type 0, and no extensions before and behind the content.
    begin(encoding, (0, 0), session, out);
    encoding.write_number(service, out);
}

/// Appends first byte, session and numbers of extensions: with fixed fields these are the second byte.
fn begin(encoding: Encoding, (type_code, counts): (u8, u8), session: SessionId, out: &mut Vec<u8>) {
    out.push(encoding.control(type_code));
    if encoding == Encoding::Fixed {
        out.push(counts);
    }
    encoding.write_number(session.originator.0, out);
    encoding.write_number(session.number, out);
    if encoding == Encoding::Rfc5326 {
        out.push(counts);
    }
}

impl Segment<'_> {
    /// Bytes that [`Segment::write`] appends.
    pub fn encoded_len(&self) -> usize {
        let encoding = self.encoding;
        let session = [self.session.originator.0, self.session.number];
        let session = numbers_len(encoding, &session);
        let body = match self.body {
            Body::Data(data) => data.encoded_len(encoding),
            Body::Repair(repair) => repair.encoded_len(encoding),
            Body::Parity(parity) => parity.encoded_len(encoding),
            Body::Report(report) => report.encoded_len(encoding),
            Body::ReportAck { report } => encoding.number_len(report),
            Body::Cancel { .. } => 1,
            Body::CancelAck { .. } => 0,
        };
        let extensions = self.header.bytes.len() + self.trailer.bytes.len();
        2 + session + extensions + body
    }

    /// Appends the segment as on the wire. What [`crate::parse`] returned is written as what it returns again.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_before_trailers(0, out);
        out.extend_from_slice(self.trailer.bytes);
    }

    /// Appends all but the trailer extensions, and announces `more` of these than the segment has.
    pub(crate) fn write_before_trailers(&self, more: u8, out: &mut Vec<u8>) {
        let encoding = self.encoding;
        let counts = self.header.count << 4 | (self.trailer.count + more) & 0xf;
        begin(encoding, (self.type_code(), counts), self.session, out);
        if encoding == Encoding::Rfc5326 {
            out.extend_from_slice(self.header.bytes);
        }
        match self.body {
            Body::Data(data) => data.write(encoding, out),
            Body::Repair(repair) => repair.write(encoding, out),
            Body::Parity(parity) => parity.write(encoding, out),
            Body::Report(report) => report.write(encoding, out),
            Body::ReportAck { report } => encoding.write_number(report, out),
            Body::Cancel { reason, .. } => out.push(reason.code()),
            Body::CancelAck { .. } => {}
        }
        if encoding == Encoding::Fixed {
            out.extend_from_slice(self.header.bytes);
        }
    }

    /// RFC 5326 §3.1.1, without the version.
    fn type_code(&self) -> u8 {
        match self.body {
            Body::Data(data) => match data.kind {
                DataKind::Red => 0,
                DataKind::RedCheckpoint => 1,
                DataKind::RedEnd => 2,
                DataKind::RedEndOfBlock => 3,
                DataKind::Green => 4,
                DataKind::GreenEndOfBlock => 7,
            },
            Body::Repair(_) | Body::Parity(_) => 5,
            Body::Report(_) => 8,
            Body::ReportAck { .. } => 9,
            Body::Cancel {
                by: End::Sender, ..
            } => 12,
            Body::CancelAck { by: End::Sender } => 13,
            Body::Cancel {
                by: End::Receiver, ..
            } => 14,
            Body::CancelAck { by: End::Receiver } => 15,
        }
    }
}

/// Bytes of these numbers.
fn numbers_len(encoding: Encoding, numbers: &[u64]) -> usize {
    let lengths = numbers.iter().map(|number| encoding.number_len(*number));
    lengths.sum()
}

fn write_numbers(encoding: Encoding, numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        encoding.write_number(*number, out);
    }
}

impl Data<'_> {
    fn numbers(&self) -> [u64; 3] {
        [self.service, self.offset, self.payload.len() as u64]
    }

    fn encoded_len(&self, encoding: Encoding) -> usize {
        let serials = self.checkpoint.map_or(0, |checkpoint| {
            numbers_len(encoding, &[checkpoint.serial, checkpoint.report])
        });
        numbers_len(encoding, &self.numbers()) + serials + self.payload.len()
    }

    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        write_numbers(encoding, &self.numbers(), out);
        if let Some(checkpoint) = self.checkpoint {
            write_numbers(encoding, &[checkpoint.serial, checkpoint.report], out);
        }
        out.extend_from_slice(self.payload);
    }
}

impl Repair<'_> {
    fn encoded_len(&self, encoding: Encoding) -> usize {
        let length = self.payload.len();
        let numbers = [self.service, self.offset, self.red, length as u64];
        numbers_len(encoding, &numbers) + 4 + length
    }

    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        write_numbers(encoding, &[self.service, self.offset, self.red], out);
        out.extend([self.is_whole.into(), self.symbols, self.repairs, self.index]);
        encoding.write_number(self.payload.len() as u64, out);
        out.extend_from_slice(self.payload);
    }
}

impl Parity<'_> {
    fn encoded_len(&self, encoding: Encoding) -> usize {
        let length = self.payload.len();
        let numbers = [self.service, 0, self.red, length as u64];
        numbers_len(encoding, &numbers) + 4 + length
    }

    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        write_numbers(encoding, &[self.service, 0, self.red], out);
        out.extend([self.is_whole.into(), 0, self.symbols, self.index]);
        encoding.write_number(self.payload.len() as u64, out);
        out.extend_from_slice(self.payload);
    }
}

impl Report<'_> {
    fn numbers(&self) -> [u64; 5] {
        [
            self.serial,
            self.checkpoint,
            self.upper,
            self.lower,
            self.claims.count,
        ]
    }

    fn encoded_len(&self, encoding: Encoding) -> usize {
        numbers_len(encoding, &self.numbers()) + self.claims.bytes.len()
    }

    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        write_numbers(encoding, &self.numbers(), out);
        out.extend_from_slice(self.claims.bytes);
    }
}
