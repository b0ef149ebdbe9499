//! Runs a command behind emulated links in real time: between two TUN devices, one in a network namespace of the
//! command's own, the link decides when each packet leaves (LeoReplayer, LeoCC §5.2; mahimahi, USENIX ATC 2015).
//! Namespaces and devices have no names that could outlive the process.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::fd::OwnedFd,
    process::Stdio,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};
use starhaul_link::{Histogram, LinkSpec, LinkStats, Passage};

use crate::{
    Course, Error, ReplayLink, Second,
    collect::{Collected, Label, collect},
    error::system,
    forward::{Batch, Direction, Forwarded},
    network::{self, LinkNetwork, Network},
    supervisor::{Running, Start},
};

/// A run is invalid when one packet in a hundred left later than this.
pub const LATENESS_BOUND: Duration = Duration::from_millis(1);
/// How long a server may take until it listens.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);
/// Greatest number of batches of records that wait for the collector.
const BATCHES: usize = 1024;

/// A command, and the links in front of it.
pub struct ReplaySpec {
    /// The links, at least one.
    pub links: Vec<ReplayLink>,
    /// A command line for `sh -c`, started on the far side before the command.
    pub server: Option<OsString>,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Redirects the command's standard output to standard error.
    pub quiet_output: bool,
    /// Receives a line per packet, after its present content.
    pub log: Option<Box<dyn Write + Send>>,
    /// Keeps the fate of each packet that arrived, for [`DirectionReport::passages`].
    pub keep_passages: bool,
    /// Arguments with which this program only calls [`supervise`](crate::supervise) with those that follow `--`.
    pub supervisor: Vec<OsString>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// The command's exit code as a shell reports it: 128 and the signal for one that was killed.
    pub exit_code: u8,
    /// Time from the start of the command to its end.
    pub elapsed: Duration,
    /// Reports of the links in the order of their description.
    pub links: Vec<LinkReport>,
    /// Warnings to show to the user.
    pub warnings: Vec<String>,
}

/// The report of one link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The link's name.
    pub name: String,
    /// The direction from the command.
    pub up: DirectionReport,
    /// The direction toward the command.
    pub down: DirectionReport,
}

/// The report of one direction; bytes are those of IP packets.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// The link's counters.
    pub stats: LinkStats,
    /// Figures of each second since the start; the last one is incomplete.
    pub seconds: Vec<Second>,
    /// Delays from a packet's arrival at the link until it left at the far end.
    pub delay: Histogram,
    /// Time from a packet's arrival until its last byte was sent, without ICMP.
    pub queueing: Histogram,
    /// Delays between due and actual departures.
    pub lateness: Histogram,
    /// Processor time of the forwarding thread, including system calls.
    pub cpu: Duration,
    /// Throughput, delay and drops over time.
    pub course: Course,
    /// Every packet that arrived, without ICMP, if [`ReplaySpec::keep_passages`] is set.
    pub passages: Vec<Passage>,
}

impl ReplayReport {
    /// The lateness of all packets.
    pub fn lateness(&self) -> Histogram {
        let mut all = Histogram::default();
        for link in &self.links {
            all.merge(&link.up.lateness);
            all.merge(&link.down.lateness);
        }
        all
    }

    /// Whether p99 of the lateness is within [`LATENESS_BOUND`].
    pub fn is_valid(&self) -> bool {
        self.lateness().quantile(0.99) <= LATENESS_BOUND
    }
}

impl DirectionReport {
    /// Bytes that the link could have carried in all; saturates without a rate limit.
    pub fn capacity_bytes(&self) -> u64 {
        let seconds = self.seconds.iter().map(|second| second.capacity_bytes);
        seconds.fold(0, u64::saturating_add)
    }

    /// Processor time per packet, zero without packets.
    pub fn cpu_per_packet(&self) -> Duration {
        let packets = u32::try_from(self.stats.enqueued).unwrap_or(u32::MAX);
        self.cpu.checked_div(packets).unwrap_or_default()
    }
}

/// Creates the links, runs the command until it ends, and removes the links.
///
/// Traces begin with the command. An ordinary user becomes root in a user namespace of this process, which works only
/// while it has a single thread.
///
/// # Errors
/// [`Error::Namespace`], [`Error::Tun`] and [`Error::Network`] when the system does not allow an emulated link;
/// [`Error::Command`] when a process could not be started, [`Error::Server`] when the server ended before it listened.
pub fn run(spec: ReplaySpec) -> Result<ReplayReport, Error> {
    let network = Network::create(&spec.links, spec.server.is_some())?;
    let mut warnings = network.warnings.clone();
    let server = match &spec.server {
        Some(line) => Some(start_server(&spec, line, &network, &mut warnings)?),
        None => None,
    };
    let engine = Engine::start(&spec.links, &network.links, spec.log, spec.keep_passages)?;
    let command = Start {
        supervisor: &spec.supervisor,
        network: &network.near,
        command: &spec.command,
        environment: &network.environment,
        stdin: Stdio::inherit(),
        stdout: match spec.quiet_output {
            true => Stdio::from(io::stderr()),
            false => Stdio::inherit(),
        },
    };
    let command = command.spawn(true).map_err(Error::Command);
    let exit_code = command.and_then(|command| command.wait().map_err(Error::Command));
    let elapsed = engine.start.elapsed();
    let links = engine.finish(&spec.links, &mut warnings);
    if let Some(server) = server {
        server.end();
    }
    Ok(ReplayReport {
        exit_code: exit_code?,
        elapsed,
        links: links?,
        warnings,
    })
}

fn start_server(
    spec: &ReplaySpec,
    line: &OsString,
    network: &Network,
    warnings: &mut Vec<String>,
) -> Result<Running, Error> {
    let server = Start {
        supervisor: &spec.supervisor,
        network: &network.far,
        command: &["sh".into(), "-c".into(), line.clone()],
        environment: &network.environment,
        stdin: Stdio::null(),
        stdout: Stdio::from(io::stderr()),
    };
    let server = server.spawn(false).map_err(Error::Command)?;
    let deadline = Instant::now() + SERVER_PATIENCE;
    while !network::listens(&network.far).map_err(Error::Network)? {
        if server.is_over() {
            let code = server.wait().map_err(Error::Command)?;
            return Err(Error::Server { code });
        }
        if Instant::now() > deadline {
            warnings.push("the server listens on no TCP or UDP port yet; the command was started all the same".to_owned());
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}

/// The threads that forward packets, and the collector's.
struct Engine {
    start: Instant,
    stop: Arc<OwnedFd>,
    /// Up and down of each link in turn.
    directions: Vec<JoinHandle<io::Result<Forwarded>>>,
    collector: JoinHandle<(Vec<Collected>, Option<io::Error>)>,
}

impl Engine {
    fn start(
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
        // Swapped-out pages would make packets late; without the permission to lock them they may be.
        let _ = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT);
        let start = Instant::now();
        let mut directions = Vec::new();
        for (number, label) in labels.into_iter().enumerate() {
            let Some(device) = devices.get(number / 2) else {
                continue;
            };
            let (from, to) = match label.direction {
                "up" => (&device.near, &device.far),
                _ => (&device.far, &device.near),
            };
            let direction = Direction {
                number,
                spec: label.spec,
                seed: label.seed,
                start,
                from: from.clone(),
                to: to.clone(),
                stop: stop.clone(),
                records: sender.clone(),
            };
            directions.push(spawn("starhaul-link", move || direction.run())?);
        }
        Ok(Self {
            start,
            stop,
            directions,
            collector,
        })
    }

    fn finish(
        self,
        links: &[ReplayLink],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<LinkReport>, Error> {
        // Cannot fail: the counter is written once.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let mut forwarded = Vec::new();
        for direction in self.directions {
            forwarded.push(join(direction).and_then(|done| done.map_err(Error::Network))?);
        }
        let (collected, failure) = join(self.collector)?;
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
        seconds: forwarded.seconds,
        delay: collected.delay,
        queueing: collected.queueing,
        lateness: forwarded.lateness,
        cpu: forwarded.cpu,
        course: collected.course,
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
