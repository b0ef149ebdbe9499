//! A peer that moved proves its new address by answering a challenge (RFC 9000 §8.2). The stack sends one when the peer moves.
//! If that is lost, the stack cannot repeat it, since a peer that only receives sends too little for another 1200 bytes (§8.1),
//! and gives up after three probe timeouts: the path carries nothing until its idle timeout. Here the node then presents the
//! same address to the stack under another name, which counts as another move and causes another challenge.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

/// RTTs after which an unanswered challenge is repeated; the interval doubles each time.
const ROUND_TRIPS: u32 = 2;
const LEAST_WAIT: Duration = Duration::from_millis(50);
const MOST_WAIT: Duration = Duration::from_secs(2);
/// Names are addresses of the discard prefix (RFC 6666), from which no packet comes. The stack ignores an address's flow
/// label, and the zone of most.
const DISCARD: u128 = 0x0100 << 112;
/// Former names that are remembered: the stack may have packets for them still.
const FORMER: usize = 1024;

/// The names under which the stack knows peers' addresses, where they have one.
#[derive(Debug, Default)]
pub(crate) struct Names {
    of: BTreeMap<SocketAddr, u64>,
    /// The addresses behind names, those of [`Self::former`] among them.
    addresses: BTreeMap<u64, SocketAddr>,
    former: VecDeque<u64>,
    last: u64,
}

impl Names {
    /// The source address of a packet as the stack is to see it.
    pub(crate) fn of(&self, remote: SocketAddr) -> SocketAddr {
        match self.of.get(&remote) {
            None => remote,
            Some(&name) => {
                let ip = Ipv6Addr::from_bits(DISCARD | u128::from(name));
                SocketAddr::new(ip.into(), remote.port())
            }
        }
    }

    /// The address behind a name.
    pub(crate) fn real(&self, known: SocketAddr) -> SocketAddr {
        let name = match known.ip() {
            IpAddr::V6(ip) if ip.to_bits() >> 64 == DISCARD >> 64 => {
                u64::try_from(ip.to_bits() & u128::from(u64::MAX))
            }
            _ => return known,
        };
        let address = name.ok().and_then(|name| self.addresses.get(&name));
        address.copied().unwrap_or(known)
    }

    /// Gives the address another name.
    pub(crate) fn renew(&mut self, remote: SocketAddr) {
        self.forget(remote);
        self.last += 1;
        self.of.insert(remote, self.last);
        self.addresses.insert(self.last, remote);
    }

    /// The address needs its name no longer.
    pub(crate) fn forget(&mut self, remote: SocketAddr) {
        self.former.extend(self.of.remove(&remote));
        while self.former.len() > FORMER
            && let Some(former) = self.former.pop_front()
        {
            self.addresses.remove(&former);
        }
    }
}

/// The state of a client's address at a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    /// The address as the stack knows it, and as the network does.
    known: SocketAddr,
    real: SocketAddr,
    /// RTT before it moved there.
    rtt: Duration,
    missing: Option<Missing>,
}

/// The client has not proved yet that it receives there.
#[derive(Clone, Copy, Debug)]
struct Missing {
    /// Number of answered challenges before it moved.
    answers: u64,
    challenged_at: Instant,
    wait: Duration,
}

/// The change of the [`Names`] that follows from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// The client is there no longer.
    Forget(SocketAddr),
    /// The client must be challenged again.
    Renew(SocketAddr),
}

impl Proof {
    /// The handshake proves the first address.
    pub(crate) fn new((known, real): (SocketAddr, SocketAddr), rtt: Duration) -> Self {
        Self {
            known,
            real,
            rtt,
            missing: None,
        }
    }

    /// The address that the stack knows as `known`.
    pub(crate) fn real(&self, known: SocketAddr) -> SocketAddr {
        match known == self.known {
            true => self.real,
            false => known,
        }
    }

    /// A packet arrived. The stack now sends to `known`, an address or a name of `real`, with this RTT; `answers` counts the
    /// client's answers to challenges.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        (known, real): (SocketAddr, SocketAddr),
        rtt: Duration,
        answers: impl FnOnce() -> u64,
    ) -> Next {
        let before = std::mem::replace(&mut self.known, known);
        let real_before = std::mem::replace(&mut self.real, real);
        let moved = real_before != real;
        // Another connection of the client may have taken the address's name with it; the stack takes that for a move too.
        if moved || (before != known && self.missing.is_none()) {
            self.missing = Some(Missing {
                answers: answers(),
                challenged_at: now,
                wait: (self.rtt * ROUND_TRIPS).clamp(LEAST_WAIT, MOST_WAIT),
            });
            return match moved {
                true => Next::Forget(real_before),
                false => Next::Nothing,
            };
        }
        let Some(missing) = &mut self.missing else {
            self.rtt = rtt;
            return Next::Nothing;
        };
        if answers() != missing.answers {
            self.missing = None;
        } else if now >= missing.challenged_at + missing.wait {
            missing.challenged_at = now;
            missing.wait = (missing.wait * 2).min(MOST_WAIT);
            return Next::Renew(real);
        }
        Next::Nothing
    }
}

#[cfg(test)]
mod tests {
    use noq_proto::FourTuple;

    use super::*;

    #[test]
    fn a_named_address_is_another_to_the_stack_and_the_same_to_the_network() {
        for remote in [
            "192.0.2.1:4600",
            "[2001:db8::1]:4600",
            "[fe80::1%3]:4600",
            "[::ffff:192.0.2.1]:4600",
        ] {
            let remote: SocketAddr = remote.parse().unwrap();
            let mut names = Names::default();
            let stack = |address| FourTuple::from_remote(address).remote();
            let mut known = vec![stack(names.of(remote))];
            assert_eq!(names.real(known[0]), remote);
            for _ in 0..3 {
                names.renew(remote);
                let name = stack(names.of(remote));
                assert!(!known.contains(&name), "{name}");
                known.push(name);
                // Packets for a former name still reach the peer.
                assert!(known.iter().all(|name| names.real(*name) == remote));
            }
            names.forget(remote);
            assert_eq!(names.of(remote), remote);
            assert!(known.iter().all(|name| names.real(*name) == remote));
        }
    }

    #[test]
    fn former_names_take_bounded_memory() {
        let mut names = Names::default();
        let kept: SocketAddr = "192.0.2.1:4600".parse().unwrap();
        names.renew(kept);
        for port in 1..10_000 {
            let other = SocketAddr::new(kept.ip(), 10_000 + port);
            names.renew(other);
            names.forget(other);
        }
        assert_eq!(names.real(names.of(kept)), kept);
        assert_eq!(names.addresses.len(), FORMER + 1);
    }
}
