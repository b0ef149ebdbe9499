//! The flows that travel as bundles: the node as configured, and the way of a rule to a far gateway.

use std::{sync::Arc, time::Duration};

use starhaul_dtn_client::{
    carriage::{BundleConfig, BundleFlows},
    flows,
};

use crate::{Error, config::BundleRule};

/// The flows over a bundle node, and the names of the far gateways.
#[derive(Clone, Debug)]
pub(crate) struct Bundles {
    pub(crate) flows: BundleFlows,
    pub(crate) names: Arc<[String]>,
    /// Flows that each may have here.
    pub(crate) most_flows: usize,
}

/// The way of a rule's flows to a far gateway.
#[derive(Clone, Debug)]
pub(crate) struct BundleWay {
    pub(crate) flows: BundleFlows,
    /// The far gateway's place, and its name.
    pub(crate) peer: usize,
    pub(crate) name: String,
    /// How long the bundles live.
    pub(crate) lifetime: Duration,
}

impl Bundles {
    /// Starts the task that serves the node's socket; the node need not be there yet.
    pub(crate) fn start(rule: &BundleRule) -> Result<Self, Error> {
        let limits = flows::Limits {
            flows: rule.max_flows,
            window: rule.window,
            ..flows::Limits::default()
        };
        let peers = rule.peers.iter();
        let flows = BundleFlows::start(BundleConfig {
            socket: rule.socket.clone(),
            service: rule.service.clone(),
            peers: peers.clone().map(|peer| peer.endpoint.clone()).collect(),
            limits,
        });
        Ok(Self {
            flows: flows.map_err(|error| Error::Bundle(error.to_string()))?,
            names: peers.map(|peer| peer.name.clone()).collect(),
            most_flows: rule.max_flows,
        })
    }

    /// The way to the far gateway of this name, if it was configured at the start.
    pub(crate) fn way(&self, name: &str, lifetime: Duration) -> Option<BundleWay> {
        let peer = self.names.iter().position(|known| known == name)?;
        Some(BundleWay {
            flows: self.flows.clone(),
            peer,
            name: name.to_owned(),
            lifetime,
        })
    }
}
