//! `starhaul detect`: runs the prober of `starhaul-net`, prints a line for each reconfiguration, and a summary.

mod told;

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget};
use starhaul_cc::{Detection, DetectorConfig, ProbeMethod, ProbeTarget, Timetable};
use starhaul_net::prober::{EchoServer, Prober, ProberConfig, ProberEvent, Stage, Via};
use starhaul_units::{ParseDurationError, parse_duration_in};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use self::told::Told;
use crate::output::{Usage, redraws};

/// Interval of reading the prober's status.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Greatest number of events that wait for output; further ones are only counted in the summary.
const MAX_WAITING: usize = 1024;
/// Destination of the search without a configured far end: it goes no further than ten hops.
const ANYWHERE: &str = "1.1.1.1";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Host to probe: auto for the nearest stable address behind the satellite, or an IP address (most Starlink dishes:
    /// 100.64.0.1)
    #[arg(long, value_name = "ADDR", default_value = "auto")]
    target: String,
    /// A far end behind the satellite, as host or host:port, an IPv6 address with a port in brackets: the search leads
    /// there, and UDP echo goes to its port
    #[arg(long, value_name = "HOST", env = "STARHAUL_SERVER", default_value = ANYWHERE)]
    toward: String,
    /// Kind of probes that are sent
    #[arg(long, value_enum, default_value_t = Method::Auto)]
    by: Method,
    /// Time between two probes
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    interval: Duration,
    /// Δ_outage: a longer silence is a reconfiguration
    #[arg(long, value_name = "TIME", default_value = "45ms", value_parser = threshold)]
    outage: Duration,
    /// The operator's timetable, near which shorter silences count
    /// (starlink, oneweb, "12s every 15s", or "every 11s" where only that is known)
    #[arg(long, value_name = "TIMES")]
    timetable: Option<Timetable>,
    /// Network interface that probes must use
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Address that probes come from
    #[arg(long, value_name = "IP")]
    local: Option<IpAddr>,
    /// Stop after so many seconds [default: at Ctrl-C]
    #[arg(long, value_name = "N")]
    seconds: Option<u32>,
    /// Print one JSON object per event, each on its line
    #[arg(long)]
    json: bool,
    /// Answer UDP echo on this address instead of probing
    #[arg(long, value_name = "ADDR")]
    serve: Option<SocketAddr>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// ICMP where it is permitted and answered, else UDP
    Auto,
    /// ICMP echo requests to the target
    Icmp,
    /// UDP echo to the far end
    Udp,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    match arguments.serve {
        Some(address) => runtime.block_on(serve(address)),
        None => runtime.block_on(detect(arguments)),
    }
}

async fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let mut end = Signals::new()?;
    let server = EchoServer::start(address)?;
    tracing::info!(address = %server.local_addr(), "answers probes by UDP echo");
    end.wait().await;
    Ok(())
}

async fn detect(arguments: &Arguments) -> anyhow::Result<()> {
    let config = config(arguments)?;
    let mut signals = Signals::new()?;
    let (tell, mut events) = mpsc::channel(MAX_WAITING);
    let start = Instant::now();
    let prober = Prober::start(config, move |event| {
        // The prober must not wait for output.
        let _ = tell.try_send(event);
    })?;
    let mut told = Told::new(start, arguments.json);
    let bar = bar();
    let over = async {
        match arguments.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds.into())).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    let mut status_due = tokio::time::interval(STATUS_INTERVAL);
    let mut probed = false;
    loop {
        tokio::select! {
            () = &mut over => break,
            () = signals.wait() => break,
            _ = status_due.tick() => bar.set_message(told::live(&prober.status())),
            event = events.recv() => match event {
                Some(event) => {
                    probed |= matches!(event, ProberEvent::Stage(Stage::Probing { .. }));
                    bar.suspend(|| told.event(&event, &prober.status()))?;
                }
                None => bail!("the prober ended by itself"),
            },
        }
    }
    bar.finish_and_clear();
    // Events of the last moment belong to the run.
    while let Ok(event) = events.try_recv() {
        told.event(&event, &prober.status())?;
    }
    told.summary(&prober.status(), start.elapsed())?;
    if !probed {
        bail!("no host could be probed");
    }
    Ok(())
}

fn config(arguments: &Arguments) -> anyhow::Result<ProberConfig> {
    let target = match arguments.target.as_str() {
        "auto" => ProbeTarget::Auto,
        address => ProbeTarget::Host(address.parse().map_err(|_| {
            Usage(format!(
                "--target {address:?}: neither auto nor an IP address"
            ))
        })?),
    };
    let version = match target {
        ProbeTarget::Host(host) => Some(host),
        ProbeTarget::Auto => arguments.local,
    };
    let detector = DetectorConfig {
        probe_interval: arguments.interval,
        outage_threshold: arguments.outage,
        ..DetectorConfig::default()
    };
    if let Some(problem) = detector.problem() {
        bail!(Usage(format!("--outage {:?}: {problem}", arguments.outage)));
    }
    let toward = far_end(&arguments.toward, version)?;
    if toward.port() == 0 && matches!(arguments.by, Method::Udp) {
        bail!(Usage(no_port(&arguments.toward, toward.ip())));
    }
    let detection = Detection {
        target,
        method: match arguments.by {
            Method::Auto => ProbeMethod::Auto,
            Method::Icmp => ProbeMethod::Icmp,
            Method::Udp => ProbeMethod::Udp,
        },
        detector,
        timetable: arguments.timetable,
    };
    Ok(ProberConfig {
        detection,
        toward: Some(toward),
        via: Via {
            local: arguments.local,
            interface: arguments.interface.clone(),
        },
    })
}

/// Resolves the address, in the version of `like`; port 0 if none was given.
fn far_end(text: &str, like: Option<IpAddr>) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    if text.matches(':').count() > 1 && !text.starts_with('[') {
        bail!(Usage(format!(
            "--toward {text:?}: write an IPv6 address with a port as [ADDRESS]:PORT"
        )));
    }
    let found = match text.contains(':') {
        true => text.to_socket_addrs(),
        false => (text, 0).to_socket_addrs(),
    };
    let mut found = found.with_context(|| format!("--toward {text:?} cannot be resolved"))?;
    let fits = |address: &SocketAddr| like.is_none_or(|like| like.is_ipv4() == address.is_ipv4());
    let found = found.find(fits);
    found.with_context(|| format!("--toward {text:?} has no address of a fitting IP version"))
}

/// Why UDP echo cannot go to `text`, and how to write a port.
fn no_port(text: &str, address: IpAddr) -> String {
    let bare = text.parse::<Ipv6Addr>().is_ok();
    let meant = text
        .rsplit_once(':')
        .filter(|(_, port)| bare && port.parse::<u16>().is_ok());
    let meant =
        meant.map(|(address, port)| format!(", or [{address}]:{port} if {port} is the port"));
    let with_port = match address {
        IpAddr::V6(_) if bare => format!("[{text}]:PORT"),
        _ => format!("{text}:PORT"),
    };
    let meant = meant.unwrap_or_default();
    format!("--toward {text:?}: UDP echo needs a port: write {with_port}{meant}")
}

fn bar() -> ProgressBar {
    let target = match redraws(&std::io::stderr()) {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    ProgressBar::with_draw_target(None, target)
}

fn interval(text: &str) -> Result<Duration, ParseDurationError> {
    parse_duration_in(Duration::from_millis(2)..=Duration::from_millis(100), text)
}

fn threshold(text: &str) -> Result<Duration, ParseDurationError> {
    parse_duration_in(Duration::from_millis(10)..=Duration::from_secs(2), text)
}

/// The signals that end the program in order.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
