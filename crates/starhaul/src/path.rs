//! `starhaul path`: the paths of a running gateway, taken down and up and changed while it runs.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use starhaul_gateway::{
    PathChange, ask_status, find_status, order_path,
    status::{self, PeerStatus, Status},
};
use starhaul_units::Bandwidth;

use crate::output::{Usage, print};

/// What to do about a gateway that does not answer.
const NOT_ASKED: &str = "is the gateway running? --socket names its control socket";

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
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Take a path out of service; its data go over the others
    Down {
        /// Name of the path
        name: String,
        #[command(flatten)]
        lasting: Lasting,
    },
    /// Put a path into service again
    Up {
        /// Name of the path
        name: String,
        #[command(flatten)]
        lasting: Lasting,
    },
    /// Change a path: cost=2, limit=5mbit, monthly=50GB, used=12GB, active='mon-fri 22:00-06:00'; cost=configured gives it back
    ///
    /// cost: price per byte. limit: greatest rate that this gateway sends, or none; set it at the peer too for the other direction.
    /// monthly: bytes on the wire of a month, or none. used: what the month has used so far, as the provider says. active: hours
    /// in which it is in service, with commas between them, or always. `configured` gives back any of them but used. Without --keep
    /// changes last until the gateway ends.
    Set {
        /// Name of the path
        name: String,
        /// Keys and their new values
        #[arg(value_name = "KEY=VALUE", required = true)]
        changes: Vec<String>,
        #[command(flatten)]
        lasting: Lasting,
    },
}

#[derive(clap::Args)]
struct Lasting {
    /// Store what is now ordered of the path, so that it outlives the gateway
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let as_json = matches!(arguments.action, Action::List { json: true });
    let change = match arguments.action {
        Action::List { .. } => None,
        Action::Down { name, lasting } => Some(PathChange {
            down: Some(true),
            ..of(name, &lasting)
        }),
        Action::Up { name, lasting } => Some(PathChange {
            down: Some(false),
            ..of(name, &lasting)
        }),
        Action::Set {
            name,
            changes,
            lasting,
        } => Some(read_changes(of(name, &lasting), &changes)?),
    };
    let change = change.map(|change| PathChange {
        peer: arguments.peer.clone(),
        ..change
    });
    let found = runtime.block_on(async {
        match arguments.socket {
            Some(socket) => ask_status(&socket).await.map(|status| (socket, status)),
            None => find_status().await,
        }
    });
    let (socket, mut status) = found.context(NOT_ASKED)?;
    let peer = arguments.peer.as_deref();
    // Before anything is ordered.
    let peers = status.peers.iter().map(|peer| peer.name.as_str());
    crate::status::known("peer", peer, peers)?;
    if let Some(change) = change {
        status = match runtime.block_on(order_path(&socket, change)) {
            Err(starhaul_gateway::Error::Refused(why)) => bail!(why),
            ordered => ordered.context(NOT_ASKED)?,
        };
    }
    if as_json {
        let list = List::new(&status, peer);
        return print(serde_json::to_string_pretty(&list)? + "\n");
    }
    print(table(&status, peer))
}

fn of(path: String, lasting: &Lasting) -> PathChange {
    PathChange {
        path,
        keep: lasting.keep,
        ..PathChange::default()
    }
}

fn read_changes(mut change: PathChange, words: &[String]) -> anyhow::Result<PathChange> {
    for word in words {
        let value = match word.split_once('=') {
            Some(("cost", value)) => change.cost.replace(value.to_owned()),
            Some(("limit", value)) => change.limit.replace(value.to_owned()),
            Some(("monthly", value)) => change.monthly.replace(value.to_owned()),
            Some(("used", value)) => change.used.replace(value.to_owned()),
            Some(("active", value)) => change.active.replace(value.to_owned()),
            _ => bail!(Usage(format!(
                "{word:?} is no change of a path: write cost=NUMBER, limit=RATE, monthly=SIZE, used=SIZE or active=HOURS"
            ))),
        };
        if value.is_some() {
            bail!(Usage(format!("{word:?} is the second value of its key")));
        }
    }
    change.check_values().map_err(Usage)?;
    Ok(change)
}

/// A path in service or not; figures that do not exist are `null`.
#[derive(Serialize)]
struct Listed<'s> {
    name: &'s str,
    peer: &'s str,
    /// `up`, `suspect` or `down`.
    state: &'s str,
    /// Why it is out of service on purpose.
    out: Option<&'s str>,
    cost: Option<f64>,
    limit_bit_per_s: Option<u64>,
    sent_bit_per_s: Option<u64>,
    received_bit_per_s: Option<u64>,
    quota: Option<&'s status::QuotaStatus>,
    hours: Option<&'s status::HoursStatus>,
    order: Option<&'s status::PathOrder>,
}

/// What `path list --json` prints.
#[derive(Serialize)]
struct List<'s> {
    paths: Vec<Listed<'s>>,
}

impl<'s> List<'s> {
    fn new(status: &'s Status, peer: Option<&str>) -> Self {
        let peers = meant(status, peer);
        let paths = peers.flat_map(|peer| {
            let known = known(status, peer).into_iter();
            known.map(|(name, path)| listed(peer, name, path))
        });
        Self {
            paths: paths.collect(),
        }
    }
}

fn listed<'s>(peer: &'s PeerStatus, name: &'s str, path: Option<&'s status::Path>) -> Listed<'s> {
    let service = peer.service.iter().find(|service| service.path == name);
    Listed {
        name,
        peer: &peer.name,
        state: path.map_or("down", |path| &path.state),
        out: service.and_then(|service| service.out.as_deref()),
        cost: path.and_then(|path| path.figures.as_ref()?.cost),
        limit_bit_per_s: path.and_then(|path| path.limit_bit_per_s),
        sent_bit_per_s: path.and_then(|path| path.traffic.sent_bit_per_s),
        received_bit_per_s: path.and_then(|path| path.traffic.received_bit_per_s),
        quota: service.and_then(|service| service.quota.as_ref()),
        hours: service.and_then(|service| service.hours.as_ref()),
        order: peer.orders.iter().find(|order| order.path == name),
    }
}

fn meant<'s>(status: &'s Status, peer: Option<&str>) -> impl Iterator<Item = &'s PeerStatus> {
    let peers = status.peers.iter();
    peers.filter(move |other| peer.is_none_or(|name| other.name == name))
}

/// A line for each path, those that are ordered down included.
fn table(status: &Status, peer: Option<&str>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "path", "peer", "state", "cost", "limit", "out/s", "in/s", "month", "ordered",
    ]);
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for index in 3..8 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for peer in meant(status, peer) {
        for (name, path) in known(status, peer) {
            let order = peer.orders.iter().find(|order| order.path == name);
            table.add_row(row(peer, name, path, order));
        }
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// The paths to a peer: those of its sessions, then those that have none.
fn known<'s>(status: &'s Status, peer: &'s PeerStatus) -> Vec<(&'s str, Option<&'s status::Path>)> {
    let sessions = status.sessions.iter();
    let sessions = sessions.filter(|session| session.peer == peer.name);
    let present = sessions.flat_map(|session| &session.paths);
    let mut paths: Vec<_> = present
        .map(|path| (path.name.as_str(), Some(path)))
        .collect();
    let configured = peer.configured_paths.iter();
    let absent = configured
        .chain(peer.orders.iter().map(|order| &order.path))
        .chain(peer.service.iter().map(|service| &service.path));
    let absent = absent.map(String::as_str);
    let is_present = |name: &str| paths.iter().any(|(other, _)| *other == name);
    let mut absent: Vec<_> = absent.filter(|name| !is_present(name)).collect();
    absent.sort_unstable();
    absent.dedup();
    paths.extend(absent.into_iter().map(|name| (name, None)));
    paths
}

fn row(
    peer: &PeerStatus,
    name: &str,
    path: Option<&status::Path>,
    order: Option<&status::PathOrder>,
) -> [String; 9] {
    let none = || "–".to_owned();
    let rate = |bits: Option<u64>| {
        bits.map_or_else(none, |bits| {
            Bandwidth::from_bits_per_second(bits).to_string()
        })
    };
    let ordered_down = order.is_some_and(|order| order.down);
    let service = peer.service.iter().find(|service| service.path == name);
    let out = service.and_then(|service| service.out.as_deref());
    let absent = match out {
        Some("quota") => "down, quota",
        Some("uncounted") => "down, uncounted",
        Some("hours") => "down, hours",
        _ => "down",
    };
    let state = path.map_or(absent, |path| path.state.as_str());
    let quota = service.and_then(|service| service.quota.as_ref());
    let month = quota.and_then(|quota| quota.share);
    let figures = path.and_then(|path| path.figures.as_ref());
    let cost = figures.and_then(|figures| figures.cost);
    [
        name.to_owned(),
        peer.name.clone(),
        if (ordered_down || out.is_some()) && path.is_some() {
            format!("{state}, ends")
        } else {
            state.to_owned()
        },
        cost.map_or_else(none, crate::status::cost),
        rate(path.and_then(|path| path.limit_bit_per_s)),
        rate(path.and_then(|path| path.traffic.sent_bit_per_s)),
        rate(path.and_then(|path| path.traffic.received_bit_per_s)),
        month.map_or_else(none, |share| format!("{:.0} %", (share * 100.0).floor())),
        order.map_or_else(String::new, ordered),
    ]
}

/// What is ordered of a path, and whether it outlives the gateway.
fn ordered(order: &status::PathOrder) -> String {
    let value = |key: &str, value: &Option<String>| {
        let value = value.as_ref();
        value.map(|value| format!("{key}={}", value.replace(' ', "")))
    };
    let cost = order.cost.map(|cost| cost.to_string());
    let mut words: Vec<_> = order.down.then(|| "down".to_owned()).into_iter().collect();
    words.extend(value("cost", &cost));
    words.extend(value("limit", &order.limit));
    words.extend(value("monthly", &order.monthly));
    words.extend(value("active", &order.active));
    if order.kept {
        words.push("(kept)".to_owned());
    }
    if let Some(kept) = &order.kept_otherwise {
        let mut later: Vec<_> = (kept.down == Some(true))
            .then(|| "down".to_owned())
            .into_iter()
            .collect();
        later.extend(value("cost", &kept.cost));
        later.extend(value("limit", &kept.limit));
        later.extend(value("monthly", &kept.monthly));
        later.extend(value("active", &kept.active));
        words.push(format!("(kept: {})", later.join(" ")));
    }
    words.join(" ")
}
