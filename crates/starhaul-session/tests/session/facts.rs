//! What observers of a session hear: the whole life of a block, in order, and nothing that did not happen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use crate::pair::{Pair, ms};
use starhaul_session::{
    BlockId, BlockOptions, Fact, Mode, Observer, PathId, Purpose, SessionConfig, StreamConfig,
};

/// Facts as text, and what is counted of them.
#[derive(Debug, Default)]
struct Heard {
    lines: Vec<String>,
    sent: Vec<(PathId, u32, u8, u8)>,
    ended: BTreeMap<BlockId, u32>,
    lost: BTreeMap<BlockId, usize>,
    retransmitted: usize,
    retransmitted_before_lost: usize,
}

#[derive(Clone, Debug, Default)]
struct Listener(Arc<Mutex<Heard>>);

impl Observer for Listener {
    fn on_fact(&mut self, _now: Instant, fact: &Fact<'_>) {
        let mut heard = self.0.lock().unwrap();
        heard.lines.push(match fact {
            // Numbers of datagrams depend on how many probes left before.
            Fact::FragmentSent {
                block,
                fragment,
                purpose,
                ..
            } => format!("FragmentSent {block:?} {fragment:?} {purpose:?}"),
            fact => format!("{fact:?}"),
        });
        match fact {
            Fact::FragmentSent {
                block,
                fragment: (code, index),
                datagram,
                purpose,
                arrivals,
                ..
            } => {
                heard.sent.push((datagram.path, block.0, *code, *index));
                assert!(
                    arrivals.iter().any(|(path, _)| *path == datagram.path),
                    "the path that was chosen is one of those that were compared"
                );
                if *purpose == Purpose::Retransmission {
                    heard.retransmitted += 1;
                    let known = heard.lost.contains_key(block);
                    heard.retransmitted_before_lost += usize::from(!known);
                }
            }
            Fact::DatagramLost {
                block: Some(block), ..
            } => *heard.lost.entry(*block).or_default() += 1,
            Fact::BlockEnded { block, .. } => *heard.ended.entry(*block).or_default() += 1,
            _ => {}
        }
    }
}

fn observed(pair: &mut Pair) -> [Listener; 2] {
    let listeners = [Listener::default(), Listener::default()];
    for (session, listener) in pair.sessions.iter_mut().zip(&listeners) {
        session.observe(Box::new(listener.clone()));
    }
    listeners
}

#[test]
fn a_block_is_queued_coded_sent_received_and_ended() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 50, 0.0, 2.0, 1);
    pair.run_for(ms(1000));
    let [ours, theirs] = observed(&mut pair);
    let stream = pair.open(StreamConfig {
        mode: Mode::Retransmit,
        deadline: ms(400),
        ..StreamConfig::default()
    });
    pair.send(stream, 1500, BlockOptions::default());
    pair.run_for(ms(1000));
    pair.sessions[0].remove_path(pair.now, PathId(0));
    let of_blocks = |listener: &Listener| -> Vec<String> {
        let heard = listener.0.lock().unwrap();
        let lines = heard.lines.iter();
        let lines = lines.filter(|line| !line.starts_with("FrameSent"));
        lines.cloned().collect()
    };
    assert_eq!(
        of_blocks(&ours),
        [
            "StreamOpened { stream: StreamId(2), opener: Client, mode: Retransmit }",
            "BlockQueued { stream: StreamId(2), block: BlockId(0), bytes: 1500, deadline: 400ms, priority: 4 }",
            "BlockCoded { stream: StreamId(2), block: BlockId(0), data: 2, redundancy: 0, fragment_bytes: 750 }",
            "FragmentSent BlockId(0) (0, 0) Data",
            "FragmentSent BlockId(0) (0, 1) Data",
            "BlockEnded { stream: StreamId(2), block: BlockId(0), outcome: Delivered { latency: 51.505ms, on_time: true, \
             recovered_by_redundancy: false, recovered_by_retransmission: false } }",
            "PathDown { path: PathId(0) }",
        ]
    );
    assert_eq!(
        of_blocks(&theirs),
        [
            "StreamOpened { stream: StreamId(2), opener: Client, mode: Retransmit }",
            "BlockReceived { stream: StreamId(2), block: BlockId(0), bytes: 1500, latency: 51.493ms, is_recovered: false }",
        ]
    );
}

#[test]
fn over_lossy_paths_the_facts_are_what_happened() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.05, 0.0, 3);
    pair.lane(1, 4.0, 60, 0.02, 1.0, 4);
    pair.run_for(ms(1000));
    let [ours, theirs] = observed(&mut pair);
    let stream = pair.open(StreamConfig {
        deadline: ms(500),
        ..StreamConfig::default()
    });
    let before = pair.fragments(0).len();
    for _ in 0..200 {
        pair.send(stream, 12_000, BlockOptions::default());
        pair.run_for(ms(20));
    }
    pair.run_for(ms(2000));
    let ours = ours.0.lock().unwrap();
    let left = pair.fragments(0).split_off(before);
    let left: Vec<_> = left
        .iter()
        .map(|sent| (sent.path, sent.block, sent.code, sent.index))
        .collect();
    assert_eq!(ours.sent, left);
    assert_eq!(ours.ended.len(), 200);
    assert!(ours.ended.values().all(|count| *count == 1));
    assert!(ours.retransmitted > 0 && !ours.lost.is_empty());
    assert_eq!(ours.retransmitted_before_lost, 0);
    let received = |line: &&String| line.starts_with("BlockReceived");
    let theirs = theirs.0.lock().unwrap();
    let delivered = ours.lines.iter().filter(|line| line.contains("Delivered"));
    assert_eq!(
        theirs.lines.iter().filter(received).count(),
        delivered.count()
    );
}
