//! Writing of segments (RFC 5326 §3).

use super::{Body, Data, DataKind, End, Parity, Repair, Report, Segment, SessionId};
use crate::sdnv::{encode, encoded_len};

/// Appends what stands before the offset in a segment of red data that is no checkpoint and has no extensions. Offset, length and data
/// follow.
pub(crate) fn begin_plain(session: SessionId, service: u64, out: &mut Vec<u8>) {
    // Version 0 and type 0; then, behind the session, no extensions before and behind the content.
    out.push(0);
    encode(session.originator.0, out);
    encode(session.number, out);
    out.push(0);
    encode(service, out);
}

impl Segment<'_> {
    /// Bytes that [`Segment::write`] appends.
    pub fn encoded_len(&self) -> usize {
        let session = encoded_len(self.session.originator.0) + encoded_len(self.session.number);
        let body = match self.body {
            Body::Data(data) => data.encoded_len(),
            Body::Repair(repair) => repair.encoded_len(),
            Body::Parity(parity) => parity.encoded_len(),
            Body::Report(report) => report.encoded_len(),
            Body::ReportAck { report } => encoded_len(report),
            Body::Cancel { .. } => 1,
            Body::CancelAck { .. } => 0,
        };
        let extensions = self.header.bytes.len() + self.trailer.bytes.len();
        2 + session + extensions + body
    }

    /// Appends the segment as on the wire.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_before_trailers(0, out);
        out.extend_from_slice(self.trailer.bytes);
    }

    /// Appends all but the trailer extensions, and announces `more` of these than the segment has.
    pub(crate) fn write_before_trailers(&self, more: u8, out: &mut Vec<u8>) {
        out.push(self.type_code());
        encode(self.session.originator.0, out);
        encode(self.session.number, out);
        out.push(self.header.count << 4 | (self.trailer.count + more) & 0xf);
        out.extend_from_slice(self.header.bytes);
        match self.body {
            Body::Data(data) => data.write(out),
            Body::Repair(repair) => repair.write(out),
            Body::Parity(parity) => parity.write(out),
            Body::Report(report) => report.write(out),
            Body::ReportAck { report } => encode(report, out),
            Body::Cancel { reason, .. } => out.push(reason.code()),
            Body::CancelAck { .. } => {}
        }
    }

    /// RFC 5326 §3.1.1; the version in the upper four bits is 0.
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

impl Data<'_> {
    fn encoded_len(&self) -> usize {
        let serials = self.checkpoint.map_or(0, |checkpoint| {
            encoded_len(checkpoint.serial) + encoded_len(checkpoint.report)
        });
        let length = self.payload.len();
        let numbers =
            encoded_len(self.service) + encoded_len(self.offset) + encoded_len(length as u64);
        numbers + serials + length
    }

    fn write(&self, out: &mut Vec<u8>) {
        encode(self.service, out);
        encode(self.offset, out);
        encode(self.payload.len() as u64, out);
        if let Some(checkpoint) = self.checkpoint {
            encode(checkpoint.serial, out);
            encode(checkpoint.report, out);
        }
        out.extend_from_slice(self.payload);
    }
}

impl Repair<'_> {
    fn encoded_len(&self) -> usize {
        let length = self.payload.len();
        let numbers = [self.service, self.offset, self.red, length as u64];
        numbers.into_iter().map(encoded_len).sum::<usize>() + 4 + length
    }

    fn write(&self, out: &mut Vec<u8>) {
        for number in [self.service, self.offset, self.red] {
            encode(number, out);
        }
        out.extend([self.is_whole.into(), self.symbols, self.repairs, self.index]);
        encode(self.payload.len() as u64, out);
        out.extend_from_slice(self.payload);
    }
}

impl Parity<'_> {
    fn encoded_len(&self) -> usize {
        let length = self.payload.len();
        let numbers = [self.service, 0, self.red, length as u64];
        numbers.into_iter().map(encoded_len).sum::<usize>() + 4 + length
    }

    fn write(&self, out: &mut Vec<u8>) {
        for number in [self.service, 0, self.red] {
            encode(number, out);
        }
        out.extend([self.is_whole.into(), 0, self.symbols, self.index]);
        encode(self.payload.len() as u64, out);
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

    fn encoded_len(&self) -> usize {
        let numbers: usize = self.numbers().into_iter().map(encoded_len).sum();
        numbers + self.claims.bytes.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        for number in self.numbers() {
            encode(number, out);
        }
        out.extend_from_slice(self.claims.bytes);
    }
}
