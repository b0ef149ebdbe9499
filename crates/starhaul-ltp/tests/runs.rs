//! Segments that a receiver gets together, as the kernel joins them, do what each of them does by itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::{Duration, Instant};

use bytes::Bytes;
use pair::{
    RECEIVER, SENDER, SERVICE, content,
    direct::{delivered, engine, output},
};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_ltp::{Coding, Engine, Outgoing, PeerConfig, SegmentSize};

/// Bytes of a message at most.
const MOST_BYTES: usize = 65_535;

/// One of so many times.
fn one_in(random: &mut ChaCha8Rng, bound: u32) -> bool {
    random.next_u32().is_multiple_of(bound)
}

/// Some datagrams are lost, come twice, or overtake the one before them.
fn disturbed(datagrams: Vec<Vec<u8>>, random: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let mut arrive: Vec<Vec<u8>> = Vec::new();
    for datagram in datagrams {
        match random.next_u32() % 30 {
            0 => {}
            1 => arrive.extend([datagram.clone(), datagram]),
            2 => arrive.insert(arrive.len().saturating_sub(1), datagram),
            _ => arrive.push(datagram),
        }
    }
    arrive
}

/// Datagrams as the kernel joins them: of one length but for the last, which may be shorter.
fn joined(datagrams: &[Vec<u8>]) -> Vec<(Vec<u8>, usize)> {
    let mut messages: Vec<(Vec<u8>, usize)> = Vec::new();
    for datagram in datagrams {
        match messages.last_mut() {
            Some((message, stride))
                if datagram.len() <= *stride
                    && message.len().is_multiple_of(*stride)
                    && message.len() + datagram.len() <= MOST_BYTES =>
            {
                message.extend_from_slice(datagram);
            }
            _ => messages.push((datagram.clone(), datagram.len())),
        }
    }
    messages
}

/// A sender, a receiver that gets its datagrams joined, and one that gets each by itself.
struct World {
    now: Instant,
    sender: Engine,
    together: Engine,
    alone: Engine,
    random: ChaCha8Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (now, mut config) = (Instant::now(), PeerConfig::new(Duration::ZERO, None));
        let size = [64, 1360, 9000][random.next_u32() as usize % 3];
        config.set_segment_size(SegmentSize::Bytes(size));
        config.checkpoint_every = one_in(&mut random, 2).then_some(20);
        config.coding = one_in(&mut random, 4).then(|| Coding::new(0.05));
        let receiver = || engine(RECEIVER, 2, &[SENDER], &config, now);
        Self {
            now,
            sender: engine(SENDER, 1, &[RECEIVER], &config, now),
            together: receiver(),
            alone: receiver(),
            random,
        }
    }

    /// Sends a block, of which so many bytes are red, until nothing is left of it; the red parts that either receiver has got.
    fn carry(&mut self, block: &Bytes, red: u64) -> [Vec<Bytes>; 2] {
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            block: block.clone(),
            red,
        };
        self.sender.send(self.now, outgoing).unwrap();
        let mut parts = [Vec::new(), Vec::new()];
        let mut rounds = 0;
        while self.sessions() > 0 {
            self.step();
            parts[0].extend(delivered(&mut self.together));
            parts[1].extend(delivered(&mut self.alone));
            delivered(&mut self.sender);
            rounds += 1;
            assert!(rounds < 10_000, "it does not end");
        }
        parts
    }

    fn sessions(&self) -> usize {
        let engines = [&self.sender, &self.together, &self.alone];
        let sessions = engines.map(|engine| engine.sessions());
        sessions.iter().map(|(sends, takes)| sends + takes).sum()
    }

    fn step(&mut self) {
        let leaves = output(&mut self.sender, self.now);
        let is_quiet = leaves.is_empty();
        let arrives = disturbed(leaves, &mut self.random);
        for (message, stride) in joined(&arrives) {
            self.together
                .handle_datagrams(self.now, SENDER, &message, stride);
        }
        for datagram in &arrives {
            self.alone
                .handle_datagrams(self.now, SENDER, datagram, datagram.len());
        }
        let answers = output(&mut self.together, self.now);
        assert_eq!(answers, output(&mut self.alone, self.now));
        assert_eq!(self.together.stats(), self.alone.stats());
        let is_quiet = is_quiet && answers.is_empty();
        for answer in disturbed(answers, &mut self.random) {
            self.sender
                .handle_datagrams(self.now, RECEIVER, &answer, answer.len());
        }
        if is_quiet {
            self.wait();
        }
    }

    /// Lets time pass until something is due.
    fn wait(&mut self) {
        let engines = [&mut self.sender, &mut self.together, &mut self.alone];
        let due = engines.iter().filter_map(|engine| engine.poll_timeout());
        self.now = due.min().unwrap_or(self.now).max(self.now);
        for engine in engines {
            engine.handle_timeout(self.now);
        }
    }
}

#[test]
fn segments_that_come_together_do_what_each_does_by_itself() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        // The buffer of a block follows from those before it.
        for number in 0..3 {
            let length = 1 + world.random.next_u32() as usize % 300_000;
            let block = content(length, seed + number);
            let red = match one_in(&mut world.random, 3) {
                true => world.random.next_u32() as usize % length,
                false => length,
            };
            let expected: Vec<Bytes> = match red {
                0 => Vec::new(),
                red => vec![block.slice(..red)],
            };
            let [together, alone] = world.carry(&block, red as u64);
            assert!(together == expected, "seed {seed}");
            assert!(alone == expected, "seed {seed}");
        }
    }
}
