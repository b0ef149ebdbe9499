//! A peer that moved proves its new address by answering a challenge (RFC 9000 §8.2). The stack sends one when the peer moves.
//! If that is lost, the stack cannot repeat it, since a peer that only receives sends too little for another 1200 bytes (§8.1),
//! and gives up after three probe timeouts: the path carries nothing until its idle timeout. Here the node then presents the
//! same address to the stack under another name, which counts as another move and causes another challenge.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    time::{Duration, Instant},
};

/// RTTs after which an unanswered challenge is repeated; the interval doubles each time.
const ROUND_TRIPS: u32 = 2;
const LEAST_WAIT: Duration = Duration::from_millis(50);
const MOST_WAIT: Duration = Duration::from_secs(2);
/// IPv4 addresses with names become addresses of this network (RFC 2765 §2.1), from which no packet comes.
const TRANSLATED: u128 = 0xffff << 48;

/// The names under which the stack knows peers' addresses, where they have one.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<SocketAddr, u32>);

impl Names {
    /// The source address of a packet as the stack is to see it.
    pub(crate) fn of(&self, remote: SocketAddr) -> SocketAddr {
        match self.0.get(&remote) {
            None => remote,
            Some(&name) => {
                let (ip, scope) = match remote {
                    SocketAddr::V4(v4) => {
                        let bits = TRANSLATED | u128::from(v4.ip().to_bits());
                        (Ipv6Addr::from_bits(bits), 0)
                    }
                    SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
                };
                SocketAddrV6::new(ip, remote.port(), name, scope).into()
            }
        }
    }

    /// Gives the address another name.
    pub(crate) fn renew(&mut self, remote: SocketAddr) {
        let name = self.0.entry(remote).or_default();
        *name = name.wrapping_add(1).max(1);
    }

    /// The address needs its name no longer.
    pub(crate) fn forget(&mut self, remote: SocketAddr) {
        self.0.remove(&remote);
    }
}

/// The address behind a name.
pub(crate) fn real(known: SocketAddr) -> SocketAddr {
    match known {
        SocketAddr::V6(v6) if v6.flowinfo() != 0 => {
            let bits = v6.ip().to_bits();
            let low = u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(0);
            match bits >> 32 == TRANSLATED >> 32 {
                true => SocketAddr::new(IpAddr::V4(low.into()), v6.port()),
                false => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
            }
        }
        other => other,
    }
}

/// The state of a client's address at a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    /// The address as the stack knows it.
    known: SocketAddr,
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
    pub(crate) fn new(known: SocketAddr, rtt: Duration) -> Self {
        Self {
            known,
            rtt,
            missing: None,
        }
    }

    /// A packet arrived. The stack now sends to `known`, an address or a name of one, with this RTT; `answers` counts the
    /// client's answers to challenges.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        known: SocketAddr,
        rtt: Duration,
        answers: impl FnOnce() -> u64,
    ) -> Next {
        let before = std::mem::replace(&mut self.known, known);
        let moved = real(before) != real(known);
        // Another connection of the client may have taken the address's name with it; the stack takes that for a move too.
        if moved || (before != known && self.missing.is_none()) {
            self.missing = Some(Missing {
                answers: answers(),
                challenged_at: now,
                wait: (self.rtt * ROUND_TRIPS).clamp(LEAST_WAIT, MOST_WAIT),
            });
            return match moved {
                true => Next::Forget(real(before)),
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
            return Next::Renew(real(known));
        }
        Next::Nothing
    }
}

#[cfg(test)]
mod tests {
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
            let mut known = vec![names.of(remote)];
            assert_eq!(known, [remote]);
            for _ in 0..3 {
                names.renew(remote);
                let name = names.of(remote);
                assert!(!known.contains(&name), "{name}");
                assert_eq!(real(name), remote);
                known.push(name);
            }
            names.forget(remote);
            assert_eq!(names.of(remote), remote);
        }
    }
}
