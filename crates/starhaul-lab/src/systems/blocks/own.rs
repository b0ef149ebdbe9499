//! Our own stack: an endpoint at each host, a session over both paths, a stream of the session for each of the offer.

use std::time::{Duration, Instant};

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_endpoint::{
    BlockId, BlockOptions, Endpoint, EndpointConfig, Identity, IncomingStream, Mode, PathSpec,
    SchedulerChoice, SendStream, Session, SessionConfig, StreamConfig,
};
use starhaul_replay::{Host, Hosts};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer, OfferedBlock, Role, at, socket_address,
    task::Task,
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
        let path = |(link, name): (usize, &str)| {
            let offered = offer.links[link];
            Ok(PathSpec {
                local: Some(socket_address(hosts, Host::Near, link, 0)?),
                cost: offered.cost,
                controller: match self.controller {
                    Controller::Told => ControllerConfig::Dedicated(RateFeed::new(offered.rate)),
                    Controller::Bbr => ControllerConfig::Bbr,
                },
                ..PathSpec::new(name, socket_address(hosts, Host::Far, link, PORT)?)
            })
        };
        [(CHEAP, "cheap"), (DEAR, "dear")]
            .into_iter()
            .map(path)
            .collect()
    }

    fn streams(&self, offer: &Offer) -> Vec<StreamConfig> {
        let protected = |stream: &StreamConfig| StreamConfig {
            mode: self.mode,
            ..stream.clone()
        };
        offer.streams.iter().map(protected).collect()
    }
}

impl BlockSystem for Own {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scheduler(&self) -> &'static str {
        self.scheduler.name()
    }

    fn mode(&self) -> &'static str {
        self.mode.name()
    }

    /// Of each mode the one by rules whose paths are told their rates, as in virtual time.
    fn alias(&self) -> Option<&'static str> {
        let is_usual = matches!(
            (self.scheduler, self.controller),
            (SchedulerChoice::Rules, Controller::Told)
        );
        is_usual.then(|| self.mode.name())
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
        let configs = self.streams(offer);
        // What is open so far is closed if the rest fails.
        let mut open = ends;
        let (sender, streams) = at(hosts, Host::Near, || {
            let runtime = runtime()?;
            runtime.block_on(async {
                let sender = Endpoint::bind(config).await?;
                let count = paths.len();
                let session = sender.connect(far_key, paths).await?;
                until_up(&session, count).await?;
                let mut streams = Vec::new();
                for config in configs {
                    let stream = session.open_stream(config).await?;
                    streams.push(Stream {
                        stream,
                        last_key: None,
                    });
                }
                Ok((sender, streams))
            })
        })?;
        open.sender = Some(sender);
        Ok(Box::new(OwnSender {
            streams,
            _ends: open,
        }))
    }
}

struct OwnSender {
    /// In the order of the offer.
    streams: Vec<Stream>,
    _ends: Ends,
}

struct Stream {
    stream: SendStream,
    /// What later blocks need.
    last_key: Option<BlockId>,
}

/// Both endpoints, and the thread that takes what arrives, which ends with them.
struct Ends {
    receiver: Endpoint,
    sender: Option<Endpoint>,
    _reader: Task,
}

impl BlockSender for OwnSender {
    fn offer(&mut self, block: OfferedBlock) -> Result<(), Error> {
        let missing = || Error::Failed(format!("there is no stream {}", block.stream));
        let Stream { stream, last_key } = self.streams.get_mut(block.stream).ok_or_else(missing)?;
        let options = BlockOptions {
            depends_on: last_key.filter(|_| block.role == Role::AfterKey),
            ..BlockOptions::default()
        };
        let queued = stream.queue_block(block.data, options)?;
        if block.role == Role::Key {
            *last_key = Some(queued);
        }
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
    let mut readers = JoinSet::new();
    while let Some(stream) = session.accept_stream().await {
        if let IncomingStream::Blocks(mut stream) = stream {
            let arrivals = arrivals.clone();
            readers.spawn(async move {
                while let Some(block) = stream.recv_block().await {
                    arrivals.arrived(Instant::now(), &block.data);
                }
            });
        }
    }
    while readers.join_next().await.is_some() {}
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
