//! Limits of what one source or one key may hold of a server, so that none can lock out the others.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use starhaul_session::Side;

use super::Node;
use crate::{CloseCode, Error, PublicKey, SessionHandle};

/// A session is dead after this time beyond `keepalive` without a packet: it is probed that often, and a living peer answers.
const DEAD_AFTER: Duration = Duration::from_secs(2);
/// However short `keepalive` is, a path is probed no more often.
const LEAST_KEEPALIVE: Duration = Duration::from_secs(1);

/// The source of connections: an IPv4 address or an IPv6 network of 64 bits, of which one host can have every address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            v4 => v4,
        })
    }
}

/// The number of accepted connections of each source that have not joined a session yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    of_sources: BTreeMap<Source, usize>,
    total: usize,
}

impl Pending {
    pub(super) fn add(&mut self, source: Source) {
        *self.of_sources.entry(source).or_default() += 1;
        self.total += 1;
    }

    pub(super) fn remove(&mut self, source: Source) {
        if let Some(held) = self.of_sources.get_mut(&source) {
            *held -= 1;
            self.total -= 1;
            if *held == 0 {
                self.of_sources.remove(&source);
            }
        }
    }

    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) fn held(&self, source: Source) -> usize {
        self.of_sources.get(&source).copied().unwrap_or_default()
    }
}

impl Node {
    /// Whether `peer` may open one more session. At its limit, its session that is dead for longest is ended.
    pub(super) fn has_room_for(&mut self, now: Instant, peer: PublicKey) -> bool {
        let of_peer =
            |state: &super::SessionState| state.side == Side::Server && state.peer == peer;
        let held: Vec<(Instant, SessionHandle)> = self
            .sessions
            .iter()
            .filter(|(_, state)| of_peer(state))
            .map(|(handle, state)| (state.heard_at, *handle))
            .collect();
        if held.len() < self.config.max_sessions_per_peer
            && self.sessions.len() < self.config.max_sessions
        {
            return true;
        }
        let oldest = held.into_iter().min();
        let patience = DEAD_AFTER + self.config.session.keepalive.max(LEAST_KEEPALIVE);
        let Some((_, dead)) = oldest.filter(|(heard_at, _)| *heard_at + patience <= now) else {
            return false;
        };
        let error = Some(Error::Displaced);
        self.end_session(now, dead, CloseCode::Superseded, "", error);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_host_is_one_source_with_all_addresses_of_its_network() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:1:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.2"), source("10.0.0.1"));
    }

    #[test]
    fn a_share_is_given_back() {
        let mut pending = Pending::default();
        let source = Source::of("10.0.0.1".parse().unwrap());
        (0..3).for_each(|_| pending.add(source));
        assert_eq!(pending.held(source), 3);
        (0..3).for_each(|_| pending.remove(source));
        assert!(pending.of_sources.is_empty() && pending.total() == 0);
    }
}
