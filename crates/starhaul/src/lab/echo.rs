//! `starhaul lab echo`: messages over TCP and their answers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use clap::Subcommand;
use starhaul_lab::dialogue::{Answered, Dialogue, EchoServer, PORT};

use super::resolve::resolve;
use crate::output::print;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    end: End,
}

#[derive(Subcommand)]
enum End {
    /// Send back what clients send
    Server(ServerArguments),
    /// Send messages of 64 bytes, each when the last was answered, and say how long the answers took
    Client(ClientArguments),
}

#[derive(clap::Args)]
struct ServerArguments {
    /// TCP address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))]
    listen: SocketAddr,
    /// Congestion controller of the kernel: cubic, bbr… [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
}

#[derive(clap::Args)]
struct ClientArguments {
    /// The server, or a gateway that leads there, as host or host:port; below `starhaul replay --server …` it is found by itself
    #[arg(long, value_name = "ADDR", env = "STARHAUL_SERVER")]
    server: String,
    /// Congestion controller of the kernel: cubic, bbr… [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// Duration in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.end {
        End::Server(arguments) => serve(arguments),
        End::Client(arguments) => converse(arguments),
    }
}

fn serve(arguments: ServerArguments) -> anyhow::Result<()> {
    let server = EchoServer::bind(arguments.listen, arguments.controller)?;
    if let Some(address) = server.address() {
        tracing::info!(%address, "messages are sent back");
    }
    server.run()
}

fn converse(arguments: ClientArguments) -> anyhow::Result<()> {
    let answered = Dialogue {
        server: resolve(&arguments.server, PORT)?,
        controller: arguments.controller,
        time: Duration::from_secs(arguments.seconds.into()),
    }
    .run()?;
    print(match arguments.json {
        true => serde_json::to_string(&answered)? + "\n",
        false => table(&answered),
    })
}

fn table(answered: &Answered) -> String {
    let Answered {
        messages,
        p50_ms,
        p99_ms,
        greatest_ms,
    } = answered;
    format!(
        "{messages} messages answered after {p50_ms:.1} ms in the median, 99 % within {p99_ms:.1} ms, all within {greatest_ms:.1} ms\n"
    )
}
