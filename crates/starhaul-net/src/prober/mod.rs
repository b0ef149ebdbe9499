//! Probes the satellite hop of a real path every 10 ms and reports its reconfigurations (LeoCC §4.1.1): by ICMP echo if
//! permitted, else UDP echo to a responder of ours; on a thread of its own, with kernel timestamps, for all flows of
//! the host.

mod echo;
mod reach;
mod run;
mod search;
mod serve;
mod udp;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use starhaul_cc::{Detection, Reconfiguration};

use self::run::Run;
use crate::{Error, Poller, Waker, WireMeter};

pub use self::{
    echo::{Cookie, ECHO_BYTES, EchoMessage, EchoResponder, Sight},
    reach::{Mapping, Reached, Unreached, answers_ping, reach},
    search::{FoundBy, FoundHop, HopProbe, HopSearch},
    serve::EchoServer,
};
pub use crate::icmp::{IcmpMessage, IpVersion, Via, number_behind_token, parse_icmp};

/// The configuration of a [`Prober`].
#[derive(Clone, Debug, PartialEq)]
pub struct ProberConfig {
    /// Target, method and interval of the probes.
    pub detection: Detection,
    /// A host behind the satellite: the search runs toward its address, and UDP echo goes to its port, if an
    /// [`EchoResponder`] answers there.
    pub toward: Option<SocketAddr>,
    /// Source address and interface.
    pub via: Via,
}

impl ProberConfig {
    /// Probes toward a host, with everything else found automatically.
    pub fn toward(far_end: SocketAddr) -> Self {
        Self {
            detection: Detection::default(),
            toward: Some(far_end),
            via: Via::default(),
        }
    }
}

/// An event of a prober.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProberEvent {
    /// The path was reconfigured, at the arrival of the first answer by this host's clock. While no host can be probed
    /// the timetable alone gives the signal, and is named as the source.
    Reconfiguration(Reconfiguration),
    /// The RTT of the satellite segment (LeoCC §4.3); a few times per second, and only with ICMP, whose target is at
    /// its end.
    SegmentRtt {
        /// When the median was computed.
        at: Instant,
        /// The median of the last probes.
        rtt: Duration,
    },
    /// The stage changed; see [`Prober::status`].
    Stage(Stage),
}

/// The stage of a prober.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Searching the nearest stable address behind the satellite.
    Searching,
    /// Probing a host.
    Probing {
        /// The probed host.
        target: IpAddr,
        /// Why this address was selected; `None` when it was configured.
        found: Option<FoundHop>,
        /// The kind of probes.
        by: ProbedBy,
    },
    /// Unable to probe now; another attempt follows.
    Waiting {
        /// The reason and a remedy, for people.
        problem: String,
    },
}

/// The kind of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedBy {
    /// ICMP echo from an unprivileged ping socket.
    PingSocket,
    /// ICMP echo from a raw socket (`CAP_NET_RAW`).
    RawSocket,
    /// UDP echo to a responder of ours.
    UdpEcho,
}

impl ProbedBy {
    /// The name for logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::PingSocket => "ICMP echo (ping socket)",
            Self::RawSocket => "ICMP echo (raw socket)",
            Self::UdpEcho => "UDP echo",
        }
    }
}

/// The state and counters of a prober.
#[derive(Clone, Debug, PartialEq)]
pub struct ProberStatus {
    /// The present stage.
    pub stage: Stage,
    /// Why it could last not probe; `None` once it probes.
    pub problem: Option<String>,
    /// Why ICMP was not possible, if it was tried.
    pub icmp_refused: Option<String>,
    /// Whether its thread has real-time priority (`SCHED_FIFO`).
    pub first: bool,
    /// Whether the kernel gives departure timestamps; it always gives those of arrivals.
    pub departures_stamped: bool,
    /// Probes that left.
    pub sent: u64,
    /// Probes that were answered.
    pub answered: u64,
    /// Probes that this host refused to send.
    pub refused: u64,
    /// Reconfigurations that were found.
    pub found: u64,
    /// The median RTT of the last probes.
    pub rtt: Option<Duration>,
    /// The last reconfiguration.
    pub last: Option<Reconfiguration>,
    /// The length so far of an outage that has not ended.
    pub outage: Option<Duration>,
    /// Whether it is at rest, see [`Prober::rest`].
    pub resting: bool,
}

impl Default for ProberStatus {
    fn default() -> Self {
        Self {
            stage: Stage::Searching,
            problem: None,
            icmp_refused: None,
            first: false,
            departures_stamped: false,
            sent: 0,
            answered: 0,
            refused: 0,
            found: 0,
            rtt: None,
            last: None,
            outage: None,
            resting: false,
        }
    }
}

/// A running prober; it ends when this value is dropped.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// Whether rest was requested; it begins once the address is known to answer steadily.
    rest: AtomicBool,
    status: Mutex<ProberStatus>,
    meter: WireMeter,
}

impl Prober {
    /// Starts to probe on a thread of its own, which calls `each` with its events. If an interface or an answer is
    /// missing it keeps trying.
    ///
    /// # Errors
    /// [`Error::System`] when no thread or descriptor is available.
    pub fn start(
        config: ProberConfig,
        each: impl FnMut(ProberEvent) + Send + 'static,
    ) -> Result<Self, Error> {
        let poller = Poller::new()?;
        let waker = poller.waker();
        let shared = Arc::<Shared>::default();
        let run = Run::new(config, poller, shared.clone(), Box::new(each))?;
        std::thread::Builder::new()
            .name("starhaul-prober".into())
            .spawn(move || run.run())
            .map_err(Error::System)?;
        Ok(Self { shared, waker })
    }

    /// Begins rest while no flow uses the path: it probes each [`Detection::idle_interval`](starhaul_cc::Detection), which shows that the
    /// host answers but detects no reconfigurations. Or ends it: it probes at the full rate from now on, and first
    /// reports the last time of a timetable that passed meanwhile.
    pub fn rest(&self, rest: bool) {
        if self.shared.rest.swap(rest, Ordering::SeqCst) != rest {
            self.waker.wake();
        }
    }

    /// Bytes of its probes and their answers on the wire.
    pub fn wire_bytes(&self) -> u64 {
        self.shared.meter.bytes()
    }

    /// The state and counters.
    pub fn status(&self) -> ProberStatus {
        self.shared.status.lock().clone()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}
