//! `starhaul status`: queries a running gateway, prints JSON or tables.

mod cells;
mod hints;
pub(crate) mod service;
mod tables;

use std::{
    io::IsTerminal as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use starhaul_gateway::{
    ask_status, find_status,
    status::{Session, Status},
};

pub(crate) use self::cells::cost;
use self::{cells::age, tables::tables};
use crate::output::{Usage, print};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print the JSON object that the gateway gives; with --watch one in each line
    #[arg(long)]
    json: bool,
    /// Repeat every second until interrupted
    #[arg(long)]
    watch: bool,
    /// Fail, with exit code 1, if a configured session or path is down, or no session is open at all
    #[arg(long, conflicts_with = "watch")]
    check: bool,
    /// Print the address of the live page, and open it in a browser where there is a screen
    #[arg(long, conflicts_with_all = ["json", "watch", "check"])]
    web: bool,
    /// Show so many streams of each session, the busiest first [default: 10; all with --json]
    #[arg(long, value_name = "N")]
    streams: Option<usize>,
    /// Show only what is of this peer
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Show only what is of this rule, and the sessions
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Control socket of the gateway [default: $XDG_RUNTIME_DIR/starhaul/control.sock, else
    /// /run/starhaul/control.sock, whichever answers]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Default number of streams of a session in a table.
const STREAMS: usize = 10;
const INTERVAL: Duration = Duration::from_secs(1);
/// Cursor home and clear to the end, so that a watched table stays in place.
const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";
/// A line that wraps would be two, and push the first ones out.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ask = || match &arguments.socket {
        Some(path) => {
            let status = runtime.block_on(ask_status(path))?;
            Ok((path.clone(), status))
        }
        None => runtime.block_on(find_status()),
    };
    let (socket, status) =
        ask().context("is the gateway running? --socket names its control socket")?;
    arguments.check_names(&status)?;
    if arguments.web {
        return open_page(&status);
    }
    if arguments.check {
        return check(arguments, status);
    }
    show_status(arguments, &socket, status)?;
    if !arguments.watch {
        return Ok(());
    }
    let mut silent_since = None;
    loop {
        std::thread::sleep(INTERVAL);
        match ask() {
            Ok((socket, status)) => {
                silent_since = None;
                show_status(arguments, &socket, status)?;
            }
            Err(error) => {
                let first = silent_since.is_none();
                let since: Instant = *silent_since.get_or_insert_with(Instant::now);
                say_silence(arguments, first, since.elapsed(), &error)?;
            }
        }
    }
}

/// Prints the address of the gateway's live page; opens it where a person has a screen.
fn open_page(status: &Status) -> anyhow::Result<()> {
    let address = status.metrics.context(
        "this gateway serves no page: add metrics = \"127.0.0.1:9464\" to its configuration and restart it",
    )?;
    let page = format!("http://{}/", reachable(address));
    print(format!("{page}\n"))?;
    let has_screen = ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if has_screen && std::io::stdout().is_terminal() {
        let mut open = Command::new("xdg-open");
        let open = open.arg(&page).stdin(Stdio::null()).stdout(Stdio::null());
        if let Err(error) = open.stderr(Stdio::null()).spawn() {
            tracing::debug!(%error, "xdg-open");
        }
    }
    Ok(())
}

/// An address of this host for one that listens on all.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Whether each status replaces the previous one on the screen.
fn is_in_place(arguments: &Arguments) -> bool {
    arguments.watch && !arguments.json && crate::output::redraws(&std::io::stdout())
}

/// Returns one line when all is well; otherwise fails with the problems.
fn check(arguments: &Arguments, mut status: Status) -> anyhow::Result<()> {
    arguments.select(&mut status);
    let problems = status.problems();
    let printed = match arguments.json {
        true => print(format!("{}\n", serde_json::to_string_pretty(&status)?)),
        false => Ok(()),
    };
    anyhow::ensure!(problems.is_empty(), problems.join("; "));
    printed?;
    if !arguments.json {
        let paths: usize = status
            .sessions
            .iter()
            .map(|session| session.paths.len())
            .sum();
        let sessions = status.sessions.len();
        print(format!("ok: {sessions} session(s) over {paths} path(s)\n"))?;
    }
    Ok(())
}

fn show_status(
    arguments: &Arguments,
    socket: &std::path::Path,
    mut status: Status,
) -> anyhow::Result<()> {
    arguments.select(&mut status);
    let text = match (arguments.json, arguments.watch) {
        (true, true) => format!("{}\n", serde_json::to_string(&status)?),
        (true, false) => format!("{}\n", serde_json::to_string_pretty(&status)?),
        (false, _) => tables(&status, socket, arguments.streams.unwrap_or(STREAMS)),
    };
    match is_in_place(arguments) {
        true => print(in_place(&text, rows())),
        false => print(text),
    }
}

/// The text in place of the last one. What a terminal of these rows would push out above is left out below.
fn in_place(text: &str, rows: Option<usize>) -> String {
    let lines = text.lines().count();
    // The cursor is in the row below the text.
    let room = rows.map_or(lines, |rows| rows.saturating_sub(1));
    let shown = match lines <= room {
        true => lines,
        false => room.saturating_sub(1),
    };
    let mut shown_text: String = text.split_inclusive('\n').take(shown).collect();
    if shown < lines {
        let more = lines - shown;
        shown_text += &format!("… {more} more lines: enlarge the terminal, or choose by --peer\n");
    }
    // In one write, so that a program that is ended leaves a terminal that wraps.
    format!("{HOME_AND_CLEAR}{NO_WRAP}{shown_text}{WRAP}")
}

/// The rows of the terminal, if it tells.
fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// The watched gateway does not answer: on a screen the message replaces the tables; elsewhere it is printed once.
fn say_silence(
    arguments: &Arguments,
    first: bool,
    since: Duration,
    error: &starhaul_gateway::Error,
) -> anyhow::Result<()> {
    if is_in_place(arguments) {
        let since = age(since.as_secs_f64());
        return print(format!(
            "{HOME_AND_CLEAR}no answer from the gateway for {since}, waiting for it: {error}\n"
        ));
    }
    if first {
        tracing::warn!(%error, "no answer from the gateway, waiting for it");
    }
    Ok(())
}

impl Arguments {
    /// Names that nothing has are mistakes: an empty status would read as one without problems.
    fn check_names(&self, status: &Status) -> anyhow::Result<()> {
        let bundle = status.bundle.iter().flat_map(|bundle| &bundle.peers);
        let peers = status
            .peers
            .iter()
            .map(|peer| &peer.name)
            .chain(bundle)
            .map(String::as_str);
        known("peer", self.peer.as_deref(), peers)?;
        let flows = status.peers.iter().flat_map(|peer| &peer.flows);
        let streams = status.sessions.iter().flat_map(|session| &session.streams);
        let of_peers = flows
            .filter_map(|flow| flow.rule.as_ref())
            .chain(streams.filter_map(|stream| stream.rule.as_ref()));
        let ingress = status.ingress.iter().map(|rule| &rule.rule);
        let tunnels = status.tunnels.iter().map(|tunnel| &tunnel.rule);
        known(
            "rule",
            self.rule.as_deref(),
            ingress.chain(tunnels).chain(of_peers).map(String::as_str),
        )
    }

    /// Removes the parts that were not selected.
    fn select(&self, status: &mut Status) {
        if let Some(peer) = &self.peer {
            status.peers.retain(|other| other.name == *peer);
            status.sessions.retain(|session| session.peer == *peer);
            status.ingress.retain(|rule| rule.peer == *peer);
            status.tunnels.retain(|tunnel| tunnel.peer == *peer);
            status.classes.clear();
        }
        if let Some(rule) = &self.rule {
            status.ingress.retain(|other| other.rule == *rule);
            status.tunnels.retain(|tunnel| tunnel.rule == *rule);
            status.classes.clear();
            for peer in &mut status.peers {
                peer.flows.retain(|flow| flow.rule.as_ref() == Some(rule));
            }
            for session in &mut status.sessions {
                let streams = &mut session.streams;
                streams.retain(|stream| stream.rule.as_ref() == Some(rule));
            }
        }
        if self.streams.is_some() || !self.json {
            status.sessions.iter_mut().for_each(busiest_first);
        }
        if let Some(most) = self.streams.filter(|_| self.json) {
            for session in &mut status.sessions {
                session.streams.truncate(most);
            }
        }
    }
}

/// An error that names the nearest of `names` if `wanted` is none of them.
pub(crate) fn known<'s>(
    what: &str,
    wanted: Option<&str>,
    names: impl Iterator<Item = &'s str>,
) -> anyhow::Result<()> {
    let names: Vec<&str> = names.collect();
    match wanted {
        Some(wanted) if !names.contains(&wanted) => {
            let nearest = starhaul_config::nearest(wanted, &names);
            Err(Usage(format!(
                "--{what} {wanted}: there is no such {what}; {nearest}"
            ))
            .into())
        }
        _ => Ok(()),
    }
}

fn busiest_first(session: &mut Session) {
    session.streams.sort_by_key(|stream| {
        let traffic = stream.traffic;
        let rates = [traffic.sent_bit_per_s, traffic.received_bit_per_s];
        let rate: u64 = rates.into_iter().flatten().sum();
        let bytes = stream.bytes_sent + stream.bytes_received;
        std::cmp::Reverse((rate, !stream.ended, bytes))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_table_stays_in_place_on_a_small_terminal() {
        let text = "1\n2\n3\n4\n";
        let drawn = |rows| {
            let drawn = in_place(text, rows);
            let inside = drawn.strip_prefix("\x1b[H\x1b[J\x1b[?7l");
            let inside = inside.and_then(|drawn| drawn.strip_suffix("\x1b[?7h"));
            inside.unwrap().to_owned()
        };
        for roomy in [None, Some(5), Some(24)] {
            assert_eq!(drawn(roomy), text);
        }
        assert!(drawn(Some(4)).starts_with("1\n2\n… 2 more lines"));
        for rows in 2..5 {
            assert_eq!(drawn(Some(rows)).lines().count(), rows - 1, "{rows} rows");
        }
    }
}
