//! A relay: a node that carries and keeps what its neighbours ask for.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use starhaul_leotp::{Event, NeighbourConfig, NeighbourId, Stats};
use starhaul_net::{
    PeerAddress,
    leotp::{LeotpDriver, full_packet_bytes},
};

use crate::{
    Error,
    config::Config,
    keys,
    metrics::{Asked, Figures, Traffic},
};

/// How often counters are told.
const TOLD: Duration = Duration::from_secs(60);

/// A relay that runs.
#[derive(Debug)]
pub struct Relay {
    driver: LeotpDriver,
    names: Vec<String>,
    cache_max_bytes: usize,
    began: Instant,
    metrics: Option<Asked>,
    told: (Instant, Stats),
    shared: keys::SharedKeys,
}

impl Relay {
    /// A relay at its address. A transparent one, on a host that forwards packets, takes what passes to the neighbours with an
    /// address, and answers under that address.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Transparent`], [`Error::NoTarget`], and those of the socket.
    pub fn open(config: Config, is_transparent: bool) -> Result<Self, Error> {
        let now = Instant::now();
        let packet_bytes = full_packet_bytes(config.listen);
        let mut node = keys::node(config.cache_bytes, config.rate_rule, packet_bytes)?;
        let ids = (0..).map(NeighbourId);
        let mut addresses = Vec::new();
        let mut watched = Vec::new();
        let mut names = Vec::new();
        for (id, neighbour) in ids.zip(config.neighbours) {
            let key = neighbour.key;
            node.add_neighbour(now, id, NeighbourConfig { key })?;
            addresses.push((id, neighbour.address));
            watched.push((id, neighbour.signals));
            if config.upstream.as_ref() == Some(&neighbour.name) {
                node.set_upstream(now, Some(id));
            }
            names.push(neighbour.name);
        }
        let mut driver = match is_transparent {
            true => {
                for (_, address) in &mut addresses {
                    // The rules that intercept need the address.
                    if let Some(PeerAddress::Named(name)) = address {
                        *address = Some(keys::resolve(name, config.listen)?.into());
                    }
                }
                let addresses = addresses.iter().filter_map(|(_, address)| match address {
                    Some(PeerAddress::At(address)) => Some(*address),
                    _ => None,
                });
                let targets = targets(config.listen, addresses)?;
                LeotpDriver::bind_transparent(config.listen, node, targets)?
            }
            false => LeotpDriver::bind(config.listen, node)?,
        };
        for (id, address) in addresses {
            if let Some(PeerAddress::At(address)) = address
                && address.is_ipv4() != config.listen.is_ipv4()
            {
                return Err(Error::Address {
                    address: address.to_string(),
                    reason: format!("it has another IP version than {}", config.listen),
                });
            }
            driver.place(id, address.as_ref())?;
        }
        for (id, signals) in watched {
            driver.watch(id, signals);
        }
        let serve = |address| Asked::start(address, driver.waker());
        let metrics = config.metrics.map(serve).transpose()?;
        Ok(Self {
            driver,
            names,
            cache_max_bytes: config.cache_bytes,
            began: now,
            metrics,
            shared: keys::SharedKeys::default(),
            told: (now, Stats::default()),
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.driver.local_addr()
    }

    /// Returns the counters of packets and bytes since the start.
    pub fn traffic(&mut self) -> Traffic {
        let strangers = self.driver.strangers();
        let node = self.driver.node();
        Traffic {
            node: node.stats(),
            cache_bytes: node.memory().0,
            strangers,
        }
    }

    /// Where metrics are served, with the port that the kernel chose, if they are configured.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Asked::address)
    }

    /// All that is told of it.
    pub fn figures(&mut self) -> Figures {
        let traffic = self.traffic();
        let node = self.driver.node();
        let ids = (0..).map(NeighbourId);
        let names = ids.zip(&self.names);
        Figures {
            uptime_s: self.began.elapsed().as_secs_f64(),
            traffic,
            cache_max_bytes: self.cache_max_bytes,
            neighbours: names
                .map(|(id, name)| (name.clone(), node.has_met(id)))
                .collect(),
            process: starhaul_metrics::process(),
        }
    }

    /// Relays until the socket fails.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn run(&mut self) -> Result<std::convert::Infallible, Error> {
        loop {
            self.turn(self.told.0 + TOLD)?;
            if self.told.0.elapsed() >= TOLD {
                self.tell();
            }
        }
    }

    /// Does what is to be done now, or waits for it until `deadline`.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn turn(&mut self, deadline: Instant) -> Result<(), Error> {
        self.driver.turn(Some(deadline))?;
        while let Some(event) = self.driver.node().poll_event() {
            let name = |id: NeighbourId| {
                let name = usize::try_from(id.0).ok().and_then(|id| self.names.get(id));
                name.map_or("?", String::as_str)
            };
            match event {
                Event::Met(id) => tracing::info!(neighbour = name(id), "is there"),
                Event::Shared(id) => self.shared.warn(&name(id)),
                _ => {}
            }
        }
        while let Some(answer) = self.metrics.as_ref().and_then(Asked::next) {
            // Who asked may have lost patience.
            let _ = answer.try_send(self.figures());
        }
        Ok(())
    }

    fn tell(&mut self) {
        let traffic = self.traffic();
        let (before, node) = (self.told.1, traffic.node);
        self.told = (Instant::now(), node);
        if node != before {
            tracing::info!(
                data_received = node.data_received - before.data_received,
                data_sent = node.data_sent - before.data_sent,
                lost = node.reported_lost - before.reported_lost,
                repaired = node.repaired - before.repaired,
                reconfigurations = node.reconfigurations - before.reconfigurations,
                bytes_from_cache = node.cache_hits - before.cache_hits,
                cache_bytes = traffic.cache_bytes,
                dropped = node.queue_drops + node.frame_drops - before.queue_drops - before.frame_drops,
                refused = ?node.refused,
                strangers = traffic.strangers,
                "in the last minute"
            );
        }
    }
}

/// Whose datagrams a transparent relay takes.
fn targets(
    listen: SocketAddr,
    neighbours: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<IpAddr>, Error> {
    let mut targets = Vec::new();
    for address in neighbours {
        // A transparent socket could be bound to an address that this host does not have.
        if !listen.ip().is_unspecified()
            || address.port() != listen.port()
            || address.is_ipv4() != listen.is_ipv4()
        {
            return Err(Error::Transparent { listen, address });
        }
        targets.push(address.ip());
    }
    match targets.is_empty() {
        true => Err(Error::NoTarget),
        false => Ok(targets),
    }
}
