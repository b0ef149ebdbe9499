use super::*;

const SIZES: Sizes = Sizes {
    rtt: Duration::ZERO,
    max_datagram: 1200,
    packet_room: 1250,
};

/// What leaves together of datagrams of these lengths, and whether the next one is too large.
fn run_of(lengths: &[usize], previous: Option<usize>) -> (usize, bool) {
    let datagrams = lengths.iter().map(|length| PathDatagram {
        payload: Bytes::from(vec![0; *length]),
        sequence: 0,
    });
    next_run(&datagrams.collect(), SIZES, previous)
}

#[test]
fn datagrams_leave_together_as_long_as_each_has_a_packet_of_its_own() {
    assert_eq!(run_of(&[], None), (0, false));
    assert_eq!(run_of(&[1200; 40], None), (40, false));
    // One behind which another would fit is the last.
    assert_eq!(run_of(&[1200, 600, 1200], None), (2, false));
    assert_eq!(run_of(&[100, 1200], None), (1, false));
    // One that would fit behind the one before waits.
    assert_eq!(run_of(&[1200, 1200, 50, 1200], None), (2, false));
    assert_eq!(run_of(&[560, 1200], Some(700)), (0, false));
    // What is too large ends the run, and is not sent.
    assert_eq!(run_of(&[1200, 1200, 1201, 1200], None), (2, true));
    assert_eq!(run_of(&[1300], Some(1200)), (0, true));
}
