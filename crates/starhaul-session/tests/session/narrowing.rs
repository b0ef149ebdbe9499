//! Paths that carry only smaller datagrams while a large block is on its way: it is cut anew, and arrives as it was sent.

use std::time::Duration;

use crate::pair::{Pair, is_on_time, ms, pattern};
use starhaul_session::{
    BlockId, BlockOptions, Mode, PathId, SessionConfig, StreamConfig, StreamId,
};

const BLOCK_BYTES: usize = 300_000;

fn reliable_enough(pair: &mut Pair, mode: Mode) -> StreamId {
    pair.open(StreamConfig {
        mode,
        deadline: Duration::from_secs(10),
        max_coding_rate: 0.5,
        ..StreamConfig::default()
    })
}

fn set_max_datagram(pair: &mut Pair, max_datagram: usize) {
    for lane in pair.lanes.values_mut() {
        lane.max_datagram = max_datagram;
    }
}

/// Runs until so many fragments of the code have left.
fn run_until_sent(pair: &mut Pair, code: u8, count: usize) {
    let sent = |pair: &Pair| {
        let fragments = pair.fragments(0);
        fragments.iter().filter(|sent| sent.code == code).count()
    };
    while sent(pair) < count {
        pair.run_for(Duration::from_micros(500));
        assert!(pair.elapsed() < Duration::from_secs(5), "nothing is sent");
    }
}

fn assert_delivered(pair: &Pair, stream: StreamId, block: BlockId, context: &str) {
    let received = pair.received(1);
    let whole = pattern(stream.0 as usize, BLOCK_BYTES);
    assert!(
        received.iter().all(|(_, _, _, data, _)| *data == whole),
        "{context}: {:?} bytes are not what was sent",
        received
            .iter()
            .map(|block| block.3.len())
            .collect::<Vec<_>>()
    );
    let outcome = pair.outcome(stream, block);
    assert!(outcome.is_some_and(is_on_time), "{context}: {outcome:?}");
    assert_eq!(received.len(), 1, "{context}");
}

#[test]
fn a_block_of_several_codes_is_cut_anew_wherever_it_was() {
    // 107 fragments are the first code, 108 the second.
    for (code, count) in [(0, 50), (0, 107), (1, 1), (1, 20), (1, 107)] {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 5.0, 20, 0.0, 0.0, 1);
        set_max_datagram(&mut pair, 1428);
        pair.run_for(ms(300));
        let stream = reliable_enough(&mut pair, Mode::Retransmit);
        let block = pair.send(stream, BLOCK_BYTES, BlockOptions::default());
        run_until_sent(&mut pair, code, count);
        set_max_datagram(&mut pair, 1162);
        pair.run_for(Duration::from_secs(5));
        let context = format!("cut anew after {count} fragments of code {code}");
        assert_delivered(&pair, stream, block, &context);
    }
}

/// Of the new cut a later code comes first where the slower path carries the earlier one.
#[test]
fn codes_of_two_cuts_are_never_put_together() {
    for seed in 0..40 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 5.0, 20, 0.02, 0.0, seed);
        pair.lane(1, 5.0, 60 + 5 * seed, 0.02, 0.0, seed);
        set_max_datagram(&mut pair, 1428);
        pair.run_for(ms(600));
        let mode = match seed % 2 {
            0 => Mode::Retransmit,
            _ => Mode::FecRetransmit,
        };
        let stream = reliable_enough(&mut pair, mode);
        let block = pair.send(stream, BLOCK_BYTES, BlockOptions::default());
        let code = u8::try_from(seed / 2 % 2).unwrap();
        run_until_sent(&mut pair, code, 7 + 5 * usize::try_from(seed % 20).unwrap());
        let narrow = [1162, 1394, 900, 1409][usize::try_from(seed % 4).unwrap()];
        set_max_datagram(&mut pair, narrow);
        // While only the slow path carries anything, the new cut begins there.
        pair.lanes.get_mut(&PathId(0)).unwrap().up = seed % 3 == 0;
        pair.run_for(ms(100));
        pair.lanes.get_mut(&PathId(0)).unwrap().up = true;
        pair.run_for(Duration::from_secs(6));
        assert_delivered(&pair, stream, block, &format!("seed {seed}"));
    }
}
