//! Answers to the connections that we open in the name of peers' clients: the kernel passes them to our sockets.

use ipnet::IpNet;
use starhaul_net::Interception;

use crate::Error;

/// What passes answers to us, as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    clients: Vec<IpNet>,
    intercepting: Vec<Interception>,
}

impl Answers {
    /// Takes the answers for these networks from now on, and for no others.
    ///
    /// # Errors
    /// The system does not allow it.
    pub(crate) async fn follow(&mut self, clients: &[IpNet]) -> Result<(), Error> {
        if self.clients == clients {
            return Ok(());
        }
        self.intercepting.clear();
        self.clients.clear();
        for is_ipv4 in [true, false] {
            let of_version = clients
                .iter()
                .filter(|net| matches!(net, IpNet::V4(_)) == is_ipv4);
            let networks: Vec<_> = of_version
                .map(|net| (net.addr(), net.prefix_len()))
                .collect();
            if networks.is_empty() {
                continue;
            }
            // It waits for other programs.
            let start = move || Interception::of_answers(is_ipv4, &networks);
            let started = tokio::task::spawn_blocking(start).await;
            let started = started.map_err(|error| Error::Clients(error.to_string()))?;
            self.intercepting
                .push(started.map_err(|error| Error::Clients(error.to_string()))?);
        }
        self.clients = clients.to_vec();
        Ok(())
    }
}
