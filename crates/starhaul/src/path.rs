//! `starhaul path`: the paths of a running gateway, taken down and up and changed while it runs.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use comfy_table::{CellAlignment, Table, presets};
use starhaul_gateway::{
    PathChange, ask_status, find_status, order_path,
    status::{self, Peer, Status},
};
use starhaul_units::Bandwidth;

use crate::output::{Usage, print};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Control socket of the gateway [default: as for `starhaul status`]
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// The peer, where several have a path of that name
    #[arg(long, value_name = "NAME", global = true)]
    peer: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// List the paths: state, price, limit, and what was ordered of them
    List,
    /// Take a path out of service; its data go over the others
    Down {
        /// Its name
        name: String,
    },
    /// Put a path into service again
    Up {
        /// Its name
        name: String,
    },
    /// Change price or limit of a path: cost=2, limit=5mbit, limit=none; cost=configured, limit=configured give it back
    ///
    /// The limit holds for what this gateway sends; set it at the peer too for the other direction. Changes last until the
    /// gateway ends; those that shall stay go into its configuration.
    Set {
        /// Its name
        name: String,
        /// What to change
        #[arg(value_name = "KEY=VALUE", required = true)]
        changes: Vec<String>,
    },
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let change = match arguments.action {
        Action::List => None,
        Action::Down { name } => Some(PathChange {
            down: Some(true),
            ..of(name)
        }),
        Action::Up { name } => Some(PathChange {
            down: Some(false),
            ..of(name)
        }),
        Action::Set { name, changes } => Some(read_changes(of(name), &changes)?),
    };
    let change = change.map(|change| PathChange {
        peer: arguments.peer.clone(),
        ..change
    });
    let status = runtime.block_on(async {
        let (socket, status) = match arguments.socket {
            Some(socket) if change.is_some() => (socket, None),
            Some(socket) => {
                let status = ask_status(&socket).await?;
                (socket, Some(status))
            }
            None => {
                let (socket, status) = find_status().await?;
                (socket, Some(status))
            }
        };
        match (change, status) {
            (None, Some(status)) => Ok(status),
            (Some(change), _) => order_path(&socket, change).await,
            (None, None) => ask_status(&socket).await,
        }
    });
    let status = match status {
        Err(starhaul_gateway::Error::Refused(why)) => bail!(why),
        other => other.context("is the gateway running? --socket names its control socket")?,
    };
    print(table(&status, arguments.peer.as_deref()))
}

fn of(path: String) -> PathChange {
    PathChange {
        path,
        ..PathChange::default()
    }
}

fn read_changes(mut change: PathChange, words: &[String]) -> anyhow::Result<PathChange> {
    for word in words {
        let value = match word.split_once('=') {
            Some(("cost", value)) => change.cost.replace(value.to_owned()),
            Some(("limit", value)) => change.limit.replace(value.to_owned()),
            _ => bail!(Usage(format!(
                "{word:?} is no change of a path: write cost=NUMBER or limit=RATE"
            ))),
        };
        if value.is_some() {
            bail!(Usage(format!("{word:?} is the second value of its key")));
        }
    }
    Ok(change)
}

/// A line for each path, those that are ordered down included.
fn table(status: &Status, peer: Option<&str>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "path", "peer", "state", "cost", "limit", "out/s", "in/s", "ordered",
    ]);
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for index in 3..7 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let peers = status.peers.iter();
    for peer in peers.filter(|other| peer.is_none_or(|name| other.name == name)) {
        for path in known(status, peer) {
            table.add_row(path);
        }
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn known(status: &Status, peer: &Peer) -> Vec<[String; 8]> {
    let sessions = status
        .sessions
        .iter()
        .filter(|session| session.peer == peer.name);
    let present: Vec<&status::Path> = sessions.flat_map(|session| &session.paths).collect();
    let order = |name: &str| peer.orders.iter().find(|order| order.path == name);
    let is_present = |name: &str| present.iter().any(|path| path.name == name);
    let mut rows: Vec<_> = present
        .iter()
        .map(|path| row(peer, &path.name, Some(path), order(&path.name)))
        .collect();
    let configured = peer.configured_paths.iter();
    let absent = configured.chain(peer.orders.iter().map(|order| &order.path));
    let mut absent: Vec<_> = absent.filter(|name| !is_present(name)).collect();
    absent.sort();
    absent.dedup();
    rows.extend(
        absent
            .into_iter()
            .map(|name| row(peer, name, None, order(name))),
    );
    rows
}

fn row(
    peer: &Peer,
    name: &str,
    path: Option<&status::Path>,
    order: Option<&status::PathOrder>,
) -> [String; 8] {
    let none = || "–".to_owned();
    let rate = |bits: Option<u64>| {
        bits.map_or_else(none, |bits| {
            Bandwidth::from_bits_per_second(bits).to_string()
        })
    };
    let ordered_down = order.is_some_and(|order| order.down);
    let state = path.map_or("down", |path| path.state.as_str());
    let figures = path.and_then(|path| path.figures.as_ref());
    let cost = figures.and_then(|figures| figures.cost);
    let mut ordered = Vec::new();
    if let Some(order) = order {
        ordered.extend(order.down.then(|| "down".to_owned()));
        ordered.extend(order.cost.map(|cost| format!("cost={cost}")));
        ordered.extend(
            order
                .limit
                .as_ref()
                .map(|limit| format!("limit={}", limit.replace(' ', ""))),
        );
    }
    [
        name.to_owned(),
        peer.name.clone(),
        if ordered_down && path.is_some() {
            format!("{state}, ends")
        } else {
            state.to_owned()
        },
        cost.map_or_else(none, |cost| cost.to_string()),
        rate(path.and_then(|path| path.limit_bit_per_s)),
        rate(path.and_then(|path| path.traffic.sent_bit_per_s)),
        rate(path.and_then(|path| path.traffic.received_bit_per_s)),
        ordered.join(" "),
    ]
}
