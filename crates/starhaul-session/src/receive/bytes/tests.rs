use proptest::prelude::*;

use super::*;

const STREAM: StreamId = StreamId(2);

proptest! {
    #[test]
    fn frames_in_any_order_and_overlap_give_the_bytes_in_order(
        length in 1usize..10_000,
        // Where a frame begins, its length, and how much is read after it, if there is so much.
        steps in proptest::collection::vec((0usize..10_000, 1usize..3_000, 0usize..3_000), 0..40),
        seed in any::<u8>(),
    ) {
        let data: Vec<u8> = (0..length).map(|at| (at ^ (at >> 8) ^ usize::from(seed)).to_le_bytes()[0]).collect();
        let data = Bytes::from(data);
        let mut stream = ReceiveBytes::new();
        let (mut has_come, mut read) = (vec![false; length], Vec::new());
        for (start, size, most) in steps {
            let start = start.min(length);
            let end = (start + size).min(length);
            stream.insert(STREAM, start as u64, end == length, data.slice(start..end)).unwrap();
            has_come[start..end].fill(true);
            let can_read = has_come[read.len()..].iter().take_while(|come| **come).count();
            let until = read.len() + can_read.min(most);
            while read.len() < until {
                let bytes = stream.read(until - read.len()).unwrap_or_default();
                prop_assert!(!bytes.is_empty(), "at {} of {until}", read.len());
                read.extend_from_slice(&bytes);
            }
            let next_has_come = has_come.get(read.len()).copied();
            prop_assert_eq!(stream.can_read(), next_has_come.unwrap_or(true));
        }
        stream.insert(STREAM, 0, true, data.clone()).unwrap();
        while let Some(bytes) = stream.read(7) {
            if bytes.is_empty() { break; }
            read.extend_from_slice(&bytes);
        }
        prop_assert_eq!(read, data);
        prop_assert!(stream.is_done);
        prop_assert_eq!(stream.held_bytes(), 0);
    }
}

const ALONE: Share = Share {
    all: 32 << 20,
    free: 32 << 20,
    streams: 1,
    demand: 0,
};

const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Lets the application read `bytes` at `now`.
fn read(stream: &mut ReceiveBytes, now: Instant, bytes: u64) {
    stream.read += bytes;
    stream.measure_at(stream.read, (now, ROUND_TRIP, 16 << 20));
}

#[test]
fn the_window_follows_what_is_read_in_a_round_trip() {
    let now = Instant::now();
    let mut stream = ReceiveBytes::new();
    stream.open_window(ALONE);
    assert_eq!(stream.next_credit(0, ALONE), Some(1 << 20));
    read(&mut stream, now, 1);
    read(&mut stream, now + Duration::from_millis(50), 400 << 10);
    assert_eq!(stream.window, 1 << 20);
    read(&mut stream, now + Duration::from_millis(60), 1 << 20);
    assert_eq!(stream.window, (2 << 20) + (800 << 10));
    // The same in ten times as long asks for a tenth, which counts only when memory is short.
    read(&mut stream, now + Duration::from_millis(101), 0);
    read(&mut stream, now + Duration::from_millis(1101), 400 << 10);
    assert_eq!(
        (stream.wanted, stream.window),
        (Some(81_920), (2 << 20) + (800 << 10))
    );
    let short = Share {
        free: 15 << 20,
        ..ALONE
    };
    stream.next_credit(0, short);
    assert_eq!(stream.window, 81_920);
}

#[test]
fn the_window_grows_behind_a_lost_byte_and_not_before_a_reader_that_stands_still() {
    let large = || Bytes::from(vec![0; 60 << 10]);
    let mut behind_a_loss = ReceiveBytes::new();
    behind_a_loss.insert(STREAM, 1, false, large()).unwrap();
    assert!(behind_a_loss.widen(1 << 20));
    assert_eq!(
        behind_a_loss.next_credit(0, ALONE),
        Some(2 * INITIAL_CREDIT)
    );
    assert!(!behind_a_loss.widen(1 << 20), "the sender has not used it");
    let mut unread = ReceiveBytes::new();
    unread.insert(STREAM, 0, false, large()).unwrap();
    assert!(!unread.widen(1 << 20));
}

#[test]
fn many_that_are_granted_all_they_ask_for_leave_memory_to_the_next() {
    let mut granted = 0;
    for streams in 1..=200 {
        let mut stream = ReceiveBytes::new();
        let share = Share {
            free: ALONE.all - granted,
            streams,
            ..ALONE
        };
        stream.open_window(share);
        granted += stream.next_credit(0, share).unwrap_or(INITIAL_CREDIT);
    }
    assert!(granted < ALONE.all * 7 / 8, "{granted}");
}

#[test]
fn a_crowd_leaves_memory_to_who_reads_more_than_it() {
    let now = Instant::now();
    let mut granted = 0;
    for _ in 0..200 {
        let mut stream = ReceiveBytes::new();
        read(&mut stream, now, 1);
        read(&mut stream, now, 1 << 20);
        let share = Share {
            free: ALONE.all.saturating_sub(granted),
            streams: 200,
            demand: 400 << 20,
            ..ALONE
        };
        let before = stream.granted();
        let demand = stream.demand(now, Duration::from_millis(100));
        stream.next_credit(demand, share);
        granted += stream.granted().max(before);
    }
    let left = Share {
        free: ALONE.all.saturating_sub(granted),
        streams: 201,
        ..ALONE
    };
    let mut leader = ReceiveBytes::new();
    read(&mut leader, now, 1);
    read(&mut leader, now, 4 << 20);
    let demand = leader.demand(now, Duration::from_millis(100));
    leader.next_credit(demand, left);
    assert!(
        leader.granted() > 2 << 20,
        "{granted} leave {}",
        leader.granted()
    );
    assert_eq!(
        leader.demand(now + Duration::from_secs(1), Duration::from_millis(100)),
        0
    );
}

#[test]
fn a_sender_beyond_its_credit_or_its_end_is_refused() {
    let mut stream = ReceiveBytes::new();
    let byte = || Bytes::from_static(b"x");
    assert_eq!(
        stream.insert(STREAM, INITIAL_CREDIT, false, byte()),
        Err(ProtocolError::Limit("stream credit"))
    );
    assert_eq!(stream.insert(STREAM, 4, true, byte()), Ok(false));
    assert!(stream.insert(STREAM, 5, false, byte()).is_err());
    assert!(stream.insert(STREAM, 1, true, byte()).is_err());
    assert_eq!(
        stream.insert(STREAM, 0, false, Bytes::from_static(b"abcd")),
        Ok(true)
    );
}

/// A byte of the stream, which tells its place.
fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)).to_le_bytes()[0]
}

/// All that the sender was granted arrives, in frames of a datagram each.
fn fill(stream: &mut ReceiveBytes) {
    while stream.highest + 1_000 <= stream.credit {
        let offset = stream.highest;
        let payload = (offset..offset + 1_000).map(byte_at).collect();
        stream.insert(STREAM, offset, false, payload).unwrap();
    }
}

/// Reads up to `most` bytes, which are right, grants as many more, and gives their memory back.
fn read_and_recycle(stream: &mut ReceiveBytes, now: Instant, most: usize) {
    let mut spare = Vec::new();
    let mut left = most;
    while let Some(chunk) = stream.read_measured(left, (now, ROUND_TRIP, 1 << 20)) {
        let from = stream.read - chunk.len() as u64;
        assert!(chunk.iter().copied().eq((from..stream.read).map(byte_at)));
        left -= chunk.len();
        spare.extend(SparePage::of(chunk));
        if stream.is_done {
            break;
        }
    }
    stream.next_credit(0, ALONE);
    stream.recycle(&mut spare);
}

#[test]
fn what_a_stream_holds_stays_within_what_was_granted_and_falls_to_nothing() {
    let now = Instant::now();
    let mut stream = ReceiveBytes::new();
    stream.open_window(ALONE);
    stream.next_credit(0, ALONE);
    fill(&mut stream);
    assert_eq!(stream.waiting.page_size(), PageSize::Small, "none was read");
    let most = |stream: &ReceiveBytes| {
        let bytes = usize::try_from(stream.granted()).unwrap() + 2 * SparePage::BYTES;
        bytes * 8 / 7
    };
    // A reader that is slower than its sender, and whose chunks are parts of pages.
    for _ in 0..200 {
        read_and_recycle(&mut stream, now, 10_000);
        fill(&mut stream);
        let held = stream.held_bytes();
        assert!(held <= most(&stream), "{held} at {}", stream.read);
    }
    assert_eq!(stream.waiting.page_size(), PageSize::Large);
    // One that takes all has spare pages afterwards, and from then on.
    for _ in 0..8 {
        read_and_recycle(&mut stream, now, usize::MAX);
        let held = stream.held_bytes();
        assert!(held > 0 && held <= most(&stream), "{held}");
        fill(&mut stream);
    }
    read_and_recycle(&mut stream, now, usize::MAX);
    stream.release_memory();
    assert_eq!(stream.held_bytes(), 0);
    fill(&mut stream);
    read_and_recycle(&mut stream, now, usize::MAX);
    assert!(stream.held_bytes() > 0);
    // Nothing is kept for bytes that will not come.
    let end = stream.highest;
    stream.insert(STREAM, end, true, Bytes::new()).unwrap();
    assert_eq!(stream.held_bytes(), 0);
    read_and_recycle(&mut stream, now, usize::MAX);
    assert!(stream.is_done);
    let mut spare = vec![SparePage::of(Bytes::from(vec![0; SparePage::BYTES])).unwrap()];
    stream.recycle(&mut spare);
    assert_eq!((stream.held_bytes(), spare.len()), (0, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Chunks are as large as pages are. One stream is read as if all pages were small.
    #[test]
    fn what_is_granted_depends_on_no_size_of_pages(
        steps in proptest::collection::vec((0u8..7, 1u64..60_000, 0u64..40), 1..150),
    ) {
        let mut now = Instant::now();
        let mut streams = [ReceiveBytes::new(), ReceiveBytes::new()];
        for stream in &mut streams {
            stream.open_window(ALONE);
            stream.next_credit(0, ALONE);
        }
        let (mut sent, mut lost) = (0, None);
        for (step, bytes, wait) in steps {
            now += Duration::from_millis(wait);
            let room = streams[0].credit - sent;
            let (offset, length) = match (step, lost) {
                (0..=2, _) => (sent, bytes.min(room)),
                (3, None) if room > 100 => {
                    lost = Some(sent);
                    (sent + 100, bytes.min(room - 100))
                }
                (4, Some(from)) => {
                    lost = None;
                    (from, 100)
                }
                _ => (sent, 0),
            };
            sent = sent.max(offset + length);
            for (stream, in_steps) in streams.iter_mut().zip([true, false]) {
                let payload = Bytes::from(vec![0; usize::try_from(length).unwrap()]);
                stream.insert(STREAM, offset, false, payload).unwrap();
                stream.widen(16 << 20);
                if step < 5 {
                    continue;
                }
                let mut left = usize::try_from(bytes).unwrap() * 8;
                while left > 0 {
                    let most = if in_steps { left.min(stream.step_left()) } else { left };
                    let Some(chunk) = stream.read_measured(most, (now, ROUND_TRIP, 16 << 20)) else {
                        break;
                    };
                    left -= chunk.len();
                }
                if stream.wants_credit() {
                    let demand = stream.demand(now, ROUND_TRIP);
                    stream.next_credit(demand, ALONE);
                }
            }
            let [stepwise, whole] = streams.each_ref().map(|stream| {
                (stream.read, stream.window, stream.credit, stream.round, stream.wanted, stream.widened_at)
            });
            prop_assert_eq!(stepwise, whole);
        }
    }
}
