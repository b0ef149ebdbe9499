//! The flows that travel as bundles: the node as configured, and the way of a rule to a far gateway.

use std::{sync::Arc, time::Duration};

use starhaul_dtn_client::{
    carriage::{BundleConfig, BundleFlows},
    flows,
};

use crate::{
    Error,
    config::{BundleRule, Carrier, IngressRule},
    ingress::{Rule, Service},
};

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

/// Rules over bundles to far gateways that were not configured at the start stay as they were: returns them.
pub(crate) fn keep_unserved<S: Service>(
    bundles: Option<&Bundles>,
    rules: &mut Vec<IngressRule<S>>,
    served: &[Arc<Rule<S>>],
    carrier: impl Fn(&S) -> Carrier,
) -> Vec<Error> {
    let mut failed = Vec::new();
    let leads_somewhere = |rule: &IngressRule<S>| match carrier(&rule.service) {
        Carrier::Bundle(lifetime) => {
            bundles.is_some_and(|bundles| bundles.way(&rule.peer, lifetime).is_some())
        }
        Carrier::Session | Carrier::Leotp => true,
    };
    let kept = rules.drain(..).filter_map(|rule| {
        if leads_somewhere(&rule) {
            return Some(rule);
        }
        let (name, peer) = (&rule.name, &rule.peer);
        failed.push(Error::Bundle(format!(
            "rule {name:?} needs a restart: there was no far gateway {peer:?} at the start"
        )));
        let former = served.iter().find(|known| known.config.name == rule.name);
        former.map(|former| former.config.clone())
    });
    *rules = kept.collect();
    failed
}
