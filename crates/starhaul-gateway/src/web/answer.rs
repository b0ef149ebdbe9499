//! What a gateway answers to a request: metrics, the live page and its events.

use std::{io, sync::Arc, time::Duration};

use starhaul_metrics::{Answer, Events, Fresh};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::snapshot::Snapshot;
use crate::shared::Shared;

/// Pages that follow events at once; scrapes keep the other connections.
const MAX_FOLLOWERS: usize = 16;
/// Interval of the events.
const INTERVAL: Duration = Duration::from_millis(500);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The pages, metrics and events that are served over HTTP.
#[derive(Debug)]
pub(super) struct Site {
    shared: Arc<Shared>,
    snapshots: Arc<Fresh<Snapshot>>,
    followers: Arc<Semaphore>,
}

impl Site {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let taken = shared.clone();
        Self {
            shared,
            snapshots: Arc::new(Fresh::new(move || Snapshot::new(taken.summary()))),
            followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)),
        }
    }

    fn events(&self) -> Answer {
        let Ok(place) = self.followers.clone().try_acquire_owned() else {
            return Answer::not_now("too many pages are open; close one");
        };
        let (events, answer) = Answer::events();
        tokio::spawn(send_events(events, self.snapshots.clone(), place));
        answer
    }
}

impl starhaul_metrics::Site for Site {
    fn answer(&self, path: &str) -> Option<Answer> {
        Some(match path {
            "/" => Answer::file(HTML, include_str!("page.html")),
            "/page.css" => Answer::file(CSS, include_str!("page.css")),
            "/page.js" => Answer::file(SCRIPT, include_str!("page.js")),
            "/metrics" => Answer::metrics(self.snapshots.get().metrics()),
            "/events" => self.events(),
            _ => return None,
        })
    }

    fn places(&self) -> &'static str {
        "there are / (a page), /metrics and /events"
    }

    fn note_refused(&self, error: &io::Error) {
        self.shared.seen.outlet.limits.note_io("metrics", error);
    }
}

/// Sends events until the client is gone.
async fn send_events(
    mut events: Events,
    snapshots: Arc<Fresh<Snapshot>>,
    _place: OwnedSemaphorePermit,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if events.send(snapshots.get().event()).await.is_err() {
            return;
        }
    }
}
