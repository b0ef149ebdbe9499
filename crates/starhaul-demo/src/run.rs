//! Runs both systems at once and watches them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    net::UdpSocket,
    task::{JoinHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};

use super::{
    DemoOptions, DemoResult, PathResult, Paths, Sample, SystemResult, SystemSeries, Systems,
    system::{ControllerFigures, LinkCounters, Running},
};
use crate::{
    Error,
    apps::{
        self, SharedLog,
        download::{DownloadScore, Server},
    },
    load::{Class, Classes},
    score::{LISTENING, Tally},
};

const TICK: Duration = Duration::from_millis(500);
/// The download may end so long after its server stopped; what has not come by then is cut off.
const DOWNLOAD_GRACE: Duration = Duration::from_secs(12);
/// Above this the emulated links were not what they claim to be.
const LATENESS_LIMIT: Duration = Duration::from_millis(1);

/// How far the run has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the applications started.
    pub elapsed: Duration,
    /// Everything is sent; what is still under way may arrive.
    pub draining: bool,
    /// How far each system is.
    pub systems: Systems<SystemProgress>,
}

/// How far one system has come.
#[derive(Clone, Debug)]
pub struct SystemProgress {
    /// How many blocks came in time so far, without those that still may.
    pub classes: Classes<Tally>,
    /// Mbit/s of each path towards the field in the last half second.
    pub rates: Paths<f64>,
    /// Mbit/s of the download in the last half second.
    pub download_mbit: f64,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct DemoRun {
    /// Figures of both systems.
    pub result: DemoResult,
    /// Time series of each system.
    pub all_series: Systems<SystemSeries>,
}

/// Runs the demo and tells `watch` twice a second how far it is.
///
/// # Errors
/// A trace that cannot be read, a socket that cannot be opened, a system that does not come up within 20 s, and the end of
/// emulated links or of a connection of the baseline before the run is over: there is nothing to compare then.
pub async fn run(
    options: &DemoOptions,
    mut watch: impl FnMut(&Progress),
) -> Result<DemoRun, Error> {
    let duration = Duration::from_secs(options.seconds);
    let (starhaul, mpquic) = tokio::try_join!(
        Stage::set_up(options, |links, seed, egress, server| {
            Running::starhaul(links, seed, egress, server, options.qlog.as_ref())
        }),
        Stage::set_up(options, |links, seed, egress, server| {
            Running::mpquic(options.baseline, links, seed, egress, server)
        })
    )?;
    let start = Instant::now();
    let mut acts = Systems {
        starhaul: starhaul.begin(start, options),
        mpquic: mpquic.begin(start, options),
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        for (name, act) in acts.named() {
            if let Some(why) = act.running.failure() {
                return Err(Error::Failed(format!("{name}: {why}")));
            }
        }
        let elapsed = start.elapsed();
        let systems = Systems {
            starhaul: acts.starhaul.watch(elapsed),
            mpquic: acts.mpquic.watch(elapsed),
        };
        let draining = elapsed >= duration;
        watch(&Progress {
            elapsed,
            draining,
            systems,
        });
        let over = acts.starhaul.over() && acts.mpquic.over();
        if draining
            && (over
                || elapsed >= duration + LISTENING
                    && acts.starhaul.downloaded()
                    && acts.mpquic.downloaded())
        {
            break;
        }
    }
    let mut warnings = Vec::new();
    let (starhaul, starhaul_course) = acts.starhaul.end("starhaul", &mut warnings).await?;
    let (mpquic, mpquic_course) = acts.mpquic.end("mpquic", &mut warnings).await?;
    Ok(DemoRun {
        result: DemoResult {
            seed: options.seed,
            seconds: options.seconds,
            baseline: options.baseline,
            applications: options.applications,
            systems: Systems { starhaul, mpquic },
            warnings,
        },
        all_series: Systems {
            starhaul: starhaul_course,
            mpquic: mpquic_course,
        },
    })
}

/// One system that is up, with the applications that wait to begin.
struct Stage {
    running: Running,
    receivers: Classes<UdpSocket>,
    server: Server,
}

impl Stage {
    async fn set_up<F>(
        options: &DemoOptions,
        system: impl FnOnce(Paths<starhaul_link::LinkSpec>, u64, Classes<SocketAddr>, SocketAddr) -> F,
    ) -> Result<Self, Error>
    where
        F: Future<Output = Result<Running, Error>>,
    {
        let receivers = Classes {
            text: apps::loopback_socket()?,
            audio: apps::loopback_socket()?,
            video: apps::loopback_socket()?,
        };
        let egress = Classes {
            text: apps::local_address(&receivers.text)?,
            audio: apps::local_address(&receivers.audio)?,
            video: apps::local_address(&receivers.video)?,
        };
        let server = Server::start(options.seed, Duration::from_secs(options.seconds))?;
        let running = system(options.links()?, options.seed, egress, server.address()).await?;
        Ok(Self {
            running,
            receivers,
            server,
        })
    }

    fn begin(self, start: Instant, options: &DemoOptions) -> Act {
        let duration = Duration::from_secs(options.seconds);
        let applications = options.applications;
        let blocks = Classes::from_fn(|class| match applications.have_blocks() {
            true => class.blocks(duration).count(),
            false => 0,
        });
        let Self {
            running,
            receivers,
            server,
        } = self;
        let logs = Classes::from_fn(apps::shared_log);
        let mut listeners = JoinSet::new();
        let mut senders = JoinSet::new();
        let Classes { text, audio, video } = receivers;
        for (class, socket) in [
            (Class::Text, text),
            (Class::Audio, audio),
            (Class::Video, video),
        ] {
            let log = logs.of(class);
            listeners.spawn(apps::receive(class, socket, start, log.clone()));
            if !applications.have_blocks() {
                continue;
            }
            senders.spawn(apps::send(
                class,
                *running.ingress.of(class),
                start,
                duration,
                log.clone(),
            ));
        }
        let downloaded = Arc::new(AtomicU64::new(0));
        let (proxy, progress) = (running.proxy, downloaded.clone());
        let give_up = start + duration + DOWNLOAD_GRACE;
        let download = tokio::spawn(async move {
            match applications.have_download() {
                true => server.download(proxy, give_up, &progress).await,
                false => Ok(DownloadScore::default()),
            }
        });
        let first = running.counters();
        Act {
            running,
            blocks,
            logs,
            senders,
            _receivers: listeners,
            download,
            downloaded,
            first,
            samples: Vec::new(),
        }
    }
}

/// One system with its applications at work.
struct Act {
    running: Running,
    /// How many of each class are to be sent.
    blocks: Classes<usize>,
    logs: Classes<SharedLog>,
    senders: JoinSet<Result<(), Error>>,
    _receivers: JoinSet<()>,
    download: JoinHandle<Result<DownloadScore, Error>>,
    downloaded: Arc<AtomicU64>,
    /// At the start of the applications.
    first: LinkCounters,
    samples: Vec<Sample>,
}

impl Act {
    fn watch(&mut self, elapsed: Duration) -> SystemProgress {
        let counters = self.running.counters();
        let since = |now: Paths<u64>, first: Paths<u64>| Paths {
            leo: now.leo.saturating_sub(first.leo),
            geo: now.geo.saturating_sub(first.geo),
        };
        let sample = Sample {
            at: elapsed,
            delivered: since(counters.delivered, self.first.delivered),
            capacity: since(counters.capacity, self.first.capacity),
            downloaded: self.downloaded.load(Ordering::Relaxed),
        };
        let last = self.samples.last().copied().unwrap_or_default();
        self.samples.push(sample);
        let rate = |now: u64, before: u64| {
            mbit(
                now.saturating_sub(before),
                sample.at.saturating_sub(last.at),
            )
        };
        SystemProgress {
            classes: Classes::from_fn(|class| self.logs.of(class).lock().so_far(elapsed)),
            rates: Paths {
                leo: rate(sample.delivered.leo, last.delivered.leo),
                geo: rate(sample.delivered.geo, last.delivered.geo),
            },
            download_mbit: rate(sample.downloaded, last.downloaded),
        }
    }

    fn downloaded(&self) -> bool {
        self.download.is_finished()
    }

    /// Nothing more can come.
    fn over(&self) -> bool {
        let has_all = |class: &Class| {
            let log = self.logs.of(*class).lock();
            log.blocks().len() >= *self.blocks.of(*class) && log.is_complete()
        };
        self.downloaded() && Class::ALL.iter().all(has_all)
    }

    async fn end(
        mut self,
        name: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(SystemResult, SystemSeries), Error> {
        while let Some(sender) = self.senders.join_next().await {
            sender.map_err(ended_early)??;
        }
        let download = self
            .download
            .await
            .map_err(ended_early)?
            .unwrap_or_else(|error| {
                warnings.push(format!("{name}: the download failed: {error}"));
                DownloadScore::default()
            });
        if let Some(failure) = &download.failure {
            warnings.push(format!("{name}: the download broke off: {failure}"));
        }
        let counters = self.running.counters();
        let late = self.running.lateness_p99();
        if late > LATENESS_LIMIT {
            warnings.push(format!(
                "{name}: one packet in a hundred left its emulated link more than {:.1} ms late: this machine was too busy for exact figures",
                late.as_secs_f64() * 1e3
            ));
        }
        let controllers = self.running.controllers();
        let carried = |now: u64, before: u64, by: ControllerFigures| PathResult {
            bytes: now.saturating_sub(before),
            controller: by.name,
            reconfigurations: by.reconfigurations,
        };
        let classes = Classes::from_fn(|class| self.logs.of(class).lock().score());
        let result = SystemResult {
            qoe: classes.qoe(),
            classes,
            paths: Paths {
                leo: carried(
                    counters.carried.leo,
                    self.first.carried.leo,
                    controllers.leo,
                ),
                geo: carried(
                    counters.carried.geo,
                    self.first.carried.geo,
                    controllers.geo,
                ),
            },
            download,
        };
        let logs = Classes::from_fn(|class| self.logs.of(class).lock().clone());
        Ok((
            result,
            SystemSeries {
                logs,
                samples: self.samples,
            },
        ))
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is used as a function of a result's error"
)]
fn ended_early(error: tokio::task::JoinError) -> Error {
    Error::Failed(format!("an application of the demo ended early: {error}"))
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn mbit(bytes: u64, span: Duration) -> f64 {
    if span.is_zero() {
        0.0
    } else {
        bytes as f64 * 8.0 / 1e6 / span.as_secs_f64()
    }
}
