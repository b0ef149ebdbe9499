//! Every kind of segment is lost once, and then always: each session ends as RFC 5326 §8 specifies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::Duration;

use pair::{Kind, Pair, content, lose};
use starhaul_ltp::{CancelReason, End, Event, PeerConfig};

const LIGHT: Duration = Duration::from_secs(4);
const LENGTH: usize = 20_000;

fn pair() -> Pair {
    let mut config = PeerConfig::new(LIGHT, None);
    config.checkpoint_every = Some(5);
    config.retransmission_limit = 3;
    Pair::new(1, &config, "delay=4s", "delay=4s")
}

/// Runs one session with these losses of each side, and a cancellation by `end` at the first instant.
fn run(red: usize, lost: Option<(Kind, usize)>, cancelled_by: Option<End>) -> Pair {
    let mut pair = pair();
    if let Some((kind, count)) = lost {
        pair.sender().passes = lose(kind, count);
        pair.receiver().passes = lose(kind, count);
    }
    let session = pair.send(&content(LENGTH, 3), red);
    if let Some(end) = cancelled_by {
        let after = match end {
            End::Sender => Duration::from_secs(1),
            End::Receiver => Duration::from_millis(4100),
        };
        // The last segments stay behind, so that the block is not complete when it is cancelled.
        if end == End::Receiver {
            let mut drop_data = lose(Kind::Red, 2);
            let mut others = std::mem::replace(&mut pair.sender().passes, Box::new(|_| true));
            pair.sender().passes = Box::new(move |segment| drop_data(segment) && others(segment));
        }
        pair.sim.run_for(after);
        let now = pair.sim.now();
        let node = usize::from(end == End::Receiver);
        pair.sim.nodes[node].engine.cancel(now, session);
        pair.sim.nodes[node].drain(now);
    }
    pair.finish();
    pair
}

#[test]
fn a_red_or_mixed_block_survives_any_single_loss() {
    use Kind::*;
    for red in [LENGTH, 8000] {
        let clean = run(red, None, None).sim.elapsed();
        assert!(clean < LIGHT * 4, "{clean:?}");
        for kind in [Red, Checkpoint, RedEnd, Report, ReportAck] {
            let mut pair = run(red, Some((kind, 1)), None);
            let expected = content(LENGTH, 3).slice(..red);
            assert_eq!(pair.receiver().delivered(), [expected], "{kind:?} of {red}");
            let events = pair.sender().happened();
            assert!(
                matches!(events[..], [Event::Transmitted { .. }, Event::Sent { .. }]),
                "{events:?}"
            );
            // One more round trip repairs any of them, and the last report-ack takes another way.
            assert!(
                pair.sim.elapsed() < LIGHT * 8,
                "{kind:?}: {:?}",
                pair.sim.elapsed()
            );
        }
    }
}

/// Also one behind a checkpoint: its repair is reported from there on, within what was acknowledged before.
#[test]
fn a_block_survives_the_loss_of_any_of_its_segments() {
    for lost in 0..LENGTH.div_ceil(1360) {
        let mut pair = pair();
        let mut sent = 0;
        pair.sender().passes = Box::new(move |segment| {
            let is_data = matches!(
                Kind::of(segment),
                Kind::Red | Kind::Checkpoint | Kind::RedEnd
            );
            sent += usize::from(is_data);
            !is_data || sent != lost + 1
        });
        pair.send(&content(LENGTH, 3), LENGTH);
        pair.finish();
        assert_eq!(pair.receiver().delivered(), [content(LENGTH, 3)], "{lost}");
        let events = pair.sender().happened();
        let last = events.last();
        assert!(
            matches!(last, Some(Event::Sent { .. })),
            "{lost}: {events:?}"
        );
    }
}

#[test]
fn a_lost_green_segment_is_missed_and_no_session_hangs() {
    use Kind::*;
    for red in [0, 8000] {
        for kind in [Green, GreenEnd] {
            let mut pair = run(red, Some((kind, 1)), None);
            let green: usize = pair
                .receiver()
                .green()
                .iter()
                .map(|(_, data)| data.len())
                .sum();
            assert!(
                green < LENGTH - red && green >= LENGTH - red - 1360,
                "{green}"
            );
            assert!(matches!(
                pair.sender().happened().last(),
                Some(Event::Sent { .. })
            ));
            let events = pair.receiver().happened();
            assert!(
                !events
                    .iter()
                    .any(|e| matches!(e, Event::ReceiveCancelled { .. }))
            );
        }
    }
}

#[test]
fn a_cancellation_survives_any_single_loss() {
    use Kind::*;
    for kind in [CancelBySender, CancelAckToSender] {
        let mut pair = run(LENGTH, Some((kind, 1)), Some(End::Sender));
        let sender = pair.sender();
        assert!(matches!(
            sender.happened().last(),
            Some(Event::SendCancelled {
                by: End::Sender,
                reason: CancelReason::User,
                ..
            })
        ));
        assert_eq!(sender.count(CancelBySender), 2, "{kind:?}");
    }
    for kind in [CancelByReceiver, CancelAckToReceiver] {
        let mut pair = run(LENGTH, Some((kind, 1)), Some(End::Receiver));
        assert_eq!(pair.receiver().count(CancelByReceiver), 2, "{kind:?}");
        for (node, by) in [(0, End::Receiver), (1, End::Receiver)] {
            let events = pair.sim.nodes[node].happened();
            let ended = events.iter().any(|event| match event {
                Event::SendCancelled {
                    by: who, reason, ..
                }
                | Event::ReceiveCancelled {
                    by: who, reason, ..
                } => *who == by && *reason == CancelReason::User,
                _ => false,
            });
            assert!(ended, "{kind:?} {events:?}");
        }
        assert!(pair.receiver().delivered().is_empty());
    }
}

#[test]
fn what_is_always_lost_ends_at_the_retransmission_limit() {
    use Kind::*;
    let cancelled = |events: Vec<&Event>| {
        events.iter().find_map(|event| match event {
            Event::SendCancelled { by, reason, .. } => Some((*by, *reason)),
            _ => None,
        })
    };
    // Without the end of the red part or the reports the sender gives up (§6.7).
    for kind in [RedEnd, Report] {
        let mut pair = run(LENGTH, Some((kind, usize::MAX)), None);
        let reason = cancelled(pair.sender().happened());
        let by = reason.map(|(_, reason)| reason);
        assert_eq!(by, Some(CancelReason::RetransmissionLimit), "{kind:?}");
    }
    // The reports arrived: the sender is done, and the receiver gives up only its reports (§6.8).
    let mut pair = run(LENGTH, Some((ReportAck, usize::MAX)), None);
    assert_eq!(cancelled(pair.sender().happened()), None);
    assert_eq!(pair.receiver().delivered().len(), 1);
    assert!(pair.receiver().count(CancelByReceiver) > 0);
    // A lost cancellation is repeated up to the limit, then the session is closed (§6.16).
    for (kind, by) in [
        (CancelAckToSender, End::Sender),
        (CancelAckToReceiver, End::Receiver),
    ] {
        let mut pair = run(LENGTH, Some((kind, usize::MAX)), Some(by));
        let cancels = match by {
            End::Sender => pair.sender().count(CancelBySender),
            End::Receiver => pair.receiver().count(CancelByReceiver),
        };
        assert_eq!(cancels, 4, "{kind:?}");
    }
    // All cancels of the sender are lost: the receiver ends by itself.
    let mut pair = run(
        LENGTH,
        Some((CancelBySender, usize::MAX)),
        Some(End::Sender),
    );
    assert_eq!(pair.sender().count(CancelBySender), 4);
    assert!(matches!(
        pair.receiver().happened().last(),
        Some(Event::ReceiveCancelled { .. } | Event::RedPart { .. })
    ));
}

#[test]
fn a_peer_that_never_answers_costs_a_bounded_time() {
    let mut pair = pair();
    pair.receiver().passes = Box::new(|_| false);
    let session = pair.send(&content(LENGTH, 3), LENGTH);
    pair.finish();
    let expected = Event::SendCancelled {
        session,
        by: End::Sender,
        reason: CancelReason::RetransmissionLimit,
    };
    assert_eq!(pair.sender().happened().last(), Some(&&expected));
    // Four attempts for a checkpoint and four for the cancellation, each of a round trip and a growing margin.
    assert!(
        pair.sim.elapsed() < LIGHT * 2 * 10,
        "{:?}",
        pair.sim.elapsed()
    );
}

#[test]
fn nothing_of_a_session_cancelled_before_it_began_is_told() {
    let mut pair = pair();
    let session = pair.send(&content(LENGTH, 3), LENGTH);
    let now = pair.sim.now();
    pair.sender().engine.cancel(now, session);
    pair.finish();
    assert!(pair.sender().sent.is_empty() && pair.receiver().events.is_empty());
}
