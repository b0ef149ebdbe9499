//! `starhaul relay`, `serve` and `fetch`: files by name over LEOTP; all else is in `starhaul-contents`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use starhaul_contents::{
    ContentSecret, Error, Fetched, Fetching, NeighbourKey, Progress, Relay, ServeOptions, Server,
    config::Config,
};
use starhaul_net::leotp::{PACKET_BYTES, PORT};
use starhaul_units::Bandwidth;

use crate::{
    address,
    output::{Usage, bar, print},
};

#[derive(clap::Args)]
pub(crate) struct RelayArguments {
    /// File with the configuration
    #[arg(long, value_name = "FILE", required_unless_present = "sample")]
    config: Option<PathBuf>,
    /// Check the configuration, print what it says, and end
    #[arg(long)]
    check: bool,
    /// On a router: take what passes to neighbours that have an address, and answer under it; needs nftables, and root or CAP_NET_ADMIN
    #[arg(long)]
    transparent: bool,
    /// Print a commented sample of a configuration, and end
    #[arg(long, conflicts_with_all = ["config", "check"])]
    sample: bool,
}

#[derive(clap::Args)]
pub(crate) struct ServeArguments {
    /// Folder whose files are served by their paths below it, or one file
    root: PathBuf,
    /// UDP address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)))]
    listen: SocketAddr,
    /// UDP payload of the packets, 1232 to 1472: less for a path on the way whose MTU is below 1500 [default: 1472; 1452 if --listen is an IPv6 address]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(packet_bytes()))]
    packet_bytes: Option<u16>,
    /// File with the key of a neighbour that may ask, from wherever it is; once for each
    #[arg(long, value_name = "FILE", required = true)]
    key: Vec<PathBuf>,
    /// File with the secret of those that may read: relays do not need it
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct FetchArguments {
    /// Name of the file: its path below the folder that is served
    name: String,
    /// The nearest relay, or the server, as host or host:port [default port: 4511]
    #[arg(long, value_name = "ADDR")]
    from: String,
    /// File with the key that is shared with it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File with the secret that is shared with the server
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
    /// File to write, or folder for it
    #[arg(long, value_name = "PATH", default_value = ".")]
    into: PathBuf,
    /// Give up when nothing has come for this long; what has come is kept, and fetching again goes on from there
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = starhaul_units::parse_duration)]
    patience: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn packet_bytes() -> std::ops::RangeInclusive<i64> {
    i64::from(*PACKET_BYTES.start())..=i64::from(*PACKET_BYTES.end())
}

pub(crate) fn relay(arguments: &RelayArguments) -> anyhow::Result<()> {
    let Some(file) = arguments.config.as_ref().filter(|_| !arguments.sample) else {
        return print(Config::sample());
    };
    let config = Config::load(file).map_err(usage)?;
    if arguments.check {
        return print(config.describe());
    }
    if let Some(warning) = config.warning() {
        tracing::warn!("{warning}");
    }
    starhaul_net::sharpen_timers();
    let mut relay = Relay::open(config, arguments.transparent).map_err(|error| match error {
        error @ (Error::Transparent { .. } | Error::NoTarget) => usage(error),
        error => error.into(),
    })?;
    if let Some(address) = relay.metrics_address() {
        tracing::info!(%address, "metrics are served");
    }
    tracing::info!(address = %relay.local_addr(), "relays");
    match relay.run()? {}
}

pub(crate) fn serve(arguments: &ServeArguments) -> anyhow::Result<()> {
    let keys = arguments.key.iter().map(|file| key(file));
    let options = ServeOptions {
        root: arguments.root.clone(),
        listen: arguments.listen,
        packet_bytes: arguments.packet_bytes,
        neighbours: keys.collect::<Result<_, _>>()?,
        secret: ContentSecret::new(&shared(&arguments.secret)?),
    };
    starhaul_net::sharpen_timers();
    let mut count = 0_u64;
    let mut server = Server::open(options, |entry| {
        count += 1;
        tracing::debug!(
            name = entry.name,
            bytes = entry.bytes,
            sha256 = entry.sha256,
            "read"
        );
    })?;
    tracing::info!(address = %server.local_addr(), files = count, "serves");
    match server.run()? {}
}

pub(crate) fn fetch(arguments: &FetchArguments) -> anyhow::Result<()> {
    let fetching = Fetching {
        name: arguments.name.clone(),
        from: address::resolve_all("--from", &arguments.from, PORT)?,
        key: key(&arguments.key)?,
        secret: ContentSecret::new(&shared(&arguments.secret)?),
        into: arguments.into.clone(),
        patience: arguments.patience,
    };
    starhaul_net::sharpen_timers();
    let mut bar = Bar::new();
    let fetched = fetching.run(|progress| bar.show(progress));
    bar.bar.finish_and_clear();
    let fetched = fetched?;
    print(match arguments.json {
        true => json(&fetched)?,
        false => format!("{}  {}\n", fetched.entry.sha256, fetched.path.display()),
    })
}

fn json(fetched: &Fetched) -> anyhow::Result<String> {
    let bytes = fetched.entry.bytes - fetched.resumed_from;
    let object = serde_json::json!({
        "path": fetched.path,
        "bytes": fetched.entry.bytes,
        "sha256": fetched.entry.sha256,
        "resumed_from": fetched.resumed_from,
        "mbit_per_s": Bandwidth::from_bytes_over(bytes, fetched.took).mbit(),
        "longest_pause_ms": fetched.longest_pause.as_secs_f64() * 1e3,
    });
    Ok(format!("{}\n", serde_json::to_string(&object)?))
}

fn key(file: &Path) -> anyhow::Result<NeighbourKey> {
    Ok(NeighbourKey::new(&shared(file)?))
}

fn shared(file: &Path) -> anyhow::Result<[u8; 32]> {
    starhaul_config::shared_secret(file).map_err(|error| usage(error.into()))
}

/// What is wrong with files of the command line is wrong usage.
fn usage(error: starhaul_contents::Error) -> anyhow::Error {
    Usage(error.to_string()).into()
}

/// The progress of a file: a bar on a terminal, nothing elsewhere.
struct Bar {
    bar: ProgressBar,
    began: Instant,
    /// What was there first: an earlier try brought it.
    first: Option<u64>,
}

impl Bar {
    fn new() -> Self {
        Self {
            bar: bar(),
            began: Instant::now(),
            first: None,
        }
    }

    fn show(&mut self, progress: Progress) {
        let first = *self.first.get_or_insert(progress.bytes);
        let rate = Bandwidth::from_bytes_over(progress.bytes - first, self.began.elapsed());
        self.bar.set_length(progress.length);
        self.bar.set_position(progress.bytes);
        self.bar.set_message(format!("{:.1} Mbit/s", rate.mbit()));
    }
}
