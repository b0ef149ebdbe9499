//! Two hosts joined by emulated links beside each other, each host a network namespace of its own, with programs and sockets of
//! this process at both.

use std::{ffi::OsString, io, net::IpAddr};

use starhaul_link::Loss;

use crate::{
    Error, ReplayLink,
    engine::Engine,
    namespace::NetworkNamespace,
    network::Network,
    program::{Program, Programs},
    report::LinksReport,
};

/// Where the kernel counts what each device carried, for the namespace of the thread that reads it.
const COUNTERS: &str = "/proc/thread-self/net/dev";
/// Place of the bytes sent among the numbers of a device.
const SENT_BYTES: usize = 8;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The host from which the direction `up` leads.
    Near,
    /// The host to which the direction `up` leads.
    Far,
}

/// Two hosts and their links, which exist while [`Hosts::run`] calls its work.
pub struct Hosts {
    network: Network,
    names: Vec<String>,
    engine: Engine,
    programs: Programs,
}

impl Hosts {
    /// Makes two hosts joined by `links`, calls `work`, and removes them.
    ///
    /// A socket that is bound to a link's address uses that link, as does one that sends to the address of the link's other end.
    /// An ordinary user becomes root as for [`run`](crate::run()).
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Namespace`], [`Error::Tun`] and [`Error::Network`] when the system does not allow
    /// emulated links.
    pub fn run<T, E: From<Error>>(
        links: &[ReplayLink],
        supervisor: &[OsString],
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<(T, LinksReport), E> {
        let mut network = Network::create(links, true)?;
        let mut warnings = std::mem::take(&mut network.warnings);
        let engine = Engine::start(links, &network.links, None, false)?;
        let programs = Programs {
            supervisor: supervisor.to_vec(),
            environment: std::mem::take(&mut network.environment),
        };
        let hosts = Self {
            network,
            names: links.iter().map(|link| link.name.clone()).collect(),
            engine,
            programs,
        };
        let done = work(&hosts);
        let links = hosts.engine.finish(links, &mut warnings);
        let done = done?;
        let links = links?;
        Ok((done, LinksReport { links, warnings }))
    }

    /// The IPv4 address of a host's end of a link.
    pub fn address(&self, host: Host, link: usize) -> Option<IpAddr> {
        let [near, far] = self.network.links.get(link)?.ends;
        Some(match host {
            Host::Near => near,
            Host::Far => far,
        })
    }

    /// Calls `work` at a host, on a thread of its own: sockets, threads and processes that it makes belong there.
    ///
    /// # Errors
    /// Errors of `work`, and the system's if it refuses a thread.
    pub fn inside<T: Send>(
        &self,
        host: Host,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        self.namespace(host).inside(work)
    }

    /// Starts a program at a host, which ends with the returned value. What it prints goes to standard error.
    ///
    /// # Errors
    /// [`Error::Command`] when it could not be started.
    pub fn start(&self, host: Host, command: &[OsString]) -> Result<Program, Error> {
        self.programs.start(self.namespace(host), command)
    }

    /// Gives both directions of a link another random loss for the packets that come from now on.
    pub fn set_loss(&self, link: usize, loss: Loss) {
        self.engine.set_loss(link, loss);
    }

    /// The bytes that a host gave to each link so far, by the counters of its devices: whole IP packets.
    ///
    /// # Errors
    /// The system does not give them.
    pub fn sent_bytes(&self, host: Host) -> Result<Vec<u64>, Error> {
        let table = self.inside(host, || std::fs::read_to_string(COUNTERS));
        let table = table.map_err(Error::Network)?;
        let all = self.names.iter().map(|name| sent_bytes(&table, name));
        let all: Option<Vec<u64>> = all.collect();
        let missing = || io::Error::new(io::ErrorKind::NotFound, "a device is not counted");
        all.ok_or_else(|| Error::Network(missing()))
    }

    fn namespace(&self, host: Host) -> &NetworkNamespace {
        match host {
            Host::Near => &self.network.near,
            Host::Far => &self.network.far,
        }
    }
}

fn sent_bytes(table: &str, device: &str) -> Option<u64> {
    let mut devices = table.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = devices.find(|(name, _)| name.trim() == device)?;
    numbers.split_whitespace().nth(SENT_BYTES)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_those_of_the_device_by_its_whole_name() {
        let table = "Inter-|   Receive | Transmit\n face |bytes packets|bytes\n\
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  dear: 1 2 3 4 5 6 7 8 77 10 11 12 13 14 15 16\n\
            dear2:1 2 3 4 5 6 7 8 88 10 11 12 13 14 15 16\n";
        assert_eq!(sent_bytes(table, "dear"), Some(77));
        assert_eq!(sent_bytes(table, "dear2"), Some(88));
        assert_eq!(sent_bytes(table, "cheap"), None);
    }
}
