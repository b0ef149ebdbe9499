//! The task that moves bundles between the machine and the node's control socket.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{BundleConfig, SERVICE, now, shared::Shared};
use crate::{
    Error,
    control::{Bundle, Client},
    flows::Transmit,
};

/// How long the task waits before it tries again what failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The task looks at all at least so often.
const MOST_WAIT: Duration = Duration::from_secs(60);
/// The log is told of the same fault no more often.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Interval of the timer that gives up what has waited for too long, under load: each time it checks every flow.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// What the control socket and the bundle need beside a message's data.
const OVERHEAD: u64 = 4096;

/// Runs until it is dropped, or has told the far sides that the gateway ends.
pub(super) async fn run(shared: Arc<Shared>, config: BundleConfig) {
    let mut told: Option<(String, Instant)> = None;
    loop {
        let error = match serve(&shared, &config).await {
            Ok(Ended) => break,
            Err(error) => error,
        };
        let was_there = shared.drive(|state| state.endpoint.take().is_some());
        let text = error.to_string();
        let is_known = told
            .as_ref()
            .is_some_and(|(last, at)| *last == text && *at + TELL_AGAIN > now());
        if was_there || !is_known {
            tracing::warn!(%error, "the bundle node does not serve this gateway; will try again");
            told = Some((text, now()));
        }
        if shared.drive(|state| state.is_closing) {
            break;
        }
        wait(&shared).await;
    }
    shared.end();
}

/// The far sides have been told of the end.
struct Ended;

/// Waits before the next attempt to connect; what expires meanwhile expires.
async fn wait(shared: &Shared) {
    tokio::time::sleep(TRY_AGAIN).await;
    shared.drive(|state| state.machine.handle_timeout(now()));
}

async fn serve(shared: &Shared, config: &BundleConfig) -> Result<Ended, Error> {
    let mut client = Client::connect(config.socket.as_deref()).await?;
    let node = client.status().await?.node;
    let service = config.service.clone().unwrap_or_else(|| {
        let (number, name) = SERVICE;
        match node.starts_with("ipn:") {
            true => number.to_string(),
            false => name.to_owned(),
        }
    });
    client.open(Some(&service)).await?;
    let least = config.limits.part_bytes as u64 + OVERHEAD;
    if client.most_bytes() < least {
        let reason = format!("max_bundle_bytes of {node} is below {least}");
        return Err(Error::Refused(reason));
    }
    let endpoint = client.endpoint().to_owned();
    tracing::info!(endpoint, "the bundle node serves this gateway");
    shared.drive(|state| state.endpoint = Some(endpoint));
    let mut link = NodeConnection {
        shared,
        config,
        client,
        paused_until: None,
        looked: now(),
        told: None,
        limited: (0, None),
    };
    loop {
        if let Some(ended) = link.turn().await? {
            return Ok(ended);
        }
    }
}

/// A connection to the node.
struct NodeConnection<'s> {
    shared: &'s Shared,
    config: &'s BundleConfig,
    client: Client,
    /// The node takes nothing until then: it has no room, or a fault that may pass.
    paused_until: Option<Instant>,
    /// When it was last looked for what has waited for too long.
    looked: Instant,
    /// When the log was last told of a fault of the node that may pass.
    told: Option<Instant>,
    /// How often the bound of flows had been reached when the log was last told, and when that was.
    limited: (u64, Option<Instant>),
}

impl NodeConnection<'_> {
    /// Receives a bundle if there is one, sends one if there is one, or waits until there is something to do.
    async fn turn(&mut self) -> Result<Option<Ended>, Error> {
        let received = self.receive().await?;
        let sent = match self.next_transmit() {
            Some(transmit) => {
                self.send(transmit).await?;
                true
            }
            None => false,
        };
        // Under load, too, what has waited for too long is given up; after what has come was taken.
        if received || sent {
            self.give_up(LOOK_AGAIN);
            return Ok(None);
        }
        let is_closing = self.shared.drive(|state| state.is_closing);
        if is_closing {
            // What tells the far sides waits for a node that had no room.
            let Some(until) = self.paused_until else {
                return Ok(Some(Ended));
            };
            tokio::time::sleep(until.saturating_duration_since(now())).await;
            return Ok(None);
        }
        let wait = self.wait();
        tokio::select! {
            found = self.client.has_bundle(wait) => { found?; }
            () = self.shared.changed.notified() => {}
        }
        self.give_up(Duration::ZERO);
        Ok(None)
    }

    /// Gives up what has waited for too long, if that was last checked at least `least` ago.
    fn give_up(&mut self, least: Duration) {
        let now = now();
        if now.saturating_duration_since(self.looked) >= least {
            self.looked = now;
            let limited = self.shared.drive(|state| {
                state.machine.handle_timeout(now);
                state.machine.counters().limited
            });
            self.tell_limited(now, limited);
        }
    }

    /// Tells the log that a bound has been reached since it was last told.
    fn tell_limited(&mut self, now: Instant, times: u64) {
        let (told, at) = self.limited;
        if times > told && at.is_none_or(|at| at + TELL_AGAIN <= now) {
            self.limited = (times, Some(now));
            let most = self.config.limits.flows;
            tracing::warn!(
                most,
                times,
                "there are as many flows over bundles with a far gateway as may be: streams are refused, or silent flows end"
            );
        }
    }

    fn next_transmit(&mut self) -> Option<Transmit> {
        if self.paused_until.is_some_and(|until| until > now()) {
            return None;
        }
        self.paused_until = None;
        self.shared
            .drive(|state| state.machine.poll_transmit(now()))
    }

    /// How long nothing happens by itself.
    fn wait(&self) -> Duration {
        let due = self.shared.drive(|state| state.machine.next_timeout());
        // While the node has no room, what is due to be sent waits for it.
        let due = self.paused_until.or(due);
        let wait = due.map_or(MOST_WAIT, |due| due.saturating_duration_since(now()));
        wait.min(MOST_WAIT)
    }

    async fn receive(&mut self) -> Result<bool, Error> {
        if !self.client.has_bundle(Duration::ZERO).await? {
            return Ok(false);
        }
        let bundle = self.client.next_bundle().await?;
        // First it is acknowledged: a gateway that ends in between must not connect again in its next life.
        let acknowledged = self.client.acknowledge(&bundle.id).await;
        match acknowledged {
            // It comes again.
            Err(Error::Refused(_)) => Ok(true),
            // It may come again, and is known then.
            Err(error) => {
                self.take(bundle);
                Err(error)
            }
            Ok(()) => {
                self.take(bundle);
                Ok(true)
            }
        }
    }

    fn take(&self, bundle: Bundle) {
        let mut peers = self.config.peers.iter();
        let peer = peers.position(|peer| *peer == bundle.source);
        self.shared.drive(|state| match peer {
            Some(peer) => {
                let handled = state.machine.handle(now(), peer, bundle.payload.into());
                handled.unwrap_or_else(|error| {
                    tracing::debug!(source = bundle.source, %error, "bundle dropped");
                });
            }
            None => {
                state.machine.note_unreadable();
                tracing::debug!(
                    source = bundle.source,
                    "a bundle of an unknown gateway dropped"
                );
            }
        });
    }

    async fn send(&mut self, transmit: Transmit) -> Result<(), Error> {
        let peer = self.config.peers.get(transmit.peer);
        let to = peer.map_or("", String::as_str);
        let sent = self
            .client
            .send(to, &transmit.payload, transmit.lifetime)
            .await;
        let is_full = matches!(sent, Err(Error::Full));
        self.shared.drive(|state| {
            state.is_full = is_full;
            match &sent {
                Ok(_) => state.machine.stored(),
                Err(Error::Full) => state.machine.failed(false),
                Err(Error::NotNow(reason)) => {
                    if self.told.is_none_or(|told| told + TELL_AGAIN <= now()) {
                        self.told = Some(now());
                        tracing::warn!(
                            to,
                            reason,
                            "the bundle node does not take a bundle now; will try again"
                        );
                    }
                    state.machine.failed(true);
                }
                Err(Error::Refused(reason)) => {
                    tracing::warn!(to, reason, "the bundle node refuses a bundle");
                    state.machine.refused();
                }
                Err(_) => state.machine.failed(true),
            }
        });
        match sent {
            Err(Error::Full | Error::NotNow(_)) => {
                self.paused_until = Some(now() + TRY_AGAIN);
                Ok(())
            }
            Ok(_) | Err(Error::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
