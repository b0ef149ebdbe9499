//! Probes the satellite hop of a real path every 10 ms and tells of its reconfigurations (LeoCC §4.1.1): ICMP echo where this
//! user may, else UDP echo to a far end of ours; on a thread of its own, by the kernel's stamps, for all flows of the host.

mod echo;
mod run;
mod search;
mod serve;
mod timetable;
mod udp;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_cc::{DetectorConfig, Reconfiguration};

use self::run::Run;
use crate::{Error, Poller, Waker};

pub use self::{
    echo::{Cookie, ECHO_BYTES, EchoMessage, EchoResponder},
    search::{FoundBy, FoundHop, HopProbe, HopSearch},
    serve::EchoServer,
    timetable::{ParseTimetableError, Timetable},
};
pub use crate::icmp::{IcmpMessage, IpVersion, Via, number_behind_token, parse_icmp};

/// Whom to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeTarget {
    /// The nearest stable address behind the satellite, which the prober finds on the way to [`ProberConfig::toward`].
    Auto,
    /// This host, e.g. 100.64.0.1 behind most Starlink dishes.
    Host(IpAddr),
}

/// How to probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProbeMethod {
    /// ICMP where this user may use it and somebody answers, else UDP.
    #[default]
    Auto,
    /// ICMP echo or nothing.
    Icmp,
    /// UDP echo to [`ProberConfig::toward`], which answers with an [`EchoResponder`].
    Udp,
}

/// What a [`Prober`] does.
#[derive(Clone, Debug, PartialEq)]
pub struct ProberConfig {
    /// Whom.
    pub target: ProbeTarget,
    /// A far end behind the satellite: the search leads to its address, and UDP echo goes to its port.
    pub toward: Option<SocketAddr>,
    /// How.
    pub method: ProbeMethod,
    /// Which way out of this host.
    pub via: Via,
    /// Interval, Δ_outage and refractory time. Its schedule is ignored: `timetable` makes it.
    pub detector: DetectorConfig,
    /// The operator's timetable, if it is known.
    pub timetable: Option<Timetable>,
}

impl ProberConfig {
    /// Finds out everything by itself on the way to a far end.
    pub fn toward(far_end: SocketAddr) -> Self {
        Self {
            target: ProbeTarget::Auto,
            toward: Some(far_end),
            method: ProbeMethod::Auto,
            via: Via::default(),
            detector: DetectorConfig::default(),
            timetable: None,
        }
    }
}

/// What a prober tells as it comes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProberEvent {
    /// The path was reconfigured. Its time is on this host's clock, when the first answer came again. While nobody can be probed the
    /// timetable alone tells, and is named as the source.
    Reconfiguration(Reconfiguration),
    /// What the satellite segment takes there and back (LeoCC §4.3); a few times each second, and only from ICMP, which
    /// goes no further.
    SegmentRtt {
        /// When it was so.
        at: Instant,
        /// The median of the last probes.
        rtt: Duration,
    },
    /// The stage changed; [`Prober::status`] says more.
    Stage(Stage),
}

/// What a prober is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Looking for the nearest stable address behind the satellite.
    Searching,
    /// Probing.
    Probing {
        /// Whom.
        target: IpAddr,
        /// How it came to this address; `None` when it was told.
        found: Option<FoundHop>,
        /// By which socket.
        by: ProbedBy,
    },
    /// It cannot probe now, and tries again.
    Waiting {
        /// Why, for people, and what to do.
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
    /// UDP echo to a far end of ours.
    UdpEcho,
}

impl ProbedBy {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::PingSocket => "ICMP echo (ping socket)",
            Self::RawSocket => "ICMP echo (raw socket)",
            Self::UdpEcho => "UDP echo",
        }
    }
}

/// How a prober fares.
#[derive(Clone, Debug, PartialEq)]
pub struct ProberStatus {
    /// What it is about.
    pub stage: Stage,
    /// What was in the way when it last could not probe; `None` once it probes.
    pub problem: Option<String>,
    /// Why not by ICMP, where it would have liked to.
    pub icmp_refused: Option<String>,
    /// Whether its thread runs before all ordinary ones (`SCHED_FIFO`).
    pub first: bool,
    /// Whether the kernel says when probes left; that of answers it always does.
    pub departures_stamped: bool,
    /// Probes sent.
    pub sent: u64,
    /// Probes answered.
    pub answered: u64,
    /// Probes that this host itself refused to send.
    pub refused: u64,
    /// Reconfigurations found.
    pub found: u64,
    /// The median round trip of the last probes.
    pub rtt: Option<Duration>,
    /// The last reconfiguration.
    pub last: Option<Reconfiguration>,
    /// An outage that has begun and not ended, so far.
    pub outage: Option<Duration>,
    /// It probes seldom, and finds nothing: [`Prober::rest`].
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

/// A prober at work; it ends when this is dropped.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// What was asked for; it rests once it knows that the address answers steadily.
    rest: AtomicBool,
    status: Mutex<ProberStatus>,
}

impl Prober {
    /// Starts to probe on a thread of its own, where `each` is called with what it finds. What is missing later (an
    /// interface, an answer) it waits for.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread or no descriptor left.
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

    /// Nothing flows over what it watches: it probes each [`DetectorConfig::idle_interval`], which shows that somebody answers and
    /// finds no reconfigurations. Or something flows again, and it probes at its full pace from this moment on; then it tells of the
    /// last time of a timetable that has passed meanwhile.
    pub fn rest(&self, rest: bool) {
        if self.shared.rest.swap(rest, Ordering::SeqCst) != rest {
            self.waker.wake();
        }
    }

    /// How it fares.
    pub fn status(&self) -> ProberStatus {
        self.shared.status().clone()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

impl Shared {
    fn status(&self) -> std::sync::MutexGuard<'_, ProberStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
