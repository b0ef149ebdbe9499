//! Tells key frames from inter frames by the NAL units in an RTP payload (RFC 6184 §5, RFC 7798 §4).

use super::{Codec, FrameKind};

/// The kind of frame to which the NAL units of this payload belong. An unreadable payload, for example an encrypted one, may be
/// misread; its frame is still sent whole.
pub(super) fn kind(codec: Codec, payload: &[u8]) -> FrameKind {
    match codec {
        Codec::None | Codec::Audio => FrameKind::Independent,
        Codec::H264 => h264(payload),
        Codec::H265 => h265(payload),
    }
}

fn h264(payload: &[u8]) -> FrameKind {
    let Some((first, rest)) = payload.split_first() else {
        return FrameKind::Independent;
    };
    match first & 0x1f {
        // STAP-A: units behind their lengths; STAP-B has a decoding order number before them.
        24 => aggregated(rest, h264_whole),
        25 => aggregated(rest.get(2..).unwrap_or_default(), h264_whole),
        // FU-A and FU-B: the unit's type is in the second byte of each fragment.
        28 | 29 => rest.first().map_or(FrameKind::Independent, |header| {
            h264_unit(header & 0x1f, &[])
        }),
        single => h264_unit(single, rest),
    }
}

/// A unit with its header.
fn h264_whole(unit: &[u8]) -> Option<FrameKind> {
    let (first, body) = unit.split_first()?;
    Some(h264_unit(first & 0x1f, body))
}

/// ITU-T H.264 table 7-1: 1 to 4 are slices that need others, 5 is an IDR slice, 6 is supplemental information.
fn h264_unit(unit_type: u8, body: &[u8]) -> FrameKind {
    match unit_type {
        1..=4 => FrameKind::Inter,
        5 => FrameKind::Key,
        6 => recovery_point(body),
        _ => FrameKind::Independent,
    }
}

fn h265(payload: &[u8]) -> FrameKind {
    let Some(([first, _], rest)) = payload.split_first_chunk::<2>() else {
        return FrameKind::Independent;
    };
    match h265_type(*first) {
        // Aggregation packet, without the decoding order numbers of sprop-max-don-diff > 0.
        48 => aggregated(rest, |unit| {
            let ([first, _], body) = unit.split_first_chunk::<2>()?;
            Some(h265_unit(h265_type(*first), body))
        }),
        49 => rest.first().map_or(FrameKind::Independent, |header| {
            h265_unit(header & 0x3f, &[])
        }),
        single => h265_unit(single, rest),
    }
}

fn h265_type(first: u8) -> u8 {
    first >> 1 & 0x3f
}

/// ITU-T H.265 table 7-1: 16 to 23 are random access points, the other slices are below 32; 39 is supplemental information.
fn h265_unit(unit_type: u8, body: &[u8]) -> FrameKind {
    match unit_type {
        16..=23 => FrameKind::Key,
        0..=31 => FrameKind::Inter,
        39 => recovery_point(body),
        _ => FrameKind::Independent,
    }
}

/// What supplemental information says of its frame (ITU-T H.264 §7.3.2.3.1 and §D.1.8, H.265 §7.3.5 and §D.2.8): from a recovery point on
/// pictures need none before. At once where its count of frames is 0, as at an I frame that is no IDR; else each frame renews a part of the
/// picture, as encoders with intra refresh do that never send another IDR.
fn recovery_point(body: &[u8]) -> FrameKind {
    const RECOVERY_POINT: usize = 6;
    let plain = without_prevention(body);
    let mut messages = plain.as_slice();
    while let Some((kind, rest)) = number(messages) {
        let Some((size, content)) = number(rest) else {
            break;
        };
        if kind == RECOVERY_POINT {
            // 0 is the Exp-Golomb code that begins with 1.
            return content.first().map_or(FrameKind::Independent, |first| {
                match first & 0x80 != 0 {
                    true => FrameKind::Key,
                    false => FrameKind::Refresh,
                }
            });
        }
        messages = content.get(size..).unwrap_or_default();
    }
    FrameKind::Independent
}

/// The body of a unit without the bytes of 3 that keep start codes out of it (H.264 §7.4.1.1, H.265 §7.4.2.2): the sizes of messages
/// do not count them.
fn without_prevention(body: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let mut plain = Vec::with_capacity(body.len());
    for &byte in body {
        let prevents = zeros >= 2 && byte == 3;
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        if !prevents {
            plain.push(byte);
        }
    }
    plain
}

/// A number that is the sum of bytes of 255 and a lesser one, and what is behind it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let full = bytes.iter().take_while(|byte| **byte == 0xff).count();
    let (last, behind) = bytes.get(full..)?.split_first()?;
    Some((full * 0xff + usize::from(*last), behind))
}

fn aggregated(mut units: &[u8], kind: impl Fn(&[u8]) -> Option<FrameKind>) -> FrameKind {
    let mut strongest = FrameKind::Independent;
    while let Some(([high, low], rest)) = units.split_first_chunk::<2>() {
        let Some((unit, behind)) =
            rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))
        else {
            break;
        };
        strongest = super::stronger(strongest, kind(unit).unwrap_or(FrameKind::Independent));
        units = behind;
    }
    strongest
}
