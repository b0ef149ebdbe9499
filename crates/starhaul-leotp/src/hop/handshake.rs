//! The handshake of two neighbours: each learns the life of the other, a number drawn anew when a node begins.
//!
//! A life is accepted when a hello brings it together with the echo of this node's challenge, which only a neighbour that
//! lives now can know: hellos of former lives change nothing. The keys follow from the two lives, so that both ends have the
//! same keys as soon as each has accepted the other, whichever hellos were lost.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rand_chacha::{ChaCha20Rng, rand_core::RngCore as _};

use crate::{
    event::Recognised,
    keys::{Life, NeighbourKey, PacketKey, is_same},
    wire::{Challenge, Hello},
};

/// The first wait for an answer; each further one is twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// What answers hellos leaves this far apart at least.
pub(super) const ANSWERS: Duration = Duration::from_millis(5);
/// And those that ask whether a neighbour that is heard has begun a new life, since a packet came that may as well be forged.
const DOUBTS: Duration = Duration::from_secs(1);
/// Challenges that wait for their echo at most; of more, the oldest are not echoed, and a neighbour that lives sends its own again.
const MOST_UNANSWERED: usize = 8;
/// Former lives that are remembered: as many programs with one key are told from one that begins anew, and one more.
const FORMER: usize = 2;

/// The state of the handshake with a neighbour.
#[derive(Debug)]
pub(crate) struct Handshake {
    key: NeighbourKey,
    random: ChaCha20Rng,
    life: Life,
    /// A neighbour that echoes it lives; drawn anew when it has served.
    challenge: Challenge,
    /// The challenge that was echoed last.
    heard: Challenge,
    /// Those of hellos that came since and are not echoed yet, each once and in turn: one that was recorded and comes again and again takes the answer from no
    /// neighbour that lives.
    unanswered: VecDeque<Challenge>,
    wait: Duration,
    next: Option<Instant>,
    sent: Option<Instant>,
    /// The wait between two hellos for packets that only another life explains, unless they are forged; whether the next hello is such a one.
    doubt: Duration,
    is_doubted: bool,
    /// Lives of the neighbour before the present one, the last one last.
    former: [Life; FORMER],
}

/// The keys of a life of both neighbours.
#[derive(Debug)]
pub(crate) struct Session {
    peer: Life,
    pub(crate) seal: PacketKey,
    pub(crate) open: PacketKey,
    /// The neighbour is known to have the keys.
    pub(crate) is_confirmed: bool,
    /// The neighbour had this life before, and another one since.
    is_back: bool,
    /// So had that other one: two programs take the neighbour from each other. One alone that is back was stopped while another had its key, or a
    /// relay in the way has ended.
    pub(crate) is_shared: bool,
}

/// The outcome of a hello that came.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A new life of the neighbour, with the time since this node's last hello.
    New(Box<Session>, Option<Duration>),
    /// Both ends know each other; the neighbour may not know that.
    Agreed,
    /// Nothing that can be believed; an answer leaves.
    Unproven,
    /// It is not authentic.
    Forged,
}

impl Session {
    /// Whether they are those of the life that a hello is of.
    pub(crate) fn is_of(&self, hello: &Hello) -> bool {
        self.peer == hello.life
    }
}

impl Handshake {
    pub(crate) fn new(now: Instant, key: NeighbourKey, mut random: ChaCha20Rng) -> Self {
        let (mut life, mut challenge) = (Life::default(), Challenge::default());
        random.fill_bytes(&mut life);
        random.fill_bytes(&mut challenge);
        Self {
            key,
            random,
            life,
            challenge,
            heard: Challenge::default(),
            unanswered: VecDeque::new(),
            wait: FIRST,
            next: Some(now),
            sent: None,
            doubt: FIRST,
            is_doubted: false,
            former: Default::default(),
        }
    }

    /// When the next hello is due.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Sends a hello at once, if the last one is long enough ago.
    pub(crate) fn prompt(&mut self, now: Instant) {
        self.send_after(now, ANSWERS);
    }

    /// The same for a packet that only another life explains, unless it is forged. `heard`: when an authentic packet came last, if any did. Where the
    /// neighbour was heard after the last hello, its life is most likely the known one.
    pub(crate) fn doubt(&mut self, now: Instant, heard: Option<Instant>) {
        if heard > self.sent {
            self.send_after(now, DOUBTS);
        } else {
            self.send_after(now, self.doubt);
            self.is_doubted = true;
        }
    }

    fn send_after(&mut self, now: Instant, wait: Duration) {
        let at = self.sent.map_or(now, |sent| now.max(sent + wait));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// The hello that is due. `first_number` is that of this node's first packet to the life that hears it.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        accepted: Option<&Session>,
        first_number: u64,
    ) -> Option<Hello> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        self.sent = Some(now);
        self.next = None;
        if std::mem::take(&mut self.is_doubted) {
            self.doubt = (self.doubt * 2).min(LONGEST);
        }
        if !accepted.is_some_and(|session| session.is_confirmed) {
            self.next = Some(now + self.wait);
            self.wait = (self.wait * 2).min(LONGEST);
        }
        if let Some(challenge) = self.unanswered.pop_front() {
            self.heard = challenge;
        }
        if !self.unanswered.is_empty() {
            self.send_after(now, ANSWERS);
        }
        let mut hello = Hello {
            life: self.life,
            peer: accepted.map_or(Life::default(), |session| session.peer),
            challenge: self.challenge,
            echo: self.heard,
            first_number,
            mac: Default::default(),
        };
        hello.mac = self.key.hello_mac(&hello.authenticated());
        Some(hello)
    }

    /// Whether a hello is authentic, and whether its sender is known to live now.
    pub(crate) fn recognises(&self, hello: &Hello) -> Recognised {
        let mac = self.key.hello_mac(&hello.authenticated());
        match is_same(&mac, &hello.mac) && hello.life != self.life {
            false => Recognised::No,
            true if hello.echo == self.challenge => Recognised::Alive,
            true => Recognised::Perhaps,
        }
    }

    /// Notes a challenge to echo, before all others if its sender is known to live.
    fn hear(&mut self, challenge: Challenge, is_alive: bool) {
        if is_alive {
            self.unanswered.retain(|other| *other != challenge);
            self.unanswered.truncate(MOST_UNANSWERED - 1);
            self.unanswered.push_front(challenge);
        } else if !self.unanswered.contains(&challenge) {
            if self.unanswered.len() >= MOST_UNANSWERED {
                self.unanswered.pop_front();
            }
            self.unanswered.push_back(challenge);
        }
    }

    /// Takes a hello; `accepted` are the keys in use.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        hello: &Hello,
        accepted: Option<&Session>,
    ) -> Heard {
        let mac = self.key.hello_mac(&hello.authenticated());
        // One's own hello may come back.
        if !is_same(&mac, &hello.mac) || hello.life == self.life {
            return Heard::Forged;
        }
        let is_accepted = accepted.is_some_and(|session| session.is_of(hello));
        let knows_this = hello.peer == self.life;
        if is_accepted && knows_this {
            return Heard::Agreed;
        }
        let is_alive = !is_accepted && hello.echo == self.challenge;
        self.hear(hello.challenge, is_alive);
        if !knows_this {
            self.prompt(now);
        }
        if !is_alive {
            self.prompt(now);
            return Heard::Unproven;
        }
        self.random.fill_bytes(&mut self.challenge);
        (self.wait, self.doubt) = (FIRST, FIRST);
        let is_back = self.former.contains(&hello.life);
        let session = Session {
            peer: hello.life,
            seal: self.key.direction(&self.life, &hello.life),
            open: self.key.direction(&hello.life, &self.life),
            is_confirmed: false,
            is_back,
            is_shared: is_back && accepted.is_some_and(|accepted| accepted.is_back),
        };
        if let Some(accepted) = accepted {
            self.former.rotate_left(1);
            self.former[FORMER - 1] = accepted.peer;
        }
        self.next.get_or_insert(now + FIRST);
        let since = self.sent.map(|sent| now.saturating_duration_since(sent));
        Heard::New(Box::new(session), since)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    struct End {
        handshake: Handshake,
        session: Option<Session>,
        lives: usize,
    }

    impl End {
        fn new(now: Instant, seed: u64) -> Self {
            let random = ChaCha20Rng::seed_from_u64(seed);
            Self {
                handshake: Handshake::new(now, NeighbourKey::new(&[7; 32]), random),
                session: None,
                lives: 0,
            }
        }

        fn poll(&mut self, now: Instant) -> Option<Hello> {
            self.handshake.poll(now, self.session.as_ref(), 0)
        }

        fn handle(&mut self, now: Instant, hello: &Hello) {
            let heard = self.handshake.handle(now, hello, self.session.as_ref());
            if let Heard::New(session, _) = heard {
                self.session = Some(*session);
                self.lives += 1;
            }
        }
    }

    fn agree(a: &End, b: &End) -> bool {
        let (Some(at_a), Some(at_b)) = (&a.session, &b.session) else {
            return false;
        };
        at_a.seal.mac(1, b"x") == at_b.open.mac(1, b"x")
            && at_b.seal.mac(1, b"x") == at_a.open.mac(1, b"x")
    }

    #[test]
    fn two_ends_agree_after_three_hellos() {
        let now = Instant::now();
        let (mut a, mut b) = (End::new(now, 1), End::new(now, 2));
        b.handshake.next = None;
        let first = a.poll(now).unwrap();
        b.handle(now, &first);
        let second = b.poll(now).unwrap();
        a.handle(now, &second);
        let third = a.poll(now + ANSWERS).unwrap();
        b.handle(now, &third);
        assert!(agree(&a, &b));
        let mut changed = third;
        changed.first_number ^= 1;
        let heard = b.handshake.handle(now, &changed, b.session.as_ref());
        assert!(matches!(heard, Heard::Forged));
        let heard = a.handshake.handle(now, &third, a.session.as_ref());
        assert!(matches!(heard, Heard::Forged), "its own");
    }

    /// Two programs with one key took the neighbour from each other in turn, without a message to the operator.
    #[test]
    fn a_life_that_comes_back_after_another_is_a_second_program() {
        for programs in [1, 2, 3] {
            let mut now = Instant::now();
            let mut b = End::new(now, 1);
            let mut ends: Vec<End> = (2..2 + programs).map(|seed| End::new(now, seed)).collect();
            let mut lives = Vec::new();
            for round in 0..12 {
                let number = usize::try_from(round % programs).unwrap();
                if programs == 1 {
                    ends[number] = End::new(now, 10 + round);
                }
                let a = &mut ends[number];
                a.handshake.prompt(now);
                for _ in 0..4 {
                    now += LONGEST;
                    if let Some(hello) = a.poll(now) {
                        b.handle(now, &hello);
                    }
                    if let Some(hello) = b.poll(now) {
                        a.handle(now, &hello);
                    }
                }
                let session = b.session.as_ref().unwrap();
                lives.push(session.peer == a.handshake.life && session.is_shared);
            }
            let known = usize::try_from(programs).unwrap();
            let expected: Vec<bool> = (0..12).map(|at| known > 1 && at > known).collect();
            assert_eq!(lives, expected, "{programs}");
        }
    }

    /// A program that was stopped while another one used its key, or whose way led through a relay that stands for the server until it ends: nothing keeps
    /// it from anything any more.
    #[test]
    fn a_life_that_comes_back_after_those_that_ended_is_no_second_program() {
        let mut now = Instant::now();
        let mut b = End::new(now, 1);
        let mut stays = End::new(now, 2);
        for round in 0..6 {
            let mut passing = End::new(now, 10 + round);
            for a in [&mut passing, &mut stays] {
                a.handshake.prompt(now);
                for _ in 0..4 {
                    now += LONGEST;
                    if let Some(hello) = a.poll(now) {
                        b.handle(now, &hello);
                    }
                    if let Some(hello) = b.poll(now) {
                        a.handle(now, &hello);
                    }
                }
                let session = b.session.as_ref().unwrap();
                assert_eq!(session.peer, a.handshake.life, "round {round}");
                assert!(!session.is_shared, "round {round}");
            }
        }
    }

    /// Each hello had the next one echo its own challenge, so that one that was recorded, sent again whenever the neighbour's had come, kept a new life from being
    /// known for as long as that lasted.
    #[test]
    fn recorded_hellos_keep_no_new_life_waiting() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        for recorded in [1, 3, 6] {
            let mut b = End::new(start, 1);
            let former = (10..10 + recorded).map(|seed| End::new(start, seed));
            let hellos: Vec<Hello> = former.map(|mut it| it.poll(start).unwrap()).collect();
            let mut a = End::new(start, 2);
            // Under way to either, with the time of arrival.
            let (mut to_a, mut to_b) = (VecDeque::new(), VecDeque::new());
            let mut millis = 0;
            while !agree(&a, &b) {
                let now = start + ms * millis;
                if let Some((_, hello)) = to_a.pop_front_if(|(at, _)| *at <= now) {
                    a.handle(now, &hello);
                }
                if let Some((_, hello)) = to_b.pop_front_if(|(at, _)| *at <= now) {
                    b.handle(now, &hello);
                }
                let turn = usize::try_from(millis).unwrap() % hellos.len();
                b.handle(now, &hellos[turn]);
                to_b.extend(a.poll(now).map(|hello| (now + ms * 10, hello)));
                to_a.extend(b.poll(now).map(|hello| (now + ms * 10, hello)));
                millis += 1;
                assert!(millis < 100, "{recorded} recorded hellos");
            }
        }
    }

    /// Hellos are lost, delayed, repeated and replayed while both ends begin new lives; then they pass, and both agree.
    #[test]
    fn whatever_was_lost_or_replayed_both_agree_in_the_end() {
        for seed in 0..300 {
            let mut random = ChaCha20Rng::seed_from_u64(seed);
            let mut now = Instant::now();
            let mut ends = [End::new(now, seed * 1000), End::new(now, seed * 1000 + 1)];
            let mut all: [Vec<Hello>; 2] = Default::default();
            for step in 2..80 {
                now += Duration::from_millis((random.next_u32() % 300).into());
                let from = usize::from(random.next_u32().is_multiple_of(2));
                if let Some(hello) = ends[from].poll(now) {
                    all[from].push(hello);
                }
                match random.next_u32() % 10 {
                    0 => ends[from] = End::new(now, seed * 1000 + step),
                    1..=3 if !all[from].is_empty() => {
                        let old = usize::try_from(random.next_u32()).unwrap() % all[from].len();
                        let hello = all[from][old];
                        ends[1 - from].handle(now, &hello);
                    }
                    4..=7 => {
                        if let Some(hello) = all[from].last().copied() {
                            ends[1 - from].handle(now, &hello);
                        }
                    }
                    _ => {}
                }
            }
            for _ in 0..8 {
                for from in [0, 1] {
                    now += Duration::from_millis(10);
                    if let Some(hello) = ends[from].poll(now) {
                        ends[1 - from].handle(now, &hello);
                    }
                }
                now += LONGEST;
            }
            let [a, b] = &ends;
            assert!(agree(a, b), "seed {seed}");
            // Nothing of the past ends it.
            let lives = [a.lives, b.lives];
            for from in [0, 1] {
                for hello in &all[from] {
                    ends[1 - from].handle(now, hello);
                }
            }
            let [a, b] = &ends;
            assert_eq!([a.lives, b.lives], lives, "seed {seed}");
            assert!(agree(a, b), "seed {seed}");
        }
    }
}
