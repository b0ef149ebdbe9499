//! Frames as an application sends them, and packets that no application should send.

use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_millis(50);

/// An RTP packet of one source; `x` adds two contributing sources and a header extension.
fn packet(marker: bool, timestamp: u32, x: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![
        if x { 0x92 } else { 0x80 },
        if marker { 0x80 | 96 } else { 96 },
        0,
        1,
    ];
    packet.extend(timestamp.to_be_bytes());
    packet.extend([1, 2, 3, 4]);
    if x {
        packet.extend([0xaa; 8]);
        packet.extend([0xbe, 0xde, 0, 1, 9, 9, 9, 9]);
    }
    packet.extend(payload);
    packet
}

fn drain(assembler: &mut Assembler) -> Vec<Frame> {
    std::iter::from_fn(|| assembler.poll_frame()).collect()
}

fn lengths(frames: &[Frame]) -> Vec<usize> {
    frames
        .iter()
        .map(|frame| packets(&frame.block).unwrap().len())
        .collect()
}

#[test]
fn one_timestamp_is_one_block_closed_by_marker_timestamp_or_time() {
    let now = Instant::now();
    let mut assembler = Assembler::new(Codec::None, TIMEOUT);
    for (marker, timestamp) in [
        (false, 1),
        (false, 1),
        (true, 1),
        (true, 2),
        (false, 3),
        (false, 3),
        (false, 4),
    ] {
        assembler.handle_packet(now, &packet(marker, timestamp, false, b"x"));
    }
    assert_eq!(lengths(&drain(&mut assembler)), [3, 1, 2]);
    assert_eq!(assembler.poll_timeout(), Some(now + TIMEOUT));
    assembler.handle_timeout(now + TIMEOUT - Duration::from_nanos(1));
    assert!(drain(&mut assembler).is_empty());
    assembler.handle_timeout(now + TIMEOUT);
    assert_eq!(lengths(&drain(&mut assembler)), [1]);
    assert_eq!(assembler.poll_timeout(), None);
}

#[test]
fn sources_do_not_mix_and_rtcp_passes_at_once() {
    let now = Instant::now();
    let mut assembler = Assembler::new(Codec::None, TIMEOUT);
    let mut other = packet(true, 1, false, b"other");
    other[11] = 9;
    let rtcp = [0x80, 200, 0, 1, 0, 0, 0, 0];
    assembler.handle_packet(now, &packet(false, 1, false, b"a"));
    assembler.handle_packet(now, &rtcp);
    assembler.handle_packet(now, &other);
    assembler.handle_packet(now, &packet(true, 1, false, b"b"));
    let frames = drain(&mut assembler);
    assert_eq!(lengths(&frames), [1, 1, 2]);
    assert_eq!(packets(&frames[0].block).unwrap(), [&rtcp[..]]);
    assert_eq!(packets(&frames[1].block).unwrap(), [&other[..]]);
}

#[test]
fn audio_does_not_wait_for_the_next_packet() {
    let mut assembler = Assembler::new(Codec::Audio, TIMEOUT);
    assembler.handle_packet(Instant::now(), &packet(false, 1, false, b"x"));
    assert_eq!(lengths(&drain(&mut assembler)), [1]);
}

#[test]
fn key_frames_are_told_from_inter_frames() {
    use Codec::{H264, H265};
    use FrameKind::{Independent, Inter, Key, Refresh};
    for (codec, payload, expected, what) in [
        (H264, &[0x65, 0][..], Key, "single IDR slice"),
        (H264, &[0x41, 0], Inter, "single slice"),
        (H264, &[0x67, 0], Independent, "parameter set"),
        (
            H264,
            &[0x7c, 0x85, 0],
            Key,
            "FU-A, first fragment of an IDR slice",
        ),
        (
            H264,
            &[0x7c, 0x05, 0],
            Key,
            "FU-A, middle fragment of an IDR slice",
        ),
        (H264, &[0x5c, 0x81, 0], Inter, "FU-A of a slice"),
        (
            H264,
            &[0x78, 0, 2, 0x67, 0, 0, 2, 0x68, 0, 0, 2, 0x65, 0],
            Key,
            "STAP-A with parameter sets and an IDR slice",
        ),
        (
            H264,
            &[0x78, 0, 2, 0x67, 0, 0, 2, 0x41, 0],
            Inter,
            "STAP-A with a slice",
        ),
        (H264, &[0x78, 0, 9, 0x65], Independent, "STAP-A cut short"),
        (H264, &[0x7c], Independent, "FU-A cut short"),
        (H264, &[], Independent, "nothing"),
        (H264, &[6, 6, 1, 0xc4, 0x80], Key, "SEI, recovery at once"),
        (
            H264,
            &[6, 5, 2, 6, 1, 6, 1, 0x24, 0x80],
            Refresh,
            "SEI, another message before a recovery after some frames",
        ),
        (
            H264,
            &[0x78, 0, 5, 6, 6, 1, 0x24, 0x80, 0, 2, 0x41, 0],
            Refresh,
            "STAP-A with such SEI and a slice",
        ),
        (
            H264,
            &[0x78, 0, 5, 6, 6, 1, 0x24, 0x80, 0, 2, 0x65, 0],
            Key,
            "STAP-A with such SEI and an IDR slice",
        ),
        (
            H264,
            &[6, 5, 4, 0, 0, 3, 1, 7, 6, 1, 0x80],
            Key,
            "SEI, recovery behind a message whose zeros an escape follows",
        ),
        (
            H264,
            &[6, 5, 4, 0, 0, 3, 1, 6, 1, 4, 9, 9, 9, 9, 0x80],
            Independent,
            "SEI, such a message and one that is no recovery",
        ),
        (H264, &[6, 255, 6, 1, 0x80], Independent, "SEI of type 261"),
        (H264, &[6, 5, 9, 6, 1, 0x80], Independent, "SEI cut short"),
        (H264, &[6, 6, 1], Independent, "SEI without content"),
        (H264, &[6, 255], Independent, "SEI with half a type"),
        (H265, &[19 << 1, 1, 0], Key, "single IDR_W_RADL"),
        (H265, &[21 << 1, 1, 0], Key, "single CRA"),
        (H265, &[1 << 1, 1, 0], Inter, "single TRAIL_R"),
        (H265, &[32 << 1, 1, 0], Independent, "video parameter set"),
        (
            H265,
            &[39 << 1, 1, 6, 1, 0x80],
            Key,
            "SEI, recovery at once",
        ),
        (
            H265,
            &[48 << 1, 1, 0, 5, 39 << 1, 1, 6, 1, 0x24, 0, 3, 1 << 1, 1, 0],
            Refresh,
            "AP with SEI of a later recovery and a slice",
        ),
        (H265, &[49 << 1, 1, 0x80 | 20, 0], Key, "FU of an IDR_N_LP"),
        (H265, &[49 << 1, 1, 1, 0], Inter, "FU of a TRAIL_R"),
        (
            H265,
            &[48 << 1, 1, 0, 3, 33 << 1, 1, 0, 0, 3, 19 << 1, 1, 0],
            Key,
            "AP with parameter set and IDR",
        ),
        (H265, &[19 << 1], Independent, "half a header"),
        (Codec::None, &[0x65], Independent, "not to be looked at"),
    ] {
        for x in [false, true] {
            let mut assembler = Assembler::new(codec, TIMEOUT);
            assembler.handle_packet(Instant::now(), &packet(true, 1, x, payload));
            assert_eq!(
                assembler.poll_frame().map(|frame| frame.kind),
                Some(expected),
                "{what}"
            );
        }
    }
}

fn needs(block: Option<usize>) -> Needs<usize> {
    block.map_or(Needs::Nothing, Needs::Block)
}

#[test]
fn what_needs_a_refused_key_frame_is_not_sent_until_the_next_key_frame() {
    let now = Instant::now();
    let mut assembler = Assembler::new(Codec::H264, TIMEOUT);
    let (idr, slice) = (&[0x65, 0][..], &[0x41, 0][..]);
    for (timestamp, payload) in [(1, idr), (1, idr), (2, slice), (3, idr), (4, slice)] {
        assembler.handle_packet(now, &packet(true, timestamp, false, payload));
    }
    let mut keys = KeyFrames::new();
    let mut needed = Vec::new();
    for (block, frame) in drain(&mut assembler).into_iter().enumerate() {
        needed.push(keys.needed_by(&frame));
        match block {
            0 => keys.not_sent(&frame),
            _ if needed[block] != Needs::Missing => keys.sent(&frame, block),
            _ => {}
        }
    }
    let expected = [
        Needs::Nothing,
        Needs::Missing,
        Needs::Missing,
        Needs::Nothing,
        Needs::Block(3),
    ];
    assert_eq!(needed, expected);
}

#[test]
fn an_inter_frame_needs_the_last_key_frame_of_its_source() {
    let now = Instant::now();
    let mut assembler = Assembler::new(Codec::H264, TIMEOUT);
    let mut keys = KeyFrames::new();
    let mut needed = Vec::new();
    let (idr, slice) = (&[0x65, 0][..], &[0x41, 0][..]);
    for (timestamp, payload) in [
        (0, slice),
        (1, idr),
        (2, slice),
        (3, slice),
        (4, idr),
        (5, slice),
    ] {
        assembler.handle_packet(now, &packet(true, timestamp, false, payload));
    }
    // A stray packet of the last key frame after its marker, and another source that has no key frame.
    assembler.handle_packet(now, &packet(true, 4, false, idr));
    let mut other = packet(true, 7, false, slice);
    other[8] = 99;
    assembler.handle_packet(now, &other);
    for (block, frame) in drain(&mut assembler).into_iter().enumerate() {
        needed.push(keys.needed_by(&frame));
        keys.sent(&frame, block);
    }
    assert_eq!(
        needed,
        [None, None, Some(1), Some(1), None, Some(4), Some(4), None].map(needs)
    );
}

/// A frame of one source.
fn frame(kind: FrameKind, timestamp: u32) -> Frame {
    Frame {
        block: Bytes::new(),
        kind,
        source: Some((1, timestamp)),
    }
}

/// An encoder with intra refresh sends one IDR in hours, as does one that waits to be asked for another.
#[test]
fn video_whose_only_key_frame_was_lost_goes_on_and_does_not_end_when_timestamps_begin_anew() {
    const TENTH: u32 = 9_000;
    const TENTHS_OF_14_HOURS: u32 = 14 * 36_000;
    let start = u32::MAX - 7 * TENTH;
    for (refresh, useless) in [(None, 19), (Some(5), 4)] {
        let mut keys = KeyFrames::<usize>::new();
        keys.not_sent(&frame(FrameKind::Key, start));
        let needs = (1..TENTHS_OF_14_HOURS).map(|number| {
            let kind = match refresh == Some(number) {
                true => FrameKind::Refresh,
                false => FrameKind::Inter,
            };
            let timestamp = start.wrapping_add(number.wrapping_mul(TENTH));
            keys.needed_by(&frame(kind, timestamp))
        });
        let not_sent = needs.filter(|needs| *needs == Needs::Missing).count();
        assert_eq!(not_sent, useless, "refresh: {refresh:?}");
    }
}

#[test]
fn frames_need_their_key_frame_for_as_long_as_key_frames_are_apart() {
    const SECOND: u32 = 90_000;
    for (apart, needed_for) in [(1, 2), (4, 4), (60, 10)] {
        let mut keys = KeyFrames::new();
        for (number, block) in [(0, 1), (apart, 2)] {
            keys.sent(&frame(FrameKind::Key, number * SECOND), block);
        }
        let last = apart * SECOND;
        let mut needs = |timestamp| keys.needed_by(&frame(FrameKind::Inter, timestamp));
        // One that is shown before it.
        assert_eq!(needs(last - 1), Needs::Block(2), "{apart} s");
        let end = last + needed_for * SECOND;
        assert_eq!(needs(end - 1), Needs::Block(2), "{apart} s");
        assert_eq!(needs(end), Needs::Nothing, "{apart} s");
    }
}

#[test]
fn a_flood_of_sources_or_an_endless_frame_does_not_grow_without_bound() {
    let now = Instant::now();
    let mut assembler = Assembler::new(Codec::None, TIMEOUT);
    for source in 0..100 {
        let mut one = packet(false, 1, false, b"x");
        one[11] = source;
        assembler.handle_packet(now, &one);
    }
    assert_eq!(drain(&mut assembler).len(), 100 - MAX_SOURCES);
    let big = packet(false, 5, false, &[7; 60_000]);
    for _ in 0..100 {
        assembler.handle_packet(now, &big);
    }
    let frames = drain(&mut assembler);
    assert!(
        frames
            .iter()
            .any(|frame| frame.block.len() > MAX_FRAME_BYTES / 2)
    );
    assert!(
        frames
            .iter()
            .all(|frame| frame.block.len() <= MAX_FRAME_BYTES)
    );
}

/// With one packet each 40 ms it would have hours to become large, as would those of all sources of all clients.
#[test]
fn a_frame_that_goes_on_and_on_is_sent_in_parts_of_a_second() {
    let start = Instant::now();
    let mut assembler = Assembler::new(Codec::None, TIMEOUT);
    for number in 0..100 {
        let now = start + number * Duration::from_millis(40);
        assembler.handle_timeout(now);
        assembler.handle_packet(now, &packet(false, 1, false, b"x"));
    }
    assert_eq!(lengths(&drain(&mut assembler)), [25, 25, 25]);
}

#[test]
fn a_block_that_lies_about_lengths_is_refused() {
    for block in [&[0][..], &[0, 2, 1], &[0, 1, 7, 0]] {
        assert_eq!(
            packets(&Bytes::copy_from_slice(block)),
            Err(FrameError),
            "{block:?}"
        );
    }
}

proptest! {
    /// Whatever an application sends comes out again: every packet once, byte for byte, in order per frame.
    #[test]
    fn every_packet_leaves_in_exactly_one_block(
        inputs in prop::collection::vec((any::<bool>(), 0u32..3, any::<bool>(), prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..60),
    ) {
        let now = Instant::now();
        let mut assembler = Assembler::new(Codec::H264, TIMEOUT);
        let mut sent = Vec::new();
        for (marker, timestamp, x, payload, garbage) in inputs {
            let packet = if garbage { payload } else { packet(marker, timestamp, x, &payload) };
            assembler.handle_packet(now, &packet);
            sent.push(packet);
        }
        assembler.handle_timeout(now + TIMEOUT);
        let mut received: Vec<Vec<u8>> = Vec::new();
        for frame in drain(&mut assembler) {
            received.extend(packets(&frame.block).unwrap().iter().map(|packet| packet.to_vec()));
        }
        sent.sort();
        received.sort();
        prop_assert_eq!(sent, received);
    }

    /// Whatever a peer sends is read or refused, and what is read accounts for every byte.
    #[test]
    fn any_block_is_read_or_refused(block in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(packets) = packets(&Bytes::from(block.clone())) {
            let total: usize = packets.iter().map(|packet| packet.len() + 2).sum();
            prop_assert_eq!(total, block.len());
        }
    }
}
