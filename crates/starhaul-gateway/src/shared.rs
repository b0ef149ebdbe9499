//! The state that all tasks of a gateway share.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use starhaul_endpoint::{Chain, PublicKey};

use crate::{
    parts::Seen,
    status::{self, Rates, Status},
};

/// The state that all tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) public_key: PublicKey,
    pub(crate) listen: Vec<SocketAddr>,
    /// Where metrics and the live page are served.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) started: Instant,
    pub(crate) seen: Arc<Seen>,
    pub(crate) chain: Option<Chain>,
    pub(crate) rates: Rates,
}

impl Shared {
    pub(crate) fn status(&self) -> Status {
        status::status(self)
    }
}
