//! Every segment and every two of a session are lost, every kind once, and then always: each session ends as RFC 5326 §8 specifies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

use pair::{Filter, Kind, LtpNode, Pair, content, lose};
use starhaul_ltp::{Body, CancelReason, Coding, End, Event, PeerConfig};
use starhaul_units::Bandwidth;

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

/// A block, and whether its red part is coded.
#[derive(Clone, Copy, Debug)]
struct Shape {
    length: usize,
    red: usize,
    is_coded: bool,
}

impl Shape {
    const fn new(length: usize, red: usize, is_coded: bool) -> Self {
        Self {
            length,
            red,
            is_coded,
        }
    }
}

/// Of several segments: red, mixed and green, and the first two coded.
const LONG: [Shape; 5] = [
    Shape::new(LENGTH, LENGTH, false),
    Shape::new(LENGTH, 8000, false),
    Shape::new(LENGTH, 0, false),
    Shape::new(LENGTH, LENGTH, true),
    Shape::new(LENGTH, 8000, true),
];
/// One that is its own checkpoint.
const SHORT: Shape = Shape::new(1000, 1000, false);

/// Kind, and bytes of data, of each segment that was lost.
type Losses = Rc<RefCell<Vec<(Kind, usize)>>>;

/// Loses the segments for which `is_lost` is true of their number and kind, and notes them.
fn losing(is_lost: impl Fn(usize, Kind) -> bool + 'static, losses: Losses) -> Filter {
    let mut number = 0;
    Box::new(move |segment| {
        let kind = Kind::of(segment);
        let bytes = match segment.body {
            Body::Data(data) => data.payload.len(),
            _ => 0,
        };
        let passes = !is_lost(number, kind);
        number += 1;
        if !passes {
            losses.borrow_mut().push((kind, bytes));
        }
        passes
    })
}

/// Who cancelled a session at this end, and why.
fn cancellations(node: &LtpNode) -> Vec<(End, CancelReason)> {
    let events = node.events.iter().filter_map(|(_, event)| match event {
        Event::SendCancelled { by, reason, .. } | Event::ReceiveCancelled { by, reason, .. } => {
            Some((*by, *reason))
        }
        _ => None,
    });
    events.collect()
}

/// A session that has ended.
struct Session {
    shape: Shape,
    pair: Pair,
    lost: Vec<(Kind, usize)>,
    /// How long an end waits for the other before it gives up.
    patience: Duration,
}

impl Session {
    /// Loses the segments for which `is_lost` is true of the number of their node, their own and their kind. All data leave at once; of
    /// a session that is cancelled, in some five seconds.
    fn run(
        shape: Shape,
        cancelled: Option<(End, Duration)>,
        is_lost: impl Fn(usize, usize, Kind) -> bool + Clone + 'static,
    ) -> Self {
        let rate = cancelled.map(|_| Bandwidth::from_kbit(32));
        let mut config = PeerConfig::new(LIGHT, rate);
        config.checkpoint_every = Some(5);
        config.retransmission_limit = 3;
        config.coding = shape.is_coded.then(|| Coding::new(0.05));
        let mut pair = Pair::new(1, &config, "delay=4s", "delay=4s");
        let losses = Losses::default();
        for (index, node) in pair.sim.nodes.iter_mut().enumerate() {
            let is_lost = is_lost.clone();
            let is_lost = move |number, kind| is_lost(index, number, kind);
            node.passes = losing(is_lost, losses.clone());
        }
        let session = pair.send(&content(shape.length, 3), shape.red);
        if let Some((end, after)) = cancelled {
            pair.sim.run_for(after);
            let now = pair.sim.now();
            let node = &mut pair.sim.nodes[usize::from(end == End::Receiver)];
            node.engine.cancel(now, session);
            node.drain(now);
        }
        pair.finish();
        let lost = losses.take();
        Self {
            shape,
            pair,
            lost,
            patience: config.longest_silence(),
        }
    }

    fn sender(&self) -> &LtpNode {
        &self.pair.sim.nodes[0]
    }

    fn receiver(&self) -> &LtpNode {
        &self.pair.sim.nodes[1]
    }

    /// Node and number of each segment that was to be sent, and of `more` behind them.
    fn segments(&self, more: usize) -> Vec<(usize, usize)> {
        let nodes = self.pair.sim.nodes.iter().enumerate();
        let numbers = nodes.map(|(node, end)| (node, end.sent.len() + more));
        numbers
            .flat_map(|(node, count)| (0..count).map(move |number| (node, number)))
            .collect()
    }

    /// Bytes of green data that were lost.
    fn lost_green(&self) -> usize {
        let is_green = |kind| matches!(kind, Kind::Green | Kind::GreenEnd);
        let lost = self.lost.iter().filter(|(kind, _)| is_green(*kind));
        lost.map(|(_, bytes)| bytes).sum()
    }

    /// What happened, to find the reason of a failure.
    fn story(&self) -> String {
        let (sender, receiver) = (self.sender(), self.receiver());
        format!(
            "{:?}, lost {:?}, after {:?}: {:?} and {:?}",
            self.shape,
            self.lost,
            self.pair.sim.elapsed(),
            sender.happened(),
            receiver.happened()
        )
    }

    /// What was delivered is what was sent, each byte once.
    fn check_data(&self) {
        let (block, red) = (content(self.shape.length, 3), self.shape.red);
        let delivered = self.receiver().delivered();
        assert!(delivered.len() <= 1, "{}", self.story());
        for part in delivered {
            assert!(part == block.slice(..red), "{}", self.story());
        }
        let mut begun = BTreeSet::new();
        for (offset, data) in self.receiver().green() {
            let start = usize::try_from(offset).unwrap();
            let is_green = start >= red && data == block.slice(start..start + data.len());
            assert!(is_green && begun.insert(start), "{}", self.story());
        }
    }

    /// Both ends came to the end of the block, and tell so and nothing else: of the green data only those are missing that were lost.
    fn check_completed(&self, within: Duration) {
        self.check_data();
        let (shape, receiver) = (self.shape, self.receiver());
        let events = self.sender().happened();
        assert!(
            matches!(events[..], [Event::Transmitted { .. }, Event::Sent { .. }]),
            "{}",
            self.story()
        );
        let green = receiver.green();
        let bytes: usize = green.iter().map(|(_, data)| data.len()).sum();
        let expected = shape.length - shape.red - self.lost_green();
        assert_eq!(bytes, expected, "{}", self.story());
        let red = usize::from(shape.red > 0);
        assert_eq!(receiver.delivered().len(), red, "{}", self.story());
        for event in receiver.happened() {
            if let Event::RedPart {
                is_whole,
                is_verified,
                ..
            } = event
            {
                let is_all = shape.red == shape.length;
                assert!(*is_verified && *is_whole == is_all, "{}", self.story());
            }
        }
        // Besides these, that the block begins.
        let told = receiver.happened().len();
        assert_eq!(told, 1 + red + green.len(), "{}", self.story());
        assert!(self.pair.sim.elapsed() < within, "{}", self.story());
    }

    /// The sender found no answer up to the limit. The receiver has the red part, or gave it up for the same reason: the end that waits
    /// less gives up first.
    fn check_given_up(&self, has_red: bool) {
        self.check_data();
        let (limit, receiver) = (CancelReason::RetransmissionLimit, self.receiver());
        let events = self.sender().happened();
        assert!(
            matches!(
                events[..],
                [Event::Transmitted { .. }, Event::SendCancelled { .. }]
            ),
            "{}",
            self.story()
        );
        let sent = cancellations(self.sender());
        assert_eq!(sent, [(End::Sender, limit)], "{}", self.story());
        let delivered = receiver.delivered().len();
        assert_eq!(delivered, usize::from(has_red), "{}", self.story());
        let received = cancellations(receiver);
        let is_heard = !receiver.happened().is_empty();
        let expected = usize::from(is_heard && !has_red);
        assert_eq!(received.len(), expected, "{}", self.story());
        for (_, reason) in received {
            assert_eq!(reason, limit, "{}", self.story());
        }
        assert!(self.pair.sim.elapsed() < LIGHT * 30, "{}", self.story());
    }

    /// This end cancelled while data were under way, and both know; what was complete before stays delivered.
    fn check_cancelled(&self, by: End) {
        use Kind::*;
        self.check_data();
        let (sender, receiver) = (self.sender(), self.receiver());
        let user = (by, CancelReason::User);
        let has_red = !receiver.delivered().is_empty();
        let received = match has_red {
            true => vec![],
            false => vec![user],
        };
        assert_eq!(cancellations(receiver), received, "{}", self.story());
        let told = receiver.happened().len();
        assert_eq!(told, 2 + receiver.green().len(), "{}", self.story());
        let (sent, events) = (cancellations(sender), sender.happened());
        match by {
            End::Sender => {
                assert_eq!((sent, events.len()), (vec![user], 1), "{}", self.story());
                // The end of the block never left.
                let is_red = self.shape.red == self.shape.length;
                assert!(!(is_red && has_red), "{}", self.story());
            }
            End::Receiver => {
                // All green data had left, or all red data been reported, before it heard of it.
                let is_sent = matches!(events[..], [Event::Transmitted { .. }, Event::Sent { .. }]);
                let may_be = self.shape.red == 0 || has_red;
                let is_right = match is_sent {
                    true => may_be,
                    false => sent == [user] && events.len() == 2,
                };
                assert!(is_right, "{}", self.story());
            }
        }
        let (cancel, answer, cancels) = match by {
            End::Sender => (
                CancelBySender,
                CancelAckToSender,
                sender.count(CancelBySender),
            ),
            End::Receiver => (
                CancelByReceiver,
                CancelAckToReceiver,
                receiver.count(CancelByReceiver),
            ),
        };
        let lost = self.lost.iter();
        let unanswered = lost.filter(|(kind, _)| [cancel, answer].contains(kind));
        assert_eq!(cancels, 1 + unanswered.count(), "{}", self.story());
        assert!(self.pair.sim.elapsed() < LIGHT * 8, "{}", self.story());
    }
}

/// Each in its turn: data, repair symbols, checkpoints, reports, and the answers to these.
#[test]
fn any_segment_of_any_block_may_be_lost() {
    for shape in LONG.into_iter().chain([SHORT]) {
        let clean = Session::run(shape, None, |_, _, _| false);
        clean.check_completed(LIGHT * 4);
        for one in clean.segments(0) {
            let session = Session::run(shape, None, move |node, number, _| (node, number) == one);
            assert_eq!(session.lost.len(), 1, "{}", session.story());
            // The sender does not send green data again, for which the receiver waits in vain.
            session.check_completed(match session.lost_green() {
                0 => LIGHT * 8,
                _ => session.patience + LIGHT * 4,
            });
        }
    }
}

/// What repairs the loss of one may be the other.
#[test]
fn any_two_segments_of_any_block_may_be_lost() {
    for shape in LONG.into_iter().chain([SHORT]) {
        let clean = Session::run(shape, None, |_, _, _| false);
        // With some of those that are sent again.
        let segments = clean.segments(3);
        let mut pairs = 0;
        for (at, one) in segments.iter().enumerate() {
            for other in &segments[at + 1..] {
                let both = [*one, *other];
                let session = Session::run(shape, None, move |node, number, _| {
                    both.contains(&(node, number))
                });
                pairs += usize::from(session.lost.len() == 2);
                session.check_completed(session.patience + LIGHT * 8);
            }
        }
        // Of some nothing is sent that could be the other.
        let least = clean.segments(0).len();
        assert!(pairs > least, "{pairs} of {least} segments");
    }
}

#[test]
fn a_cancellation_survives_the_loss_of_any_segment_under_way() {
    for shape in LONG {
        for by in [End::Sender, End::Receiver] {
            for after in [1000, 2000, 4500].map(Duration::from_millis) {
                // At the receiver, data arrive for as long from one light time on.
                let after = match by {
                    End::Sender => after,
                    End::Receiver => after + LIGHT,
                };
                let cancelled = Some((by, after));
                let clean = Session::run(shape, cancelled, |_, _, _| false);
                clean.check_cancelled(by);
                for one in clean.segments(0) {
                    let session = Session::run(shape, cancelled, move |node, number, _| {
                        (node, number) == one
                    });
                    assert_eq!(session.lost.len(), 1, "{}", session.story());
                    session.check_cancelled(by);
                }
            }
        }
    }
}

#[test]
fn each_kind_of_segment_of_any_block_may_always_be_lost() {
    use Kind::*;
    let kinds = [
        Red, Checkpoint, RedEnd, Green, GreenEnd, Repair, Report, ReportAck,
    ];
    let mut seen = [false; 8];
    for shape in LONG.into_iter().chain([SHORT]) {
        let clean = Session::run(shape, None, |_, _, _| false);
        let count = |kind| clean.sender().count(kind) + clean.receiver().count(kind);
        for (seen, kind) in seen.iter_mut().zip(kinds) {
            if count(kind) == 0 {
                continue;
            }
            *seen = true;
            let session = Session::run(shape, None, move |_, _, lost| lost == kind);
            match kind {
                // Of a coded red part the repair symbols give both back, and tell where it ends.
                Checkpoint | RedEnd if !shape.is_coded => session.check_given_up(false),
                Report => session.check_given_up(true),
                // The last segment of each repair is a checkpoint, and so they all arrive in the end.
                _ => session.check_completed(LIGHT * 30),
            }
        }
    }
    assert_eq!(seen, [true; 8], "{kinds:?}");
}

#[test]
fn each_kind_of_segment_of_a_cancellation_may_always_be_lost() {
    use Kind::*;
    let limit = CancelReason::RetransmissionLimit;
    for shape in LONG {
        // The receiver neither waits for green data nor gives them up.
        let unless_green = |told| if shape.red == 0 { vec![] } else { vec![told] };
        for (kind, by) in [
            (CancelBySender, End::Sender),
            (CancelAckToSender, End::Sender),
            (CancelByReceiver, End::Receiver),
            (CancelAckToReceiver, End::Receiver),
        ] {
            let (user, second) = ((by, CancelReason::User), Duration::from_secs(1));
            let after = match by {
                End::Sender => second,
                End::Receiver => LIGHT + second,
            };
            let session = Session::run(shape, Some((by, after)), move |_, _, lost| lost == kind);
            session.check_data();
            let (sender, receiver) = (session.sender(), session.receiver());
            let (sent, received) = match kind {
                CancelBySender => (vec![user], unless_green((End::Receiver, limit))),
                CancelByReceiver => (unless_green((End::Sender, limit)), vec![user]),
                CancelAckToSender => (vec![user], vec![user]),
                _ => (unless_green(user), vec![user]),
            };
            assert_eq!(cancellations(sender), sent, "{}", session.story());
            assert_eq!(cancellations(receiver), received, "{}", session.story());
            let cancels = match by {
                End::Sender => sender.count(CancelBySender),
                End::Receiver => receiver.count(CancelByReceiver),
            };
            assert_eq!(cancels, 4, "{}", session.story());
            assert!(receiver.delivered().is_empty(), "{}", session.story());
            let elapsed = session.pair.sim.elapsed();
            assert!(elapsed < LIGHT * 30, "{}", session.story());
        }
    }
}

/// A sender that has measured an answer waits for the next three times as long at first, and what it sends at last may be all that arrives.
#[test]
fn the_last_attempt_of_a_sender_finds_its_receiver() {
    // Red, and the red part of a mixed block.
    for shape in [LONG[0], LONG[1]] {
        let clean = Session::run(shape, None, |_, _, _| false);
        let mut kinds = clean.sender().sent.iter();
        let data = kinds.position(|kind| *kind == Kind::ReportAck).unwrap();
        for is_repair in [false, true] {
            let left = Rc::new(Cell::new(3));
            let session = Session::run(shape, None, move |node, number, kind| {
                let is_asking = match is_repair {
                    true => kind == Kind::Checkpoint && number >= data,
                    false => kind == Kind::RedEnd,
                };
                let is_lost = is_asking && left.get() > 0;
                left.set(left.get() - usize::from(is_lost));
                is_lost || is_repair && (node, number) == (0, 0)
            });
            let lost = 3 + usize::from(is_repair);
            assert_eq!(session.lost.len(), lost, "{}", session.story());
            session.check_completed(session.patience);
        }
    }
}

/// It is waited for as long as it could have tried, which depends on whether it had an answer to measure, and then nothing of it is left.
#[test]
fn a_sender_that_is_gone_is_waited_for_until_it_would_have_given_up() {
    let limit = CancelReason::RetransmissionLimit;
    for shape in [LONG[0], LONG[1]] {
        // The fifth segment asks for a report.
        for (arrive, patience) in [(3, LIGHT * 12), (5, LIGHT * 32)] {
            let session = Session::run(shape, None, move |node, number, kind| {
                node == 0 && number >= arrive && kind != Kind::ReportAck
            });
            session.check_data();
            let told = |end: &LtpNode| end.events.last().map(|(at, _)| *at - session.pair.start);
            let (gave_up, left) = (told(session.sender()), told(session.receiver()));
            let received = cancellations(session.receiver());
            assert_eq!(received, [(End::Receiver, limit)], "{}", session.story());
            let sent = cancellations(session.sender());
            assert_eq!(sent, [(End::Sender, limit)], "{}", session.story());
            assert!(left > gave_up, "{left:?}: {}", session.story());
            assert!(left < Some(patience), "{left:?}: {}", session.story());
        }
    }
}
