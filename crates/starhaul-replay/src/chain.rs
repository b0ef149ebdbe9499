//! Nodes in a row, each a network namespace of its own, joined by emulated links: the first and the last are hosts, those
//! between them route packets from link to link, and programs run at any of them.

use std::{ffi::OsString, io, net::IpAddr, process::Stdio, sync::Arc};

use starhaul_net::{MAIN_TABLE, Routing};

use crate::{
    Error, ReplayLink,
    engine::Engine,
    namespace::NetworkNamespace,
    network::{self, LinkNetwork},
    report::{self, LinkReport},
    supervisor::{Running, Start},
};

/// Nodes and links that exist while [`Chain::run`] calls its work.
pub struct Chain {
    nodes: Vec<NetworkNamespace>,
    /// The end of each link at the node of higher number.
    addresses: Vec<IpAddr>,
    /// See [`ReplaySpec::supervisor`](crate::ReplaySpec::supervisor).
    supervisor: Vec<OsString>,
    environment: Vec<(String, String)>,
}

/// What the links of a chain carried.
#[derive(Clone, Debug)]
pub struct ChainReport {
    /// Reports of the links in their order.
    pub links: Vec<LinkReport>,
    /// Warnings to show to the user.
    pub warnings: Vec<String>,
}

/// A program at a node; it ends with this value, and so does all that it started.
pub struct Program(Option<Running>);

impl Chain {
    /// Makes a chain, calls `work`, and removes the chain. `links[n]` joins node `n` with node `n` + 1, to which `up` leads.
    ///
    /// Every node reaches all nodes of higher numbers at their [`Chain::address`], and these answer to the first node and to
    /// their neighbours. An ordinary user becomes root as for [`run`](crate::run()).
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Namespace`], [`Error::Tun`] and [`Error::Network`] when the system does not allow
    /// emulated links.
    pub fn run<T, E: From<Error>>(
        links: &[ReplayLink],
        supervisor: &[OsString],
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<(T, ChainReport), E> {
        let (chain, devices) = Self::create(links, supervisor)?;
        let engine = Engine::start(links, &devices, None, false)?;
        let done = work(&chain);
        let mut warnings = Vec::new();
        let links = engine.finish(links, &mut warnings);
        let done = done?;
        let links = links?;
        Ok((done, ChainReport { links, warnings }))
    }

    fn create(
        links: &[ReplayLink],
        supervisor: &[OsString],
    ) -> Result<(Self, Vec<LinkNetwork>), Error> {
        let (depth, inner) = network::depths();
        let mut chain = Self {
            nodes: vec![new_node()?],
            addresses: Vec::new(),
            supervisor: supervisor.to_vec(),
            environment: vec![inner],
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
        let server = self.start(node, command, Stdio::from(io::stderr()), false)?;
        let (server, _) = server.until_it_listens(self.node(node)?)?;
        Ok(Program(Some(server)))
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
        let running = self.start(node, command, stdout, true)?;
        Ok(Program(Some(running)))
    }

    fn start(
        &self,
        node: usize,
        command: &[OsString],
        stdout: Stdio,
        hand_on_signals: bool,
    ) -> Result<Running, Error> {
        let start = Start {
            supervisor: &self.supervisor,
            network: self.node(node)?,
            command,
            environment: &self.environment,
            stdin: Stdio::null(),
            stdout,
            // Relays forward packets as links do, and TCP that the kernel forwards waits for no scheduler either.
            runs_first: true,
        };
        start.spawn(hand_on_signals).map_err(Error::Command)
    }

    fn node(&self, node: usize) -> Result<&NetworkNamespace, Error> {
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, format!("there is no node {node}"));
        self.nodes
            .get(node)
            .ok_or_else(|| Error::Command(missing()))
    }
}

impl ChainReport {
    /// Whether p99 of the lateness of all packets is within [`LATENESS_BOUND`](crate::LATENESS_BOUND).
    pub fn is_valid(&self) -> bool {
        report::is_in_time(&self.links)
    }
}

impl Program {
    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(Running::is_over)
    }

    /// Waits for its end; returns the exit code as a shell reports it.
    ///
    /// # Errors
    /// [`Error::Command`] if it could not be waited for.
    pub fn wait(mut self) -> Result<u8, Error> {
        let running = self.0.take();
        running.map_or(Ok(0), |running| running.wait().map_err(Error::Command))
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(mut self) {
        if let Some(running) = self.0.take() {
            running.kill();
        }
    }
}

impl Drop for Program {
    /// Terminates it, and kills it after a grace time.
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.end();
        }
    }
}

fn new_node() -> Result<NetworkNamespace, Error> {
    let (node, _) = NetworkNamespace::create_as_root()?;
    node.inside(network::loopback_up).map_err(Error::Network)?;
    Ok(node)
}
