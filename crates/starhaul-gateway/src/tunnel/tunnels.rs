//! The tunnels of a gateway, and how they go from one configuration to the next.

use std::{io::ErrorKind, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{Device, SessionPorts, Tunnel};
use crate::{Error, config::TunnelRule, peer::PeerState};

/// How often a name or route that a former device may still have is tried, and the pause between.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// A rule that the configuration asks for, and its peer.
type Wanted = (TunnelRule, Arc<PeerState>);

/// The tunnels that run, as other tasks see them, in the order of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Vec<Arc<Tunnel>>>);

/// The tunnels and their tasks, which end with it.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    running: Vec<Running>,
    listening: SessionPorts,
}

#[derive(Debug)]
struct Running {
    tunnel: Arc<Tunnel>,
    tasks: JoinSet<()>,
}

/// A prepared change: the devices are there whose names are free.
pub(crate) struct TunnelChange {
    wanted: Vec<(Wanted, Option<Arc<Device>>)>,
}

impl Registry {
    pub(crate) fn all(&self) -> Vec<Arc<Tunnel>> {
        self.0.lock().clone()
    }

    /// The tunnel of this name to this peer.
    pub(crate) fn find(&self, peer: &str, rule: &str) -> Option<Arc<Tunnel>> {
        let tunnels = self.0.lock();
        let found = tunnels
            .iter()
            .find(|tunnel| tunnel.rule.name == rule && tunnel.rule.peer == peer);
        found.cloned()
    }
}

impl Running {
    fn start(tunnel: Tunnel) -> Self {
        let tunnel = Arc::new(tunnel);
        let tasks = tunnel.start();
        Self { tunnel, tasks }
    }

    fn serves(&self, (rule, peer): &Wanted) -> bool {
        self.tunnel.rule == *rule && Arc::ptr_eq(&self.tunnel.peer, peer)
    }
}

impl Tunnels {
    /// None yet, of a gateway that accepts sessions at these ports.
    pub(crate) fn new(listening: SessionPorts) -> Self {
        Self {
            running: Vec::new(),
            listening,
        }
    }

    /// Creates the devices that are new.
    ///
    /// # Errors
    /// One cannot be created; nothing has changed.
    pub(crate) fn prepare(&self, wanted: Vec<Wanted>) -> Result<TunnelChange, Error> {
        let mut next = Vec::new();
        for (rule, peer) in wanted {
            let device = &rule.device;
            // A device of this name, or the routes of one, must go first.
            let is_taken = self.running.iter().any(|running| {
                let old = &running.tunnel.rule.device;
                old.name == device.name
                    || old.networks.iter().any(|net| device.networks.contains(net))
                    || old
                        .addresses
                        .iter()
                        .any(|net| device.addresses.contains(net))
            });
            let created = match is_taken {
                true => None,
                false => Some(create(&rule)?),
            };
            next.push(((rule, peer), created));
        }
        Ok(TunnelChange { wanted: next })
    }

    /// Goes on to what was prepared; says what changed, and which devices could not be created after all: their tunnels go on trying.
    pub(crate) async fn change(
        &mut self,
        next: TunnelChange,
        registry: &Registry,
    ) -> (Vec<String>, Vec<Error>) {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut old = std::mem::take(&mut self.running);
        let mut open = Vec::new();
        for (wanted, created) in next.wanted {
            let found = old.iter().position(|running| running.serves(&wanted));
            match found {
                Some(found) => open.push((wanted, Ok(old.swap_remove(found)))),
                None => open.push((wanted, Err(created))),
            }
        }
        // Those that have the device of one that is wanted keep it, the others go before devices are created.
        let mut kept = Vec::new();
        for mut running in old {
            running.tasks.shutdown().await;
            let mut wanted = open.iter();
            let keeps = wanted.any(|((rule, _), state)| {
                state.is_err() && rule.device == running.tunnel.rule.device
            });
            match keeps {
                true => kept.push(running.tunnel),
                false => {
                    running.tunnel.let_go();
                    done.push(format!("tun {} ended", running.tunnel.rule.name));
                }
            }
        }
        registry.0.lock().retain(|tunnel| {
            let mut stays = open.iter().filter_map(|(_, state)| state.as_ref().ok());
            stays.any(|running| Arc::ptr_eq(&running.tunnel, tunnel))
        });
        for ((rule, peer), state) in open {
            let name = rule.name.clone();
            let heir = kept.iter().position(|old| old.rule.device == rule.device);
            let running = match (state, heir) {
                (Ok(running), _) => running,
                (Err(_), Some(heir)) => {
                    done.push(format!("tun {name} changed, on the device that was there"));
                    Running::start(kept.swap_remove(heir).next(rule, peer))
                }
                (Err(created), None) => {
                    let device = match created {
                        Some(device) => Ok(device),
                        None => create_when_free(&rule).await,
                    };
                    let to = &rule.peer;
                    match &device {
                        Ok(device) => {
                            done.push(format!("tun {name} on {} to peer {to}", device.name()));
                        }
                        Err(_) => done.push(format!("tun {name} to peer {to}, without its device")),
                    }
                    // It goes on trying.
                    let device = device.map_err(|error| failed.push(error)).ok();
                    let listening = self.listening.clone();
                    Running::start(Tunnel::new((rule, peer), device, listening))
                }
            };
            self.running.push(running);
        }
        let tunnels = self.running.iter().map(|running| running.tunnel.clone());
        *registry.0.lock() = tunnels.collect();
        (done, failed)
    }

    /// Ends all, and returns when they have ended; their devices go with them.
    pub(crate) async fn end(&mut self, registry: &Registry) {
        registry.0.lock().clear();
        for mut running in std::mem::take(&mut self.running) {
            running.tasks.shutdown().await;
            running.tunnel.let_go();
        }
    }
}

/// Creates a device in the place of a former one, which a task that just passes a packet to it keeps open for a moment.
async fn create_when_free(rule: &TunnelRule) -> Result<Arc<Device>, Error> {
    let mut tries = 1;
    loop {
        let created = create(rule);
        let is_taken = matches!(&created, Err(Error::Tunnel { reason, .. })
            if matches!(reason.kind(), ErrorKind::ResourceBusy | ErrorKind::AlreadyExists));
        if !is_taken || tries == TRIES {
            return created;
        }
        tries += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

fn create(rule: &TunnelRule) -> Result<Arc<Device>, Error> {
    let created = Device::create(&rule.device);
    created.map(Arc::new).map_err(|reason| Error::Tunnel {
        rule: rule.name.clone(),
        device: rule.device.name.clone(),
        reason,
    })
}
