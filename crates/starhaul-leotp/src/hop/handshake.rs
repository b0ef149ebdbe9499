//! Two neighbours greet each other: each learns the other's nonce of this life. A nonce is believed when the greeting that
//! brings it repeats one's own, so that greetings of former lives prove nothing. A nonce serves one pair of lives: when the
//! neighbour begins another, this end takes a new one too.

use std::time::{Duration, Instant};

use rand_chacha::{ChaCha20Rng, rand_core::RngCore as _};

use crate::{
    keys::{HopNonce, NeighbourKey, PacketKey, is_same},
    wire::Hello,
};

/// The first wait for an answer; each further one is twice as long, up to [`SLOWEST`].
const FIRST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(2);
/// Greetings that answer others come this far apart.
const ANSWERS: Duration = Duration::from_millis(5);

/// The state of greetings with a neighbour.
#[derive(Debug)]
pub(crate) struct Handshake {
    key: NeighbourKey,
    random: ChaCha20Rng,
    own: HopNonce,
    /// Keys were made of `own`.
    is_used: bool,
    /// What a greeting of the neighbour said last; not proven.
    heard: HopNonce,
    wait: Duration,
    next: Option<Instant>,
    answered: Option<Instant>,
    /// When greetings left that the neighbour may answer, for a first round-trip time.
    greeted: Option<Instant>,
}

/// The keys of a life of both neighbours.
#[derive(Debug)]
pub(crate) struct Session {
    peer: HopNonce,
    pub(crate) seal: PacketKey,
    pub(crate) open: PacketKey,
    /// The neighbour is known to have the keys.
    pub(crate) is_confirmed: bool,
}

/// What a greeting brought.
#[derive(Debug)]
pub(crate) enum Greeted {
    /// A new life of the neighbour, with the time from the last greeting to it.
    New(Box<Session>, Option<Duration>),
    /// Nothing new.
    Known,
    /// It is not authentic.
    Forged,
}

impl Session {
    /// Whether they are those of the life of the neighbour with this nonce.
    pub(crate) fn is_of(&self, peer: &HopNonce) -> bool {
        self.peer == *peer
    }
}

impl Handshake {
    pub(crate) fn new(now: Instant, key: NeighbourKey, mut random: ChaCha20Rng) -> Self {
        Self {
            key,
            own: draw(&mut random),
            random,
            is_used: false,
            heard: HopNonce::default(),
            wait: FIRST,
            next: Some(now),
            answered: None,
            greeted: None,
        }
    }

    /// This node's nonce.
    pub(crate) fn own(&self) -> HopNonce {
        self.own
    }

    /// Whether this node's nonce is that of the keys in use.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_used
    }

    /// When a greeting leaves.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Greets at once if the last answer is long enough ago: something came that only another life explains.
    pub(crate) fn prompt(&mut self, now: Instant) {
        let at = self
            .answered
            .map_or(now, |answered| now.max(answered + ANSWERS));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// The greeting that is due. `is_done`: none follows by itself.
    pub(crate) fn poll(&mut self, now: Instant, is_done: bool) -> Option<Hello> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        self.answered = Some(now);
        self.next = None;
        if !is_done {
            self.next = Some(now + self.wait);
            self.wait = (self.wait * 2).min(SLOWEST);
        }
        self.greeted.get_or_insert(now);
        let mac = self.key.hello_mac(&Hello::greeting(&self.own, &self.heard));
        Some(Hello {
            own: self.own,
            peer: self.heard,
            mac,
        })
    }

    /// Takes a greeting; `known` are the keys in use.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        hello: &Hello,
        known: Option<&Session>,
    ) -> Greeted {
        let mac = self
            .key
            .hello_mac(&Hello::greeting(&hello.own, &hello.peer));
        // One's own greeting may come back.
        if !is_same(&mac, &hello.mac) || hello.own == self.own {
            return Greeted::Forged;
        }
        if hello.peer != self.own {
            // It may be old: it is answered, and believed when an answer to that comes.
            self.heard = hello.own;
            self.prompt(now);
            return Greeted::Known;
        }
        if self.is_used && known.is_some_and(|known| known.peer == hello.own) {
            return Greeted::Known;
        }
        self.heard = hello.own;
        self.wait = FIRST;
        self.prompt(now);
        if self.is_used {
            self.own = draw(&mut self.random);
            self.is_used = false;
            return Greeted::Known;
        }
        self.is_used = true;
        let session = Session {
            peer: hello.own,
            seal: self.key.direction(&self.own, &hello.own),
            open: self.key.direction(&hello.own, &self.own),
            is_confirmed: false,
        };
        let rtt = self
            .greeted
            .take()
            .map(|at| now.saturating_duration_since(at));
        Greeted::New(Box::new(session), rtt)
    }
}

fn draw(random: &mut ChaCha20Rng) -> HopNonce {
    let mut nonce = HopNonce::default();
    random.fill_bytes(&mut nonce);
    nonce
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    fn end(now: Instant, seed: u64) -> Handshake {
        Handshake::new(
            now,
            NeighbourKey::new(&[7; 32]),
            ChaCha20Rng::seed_from_u64(seed),
        )
    }

    #[test]
    fn two_ends_agree_and_old_greetings_prove_nothing() {
        let now = Instant::now();
        let (mut a, mut b) = (end(now, 1), end(now, 2));
        let first = a.poll(now, false).unwrap();
        assert!(matches!(b.handle(now, &first, None), Greeted::Known));
        let second = b.poll(now, false).unwrap();
        let Greeted::New(at_a, _) = a.handle(now, &second, None) else {
            panic!("it repeats the nonce of a");
        };
        let third = a.poll(now + ANSWERS, true).unwrap();
        let Greeted::New(at_b, _) = b.handle(now, &third, None) else {
            panic!("it repeats the nonce of b");
        };
        assert_eq!(at_a.seal.mac(1, b"x"), at_b.open.mac(1, b"x"));
        assert_eq!(at_b.seal.mac(1, b"x"), at_a.open.mac(1, b"x"));
        assert!(matches!(b.handle(now, &third, Some(&at_b)), Greeted::Known));
        // A new life of b does not believe what was said to the former, and a believes it with a new nonce only.
        let mut b = end(now, 3);
        for old in [&first, &third] {
            assert!(matches!(b.handle(now, old, None), Greeted::Known));
        }
        let mut changed = second;
        changed.own[0] ^= 1;
        assert!(matches!(
            a.handle(now, &changed, Some(&at_a)),
            Greeted::Forged
        ));
        let mut keys: [Option<Session>; 2] = [Some(*at_a), None];
        let mut later = now;
        for _ in 0..4 {
            later += FIRST;
            if let Some(hello) = b.poll(later, false)
                && let Greeted::New(session, _) = a.handle(later, &hello, keys[0].as_ref())
            {
                keys[0] = Some(*session);
            }
            if let Some(hello) = a.poll(later, false)
                && let Greeted::New(session, _) = b.handle(later, &hello, keys[1].as_ref())
            {
                keys[1] = Some(*session);
            }
        }
        let [Some(at_a), Some(at_b)] = keys else {
            panic!("both have keys");
        };
        assert_eq!(at_a.seal.mac(1, b"x"), at_b.open.mac(1, b"x"));
        assert!(matches!(
            a.handle(later, &second, Some(&at_a)),
            Greeted::Known
        ));
        let own = a.poll(later + SLOWEST, false).unwrap();
        assert!(matches!(
            a.handle(later, &own, Some(&at_a)),
            Greeted::Forged
        ));
    }
}
