use rand_chacha::rand_core::SeedableRng as _;

use super::*;
use crate::{keys::NeighbourKey, wire::parse};

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
