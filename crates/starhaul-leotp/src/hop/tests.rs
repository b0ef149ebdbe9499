use rand_chacha::rand_core::SeedableRng as _;

use super::*;
use crate::{
    keys::NeighbourKey,
    name::ContentId,
    wire::{Body, Data, parse},
};

impl Hop {
    /// How many numbers of contents were given.
    pub(crate) fn handles_given(&self) -> u64 {
        self.handles.next
    }
}

fn hop(now: Instant, seed: u64) -> Hop {
    let key = NeighbourKey::new(&[7; 32]);
    let random = ChaCha20Rng::seed_from_u64(seed);
    Hop::new(
        now,
        now,
        &NodeConfig::default(),
        NeighbourConfig { key },
        random,
    )
}

/// Exchanges hellos until each has accepted a new life of the other.
fn meet(mut now: Instant, a: &mut Hop, b: &mut Hop) {
    let mut met = [false; 2];
    for _ in 0..100 {
        now += Duration::from_millis(10);
        if let Some(hello) = a.poll_hello(now) {
            met[1] |= b.handle_hello(now, &hello) == Some(true);
        }
        if let Some(hello) = b.poll_hello(now) {
            met[0] |= a.handle_hello(now, &hello) == Some(true);
        }
    }
    assert_eq!(met, [true; 2]);
}

/// Sends a packet; how it was taken.
fn pass(now: Instant, from: &mut Hop, to: &mut Hop) -> Checked {
    let mut packet = Vec::new();
    from.write_control(now, &[], &mut packet);
    match parse(&packet) {
        Ok(Packet::Numbered(packet)) => to.check(now, now, &packet),
        other => panic!("{other:?}"),
    }
}

/// A second fetch of a large file got nothing: its requester took the numbers of the first one for its own.
#[test]
fn a_new_life_hears_a_neighbour_that_has_sent_much_to_the_former_one() {
    let now = Instant::now();
    let (mut server, mut former) = (hop(now, 1), hop(now, 2));
    meet(now, &mut former, &mut server);
    for _ in 0..100_000 {
        let taken = pass(now, &mut server, &mut former);
        assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
    }
    let taken = pass(now, &mut former, &mut server);
    assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
    let mut new = hop(now, 3);
    meet(now, &mut new, &mut server);
    for _ in 0..3 {
        let taken = pass(now, &mut server, &mut new);
        assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
        let taken = pass(now, &mut new, &mut server);
        assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
    }
}

/// A server, and a new life of a neighbour that took the server's hello long before the server learned of that life.
fn left_behind(now: Instant) -> (Hop, Hop) {
    let (mut server, mut former) = (hop(now, 1), hop(now, 2));
    meet(now, &mut former, &mut server);
    pass(now, &mut former, &mut server);
    for _ in 0..70_000 {
        server.write_control(now, &[], &mut Vec::new());
    }
    let mut new = hop(now, 3);
    let step = |steps: u32| now + Duration::from_millis(10) * steps;
    let hello = new.poll_hello(step(200)).unwrap();
    assert_eq!(server.handle_hello(step(200), &hello), Some(false));
    let hello = server.poll_hello(step(201)).unwrap();
    assert_eq!(new.handle_hello(step(201), &hello), Some(true));
    let hello = new.poll_hello(step(202)).unwrap();
    for _ in 0..40_000 {
        server.write_control(step(203), &[], &mut Vec::new());
    }
    assert_eq!(server.handle_hello(step(204), &hello), Some(true));
    (server, new)
}

/// What a hop sent to a former life while it did not know of the new one counts.
#[test]
fn a_new_life_hears_a_neighbour_that_learns_of_it_late() {
    let now = Instant::now();
    let (mut server, mut new) = left_behind(now);
    let later = now + Duration::from_secs(3);
    let hello = server.poll_hello(later).unwrap();
    assert_eq!(new.handle_hello(later, &hello), Some(false));
    let taken = pass(later, &mut server, &mut new);
    let first = Checked::Authentic(Arrival::Newest { missing: 0 });
    assert_eq!(taken, first);
    // What a replay of that hello says changes nothing any more.
    assert_eq!(new.handle_hello(later, &hello), Some(false));
    let taken = pass(later, &mut server, &mut new);
    assert_eq!(taken, first);
}

/// The same when the server's hello is lost: the new life asks, and the answer has a whole number.
#[test]
fn a_new_life_that_takes_a_neighbour_for_a_forger_asks_it() {
    let now = Instant::now();
    let (mut server, mut new) = left_behind(now);
    let later = now + Duration::from_secs(3);
    assert_eq!(pass(later, &mut server, &mut new), Checked::Forged);
    let hello = new.poll_hello(later).unwrap();
    assert_eq!(server.handle_hello(later, &hello), Some(false));
    for _ in 0..3 {
        let taken = pass(later, &mut server, &mut new);
        assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
    }
}

/// A hello of the present life that was recorded had a packet leave each time that it came.
#[test]
fn a_hello_that_comes_again_and_again_is_answered_two_hundred_times_a_second() {
    let start = Instant::now();
    let (mut a, mut b) = (hop(start, 1), hop(start, 2));
    meet(start, &mut a, &mut b);
    let later = start + Duration::from_secs(2);
    a.prompt_hello(later);
    let hello = a.poll_hello(later).unwrap();
    let mut answers = 0;
    for millis in 0..1000 {
        let now = later + Duration::from_millis(millis);
        assert_eq!(b.handle_hello(now, &hello), Some(false));
        while b.is_control_due(now) {
            b.write_control(now, &[], &mut Vec::new());
            answers += 1;
        }
    }
    assert!((100..=201).contains(&answers), "{answers}");
}

/// Each forged packet had a hello leave before all else, two hundred a second.
#[test]
fn forged_packets_make_neighbours_that_hear_each_other_send_few_hellos() {
    let start = Instant::now();
    let (mut a, mut b) = (hop(start, 1), hop(start, 2));
    meet(start, &mut a, &mut b);
    let forged = [0x80; 40];
    let Ok(Packet::Numbered(forged)) = parse(&forged) else {
        panic!("a packet with data");
    };
    for is_heard in [true, false] {
        let mut hellos = 0;
        for millis in 0..10_000 {
            let now = start + Duration::from_secs(if is_heard { 2 } else { 20 });
            let now = now + Duration::from_millis(millis);
            if is_heard && millis % 10 == 0 {
                pass(now, &mut a, &mut b);
                let taken = pass(now, &mut b, &mut a);
                assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
            }
            assert_eq!(a.check(now, now, &forged), Checked::Forged);
            hellos += u32::from(a.poll_hello(now).is_some());
        }
        println!("{hellos} hellos");
        assert!((1..=15).contains(&hellos), "{hellos}");
    }
}

/// An echo makes a packet longer than those beside it, so that it ends a batch: of what a program sends over a short hop, nearly each packet with data
/// had one.
#[test]
fn data_of_a_short_hop_carry_few_echoes() {
    let start = Instant::now();
    let (mut a, mut b) = (hop(start, 1), hop(start, 2));
    meet(start, &mut a, &mut b);
    a.burst = Duration::from_micros(500);
    let start = start + Duration::from_secs(2);
    let mut echoes = 0;
    for number in 1..=1000 {
        let now = start + Duration::from_micros(100) * number;
        let taken = pass(now, &mut b, &mut a);
        assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
        let data = Data {
            handle: 0,
            offset: 0,
            is_end: false,
            is_repair: false,
            is_limited: false,
            sealed: &[0; 100],
        };
        let mut packet = Vec::new();
        a.write_data(now, now, &data, Carried::Nothing, None, &mut packet);
        let Ok(Packet::Numbered(packet)) = parse(&packet) else {
            panic!("a packet with data");
        };
        let taken = b.check(now, now, &packet);
        assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
        echoes += u32::from(packet.head.echo.is_some());
    }
    // One in 2 ms of 100.
    assert!((40..=60).contains(&echoes), "{echoes}");
}

/// A segment of a stream leaves.
fn send_data(now: Instant, from: &mut Hop) -> Vec<u8> {
    let data = Data {
        handle: 0,
        offset: 0,
        is_end: false,
        is_repair: false,
        is_limited: true,
        sealed: &[0; 20],
    };
    let carried = Carried::Segment {
        content: ContentId([1; 16]),
        handle: 0,
        start: 0,
        end: 4,
        is_live: true,
    };
    let mut packet = Vec::new();
    from.write_data(now, now, &data, carried, None, &mut packet);
    packet
}

/// Takes a packet, and what it says of the greatest number that came; how it was taken.
fn take(now: Instant, packet: &[u8], to: &mut Hop) -> Checked {
    let Ok(Packet::Numbered(packet)) = parse(packet) else {
        panic!("a hello");
    };
    let taken = to.check(now, now, &packet);
    if let (Checked::Authentic(_), Body::Control(mut frames)) = (&taken, packet.body) {
        while !frames.is_empty() {
            let frame = Frame::read(&mut frames).unwrap();
            if let Frame::Rate { kbit, greatest } = frame {
                to.handle_rate(kbit, greatest);
            }
        }
    }
    taken
}

/// A control packet, with the greatest number that came.
fn report(now: Instant, from: &mut Hop) -> Vec<u8> {
    let greatest = u32::try_from(from.arrivals.next().saturating_sub(1)).unwrap();
    let rate = Frame::Rate {
        kbit: 1000,
        greatest,
    };
    let mut packet = Vec::new();
    from.write_control(now, &[rate], &mut packet);
    packet
}

/// What a stream's last packet carried is asked for by nobody for seconds, so its sender has to know that it came: from the present life of the neighbour.
#[test]
fn a_packet_is_confirmed_by_the_life_that_it_was_sent_to() {
    let mut now = Instant::now();
    let (mut sender, mut former) = (hop(now, 1), hop(now, 2));
    meet(now, &mut former, &mut sender);
    now += Duration::from_secs(2);
    let (data, late) = (send_data(now, &mut sender), now + Duration::from_secs(1));
    assert!(!sender.is_probe_due(now) && sender.is_probe_due(late));
    assert!(matches!(
        take(now, &data, &mut former),
        Checked::Authentic(_)
    ));
    let (first, held) = (report(now, &mut former), report(now, &mut former));
    let taken = take(now, &first, &mut sender);
    assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
    assert!(!sender.is_probe_due(late), "it came");
    // A report that is sent again is none.
    send_data(now, &mut sender);
    assert_eq!(take(now, &first, &mut sender), Checked::Replayed);
    assert!(sender.is_probe_due(late));

    let mut new = hop(now, 3);
    meet(now, &mut new, &mut sender);
    now += Duration::from_secs(2);
    let late = now + Duration::from_secs(1);
    assert!(!sender.is_probe_due(late), "a new life asks for all");
    send_data(now, &mut sender);
    assert_eq!(take(now, &held, &mut sender), Checked::Forged);
    assert!(sender.is_probe_due(late));
    // The probe shows what is missing; where no rate is told, its stamp comes back.
    let probe = report(late, &mut sender);
    let taken = take(late, &probe, &mut new);
    assert_eq!(taken, Checked::Authentic(Arrival::Newest { missing: 1 }));
    let mut answer = Vec::new();
    new.write_control(late, &[], &mut answer);
    let taken = take(late, &answer, &mut sender);
    assert!(matches!(taken, Checked::Authentic(_)), "{taken:?}");
    assert!(!sender.is_probe_due(late + Duration::from_secs(9)));
    let lost = sender.departures.next_number() - 2;
    let carried = sender.departures.take(lost);
    assert!(matches!(carried, Some(Carried::Segment { .. })), "{lost}");
}

/// What waited for a neighbour that is gone went without a count.
#[test]
fn what_waits_for_a_silent_neighbour_is_dropped_and_counted() {
    let now = Instant::now();
    let (mut relay, mut requester) = (hop(now, 1), hop(now, 2));
    meet(now, &mut relay, &mut requester);
    let now = now + Duration::from_secs(1);
    for handle in 0..3 {
        let next = queue::Next {
            content: ContentId([4; 16]),
            handle,
            item: queue::Item::Own { start: 0, end: 10 },
        };
        assert!(relay.queue.push(now, now, next));
    }
    assert_eq!(relay.give_up_silent(now + Duration::from_secs(2)), 0);
    assert_eq!(relay.queue.waiting(), 3);
    let later = now + SILENCE + Duration::from_secs(60);
    assert_eq!(relay.give_up_silent(later), 3);
    assert_eq!(relay.give_up_silent(later), 0);
    assert!(relay.queue.is_empty());
}
