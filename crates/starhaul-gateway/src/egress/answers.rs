//! Answers to the connections that we open in the name of peers' clients: the kernel passes them to our sockets.

use ipnet::IpNet;
use starhaul_net::Interception;

use crate::{
    Error,
    open_networks::{prefixes, with_open},
};

/// What passes answers to us, as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    clients: Vec<IpNet>,
    /// Those, and the networks of clients that may have open connections.
    open: Vec<IpNet>,
    intercepting: Vec<Interception>,
}

impl Answers {
    /// The networks whose answers come to us.
    pub(crate) fn clients(&self) -> &[IpNet] {
        &self.clients
    }

    /// Takes the answers for new connections of these networks from now on, and of those that are open.
    ///
    /// # Errors
    /// The system does not allow it; all is as before.
    pub(crate) async fn follow(&mut self, clients: &[IpNet]) -> Result<(), Error> {
        if self.clients == clients {
            return Ok(());
        }
        let open = with_open(clients, &self.open);
        let mut next = Vec::new();
        for is_ipv4 in [true, false] {
            let of_version = |net: &IpNet| matches!(net, IpNet::V4(_)) == is_ipv4;
            let networks: Vec<IpNet> = open.iter().copied().filter(of_version).collect();
            if networks.is_empty() {
                continue;
            }
            let networks = prefixes(&networks);
            // It waits for other programs.
            let start = move || Interception::of_answers(is_ipv4, &networks);
            let started = tokio::task::spawn_blocking(start).await;
            let started = started.map_err(|error| Error::Clients(error.to_string()))?;
            next.push(started.map_err(|error| Error::Clients(error.to_string()))?);
        }
        // Those before go when the next ones are there; that waits for other programs.
        let before = std::mem::replace(&mut self.intercepting, next);
        tokio::task::spawn_blocking(move || drop(before));
        self.clients = clients.to_vec();
        self.open = open;
        Ok(())
    }
}
