//! What the stack says of packets, and what becomes of the datagrams in them.

use noq_proto::congestion::Controller as _;

use super::{stack::Stack, *};

/// A control with datagrams 1 (1000 bytes) and 2 (900 bytes) given to the stack.
fn given_two(now: Instant) -> PathControlHandle {
    let handle = PathControlHandle::new(ControllerConfig::NewReno, now, PacketBytes::LEAST);
    let mut control = handle.lock();
    control.give(now, 1, 1000, true);
    control.give(now, 2, 900, true);
    control.arm();
    drop(control);
    handle
}

fn fates(handle: &PathControlHandle) -> Vec<(u32, bool)> {
    let mut fates = Vec::new();
    handle.lock().take_fates(&mut fates);
    let fate = |fate: DatagramFate| match fate {
        DatagramFate::Acked { first, last, .. } => {
            (first..=last).map(|sequence| (sequence, true)).collect()
        }
        DatagramFate::Lost { sequence, .. } => vec![(sequence, false)],
    };
    fates.into_iter().flat_map(fate).collect()
}

/// What is acknowledged at once is one fate, also where the numbers wrap, and what is not is none.
#[test]
fn arrivals_of_one_time_are_told_as_ranges() {
    let now = Instant::now();
    let later = now + Duration::from_millis(1);
    let mut fates = Vec::new();
    for (at, sequence) in [
        (now, u32::MAX - 1),
        (now, u32::MAX),
        (now, 0),
        (now, 2),
        (later, 3),
        (later, 4),
    ] {
        push_acked(&mut fates, at, sequence);
    }
    fates.push(DatagramFate::Lost {
        at: later,
        sequence: 5,
    });
    push_acked(&mut fates, later, 6);
    let ranges = fates.iter().filter_map(|fate| match *fate {
        DatagramFate::Acked { at, first, last } => Some((at, first, last)),
        DatagramFate::Lost { .. } => None,
    });
    assert_eq!(
        ranges.collect::<Vec<_>>(),
        [
            (now, u32::MAX - 1, 0),
            (now, 2, 2),
            (later, 3, 4),
            (later, 6, 6)
        ]
    );
}

#[test]
fn packets_are_matched_to_the_datagrams_in_them() {
    let now = Instant::now();
    let handle = given_two(now);
    let mut stack = Stack::new(handle.clone());
    assert_eq!(handle.lock().bytes_committed(), 1900 + 2 * 38);
    // A small control packet goes first.
    for (number, size) in [(4, 60), (5, 1038), (6, 938)] {
        stack.on_packet_sent(now, size, number);
    }
    stack.on_sent(now, 2036, 6);
    handle.lock().settle(0);
    stack.on_packet_lost(1038, 5, now);
    handle.lock().acked(now, now, 938, 6);
    assert_eq!(fates(&handle), [(1, false), (2, true)]);
    assert_eq!(handle.lock().bytes_committed(), 60);
}

/// The stack does not report the arrival of packets that left before the peer's port changed.
#[test]
fn a_size_probe_under_way_when_the_port_changes_does_not_end_the_search() {
    let now = Instant::now();
    let bytes = PacketBytes {
        sure: 1200,
        most: 1472,
    };
    let handle = PathControlHandle::new(ControllerConfig::NewReno, now, bytes);
    let later = now + Duration::from_secs(1);
    {
        let mut control = handle.lock();
        assert!(control.packet_size.due(later).is_some());
        control.packet_size.on_given();
        control.packet_size.on_probe_sent(later, 1);
    }
    let _ = Stack::new(handle.clone()).clone_box();
    let after = later + Duration::from_secs(1);
    assert!(handle.lock().packet_size.due(after).is_some());
}

#[test]
fn no_fate_is_believed_when_packets_do_not_fit_the_datagrams() {
    let now = Instant::now();
    // Something as large as a datagram left, but the stack still has both.
    let handle = given_two(now);
    let mut stack = Stack::new(handle.clone());
    stack.on_packet_sent(now, 1200, 5);
    stack.on_sent(now, 1200, 5);
    handle.lock().settle(1900);
    assert_eq!(fates(&handle), [(2, false), (1, false)]);
    // Three large packets for two datagrams.
    let handle = given_two(now);
    let mut stack = Stack::new(handle.clone());
    (5..8).for_each(|number| stack.on_packet_sent(now, 1100, number));
    stack.on_sent(now, 3300, 7);
    handle.lock().settle(0);
    assert_eq!(fates(&handle), [(1, false), (2, false)]);
    // The stack dropped both.
    let handle = given_two(now);
    handle.lock().settle(0);
    assert_eq!(fates(&handle), [(1, false), (2, false)]);
}
