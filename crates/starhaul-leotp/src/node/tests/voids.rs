//! A packet is lost before a relay: its hop alone asks for it again, and those behind are told.

use super::*;

const LENGTH: u64 = 200_000;

#[test]
fn a_hole_at_a_relay_is_told_downstream_and_the_end_asks_for_nothing_again() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    let bytes = Bytes::from(vec![5; usize::try_from(LENGTH).unwrap()]);
    net.node(0).serve(C, &secret(), Box::new(bytes));
    net.route(1, 0);
    net.route(2, 1);
    let config = FetchConfig {
        length: Some(LENGTH),
        ..FetchConfig::new(C, secret())
    };
    let now = net.now;
    net.node(2).fetch(now, config);

    let is_in_the_middle = |from: u32, datagram: &[u8]| {
        from == 0 && range_of(datagram).is_some_and(|(start, _)| start > LENGTH / 2)
    };
    let (mut lost, mut interests) = (None, Vec::new());
    // What is told downstream, and when; and when the lost bytes follow.
    let (mut voids, mut follows) = (Vec::new(), None);
    let finished = (0..2000).find(|millis| {
        net.run(1);
        let mut sent = net.wire.iter();
        let index = sent.position(|(from, _, datagram)| is_in_the_middle(*from, datagram));
        if let Some(index) = index.filter(|_| lost.is_none()) {
            lost = range_of(&net.wire.remove(index).2);
        }
        for (from, _, datagram) in &net.wire {
            for frame in frames_of(datagram) {
                match frame {
                    Frame::Want { start, end, .. } if *from == 2 => interests.push((start, end)),
                    Frame::Void { start, end, .. } => voids.push((*from, start, end, *millis)),
                    _ => {}
                }
            }
            if *from == 1 && lost.is_some() && range_of(datagram) == lost {
                follows = Some(*millis);
            }
        }
        net.has_finished(2)
    });

    assert!(finished.is_some());
    let ((start, end), follows) = (lost.unwrap(), follows.unwrap());
    let [(1, void_start, void_end, told)] = voids[..] else {
        panic!("{voids:?}");
    };
    assert_eq!((void_start, void_end), (start, end));
    assert!(
        told < follows,
        "told after {told} ms, repaired after {follows}"
    );
    // Each byte was asked for once.
    interests.sort_unstable();
    let asked = interests.iter().fold(0, |next, (start, end)| {
        assert_eq!(*start, next, "{interests:?}");
        *end
    });
    assert_eq!(asked, LENGTH);
    let [server, relay, requester] = [0, 1, 2].map(|id| net.node(id).stats());
    assert_eq!((relay.reported_lost, server.repaired), (1, 1));
    assert_eq!((requester.reported_lost, requester.timeouts), (0, 0));
    assert_eq!(relay.interests, interests.len() as u64);
}
