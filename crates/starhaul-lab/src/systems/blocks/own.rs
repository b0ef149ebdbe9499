//! Our own stack: an endpoint at each host, a session over both paths, a stream of blocks.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_endpoint::{
    Endpoint, EndpointConfig, Identity, IncomingStream, Mode, PathSpec, SchedulerChoice,
    SendStream, Session, SessionConfig, StreamConfig,
};
use starhaul_replay::{Host, Hosts};
use starhaul_units::Bandwidth;
use tokio::runtime::{Builder, Runtime};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer, at, socket_address, task::Task,
};
use crate::{Error, worlds::stack::HostSettings};

const PORT: u16 = 4433;
/// How long both paths may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_millis(5);

/// A protection and a scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    name: &'static str,
    mode: Mode,
    scheduler: SchedulerChoice,
    controller: Controller,
}

/// What says how fast a path may send.
#[derive(Clone, Copy, Debug)]
enum Controller {
    /// It is told the link's rate, as by a modem.
    Told,
    /// BBR finds it.
    Bbr,
}

impl Own {
    pub(super) const ALL: [Self; 6] = [
        Self::new("starhaul", Mode::FecRetransmit, SchedulerChoice::Rules),
        Self::new(
            "starhaul-optimizer",
            Mode::FecRetransmit,
            SchedulerChoice::Optimizer,
        ),
        Self {
            name: "starhaul-bbr",
            controller: Controller::Bbr,
            ..Self::new("", Mode::FecRetransmit, SchedulerChoice::Rules)
        },
        Self::new("starhaul-none", Mode::None, SchedulerChoice::Rules),
        Self::new(
            "starhaul-retransmit",
            Mode::Retransmit,
            SchedulerChoice::Rules,
        ),
        Self::new("starhaul-fec", Mode::Fec, SchedulerChoice::Rules),
    ];

    const fn new(name: &'static str, mode: Mode, scheduler: SchedulerChoice) -> Self {
        Self {
            name,
            mode,
            scheduler,
            controller: Controller::Told,
        }
    }

    /// As the hosts in virtual time.
    fn config(&self, identity: Identity) -> EndpointConfig {
        let settings = HostSettings::default();
        EndpointConfig {
            accept_controller: settings.accept_controller,
            scheduler: self.scheduler,
            session: SessionConfig {
                max_fragment_bytes: settings.max_fragment_bytes,
                ..SessionConfig::default()
            },
            packet_bytes: settings.packet_bytes,
            sure_packet_bytes: settings.packet_bytes,
            ..EndpointConfig::new(identity)
        }
    }

    fn paths(&self, hosts: &Hosts, offer: &Offer) -> Result<Vec<PathSpec>, Error> {
        let path = |(link, name, cost)| {
            Ok(PathSpec {
                local: Some(socket_address(hosts, Host::Near, link, 0)?),
                cost,
                controller: match self.controller {
                    Controller::Told => ControllerConfig::Dedicated(RateFeed::new(offer.rate)),
                    Controller::Bbr => ControllerConfig::Bbr,
                },
                ..PathSpec::new(name, socket_address(hosts, Host::Far, link, PORT)?)
            })
        };
        let [cheap, dear] = offer.costs;
        let paths = [(CHEAP, "cheap", cheap), (DEAR, "dear", dear)];
        paths.into_iter().map(path).collect()
    }

    fn stream(&self, offer: &Offer) -> StreamConfig {
        StreamConfig {
            mode: self.mode,
            deadline: offer.deadline,
            priority: 0,
            max_coding_rate: 1.0,
            bandwidth: Some(Bandwidth::from_bytes_over(
                offer.block_bytes as u64,
                offer.interval,
            )),
            ..StreamConfig::default()
        }
    }
}

impl BlockSystem for Own {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scheduler(&self) -> &'static str {
        self.scheduler.name()
    }

    fn missing(&self) -> Option<String> {
        None
    }

    fn open<'h>(
        &self,
        hosts: &'h Hosts,
        offer: &Offer,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn BlockSender + 'h>, Error> {
        let [near, far] = [Identity::generate(), Identity::generate()];
        let far_key = far.public_key();
        let listen = [CHEAP, DEAR].map(|link| socket_address(hosts, Host::Far, link, PORT));
        let [cheap, dear] = listen;
        let config = EndpointConfig {
            trusted: vec![near.public_key()],
            listen: vec![cheap?, dear?],
            ..self.config(far)
        };
        let receiver = at(hosts, Host::Far, || {
            Ok(runtime()?.block_on(Endpoint::bind(config))?)
        })?;
        let reader = Task::start("starhaul-receiver", {
            let (receiver, arrivals) = (receiver.clone(), arrivals.clone());
            move |_| {
                if let Ok(runtime) = runtime() {
                    runtime.block_on(receive(&receiver, &arrivals));
                }
            }
        })?;
        let ends = Ends {
            receiver,
            sender: None,
            _reader: reader,
        };
        let (config, paths) = (self.config(near), self.paths(hosts, offer)?);
        let stream = self.stream(offer);
        // What is open so far is closed if the rest fails.
        let mut open = ends;
        let (sender, stream) = at(hosts, Host::Near, || {
            let runtime = runtime()?;
            runtime.block_on(async {
                let sender = Endpoint::bind(config).await?;
                let count = paths.len();
                let session = sender.connect(far_key, paths).await?;
                until_up(&session, count).await?;
                let stream = session.open_stream(stream).await?;
                Ok((sender, stream))
            })
        })?;
        open.sender = Some(sender);
        Ok(Box::new(OwnSender {
            stream,
            _ends: open,
        }))
    }
}

struct OwnSender {
    stream: SendStream,
    _ends: Ends,
}

/// Both endpoints, and the thread that takes what arrives, which ends with them.
struct Ends {
    receiver: Endpoint,
    sender: Option<Endpoint>,
    _reader: Task,
}

impl BlockSender for OwnSender {
    fn offer(&mut self, block: Bytes) -> Result<(), Error> {
        self.stream.queue_block(block, Default::default())?;
        Ok(())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let Ok(runtime) = runtime() else { return };
        runtime.block_on(async {
            if let Some(sender) = &self.sender {
                sender.close().await;
            }
            self.receiver.close().await;
        });
    }
}

async fn receive(endpoint: &Endpoint, arrivals: &Arrivals) {
    let Some(session) = endpoint.accept().await else {
        return;
    };
    let Some(IncomingStream::Blocks(mut stream)) = session.accept_stream().await else {
        return;
    };
    while let Some(block) = stream.recv_block().await {
        arrivals.arrived(Instant::now(), &block.data);
    }
}

async fn until_up(session: &Session, count: usize) -> Result<(), Error> {
    let up = async {
        loop {
            let paths = session.path_status();
            if paths.iter().filter(|path| path.up).count() == count {
                return;
            }
            tokio::time::sleep(ROUND).await;
        }
    };
    let up = tokio::time::timeout(PATIENCE, up).await;
    up.map_err(|_| Error::Failed(format!("the paths were not up within {PATIENCE:?}")))
}

fn runtime() -> Result<Runtime, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(Error::io("cannot start a runtime"))
}
