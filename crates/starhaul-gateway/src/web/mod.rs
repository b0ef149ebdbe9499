//! Metrics and the live page over HTTP, for reading alone. However often clients ask, the gateway's status is taken five times a
//! second at most.

mod answer;
mod metrics;
mod snapshot;

use std::{net::SocketAddr, sync::Arc};

use starhaul_metrics::Server;

use self::answer::Site;
use crate::{Error, shared::Shared};

/// The listening server.
#[derive(Debug)]
pub(crate) struct WebServer(Server);

impl WebServer {
    /// Binds the configured address.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let bound = Server::bind(address).await;
        bound
            .map(Self)
            .map_err(|reason| Error::Metrics { address, reason })
    }

    /// The address, with the port that the kernel chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Answers until dropped.
    pub(crate) async fn serve(self, shared: Arc<Shared>) {
        self.0.serve(Site::new(shared)).await;
    }
}
