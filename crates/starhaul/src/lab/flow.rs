//! `starhaul lab flow`: a saturating flow between two hosts.

use std::net::{Ipv4Addr, SocketAddr};

use clap::{Subcommand, ValueEnum};
use starhaul_lab::{
    Error,
    transfer::{
        Client, Detection, MAX_SECONDS, PORT, Secret, Server, Toward, Transferred,
        full_packet_bytes,
    },
};
use starhaul_quic::{LEAST_PACKET_BYTES, MOST_PACKET_BYTES};

use super::resolve::resolve;
use crate::output::{print, tell};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    end: End,
}

#[derive(Subcommand)]
enum End {
    /// Take and give what clients ask for
    Server(ServerArguments),
    /// Send to a server, or receive from it, as fast as the path allows
    Client(ClientArguments),
}

#[derive(clap::Args)]
struct ServerArguments {
    /// UDP address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))]
    listen: SocketAddr,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct ClientArguments {
    /// The server as host or host:port; below `starhaul replay --server …` it is found by itself
    #[arg(long, value_name = "ADDR", env = "STARHAUL_SERVER")]
    server: String,
    #[command(flatten)]
    common: Common,
    /// Duration in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SECONDS)))]
    seconds: u32,
    /// The server sends, and its controller counts
    #[arg(long)]
    down: bool,
    /// Whether to watch the satellite hop for reconfigurations: where this end's controller listens or the server sends, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    detect: Detect,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Detect {
    Auto,
    On,
    Off,
}

#[derive(clap::Args)]
struct Common {
    /// What both ends know, at least 16 characters; a server that is given none makes one and says it
    #[arg(
        long,
        value_name = "TEXT",
        env = "STARHAUL_FLOW_SECRET",
        hide_env_values = true
    )]
    secret: Option<String>,
    /// Congestion controller of what this end sends: cubic, bbr, leocc…
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    controller: String,
    /// UDP payload of the largest packets of this end [default: 1472; 1452 over IPv6 and of a server that listens there]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(i64::from(LEAST_PACKET_BYTES)..=i64::from(MOST_PACKET_BYTES)))]
    packet_bytes: Option<u16>,
}

impl Common {
    fn controller(&self) -> Result<starhaul_cc::ControllerConfig, Error> {
        self.controller
            .parse()
            .map_err(|error: starhaul_cc::ControllerError| Error::Settings(error.to_string()))
    }

    fn packet_bytes(&self, address: SocketAddr) -> u16 {
        self.packet_bytes
            .unwrap_or_else(|| full_packet_bytes(address))
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match arguments.end {
        End::Server(arguments) => runtime.block_on(serve(arguments)),
        End::Client(arguments) => runtime.block_on(transfer(arguments)),
    }
}

async fn serve(arguments: ServerArguments) -> anyhow::Result<()> {
    let controller = arguments.common.controller()?;
    let packet_bytes = arguments.common.packet_bytes(arguments.listen);
    let (secret, made) = match arguments.common.secret {
        Some(text) => (text, false),
        None => (Secret::generate(), true),
    };
    let secret_of_both = Secret::new(&secret)?;
    let server = Server::bind(arguments.listen, &secret_of_both, controller, packet_bytes).await?;
    if let Some(address) = server.address() {
        tracing::info!(%address, "transfers are served");
    }
    if made {
        // Not a log line: it would stay in files.
        tell(format!(
            "clients: starhaul lab flow client --server HOST:PORT --secret {secret}\n"
        ));
    }
    server.run().await;
    Ok(())
}

async fn transfer(arguments: ClientArguments) -> anyhow::Result<()> {
    let secret = arguments.common.secret.as_deref().ok_or_else(|| {
        Error::Settings(
            "--secret is missing: give what the server was given or said at its start".to_owned(),
        )
    })?;
    let controller = arguments.common.controller()?;
    let detect = match arguments.detect {
        Detect::Auto => arguments.down || controller.heeds_reconfigurations(),
        Detect::On => true,
        Detect::Off => false,
    };
    let server = resolve(&arguments.server, PORT)?;
    let client = Client {
        toward: if arguments.down {
            Toward::Client
        } else {
            Toward::Server
        },
        seconds: arguments.seconds,
        controller,
        detection: detect.then(Detection::default),
        packet_bytes: arguments.common.packet_bytes(server),
        ..Client::new(server, Secret::new(secret)?)
    };
    let transferred = client.run().await?;
    print(match arguments.json {
        true => serde_json::to_string(&transferred)? + "\n",
        false => table(&transferred),
    })
}

fn table(transferred: &Transferred) -> String {
    let mut text = String::new();
    for (second, mbps) in (1..).zip(&transferred.per_second_mbps) {
        text += &format!("{second:>4} s  {mbps:>9.2} Mbit/s\n");
    }
    if transferred.reconfigurations > 0 {
        text += &format!(
            "        {} reconfigurations\n",
            transferred.reconfigurations
        );
    }
    text + &format!(
        "  all   {:>9.2} Mbit/s, round trip {:.1} ms, at least {:.1} ms; {:.2} % lost\n",
        transferred.throughput_mbps,
        transferred.rtt_mean_ms,
        transferred.rtt_min_ms,
        transferred.loss_rate * 100.0
    )
}
