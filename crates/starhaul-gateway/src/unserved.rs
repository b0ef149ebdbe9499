//! Rules that a reload cannot serve before a restart.

use std::sync::Arc;

use crate::{
    Error,
    bundles::Bundles,
    config::{Carrier, IngressRule},
    ingress::{Rule, Service},
};

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
