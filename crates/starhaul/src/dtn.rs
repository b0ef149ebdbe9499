//! `starhaul dtn`: runs a bundle node, and asks a running one to send, receive, answer and tell; all the rest is in
//! `starhaul-dtn`.

mod bench;
mod tables;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use starhaul_dtn::{
    Config, Node,
    control::Server,
    files::{Answer, FileReceiver, FileSender, Progress, SERVICE},
    plan::Moment,
};
use starhaul_dtn_client::{
    Error,
    control::{Bundle, Client},
    endpoint_of,
};
use starhaul_units::parse_duration;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    ltp::explain::lines,
    output::{Usage, print, printable},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

impl Arguments {
    /// Whether it is a benchmark.
    pub(crate) fn is_benchmark(&self) -> bool {
        matches!(self.action, Action::Bench(_))
    }
}

#[derive(Subcommand)]
enum Action {
    /// Run a node until it is interrupted
    Node {
        /// Configuration (TOML); `starhaul dtn sample` prints one
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Check a configuration and its contact plan, and describe what it configures
    Check {
        /// Configuration (TOML)
        file: PathBuf,
        /// Print the values of LTP that the node has for each neighbour, given or computed, and why
        #[arg(long)]
        explain: bool,
    },
    /// Print a commented sample configuration
    Sample,
    /// Send files and folders; exit code 0 says that the far side has all of them, compared by SHA-256
    Send(SendArguments),
    /// Receive files into a folder until interrupted
    Receive(ReceiveArguments),
    /// Ask a node for answers over bundles, and print how long each took
    Ping(PingArguments),
    /// Show what a node holds, and when its contacts with neighbours begin and end
    Status(StatusArguments),
    /// Measure how many bundles this host carries over loopback, beside LTP alone in the same run
    Bench(bench::Arguments),
}

#[derive(clap::Args)]
struct Socket {
    /// Control socket of the node [default: $XDG_RUNTIME_DIR/starhaul/dtn.sock, else /run/starhaul-dtn/dtn.sock, whichever
    /// answers]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(clap::Args)]
struct SendArguments {
    /// The files and folders
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The receiver: a node, as ipn:3.0 or dtn://station/, or an endpoint of it
    #[arg(long, value_name = "EID")]
    to: String,
    /// After this time the bundles are dropped wherever they are
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    lifetime: Duration,
    /// Wait so long for the far side to say that it has the files [default: the lifetime]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Do not wait: exit code 0 then says that this node has stored all
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// Have nodes report when they delete a bundle, as when it expires, and end at once with the node and the reason; without --wait, the
    /// reports are waited for a tenth of the lifetime longer, 10 s at least
    #[arg(long, conflicts_with = "no_wait")]
    report: bool,
    #[command(flatten)]
    socket: Socket,
}

#[derive(clap::Args)]
struct ReceiveArguments {
    /// Folder for the files, made if need be; no file in it is replaced
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Service to receive at [default: 100, or files for nodes with names]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// End after so many files
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    #[command(flatten)]
    socket: Socket,
}

#[derive(clap::Args)]
struct PingArguments {
    /// The node, as ipn:3.0 or dtn://station/, or an endpoint that answers
    eid: String,
    /// Number of requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
    /// Time between two requests
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// How long to wait for each answer
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    wait: Duration,
    #[command(flatten)]
    socket: Socket,
}

#[derive(clap::Args)]
struct StatusArguments {
    /// Print the JSON object that the node gives
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.action {
        Action::Sample => print(Config::sample()),
        Action::Check { file, explain } => check(&file, explain),
        Action::Node { config } => {
            // A log of many terabytes has thousands of segments, and each is an open file.
            starhaul_gateway::raise_open_files();
            let runtime = runtime()?;
            let served = runtime.block_on(serve(&config));
            // All that counts is stored; a disk that does not answer must not keep the process.
            runtime.shutdown_background();
            served
        }
        Action::Send(arguments) => runtime()?.block_on(send(arguments)),
        Action::Receive(arguments) => runtime()?.block_on(receive(arguments)),
        Action::Ping(arguments) => runtime()?.block_on(ping(arguments)),
        Action::Status(arguments) => runtime()?.block_on(status(arguments)),
        Action::Bench(arguments) => runtime()?.block_on(bench::run(arguments)),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn check(file: &Path, explains: bool) -> anyhow::Result<()> {
    let now = Moment::from(SystemTime::now());
    let config = Config::load(file, now)?;
    config.check_control()?;
    let neighbours = explains.then(|| config.explain()).into_iter().flatten();
    let explained = neighbours.map(|(node, rows)| {
        let rows = lines(&rows).replace('\n', "\n  ");
        format!("LTP to {node}:\n  {}\n", rows.trim_end())
    });
    print(format!(
        "{}{}{}: no errors\n",
        config.describe(now),
        explained.collect::<String>(),
        file.display()
    ))
}

async fn serve(file: &Path) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let config = Config::load(file, Moment::from(SystemTime::now()))?;
    if let Some(warning) = config.warning() {
        tracing::warn!("{warning}");
    }
    let name = config.node.to_string();
    let mut signals = async || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    let node = tokio::select! {
        // Reading what a former life has left takes long where that is much.
        started = Node::start(config) => started?,
        signal = signals() => {
            tracing::info!(signal, "node ends before it has started");
            return Ok(());
        }
    };
    let server = Server::start(node.handle())?;
    if let Some(address) = node.metrics_address() {
        tracing::info!(%address, "metrics are served");
    }
    tracing::info!(node = name, control = %server.path().display(), "node runs");
    let signal = signals().await;
    tracing::info!(signal, "node ends");
    drop(server);
    tokio::select! {
        // It says itself when it does not end.
        _ = node.shutdown() => {}
        // A second signal ends at once.
        _ = signals() => {}
    }
    Ok(())
}

/// The endpoint that an argument names; no node was asked yet.
fn endpoint(text: &str, service: (u32, &str)) -> Result<String, Usage> {
    endpoint_of(text, service).map_err(|error| match error {
        Error::Refused(why) => Usage(why),
        other => Usage(other.to_string()),
    })
}

/// How long after it was sent a bundle that expires is reported at the latest, as a rule.
fn until_reported(lifetime: Duration) -> Duration {
    lifetime.saturating_add((lifetime / 10).max(Duration::from_secs(10)))
}

async fn send(arguments: SendArguments) -> anyhow::Result<()> {
    let to = endpoint(&arguments.to, SERVICE)?;
    let sender = FileSender::open(&arguments.files)?;
    let (sender, usual) = match arguments.report {
        true => (sender.with_reports(), until_reported(arguments.lifetime)),
        false => (sender, arguments.lifetime),
    };
    let mut client = Client::connect(arguments.socket.socket.as_deref()).await?;
    client.open(None).await?;
    let patience = (!arguments.no_wait).then(|| arguments.wait.unwrap_or(usual));
    let bar = Bar::new();
    let mut last = Progress::default();
    let sent = sender.run(&mut client, &to, arguments.lifetime, patience, |progress| {
        last = progress;
        bar.show(progress);
    });
    sent.await?;
    bar.0.finish_and_clear();
    let Progress { files, length, .. } = last;
    let how = match arguments.no_wait {
        true => "stored by this node; not yet known at",
        false => "arrived and have the same hashes at",
    };
    print(format!("{files} file(s), {length} bytes: {how} {to}\n"))
}

async fn receive(arguments: ReceiveArguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let receiver = FileReceiver::new(&arguments.to)?;
    let mut client = Client::connect(arguments.socket.socket.as_deref()).await?;
    let named = client.status().await?.node;
    let number = SERVICE.0.to_string();
    let default = if named.starts_with("dtn:") {
        SERVICE.1
    } else {
        &number
    };
    client
        .open(Some(arguments.service.as_deref().unwrap_or(default)))
        .await?;
    tracing::info!(endpoint = client.endpoint(), "files are received");
    let mut count = 0;
    loop {
        let has_bundle = tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            has_bundle = client.has_bundle(Duration::from_secs(60)) => has_bundle?,
        };
        if !has_bundle {
            continue;
        }
        let bundle = client.next_bundle().await?;
        let (received, answer) = receiver.take(&bundle)?;
        if let Some(file) = received {
            print(format!(
                "{} ({} bytes, SHA-256 {}) from {}\n",
                printable(&file.path.display().to_string()),
                file.length,
                file.sha256,
                printable(&file.from)
            ))?;
            count += 1;
        }
        if !settle(&mut client, &bundle, answer).await? {
            continue;
        }
        if arguments.count.is_some_and(|most| count >= most) {
            return Ok(());
        }
    }
}

/// Answers the sender of a bundle, and acknowledges it; `false` if the bundle comes again, since the node has no room or took
/// the command for idle.
async fn settle(
    client: &mut Client,
    bundle: &Bundle,
    answer: Option<Answer>,
) -> anyhow::Result<bool> {
    if let Some(Answer { payload, lifetime }) = answer {
        match client.send(&bundle.source, &payload, lifetime).await {
            Err(error @ (Error::Full | Error::NotNow(_))) => {
                tracing::warn!(from = bundle.source, %error, "the sender is answered later");
                return Ok(false);
            }
            Err(Error::Refused(reason)) => {
                tracing::warn!(from = bundle.source, reason, "the sender gets no answer");
            }
            sent => drop(sent?),
        }
    }
    match client.acknowledge(&bundle.id).await {
        Err(Error::Refused(reason)) => {
            tracing::warn!(bundle = bundle.id, reason, "a bundle comes again");
            Ok(false)
        }
        acknowledged => Ok(acknowledged.map(|()| true)?),
    }
}

async fn ping(arguments: PingArguments) -> anyhow::Result<()> {
    let to = endpoint(&arguments.eid, starhaul_dtn::ECHO)?;
    let mut client = Client::connect(arguments.socket.socket.as_deref()).await?;
    client.open(None).await?;
    let mut lost = 0;
    for number in 1..=arguments.count {
        let sent = Instant::now();
        let question = format!("ping {number} {}", Moment::from(SystemTime::now()));
        client
            .send(&to, question.as_bytes(), arguments.wait)
            .await?;
        match answer(&mut client, question.as_bytes(), sent + arguments.wait).await? {
            true => print(format!(
                "{to}: answer {number} after {:?}\n",
                sent.elapsed()
            ))?,
            false => {
                print(format!(
                    "{to}: no answer {number} after {:?}\n",
                    arguments.wait
                ))?;
                lost += 1;
            }
        }
        if number < arguments.count {
            tokio::time::sleep(arguments.interval).await;
        }
    }
    anyhow::ensure!(
        lost == 0,
        "{lost} of {} questions were not answered",
        arguments.count
    );
    Ok(())
}

/// Whether this answer comes in time; late ones of earlier requests are passed over.
async fn answer(client: &mut Client, question: &[u8], until: Instant) -> anyhow::Result<bool> {
    loop {
        let patience = until.saturating_duration_since(Instant::now());
        if patience.is_zero() || !client.has_bundle(patience).await? {
            return Ok(false);
        }
        let bundle = client.next_bundle().await?;
        // One that waited here for long comes once more, and either acknowledgement is of both.
        match client.acknowledge(&bundle.id).await {
            Err(Error::Refused(_)) => {}
            acknowledged => acknowledged?,
        }
        if bundle.payload == question {
            return Ok(true);
        }
    }
}

async fn status(arguments: StatusArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(arguments.socket.socket.as_deref()).await?;
    let status = client.status().await?;
    match arguments.json {
        true => print(format!("{}\n", serde_json::to_string_pretty(&status)?)),
        false => print(tables::tables(&status)),
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let target = match crate::output::redraws(&std::io::stderr()) {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% {wide_msg}");
        bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> "),
        );
        Self(bar)
    }

    fn show(&self, progress: Progress) {
        self.0.set_length(progress.length);
        self.0.set_position(progress.stored);
        self.0.set_message(format!(
            "stored here; {} of {} files arrived",
            progress.arrived, progress.files
        ));
    }
}
