//! Acknowledgements: what has arrived, for all paths at once, and what this side's detectors saw of them.

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use super::{ACK, HEADER_BYTES, Header, wrap};
use starhaul_paths::RangeSet;

use crate::types::{BlockId, ProtocolError, StreamId};

/// Most ranges reported for one path; older ones have been reported before.
const MAX_ACK_RANGES: usize = 32;
/// Most paths in one acknowledgement, as many as a session may have.
pub(crate) const MAX_ACK_PATHS: usize = 16;
/// Most completed blocks named in one acknowledgement.
pub(crate) const MAX_ACK_BLOCKS: usize = 24;

/// What has arrived, for all paths at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) paths: Vec<PathAck>,
    pub(crate) blocks: Vec<BlockAck>,
    pub(crate) reconfigurations: Vec<ReconfigurationReport>,
    pub(crate) segments: Vec<SegmentReport>,
}

/// What has arrived on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathAck {
    pub(crate) path: u32,
    /// When the newest datagram of the first range arrived, µs of the acknowledging side's clock.
    pub(crate) received_micros: u32,
    /// (first, last), newest range first, as wire sequence numbers.
    pub(crate) ranges: Vec<(u32, u32)>,
}

/// A block that is complete at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockAck {
    pub(crate) stream: StreamId,
    pub(crate) block: BlockId,
    /// When it became complete, µs of the acknowledging side's clock.
    pub(crate) completed_micros: u32,
    pub(crate) recovered: bool,
}

/// The acknowledging side believes that a satellite path was reconfigured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReconfigurationReport {
    pub(crate) path: u32,
    /// Counts them, of all paths together; the same in every repetition.
    pub(crate) number: u32,
    /// How long before this acknowledgement left the path began to carry packets again.
    pub(crate) age_micros: u32,
    /// How long nothing came through; 0 when unknown.
    pub(crate) outage_micros: u32,
    /// How probable it is, in 255ths.
    pub(crate) confidence: u8,
}

/// The last round trip of a path's satellite segment at the acknowledging side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentReport {
    pub(crate) path: u32,
    pub(crate) rtt_micros: u32,
}

/// From the newest number of an acknowledgement back to its oldest. The sender may have gone on by as much again.
const MAX_ACK_SPAN: u64 = 1 << 30;

impl PathAck {
    /// The newest ranges of `received`, as far back as their numbers can be told from later ones once they are wrapped.
    pub(crate) fn new(path: u32, received_micros: u32, received: &RangeSet) -> Self {
        let oldest = received.end().saturating_sub(MAX_ACK_SPAN);
        let ranges = received
            .iter_rev()
            .take(MAX_ACK_RANGES)
            .take_while(|(_, last)| *last >= oldest)
            .map(|(first, last)| (wrap(first.max(oldest)), wrap(last)))
            .collect();
        Self {
            path,
            received_micros,
            ranges,
        }
    }
}

impl Ack {
    /// Leaves out the oldest ranges, of the path with most first, until the datagram has at most `capacity` bytes.
    pub(crate) fn fit(&mut self, capacity: usize) {
        while self.datagram_bytes() > capacity {
            let several = self.paths.iter_mut().filter(|path| path.ranges.len() > 1);
            let Some(longest) = several.max_by_key(|path| path.ranges.len()) else {
                return;
            };
            longest.ranges.pop();
        }
    }

    fn datagram_bytes(&self) -> usize {
        let path_bytes = |path: &PathAck| {
            let distances = path.ranges.windows(2).map(|pair| match *pair {
                [(newer, _), (_, last)] => distance_bytes(newer.wrapping_sub(last)),
                _ => 0,
            });
            let lengths = path
                .ranges
                .iter()
                .map(|&(first, last)| distance_bytes(last.wrapping_sub(first)));
            9 + 4 + distances.chain(lengths).sum::<usize>()
        };
        let paths: usize = self.paths.iter().map(path_bytes).sum();
        let reports = if self.has_reports() {
            2 + 17 * self.reconfigurations.len() + 8 * self.segments.len()
        } else {
            0
        };
        HEADER_BYTES + 2 + paths + 13 * self.blocks.len() + reports
    }

    fn has_reports(&self) -> bool {
        !self.reconfigurations.is_empty() || !self.segments.is_empty()
    }

    pub(crate) fn encode(&self, header: Header, out: &mut BytesMut) {
        header.put(ACK, out);
        out.put_u8(count(self.paths.len()));
        for path in &self.paths {
            out.put_u32(path.path);
            out.put_u32(path.received_micros);
            out.put_u8(count(path.ranges.len()));
            let mut previous: Option<u32> = None;
            for &(first, last) in &path.ranges {
                match previous {
                    None => out.put_u32(last),
                    Some(previous) => put_distance(out, previous.wrapping_sub(last)),
                }
                put_distance(out, last.wrapping_sub(first));
                previous = Some(first);
            }
        }
        out.put_u8(count(self.blocks.len()));
        for block in &self.blocks {
            out.put_u32(block.stream.0);
            out.put_u32(block.block.0);
            out.put_u32(block.completed_micros);
            out.put_u8(block.recovered.into());
        }
        if self.has_reports() {
            self.encode_reports(out);
        }
    }

    fn encode_reports(&self, out: &mut BytesMut) {
        out.put_u8(count(self.reconfigurations.len()));
        for report in &self.reconfigurations {
            out.put_u32(report.path);
            out.put_u32(report.number);
            out.put_u32(report.age_micros);
            out.put_u32(report.outage_micros);
            out.put_u8(report.confidence);
        }
        out.put_u8(count(self.segments.len()));
        for report in &self.segments {
            out.put_u32(report.path);
            out.put_u32(report.rtt_micros);
        }
    }

    pub(super) fn decode(body: &mut Bytes) -> Result<Self, ProtocolError> {
        let short = |_| MALFORMED;
        let mut ack = Self::default();
        for _ in 0..counted(body, MAX_ACK_PATHS)? {
            let path = body.try_get_u32().map_err(short)?;
            if ack.paths.iter().any(|known: &PathAck| known.path == path) {
                return Err(MALFORMED);
            }
            let received_micros = body.try_get_u32().map_err(short)?;
            let mut ranges = Vec::new();
            let mut previous: Option<u32> = None;
            // Ranges fall: a sender looks at each of its datagrams once for all of them.
            let mut below = 0_u64;
            for _ in 0..counted(body, MAX_ACK_RANGES)? {
                let last = match previous {
                    None => body.try_get_u32().map_err(short)?,
                    Some(previous) => {
                        let gap = try_get_distance(body)?;
                        if gap == 0 {
                            return Err(MALFORMED);
                        }
                        below += u64::from(gap);
                        previous.wrapping_sub(gap)
                    }
                };
                let length = try_get_distance(body)?;
                below += u64::from(length);
                if below > u64::from(u32::MAX / 2) {
                    return Err(MALFORMED);
                }
                let first = last.wrapping_sub(length);
                ranges.push((first, last));
                previous = Some(first);
            }
            ack.paths.push(PathAck {
                path,
                received_micros,
                ranges,
            });
        }
        for _ in 0..counted(body, MAX_ACK_BLOCKS)? {
            ack.blocks.push(BlockAck {
                stream: StreamId(body.try_get_u32().map_err(short)?),
                block: BlockId(body.try_get_u32().map_err(short)?),
                completed_micros: body.try_get_u32().map_err(short)?,
                recovered: body.try_get_u8().map_err(short)? != 0,
            });
        }
        // Acknowledgements without reports end here, and so do those of older versions.
        if body.has_remaining() {
            ack.decode_reports(body)
                .map_err(|_| ProtocolError::Malformed("report of reconfigurations"))?;
        }
        Ok(ack)
    }

    fn decode_reports(&mut self, body: &mut Bytes) -> Result<(), TryGetError> {
        for _ in 0..body.try_get_u8()? {
            self.reconfigurations.push(ReconfigurationReport {
                path: body.try_get_u32()?,
                number: body.try_get_u32()?,
                age_micros: body.try_get_u32()?,
                outage_micros: body.try_get_u32()?,
                confidence: body.try_get_u8()?,
            });
        }
        for _ in 0..body.try_get_u8()? {
            self.segments.push(SegmentReport {
                path: body.try_get_u32()?,
                rtt_micros: body.try_get_u32()?,
            });
        }
        Ok(())
    }
}

const MALFORMED: ProtocolError = ProtocolError::Malformed("acknowledgement");

/// A count of at most so many.
fn counted(body: &mut Bytes, most: usize) -> Result<usize, ProtocolError> {
    let count = body.try_get_u8().map_err(|_| MALFORMED)?.into();
    if count > most {
        return Err(MALFORMED);
    }
    Ok(count)
}

/// Counts on the wire are bytes; every list is bounded below 256 where it is made.
fn count(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

const fn distance_bytes(distance: u32) -> usize {
    if distance < u8::MAX as u32 { 1 } else { 5 }
}

/// One byte below 255, else a marker and four bytes.
fn put_distance(out: &mut BytesMut, distance: u32) {
    match u8::try_from(distance) {
        Ok(small) if small < u8::MAX => out.put_u8(small),
        _ => {
            out.put_u8(u8::MAX);
            out.put_u32(distance);
        }
    }
}

fn try_get_distance(body: &mut Bytes) -> Result<u32, ProtocolError> {
    let short = |_| ProtocolError::Malformed("acknowledgement range");
    match body.try_get_u8().map_err(short)? {
        u8::MAX => body.try_get_u32().map_err(short),
        small => Ok(small.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::wire::{Body, decode};

    const HEADER: Header = Header {
        sequence: u32::MAX,
        sent_micros: 7,
    };

    fn encoded(ack: &Ack) -> Bytes {
        let mut out = BytesMut::new();
        ack.encode(HEADER, &mut out);
        out.freeze()
    }
    const REPORT: ReconfigurationReport = ReconfigurationReport {
        path: 7,
        number: u32::MAX,
        age_micros: 12_345,
        outage_micros: 68_000,
        confidence: 230,
    };
    const SEGMENT: SegmentReport = SegmentReport {
        path: 7,
        rtt_micros: 31_000,
    };

    /// After some 2³¹ packets without much loss: the numbers of the old ranges would be taken for later ones.
    #[test]
    fn ranges_from_too_long_ago_are_left_out() {
        let mut received = RangeSet::new(64);
        let newest = 3u64 << 31;
        for (start, end) in [(0, 10), (20, newest - 8), (newest, newest + 5)] {
            received.insert(start, end);
        }
        let ack = PathAck::new(1, 0, &received);
        let far = u32::try_from((newest + 5 - MAX_ACK_SPAN) & u64::from(u32::MAX)).unwrap();
        let near = |distance: u64| wrap(newest.wrapping_sub(distance));
        assert_eq!(ack.ranges, [(near(0), near(0) + 4), (far, near(9))]);
    }

    /// Sides of the first version read up to the blocks and ignore the rest; their acknowledgements have no rest.
    #[test]
    fn reports_follow_what_the_first_version_reads_and_may_be_absent() {
        let plain = Ack {
            blocks: vec![BlockAck {
                stream: StreamId(1),
                block: BlockId(2),
                completed_micros: 3,
                recovered: false,
            }],
            ..Ack::default()
        };
        let reporting = Ack {
            reconfigurations: vec![REPORT, REPORT],
            segments: vec![SEGMENT],
            ..plain.clone()
        };
        let (short, long) = (encoded(&plain), encoded(&reporting));
        assert_eq!(short.len(), 9 + 1 + 1 + 13);
        assert!(long.starts_with(&short));
        assert_eq!(decode(short.clone()), Ok((HEADER, Body::Ack(plain))));
        assert_eq!(decode(long.clone()), Ok((HEADER, Body::Ack(reporting))));
        for end in short.len() + 1..long.len() {
            let refused = Err(ProtocolError::Malformed("report of reconfigurations"));
            assert_eq!(decode(long.slice(..end)), refused, "{end} bytes");
        }
        let grown = [&long[..], b"of a later version"].concat();
        assert_eq!(decode(grown.into()), decode(long));
    }

    #[test]
    fn an_acknowledgement_of_many_gaps_leaves_out_the_oldest_to_fit() {
        let path = |path: u32, step: u32| {
            let newest = |range| 1_000_000 - range * step;
            let ranges = (0..32).map(|range| (newest(range) - 300, newest(range)));
            PathAck {
                path,
                received_micros: 9,
                ranges: ranges.collect(),
            }
        };
        let whole = Ack {
            paths: (0..5).map(|id| path(id, 310 + 300 * (id % 2))).collect(),
            reconfigurations: vec![REPORT],
            segments: vec![SEGMENT; 2],
            ..Ack::default()
        };
        assert_eq!(whole.datagram_bytes(), encoded(&whole).len());
        assert!(whole.datagram_bytes() > 1200);
        let mut fitting = whole.clone();
        fitting.fit(1200);
        let bytes = encoded(&fitting);
        assert!((1100..=1200).contains(&bytes.len()), "{}", bytes.len());
        for (kept, all) in fitting.paths.iter().zip(&whole.paths) {
            assert!(all.ranges.starts_with(&kept.ranges));
        }
        assert_eq!(decode(bytes), Ok((HEADER, Body::Ack(fitting))));
    }

    fn paths() -> impl Strategy<Value = Vec<PathAck>> {
        // Newest first: each range lies below the one before it.
        let steps = vec((1..70_000_u32, 0..1000_u32), 1..33);
        let path = (any::<u32>(), any::<u32>(), steps);
        let path = path.prop_map(|(received_micros, newest, steps)| {
            let mut last = newest;
            let ranges = steps.into_iter().map(|(gap, length)| {
                let range = (last.wrapping_sub(length), last);
                last = range.0.wrapping_sub(gap);
                range
            });
            PathAck {
                path: 0,
                received_micros,
                ranges: ranges.collect(),
            }
        });
        vec(path, 0..MAX_ACK_PATHS).prop_map(|mut paths| {
            // Each path once.
            (0..)
                .zip(&mut paths)
                .for_each(|(number, path)| path.path = number);
            paths
        })
    }

    fn reports() -> impl Strategy<Value = (Vec<ReconfigurationReport>, Vec<SegmentReport>)> {
        let event = any::<(u32, u32, u32, u32, u8)>();
        let event = event.prop_map(|(path, number, age_micros, outage_micros, confidence)| {
            ReconfigurationReport {
                path,
                number,
                age_micros,
                outage_micros,
                confidence,
            }
        });
        let segment = any::<(u32, u32)>();
        let segment = segment.prop_map(|(path, rtt_micros)| SegmentReport { path, rtt_micros });
        (vec(event, 0..9), vec(segment, 0..MAX_ACK_PATHS))
    }

    proptest! {
        #[test]
        fn any_acknowledgement_is_read_as_it_was_written(
            paths in paths(),
            (reconfigurations, segments) in reports(),
        ) {
            let ack = Ack { paths, reconfigurations, segments, ..Ack::default() };
            let bytes = encoded(&ack);
            prop_assert_eq!(bytes.len(), ack.datagram_bytes());
            prop_assert_eq!(decode(bytes), Ok((HEADER, Body::Ack(ack))));
        }
    }
}
