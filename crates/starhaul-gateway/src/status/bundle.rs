//! The flows of a gateway over bundles.

use serde::{Deserialize, Serialize};
use starhaul_dtn_client::flows::Counters;

use super::LimitStatus;
use crate::bundles::Bundles;

/// The flows over bundles; counters since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bundle {
    /// This gateway's endpoint, while the bundle node answers.
    pub endpoint: Option<String>,
    /// The far gateways' names.
    pub peers: Vec<String>,
    /// Whether the bundle node has no room for the next bundle.
    pub node_is_full: bool,
    /// What the flows have carried since the start.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Bundle {
    pub(super) fn of(bundles: &Bundles) -> Self {
        let status = bundles.flows.status();
        Self {
            endpoint: status.endpoint,
            peers: bundles.names.to_vec(),
            node_is_full: status.is_full,
            counters: status.counters,
        }
    }

    /// The bound of flows that a far gateway may have here.
    pub(super) fn limit(bundles: &Bundles) -> LimitStatus {
        LimitStatus {
            name: "flows of a far gateway over bundles".to_owned(),
            rule: None,
            count: bundles.flows.status().counters.limited,
            limit: bundles.most_flows as u64,
            key: "[bundle] max_flows".to_owned(),
        }
    }
}
