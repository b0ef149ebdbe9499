//! Tells the bundle agent the routes of the contact plan and of the configuration.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use hardy_bpa::{
    async_trait,
    routing::{RouteAction, RoutingAgent, RoutingSink},
};
use hardy_eid_patterns::EidPattern;
use tokio::sync::Mutex;

use crate::{
    plan::{Moment, NodeId},
    schedule::Schedule,
    stock::Stock,
};

/// Lower numbers are looked at first; the agent's own for neighbours and applications are 0 and 1.
const PLANNED: u32 = 10;
const CONFIGURED: u32 = 100;

/// The node's routes.
pub(crate) struct Routes {
    schedule: Arc<Schedule>,
    stock: Arc<Stock>,
    configured: Vec<(EidPattern, NodeId)>,
    sink: OnceLock<Box<dyn RoutingSink>>,
    /// The next node on the way to each, as the agent knows it.
    planned: Mutex<BTreeMap<NodeId, NodeId>>,
}

impl Routes {
    /// The routes of this schedule, and those that always hold.
    pub(crate) fn new(
        schedule: Arc<Schedule>,
        stock: Arc<Stock>,
        configured: Vec<(EidPattern, NodeId)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            schedule,
            stock,
            configured,
            sink: OnceLock::new(),
            planned: Mutex::default(),
        })
    }

    /// Tells the agent what has changed.
    pub(crate) async fn update(&self, now: Moment) {
        let Some(sink) = self.sink.get() else { return };
        let mut planned = self.planned.lock().await;
        // Computed under the lock: the last one that tells the agent has the newest bookings.
        let mut wanted = self.schedule.look(now);
        // The agent knows the way to the neighbours that it is shown.
        wanted.retain(|to, via| to != via);
        // Bundles of a size that wait may have a way that the agent knows already.
        let has_changed = self.schedule.take_changed();
        let mut is_told = false;
        let _change = (*planned != wanted).then(|| self.stock.changes.begin());
        for (to, via) in planned
            .iter()
            .filter(|(to, via)| wanted.get(*to) != Some(*via))
        {
            let action = RouteAction::Via(via.clone().into());
            if let Err(error) = sink
                .remove_route(&to.clone().into(), &action, PLANNED)
                .await
            {
                tracing::warn!(%to, %via, %error, "a route cannot be removed");
            }
        }
        for (to, via) in wanted
            .iter()
            .filter(|(to, via)| planned.get(*to) != Some(*via))
        {
            tracing::debug!(%to, %via, "route");
            let action = RouteAction::Via(via.clone().into());
            match sink.add_route(to.clone().into(), action, PLANNED).await {
                Ok(_) => is_told = true,
                Err(error) => tracing::warn!(%to, %via, %error, "a route is refused"),
            }
        }
        *planned = wanted;
        // A new route makes the agent look at all that waits.
        if has_changed && !is_told {
            self.try_again().await;
        }
    }

    /// Lets the agent look again at all bundles that wait: any new route makes it do so.
    pub(crate) async fn try_again(&self) {
        let (Some(sink), Ok(nowhere)) = (self.sink.get(), NOWHERE.parse::<EidPattern>()) else {
            return;
        };
        // A bundle on which the agent decided before this search, and which begins to wait after it, is looked at once more.
        drop(self.stock.changes.begin());
        let action = RouteAction::Drop(None);
        if sink
            .add_route(nowhere.clone(), action.clone(), CONFIGURED)
            .await
            .is_ok()
        {
            // What cannot be removed does no harm.
            let _ = sink.remove_route(&nowhere, &action, CONFIGURED).await;
        }
    }
}

/// The null endpoint, of either scheme.
const NOBODY: &str = "dtn:none";
/// A name that no node has.
const NOWHERE: &str = "dtn://starhaul.invalid/nowhere";

#[async_trait]
impl RoutingAgent for Routes {
    async fn on_register(&self, sink: Box<dyn RoutingSink>, _: &[NodeId]) {
        // Reports go to it where no endpoint is to have them, as reports of reports. It is always a pattern.
        if let Ok(nobody) = NOBODY.parse::<EidPattern>()
            && let Err(error) = sink
                .add_route(nobody, RouteAction::Drop(None), PLANNED)
                .await
        {
            tracing::warn!(%error, "bundles for nobody are kept");
        }
        for (pattern, via) in &self.configured {
            let action = RouteAction::Via(via.clone().into());
            if let Err(error) = sink.add_route(pattern.clone(), action, CONFIGURED).await {
                tracing::warn!(%pattern, %via, %error, "a route is refused");
            }
        }
        // It is registered once.
        let _ = self.sink.set(sink);
    }

    async fn on_unregister(&self) {}
}
