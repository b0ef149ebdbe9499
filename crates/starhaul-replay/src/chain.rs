//! Nodes in a row, each a network namespace of its own, joined by emulated links: the first and the last are hosts, those
//! between them route packets from link to link, and programs run at any of them.

use std::{ffi::OsString, io, net::IpAddr, process::Stdio, sync::Arc};

use starhaul_net::{MAIN_TABLE, Routing};

use crate::{
    Error, ReplayLink,
    engine::Engine,
    namespace::NetworkNamespace,
    network::{self, LinkNetwork, widen},
    program::{Program, Programs},
    report::LinksReport,
};

/// Nodes and links that exist while [`Chain::run`] calls its work.
pub struct Chain {
    nodes: Vec<NetworkNamespace>,
    /// The end of each link at the node of higher number.
    addresses: Vec<IpAddr>,
    programs: Programs,
}

impl Chain {
    /// Makes a chain, calls `work`, and removes the chain. `links[n]` joins node `n` with node `n` + 1, to which `up` leads.
    ///
    /// Every node reaches all nodes of higher numbers at their [`Chain::address`], and these answer to the first node and to
    /// their neighbours. TCP of every node may have `tcp_window_bytes` in flight, or as many as the system allows. An ordinary user
    /// becomes root as for [`run`](crate::run()).
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Namespace`], [`Error::Tun`] and [`Error::Network`] when the system does not allow
    /// emulated links.
    pub fn run<T, E: From<Error>>(
        links: &[ReplayLink],
        supervisor: &[OsString],
        tcp_window_bytes: Option<u64>,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<(T, LinksReport), E> {
        let (chain, devices) = Self::create(links, supervisor)?;
        let mut warnings = Vec::new();
        if let Some(bytes) = tcp_window_bytes {
            let mut wider = chain.nodes.iter().map(|node| widen(node, bytes));
            warnings.extend(wider.find_map(Result::err));
        }
        let engine = Engine::start(links, &devices, None, false)?;
        let done = work(&chain);
        let links = engine.finish(links, &mut warnings);
        let done = done?;
        let links = links?;
        Ok((done, LinksReport { links, warnings }))
    }

    fn create(
        links: &[ReplayLink],
        supervisor: &[OsString],
    ) -> Result<(Self, Vec<LinkNetwork>), Error> {
        let (depth, inner) = network::depths();
        let mut chain = Self {
            nodes: vec![new_node()?],
            addresses: Vec::new(),
            programs: Programs {
                supervisor: supervisor.to_vec(),
                environment: vec![inner],
            },
        };
        let mut devices = Vec::new();
        let mut first = None;
        for (number, link) in (0..).zip(links) {
            let [far_address, near_address] = network::addresses(depth, number).map(IpAddr::V4);
            let far_node = new_node()?;
            let far = network::device(&far_node, &link.name)?;
            let answers = || {
                let routing = Routing::open()?;
                routing.add_address(far.index(), far_address, near_address)?;
                // The first node is no neighbour of this one, but it is who asks.
                match first {
                    Some(first) => {
                        routing.add_route(far.index(), Some(first), far_address, MAIN_TABLE, 1)
                    }
                    None => Ok(()),
                }
            };
            far_node.inside(answers).map_err(Error::Network)?;
            let Some(near_node) = chain.nodes.last() else {
                break;
            };
            let near = network::device(near_node, &link.name)?;
            let asks = || {
                let routing = Routing::open()?;
                routing.add_address(near.index(), near_address, far_address)?;
                routing.add_route(near.index(), None, near_address, MAIN_TABLE, 1)
            };
            near_node.inside(asks).map_err(Error::Network)?;
            first = first.or(Some(near_address));
            devices.push(LinkNetwork {
                near: Arc::new(near),
                far: Arc::new(far),
                ends: [near_address, far_address],
            });
            chain.nodes.push(far_node);
            chain.addresses.push(far_address);
        }
        Ok((chain, devices))
    }

    /// Where nodes of lower numbers reach a node. The first node has none.
    pub fn address(&self, node: usize) -> Option<IpAddr> {
        self.addresses.get(node.checked_sub(1)?).copied()
    }

    /// Starts a program that serves at a node, and waits until it listens for TCP or receives UDP, for some seconds at most.
    ///
    /// # Errors
    /// [`Error::Command`] when it could not be started, [`Error::Server`] when it ended before it listened.
    pub fn serve(&self, node: usize, command: &[OsString]) -> Result<Program, Error> {
        self.programs.serve(self.node(node)?, command)
    }

    /// Starts a program at a node, to which signals to this process are forwarded.
    ///
    /// # Errors
    /// [`Error::Command`] when it could not be started.
    pub fn command(
        &self,
        node: usize,
        command: &[OsString],
        stdout: Stdio,
    ) -> Result<Program, Error> {
        self.programs.command(self.node(node)?, command, stdout)
    }

    fn node(&self, node: usize) -> Result<&NetworkNamespace, Error> {
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, format!("there is no node {node}"));
        self.nodes
            .get(node)
            .ok_or_else(|| Error::Command(missing()))
    }
}

fn new_node() -> Result<NetworkNamespace, Error> {
    let (node, _) = NetworkNamespace::create_as_root()?;
    node.inside(network::loopback_up).map_err(Error::Network)?;
    Ok(node)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use starhaul_link::LinkSpec;
    use starhaul_needs::{Need, skip};

    use super::*;

    #[test]
    fn tcp_of_every_node_has_the_windows_that_were_asked_for() {
        let link = |name: &str| {
            let link = LinkSpec::default();
            ReplayLink::new(name, link.clone(), link, 0, 0)
        };
        let links = [link("one"), link("two")];
        let greatest = |node: &NetworkNamespace| {
            let bounds = node.inside(|| std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem"));
            let bounds = bounds.unwrap();
            bounds.split_whitespace().last().map(str::to_owned)
        };
        let read = |chain: &Chain| Ok::<_, Error>(chain.nodes.iter().map(greatest).collect());
        let found: Vec<Option<String>> = match Chain::run(&links, &[], Some(64 << 20), read) {
            Ok((found, _)) => found,
            Err(error) => return skip(Need::Netns, error),
        };
        let twice = (128_u64 << 20).to_string();
        assert_eq!(found, vec![Some(twice); 3]);
    }
}
