//! The prober's thread: searches a host, probes it, and restarts when it no longer answers.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ring::rand::{SecureRandom as _, SystemRandom};
use starhaul_cc::{Detector, ProbeMethod, ProbeTarget, Reconfiguration, Schedule};

use super::{
    FoundHop, HopSearch, ProbedBy, ProberConfig, ProberEvent, Shared, Stage, udp::EchoClient,
};
use crate::{
    Error, Poller,
    icmp::{HopPinger, Pinger, is_forbidden},
    realtime::{run_first, sharpen_timers},
    socket::is_gone,
};

/// Wait between attempts when no host can be probed.
const RETRY: Duration = Duration::from_secs(2);
/// After this time of UDP echo a hop is searched again, which may have been out of reach for a moment; twice as long each time.
const UDP_FOR: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];
/// Length of the trial of a selected address, which must answer most of its first probes.
const TRIAL: Duration = Duration::from_secs(2);
const TRIAL_SHARE: f64 = 0.7;
/// After silence for this long the path may have changed.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest wait for the cookie of a responder.
const WELCOME: Duration = Duration::from_secs(3);
/// This many consecutive refusals mean that a new socket is needed.
const REFUSALS: u32 = 100;
/// Interval of updates of the status.
const REPORT: Duration = Duration::from_millis(200);
/// Interval of comparisons with the wall clock, for timetables.
const TIMETABLE: Duration = Duration::from_secs(10);
/// Greatest number of addresses excluded for unsteady answers before it gives up.
const MAX_EXCLUDED: usize = 4;

pub(super) struct Run {
    config: ProberConfig,
    poller: Poller,
    shared: Arc<Shared>,
    each: Box<dyn FnMut(ProberEvent) + Send>,
    token: [u8; 8],
    /// The problem that was last reported.
    problem: Option<String>,
    /// When the timetable alone signals a reconfiguration, while no host can be probed.
    hint_at: Option<Instant>,
    /// For how long UDP echo is used before a hop is searched again.
    udp_for: Duration,
}

/// Why probing of one address ended.
enum End {
    Stopped,
    /// It answers too few probes: another address may answer more.
    Unsteady,
    /// It no longer answers.
    Silent,
    /// A hop may answer by now, which tells more.
    Due,
    /// The socket is unusable.
    Gone(io::Error),
}

/// The socket of either kind of probes.
enum Channel {
    Icmp(Pinger),
    Udp(Box<EchoClient>),
}

impl Run {
    pub(super) fn new(
        config: ProberConfig,
        poller: Poller,
        shared: Arc<Shared>,
        each: Box<dyn FnMut(ProberEvent) + Send>,
    ) -> Result<Self, Error> {
        let mut token = [0; 8];
        SystemRandom::new()
            .fill(&mut token)
            .map_err(|_| Error::System(io::Error::other("no random numbers")))?;
        Ok(Self {
            config,
            poller,
            shared,
            each,
            token,
            problem: None,
            hint_at: None,
            udp_for: UDP_FOR[0],
        })
    }

    pub(super) fn run(mut self) {
        sharpen_timers();
        self.shared.status.lock().first = run_first();
        while !self.is_stopped() {
            if let Err(problem) = self.attempt() {
                self.tell(Stage::Waiting { problem });
                self.pause(RETRY);
            }
        }
    }

    /// Searches and probes until that ends; returns the problem if no host can be probed.
    fn attempt(&mut self) -> Result<(), String> {
        let refused = match self.config.detection.method {
            ProbeMethod::Udp => None,
            _ => match self.by_icmp() {
                Ok(()) => {
                    self.udp_for = UDP_FOR[0];
                    return Ok(());
                }
                Err(problem) => Some(problem),
            },
        };
        if self.config.detection.method == ProbeMethod::Icmp {
            return Err(refused.unwrap_or_default());
        }
        self.shared.status.lock().icmp_refused.clone_from(&refused);
        self.by_udp().map_err(|problem| match refused {
            Some(refused) => format!("{refused}; and {problem}"),
            None => problem,
        })
    }

    fn by_icmp(&mut self) -> Result<(), String> {
        let mut excluded = Vec::new();
        let search = match self.config.detection.target {
            ProbeTarget::Host(host) => return self.ping(host, None, &mut excluded),
            ProbeTarget::Auto => self.search()?,
        };
        let toward = self.config.toward.map_or_else(String::new, |toward| {
            format!(" on the way to {}", toward.ip())
        });
        let no_host =
            || format!("no host{toward} answers ICMP steadily: name an address that does");
        while excluded.len() < MAX_EXCLUDED && !self.is_stopped() {
            let Some(found) = search.choose(&excluded) else {
                return Err(no_host());
            };
            let before = excluded.len();
            self.ping(found.address, Some(found), &mut excluded)?;
            if excluded.len() == before {
                return Ok(());
            }
        }
        match self.is_stopped() {
            true => Ok(()),
            false => Err(no_host()),
        }
    }

    /// Sends requests to all hops on the path.
    fn search(&mut self) -> Result<HopSearch, String> {
        let toward = self.config.toward.ok_or(
            "no address is configured, and without a far end there is no way to search for one",
        )?;
        self.tell(Stage::Searching);
        let pinger = HopPinger::through(
            toward.ip(),
            self.token,
            &self.config.via,
            self.shared.meter.clone(),
        );
        let mut pinger = pinger.map_err(|error| explain(&error))?;
        let mut search = HopSearch::new(Instant::now());
        loop {
            let now = Instant::now();
            pinger.recv(|answer| {
                search.on_answer(answer.arrived, answer.sequence, answer.from, answer.reached);
            });
            while let Some(probe) = search.poll_probe(now) {
                if let Err(error) = pinger.send(probe.hops, probe.sequence) {
                    tracing::debug!(%error, "search probe refused");
                }
            }
            if search.is_over(now) || self.is_stopped() {
                return Ok(search);
            }
            self.wait(&[pinger.as_fd()], search.poll_timeout())?;
        }
    }

    /// Probes one host until that ends; an unsteady one is excluded.
    fn ping(
        &mut self,
        host: IpAddr,
        found: Option<FoundHop>,
        excluded: &mut Vec<IpAddr>,
    ) -> Result<(), String> {
        let pinger = Pinger::through(host, self.token, &self.config.via);
        let pinger = pinger.map_err(|error| explain(&error))?;
        let pinger = pinger.metered(self.shared.meter.clone());
        let by = match pinger.is_raw() {
            true => ProbedBy::RawSocket,
            false => ProbedBy::PingSocket,
        };
        self.shared.status.lock().icmp_refused = None;
        self.shared.status.lock().departures_stamped = pinger.stamp_departures();
        self.tell(Stage::Probing {
            target: host,
            found,
            by,
        });
        match self.probe(Channel::Icmp(pinger))? {
            End::Stopped => Ok(()),
            End::Unsteady if found.is_some() => {
                tracing::info!(%host, "answers too few probes, looking for another");
                excluded.push(host);
                Ok(())
            }
            End::Unsteady => Err(format!("{host} answers too few ICMP echo requests")),
            // The path may have changed.
            End::Silent if found.is_some() => Ok(()),
            End::Silent | End::Due => Err(format!("{host} does not answer ICMP echo requests")),
            End::Gone(error) => Err(format!("cannot send to {host}: {error}")),
        }
    }

    fn by_udp(&mut self) -> Result<(), String> {
        let remote = self
            .config
            .toward
            .filter(|toward| toward.port() != 0)
            .ok_or("no far end of ours is named for UDP echo, with its port: HOST:PORT, or [ADDRESS]:PORT for IPv6")?;
        let meter = self.shared.meter.clone();
        let via = &self.config.via;
        let client = EchoClient::through(remote, self.token, via, Instant::now(), meter);
        let mut client = client.map_err(|error| explain(&error))?;
        self.shared.status.lock().departures_stamped = client.stamp_departures();
        let until = Instant::now() + WELCOME;
        while !client.is_welcome() {
            let now = Instant::now();
            if now >= until {
                return Err(format!(
                    "{remote} does not answer UDP echo: a gateway or `starhaul detect --serve` has to be there, and firewalls must let it pass"
                ));
            }
            let hello = client.handle_timeout(now);
            hello.map_err(|error| explain(&error))?;
            self.wait(&[client.as_fd()], until.min(client.next_hello()))?;
            client.recv(|_, _| ());
            // Timestamps of hellos that left; while one is pending, the socket is ready at once.
            client.departures(|_, _| ());
            if self.is_stopped() {
                return Ok(());
            }
        }
        self.tell(Stage::Probing {
            target: remote.ip(),
            found: None,
            by: ProbedBy::UdpEcho,
        });
        match self.probe(Channel::Udp(Box::new(client)))? {
            End::Stopped | End::Silent | End::Unsteady => Ok(()),
            End::Due => {
                self.udp_for = (self.udp_for * 2).min(UDP_FOR[1]);
                Ok(())
            }
            End::Gone(error) => Err(format!("cannot send to {remote}: {error}")),
        }
    }

    /// Probes until one of the ends occurs.
    fn probe(&mut self, mut channel: Channel) -> Result<End, String> {
        let start = Instant::now();
        let mut config = self.config.detection.detector;
        config.schedule = None;
        let mut detector = Detector::new(config, start);
        // A responder of ours answers every probe: missing answers are losses of the path.
        let mut tally = Tally::new(start, matches!(channel, Channel::Icmp(_)));
        let (mut report_at, mut timetable_at) = (start + REPORT, start);
        let mut sequence = 0;
        let mut rested_since = None;
        let is_makeshift =
            matches!(channel, Channel::Udp(_)) && self.config.detection.method == ProbeMethod::Auto;
        loop {
            channel.departures(|at, number| detector.on_probe_left(at, widen(sequence, number)));
            let mut found = Vec::new();
            channel.recv(|at, number| {
                let number = widen(sequence, number);
                tally.answered(at, number);
                found.extend(detector.on_response(at, number));
            });
            if channel.take_unknown() {
                detector.excuse_silence();
            }
            let now = Instant::now();
            for event in found {
                self.found(event);
                // The timetable may move.
                timetable_at = now;
            }
            let rest = tally.tried && self.shared.rest.load(Ordering::SeqCst);
            if rest != rested_since.is_some() {
                self.change_pace(now, &mut rested_since, &mut detector, &mut tally);
                report_at = now;
            }
            if let Some(end) = tally.end(now, self.is_stopped()) {
                return Ok(end);
            }
            if is_makeshift && rested_since.is_none() && now >= start + self.udp_for {
                return Ok(End::Due);
            }
            if now >= timetable_at {
                timetable_at = now + TIMETABLE;
                detector.set_schedule(self.schedule(now));
            }
            if now >= report_at {
                report_at = now + rested_since.map_or(REPORT, |_| REPORT.max(config.idle_interval));
                // The segment's RTT is not needed while no flow is active.
                let tells = matches!(channel, Channel::Icmp(_)) && rested_since.is_none();
                self.report(now, &detector, &mut tally, tells);
            }
            if now >= detector.next_probe() {
                // Just before the call, so that no delay of this thread is included.
                sequence = detector.on_probe_sent(Instant::now());
                let number = u32::try_from(sequence & u64::from(u32::MAX)).unwrap_or(0);
                match channel.try_send(now, number) {
                    Ok(()) => tally.sent(),
                    Err(error) => {
                        detector.on_probe_refused(sequence);
                        if let Some(end) = tally.refused(error) {
                            return Ok(end);
                        }
                    }
                }
            }
            channel.handle_timeout(now)?;
            let deadline = detector.next_probe().min(report_at);
            self.wait(&[channel.as_fd()], deadline)?;
        }
    }

    /// Begins or ends rest.
    fn change_pace(
        &mut self,
        now: Instant,
        rested_since: &mut Option<Instant>,
        detector: &mut Detector,
        tally: &mut Tally,
    ) {
        let silence = match rested_since.take() {
            None => {
                detector.rest();
                *rested_since = Some(now);
                SILENCE.max(self.config.detection.detector.idle_interval * 4)
            }
            Some(since) => {
                detector.resume(now);
                let dated = self
                    .config
                    .detection
                    .timetable
                    .is_some_and(|table| table.offset.is_some());
                let schedule = self.schedule(now).filter(|_| dated);
                let last = schedule.and_then(|schedule| schedule.last_hint(now, since));
                if let Some(at) = last {
                    (self.each)(ProberEvent::Reconfiguration(Schedule::reconfiguration(at)));
                }
                SILENCE
            }
        };
        tally.expect_answers(now, silence);
        self.shared.status.lock().resting = rested_since.is_some();
    }

    fn found(&mut self, event: Reconfiguration) {
        let mut status = self.shared.status.lock();
        status.found += 1;
        status.last = Some(event);
        drop(status);
        (self.each)(ProberEvent::Reconfiguration(event));
    }

    /// The timetable as presently known.
    fn schedule(&self, now: Instant) -> Option<Schedule> {
        let timetable = self.config.detection.timetable?;
        let last = self.shared.status.lock().last;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        timetable.schedule(unix, now, last.map(|last| last.at))
    }

    /// Signals the timetable's times while no host can be probed.
    fn hint_when_due(&mut self) {
        let now = Instant::now();
        if let Some(at) = self.hint_at.filter(|at| now >= *at) {
            (self.each)(ProberEvent::Reconfiguration(Schedule::reconfiguration(at)));
            self.hint_at = self.next_hint(now);
        }
    }

    fn next_hint(&self, now: Instant) -> Option<Instant> {
        // Times from the last reconfiguration become inaccurate; the wall clock does not.
        self.config.detection.timetable?.offset?;
        self.schedule(now)?.next_hint(now)
    }

    fn report(&mut self, now: Instant, detector: &Detector, tally: &mut Tally, icmp: bool) {
        let rtt = detector.segment_rtt();
        {
            let mut status = self.shared.status.lock();
            let (sent, answered, refused) = tally.take();
            status.sent += sent;
            status.answered += answered;
            status.refused += refused;
            status.rtt = rtt;
            status.outage = detector.outage_in_progress(now);
        }
        if let Some(rtt) = rtt.filter(|_| icmp) {
            (self.each)(ProberEvent::SegmentRtt { at: now, rtt });
        }
    }

    /// Reports a stage; a repeated problem is reported once.
    fn tell(&mut self, stage: Stage) {
        let probing = matches!(stage, Stage::Probing { .. });
        let problem = match &stage {
            Stage::Waiting { problem } => Some(problem.clone()),
            Stage::Searching => self.problem.clone(),
            Stage::Probing { .. } => None,
        };
        let mut status = self.shared.status.lock();
        status.stage = stage.clone();
        status.problem.clone_from(&problem);
        (status.rtt, status.outage, status.resting) = (None, None, false);
        drop(status);
        if problem.is_none() || problem != self.problem {
            (self.each)(ProberEvent::Stage(stage));
        }
        self.problem = problem;
        self.hint_at = match probing {
            true => None,
            false => self.hint_at.or_else(|| self.next_hint(Instant::now())),
        };
    }

    fn wait(&mut self, sockets: &[BorrowedFd<'_>], deadline: Instant) -> Result<(), String> {
        let sockets: Vec<_> = sockets.iter().map(|socket| (*socket, false)).collect();
        let deadline = self.hint_at.map_or(deadline, |at| at.min(deadline));
        let waited = self.poller.wait_fds(&sockets, Some(deadline));
        let waited = waited.map(|_| ()).map_err(|error| error.to_string());
        self.hint_when_due();
        waited
    }

    fn pause(&mut self, length: Duration) {
        let until = Instant::now() + length;
        while !self.is_stopped() && Instant::now() < until {
            if self.wait(&[], until).is_err() {
                std::thread::sleep(length);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }
}

impl Channel {
    fn try_send(&mut self, now: Instant, number: u32) -> io::Result<()> {
        match self {
            Self::Icmp(pinger) => pinger.try_send(number),
            Self::Udp(client) => client.try_send(now, number),
        }
    }

    fn recv(&mut self, each: impl FnMut(Instant, u32)) {
        match self {
            Self::Icmp(pinger) => pinger.recv(each),
            Self::Udp(client) => client.recv(each),
        }
    }

    /// Whether the far end did not know this prober for a while, and knows it now.
    fn take_unknown(&mut self) -> bool {
        match self {
            Self::Icmp(_) => false,
            Self::Udp(client) => client.take_unknown(),
        }
    }

    fn departures(&mut self, each: impl FnMut(Instant, u32)) {
        match self {
            Self::Icmp(pinger) => pinger.departures(each),
            Self::Udp(client) => client.departures(each),
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), String> {
        match self {
            Self::Icmp(_) => Ok(()),
            Self::Udp(client) => client.handle_timeout(now).map_err(|error| explain(&error)),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Icmp(pinger) => pinger.as_fd(),
            Self::Udp(client) => client.as_fd(),
        }
    }
}

/// The fates of the probes to one address.
struct Tally {
    start: Instant,
    tried: bool,
    /// Whether the probed host must answer most probes.
    choosy: bool,
    last_answer: Option<Instant>,
    /// Silence of this length means that the path may have changed.
    silence: Duration,
    /// Number of probes up to the newest answered one, and how many of them were answered.
    all: (u64, u64),
    /// Sent, answered and refused since the last report.
    untold: (u64, u64, u64),
    refusals: u32,
}

impl Tally {
    fn new(start: Instant, choosy: bool) -> Self {
        Self {
            start,
            tried: false,
            choosy,
            last_answer: None,
            silence: SILENCE,
            all: (0, 0),
            untold: (0, 0, 0),
            refusals: 0,
        }
    }

    fn sent(&mut self) {
        self.refusals = 0;
        self.untold.0 += 1;
    }

    /// From now on answers arrive at another rate.
    fn expect_answers(&mut self, now: Instant, silence: Duration) {
        self.last_answer = Some(now);
        self.silence = silence;
    }

    fn answered(&mut self, at: Instant, number: u64) {
        self.last_answer = self.last_answer.max(Some(at));
        // Later ones may be in flight: over a distant satellite one RTT takes a third of the trial.
        self.all.0 = self.all.0.max(number.saturating_add(1));
        self.all.1 += 1;
        self.untold.1 += 1;
    }

    fn refused(&mut self, error: io::Error) -> Option<End> {
        self.refusals += 1;
        self.untold.2 += 1;
        let over = is_gone(&error) || self.refusals >= REFUSALS;
        over.then_some(End::Gone(error))
    }

    fn take(&mut self) -> (u64, u64, u64) {
        std::mem::take(&mut self.untold)
    }

    fn end(&mut self, now: Instant, stopped: bool) -> Option<End> {
        if stopped {
            return Some(End::Stopped);
        }
        if !self.tried && now >= self.start + TRIAL {
            self.tried = true;
            let (sent, answered) = self.all;
            #[expect(
                clippy::cast_precision_loss,
                reason = "the probes of two seconds are few"
            )]
            let too_few = answered == 0 || (answered as f64) < TRIAL_SHARE * sent as f64;
            if self.choosy && too_few {
                return Some(End::Unsteady);
            }
        }
        let heard = self.last_answer.unwrap_or(self.start);
        (now >= heard + self.silence).then_some(End::Silent)
    }
}

/// The full number of the probe with these low bits that is nearest to the newest one.
fn widen(newest: u64, number: u32) -> u64 {
    let low = u32::try_from(newest & u64::from(u32::MAX)).unwrap_or(0);
    let back = low.wrapping_sub(number);
    // A number that was not sent yet wraps to a huge one, which no probe has.
    newest.checked_sub(u64::from(back)).unwrap_or(u64::MAX)
}

fn explain(error: &Error) -> String {
    match is_forbidden(error) {
        true => "no permission for ICMP: run as root or with CAP_NET_RAW, or let this group use ping sockets \
                 (sysctl net.ipv4.ping_group_range=\"0 2147483647\")"
            .to_owned(),
        false => error.to_string(),
    }
}
