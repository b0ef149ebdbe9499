//! Random seeds, addresses, and nodes ready for sockets.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use ring::rand::{SecureRandom as _, SystemRandom};
use starhaul_leotp::{Node, NodeConfig, RateRule};

use crate::Error;

/// Data may leave this much early, so that a system call carries several datagrams at high rates.
const BURST: Duration = Duration::from_micros(500);
/// Hosts wake programs some packets late, and a hop with less behind it runs dry meanwhile: the published number by either rule.
const BACKLOG_SEGMENTS: f64 = RateRule::PUBLISHED_BACKLOG;

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| Error::Randomness)
}

/// A node that begins to live now, finds the rates of its hops by this rule, and serves packets of this UDP payload.
pub(crate) fn node(
    cache_bytes: usize,
    rate_rule: RateRule,
    packet_bytes: u16,
) -> Result<Node, Error> {
    let config = NodeConfig {
        cache_bytes,
        segment_bytes: NodeConfig::segment_in(packet_bytes.into()),
        burst: BURST,
        backlog_segments: BACKLOG_SEGMENTS,
        ..NodeConfig::default()
    };
    let config = config.by_rule(rate_rule);
    Ok(Node::new(Instant::now(), config, random()?)?)
}

/// The address of `host:port` that a socket at `local` reaches.
pub(crate) fn resolve(text: &str, local: SocketAddr) -> Result<SocketAddr, Error> {
    let error = |reason: String| Error::Address {
        address: text.to_owned(),
        reason,
    };
    let found = text.to_socket_addrs();
    let mut found = found.map_err(|why| error(why.to_string()))?;
    let found = found.find(|address| address.is_ipv4() == local.is_ipv4());
    found.ok_or_else(|| error(format!("it has no address of the IP version of {local}")))
}

/// Tells of keys that two programs use, once a minute.
#[derive(Debug, Default)]
pub(crate) struct SharedKeys(starhaul_log::Seldom);

impl SharedKeys {
    pub(crate) fn warn(&self, neighbour: &dyn std::fmt::Display) {
        if let Some(withheld) = self.0.is_due(Instant::now()) {
            tracing::warn!(%neighbour, withheld, "two programs use its key: each keeps the other from what it asks for");
        }
    }
}
