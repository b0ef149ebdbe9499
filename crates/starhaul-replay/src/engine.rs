//! The threads of emulated links: one forwards the packets of each direction, and one collects what became of them.

use std::{
    io::{self, Write},
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::JoinHandle,
    time::Instant,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    mm::{MlockAllFlags, mlockall},
};
use starhaul_link::{LinkSpec, Loss};

use crate::{
    Error, ReplayLink,
    collect::{Collected, Label, collect},
    error::system,
    forward::{Batch, Direction, Forwarded},
    network::LinkNetwork,
    report::{DirectionReport, LinkReport},
};

/// Greatest number of batches of records that wait for the collector.
const BATCHES: usize = 1024;

/// What became of the packets, and why the log of them is not complete.
type Collection = (Vec<Collected>, Option<io::Error>);

/// The threads that forward packets, and the collector's.
pub(crate) struct Engine {
    pub(crate) start: Instant,
    stop: Arc<OwnedFd>,
    /// Up and down of each link in turn.
    directions: Vec<JoinHandle<io::Result<Forwarded>>>,
    /// Takes the losses of each direction from now on.
    losses: Vec<Sender<Loss>>,
    collector: JoinHandle<Collection>,
}

impl Engine {
    pub(crate) fn start(
        links: &[ReplayLink],
        devices: &[LinkNetwork],
        log: Option<Box<dyn Write + Send>>,
        keep_passages: bool,
    ) -> Result<Self, Error> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|errno| system(errno.into()))?);
        let labels = links.iter().flat_map(|link| {
            let label = |direction, spec: &LinkSpec, seed| Label {
                link: link.name.clone(),
                direction,
                spec: spec.clone(),
                seed,
            };
            let [up, down] = link.seeds;
            [label("up", &link.up, up), label("down", &link.down, down)]
        });
        let labels: Vec<_> = labels.collect();
        let (sender, receiver): (SyncSender<Batch>, Receiver<Batch>) = sync_channel(BATCHES);
        let collector = spawn("starhaul-collector", {
            let labels = labels.iter().map(Label::clone).collect::<Vec<_>>();
            move || collect(&receiver, &labels, log, keep_passages)
        })?;
        // Swapped-out pages would make packets late; without the permission to lock them they may be. Those that were never
        // used are locked when they are: an allocator reserves a gigabyte, which would take seconds to fill.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT);
        let start = Instant::now();
        let mut engine = Self {
            start,
            stop,
            directions: Vec::new(),
            losses: Vec::new(),
            collector,
        };
        for (number, label) in labels.into_iter().enumerate() {
            let Some(device) = devices.get(number / 2) else {
                continue;
            };
            let (from, to) = match label.direction {
                "up" => (&device.near, &device.far),
                _ => (&device.far, &device.near),
            };
            let (loss, losses) = channel();
            engine.losses.push(loss);
            let direction = Direction {
                number,
                spec: label.spec,
                seed: label.seed,
                start,
                from: from.clone(),
                to: to.clone(),
                stop: engine.stop.clone(),
                records: sender.clone(),
                losses,
            };
            match spawn("starhaul-link", move || direction.run()) {
                Ok(direction) => engine.directions.push(direction),
                Err(error) => {
                    drop(sender);
                    // Those that run hold the devices; how they fared does not matter any more.
                    let _ = engine.join();
                    return Err(error);
                }
            }
        }
        Ok(engine)
    }

    /// Gives both directions of a link another random loss, in place of a trace's too, for the packets that come from now on.
    pub(crate) fn set_loss(&self, link: usize, loss: Loss) {
        for direction in self.losses.iter().skip(2 * link).take(2) {
            // A direction that failed says so at the end.
            let _ = direction.send(loss);
        }
    }

    /// Ends all threads, whichever of them failed.
    fn join(self) -> Result<(Vec<Forwarded>, Collection), Error> {
        // Cannot fail: the counter is written once.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let directions = self.directions.into_iter();
        let forwarded: Vec<_> = directions
            .map(|direction| join(direction)?.map_err(Error::Network))
            .collect();
        let collected = join(self.collector);
        let forwarded: Result<_, _> = forwarded.into_iter().collect();
        Ok((forwarded?, collected?))
    }

    pub(crate) fn finish(
        self,
        links: &[ReplayLink],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<LinkReport>, Error> {
        let (forwarded, (collected, failure)) = self.join()?;
        if let Some(error) = failure {
            warnings.push(format!("the log is not complete: {error}"));
        }
        if forwarded.iter().any(|direction| !direction.first) {
            warnings.push(
                "no permission for SCHED_FIFO (CAP_SYS_NICE): packets may leave late when this computer is busy".to_owned(),
            );
        }
        let refused: u64 = forwarded.iter().map(|direction| direction.refused).sum();
        if refused > 0 {
            warnings.push(format!(
                "the kernel refused {refused} packets at the end of a link: is an interface down?"
            ));
        }
        let mut directions = forwarded.into_iter().zip(collected).map(report);
        let links = links.iter().map_while(|link| {
            Some(LinkReport {
                name: link.name.clone(),
                up: directions.next()?,
                down: directions.next()?,
            })
        });
        Ok(links.collect())
    }
}

fn report((forwarded, collected): (Forwarded, Collected)) -> DirectionReport {
    DirectionReport {
        stats: forwarded.stats,
        capacity_bytes: forwarded.capacity_bytes,
        seconds: forwarded.seconds,
        delay: collected.delay,
        queueing: collected.queueing,
        lateness: forwarded.lateness,
        cpu: forwarded.cpu,
        series: collected.series,
        passages: collected.passages.unwrap_or_default(),
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(system)
}

fn join<T>(thread: JoinHandle<T>) -> Result<T, Error> {
    let panicked = || system(io::Error::other("a thread panicked"));
    thread.join().map_err(|_| panicked())
}
