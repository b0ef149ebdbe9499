//! `starhaul status`: asks a running gateway, prints JSON or tables.

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use starhaul_gateway::{
    ask_status, find_status,
    status::{Path, PathFigures, Session, Status, Stream},
};
use starhaul_units::Bandwidth;

use crate::output::print;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print the JSON object that the gateway gives; with --watch one in each line
    #[arg(long)]
    json: bool,
    /// Ask again every second until interrupted
    #[arg(long)]
    watch: bool,
    /// Control socket of the gateway [default: $XDG_RUNTIME_DIR/starhaul/control.sock, else
    /// /run/starhaul/control.sock, whichever answers]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

const INTERVAL: Duration = Duration::from_secs(1);
/// Cursor home and clear to the end, so that a watched table stays in place.
const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";

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
    show_status(arguments, &socket, &status)?;
    if !arguments.watch {
        return Ok(());
    }
    let mut silent_since = None;
    loop {
        std::thread::sleep(INTERVAL);
        match ask() {
            Ok((socket, status)) => {
                silent_since = None;
                show_status(arguments, &socket, &status)?;
            }
            Err(error) => {
                let first = silent_since.is_none();
                let since: Instant = *silent_since.get_or_insert_with(Instant::now);
                say_silence(arguments, first, since.elapsed(), &error)?;
            }
        }
    }
}

/// Whether each look replaces the one before on the screen.
fn is_in_place(arguments: &Arguments) -> bool {
    arguments.watch && !arguments.json && std::io::stdout().is_terminal()
}

fn show_status(
    arguments: &Arguments,
    socket: &std::path::Path,
    status: &Status,
) -> anyhow::Result<()> {
    let text = match (arguments.json, arguments.watch) {
        (true, true) => format!("{}\n", serde_json::to_string(status)?),
        (true, false) => format!("{}\n", serde_json::to_string_pretty(status)?),
        (false, _) => tables(status, socket),
    };
    if is_in_place(arguments) {
        print(HOME_AND_CLEAR)?;
    }
    print(text)
}

/// The gateway that was watched has stopped, or is being started again: on a screen that is all there is to see; else it is told once.
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

fn tables(status: &Status, socket: &std::path::Path) -> String {
    let mut text = format!(
        "gateway {} · up {} · {}\n",
        status.public_key,
        age(status.uptime_s),
        socket.display()
    );
    for address in &status.listen {
        text.push_str(&format!("accepts peers on {address}\n"));
    }
    for peer in status.peers.iter().filter(|peer| peer.sessions == 0) {
        text.push_str(&format!("peer {}: no session", peer.name));
        if let Some(error) = &peer.last_error {
            text.push_str(&format!(
                ", {} attempts failed, lately: {error}",
                peer.failed_attempts
            ));
        }
        text.push('\n');
    }
    if !status.ingress.is_empty() {
        text.push_str(&format!("\n{}\n", ingress_table(status)));
    }
    for session in &status.sessions {
        text.push_str(&format!(
            "\nsession with {} · opened by {} · {}\n",
            session.peer,
            session.opened_by,
            age(session.age_s)
        ));
        if session.refused_streams > 0 {
            text.push_str(&format!(
                "{} streams of the peer were refused; see the log\n",
                session.refused_streams
            ));
        }
        text.push_str(&format!("\n{}\n", path_table(session)));
        for path in &session.paths {
            if let Some(error) = &path.last_error {
                text.push_str(&format!(" {}: {error}\n", path.name));
            }
            if let Some(problem) = prober_problem(path) {
                text.push_str(&format!(
                    " {}: reconfigurations are not watched: {problem}\n",
                    path.name
                ));
            }
        }
        if let Some(table) = controller_table(session) {
            text.push_str(&format!("\n{table}\n"));
        }
        if !session.streams.is_empty() {
            text.push_str(&format!("\n{}\n", stream_table(session)));
        }
    }
    text
}

/// What keeps the prober of a path from probing.
fn prober_problem(path: &Path) -> Option<&str> {
    let detector = path.detector.as_ref()?;
    let problem = detector.problem.as_deref()?;
    (detector.state != "probing").then_some(problem)
}

fn ingress_table(status: &Status) -> Table {
    let mut table = table(
        &[
            "rule", "kind", "listen", "peer", "clients", "in", "out", "dropped", "failed",
        ],
        4,
    );
    for rule in &status.ingress {
        let dropped =
            rule.dropped.no_session + rule.dropped.too_many_clients + rule.dropped.refused;
        table.add_row([
            rule.rule.clone(),
            rule.kind.clone(),
            rule.listen.to_string(),
            rule.peer.clone(),
            rule.clients.to_string(),
            rule.datagrams_in.to_string(),
            rule.datagrams_out.to_string(),
            dropped.to_string(),
            rule.failed_connections.to_string(),
        ]);
    }
    table
}

fn path_table(session: &Session) -> Table {
    let columns = [
        "path",
        "state",
        "remote",
        "rtt ms",
        "send rate",
        "loss %",
        "sent",
        "received",
        "cost",
        "controller",
    ];
    let mut table = table(&columns, 3);
    for path in &session.paths {
        table.add_row(path_row(path));
    }
    table
}

fn path_row(path: &Path) -> [String; 10] {
    let figures = path.figures.as_ref();
    [
        path.name.clone(),
        path.state.clone(),
        path.remote.to_string(),
        show(
            figures
                .and_then(|figures| figures.rtt_ms)
                .map(|rtt| format!("{rtt:.1}")),
        ),
        show(figures.map(|figures| send_rate(path, figures))),
        show(
            figures
                .and_then(|figures| figures.loss)
                .map(|loss| format!("{:.2}", loss * 100.0)),
        ),
        show(figures.map(|figures| bytes(figures.bytes_sent))),
        show(figures.map(|figures| bytes(figures.bytes_received))),
        show(
            figures
                .and_then(|figures| figures.cost)
                .map(|cost| cost.to_string()),
        ),
        format!("{} ({})", path.controller, path.controller_state),
    ]
}

/// What controllers that know of reconfigurations believe; narrow, so that it fits beside the others' 80 columns.
fn controller_table(session: &Session) -> Option<Table> {
    let knows = |path: &&Path| path.model.is_some() || path.reconfigurations.count > 0;
    let mut paths = session.paths.iter().filter(knows).peekable();
    paths.peek()?;
    let columns = ["path", "bBW_a", "bBW_m", "RTT band", "last reconfiguration"];
    let mut table = table(&columns, 1);
    for path in paths {
        table.add_row(controller_row(path));
    }
    if let Some(last) = table.column_mut(4) {
        last.set_cell_alignment(CellAlignment::Left);
    }
    Some(table)
}

fn controller_row(path: &Path) -> [String; 5] {
    let model = path.model.as_ref();
    let rate =
        |bits: Option<u64>| bits.map(|bits| Bandwidth::from_bits_per_second(bits).to_string());
    let band = model.and_then(|model| model.rtt_band_ms);
    let last = path.reconfigurations.last.as_ref().map(|last| {
        let outage = last.outage_ms.map(|outage| format!(", {outage:.0} ms"));
        let outage = outage.unwrap_or_default();
        format!("{} ago{outage}, {}", short_age(last.ago_s), last.source)
    });
    [
        path.name.clone(),
        show(rate(
            model.and_then(|model| model.bandwidth_aggressive_bit_per_s),
        )),
        show(rate(
            model.and_then(|model| model.bandwidth_moderate_bit_per_s),
        )),
        show(band.map(|[low, high]| format!("{low:.1}–{high:.1} ms"))),
        show(last),
    ]
}

fn show(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

/// What our direction of a path carries; at least so much, where little is sent: then nobody knows more.
fn send_rate(path: &Path, figures: &PathFigures) -> String {
    let rate = Bandwidth::from_bits_per_second(figures.rate_bit_per_s);
    let tried = path.bytes_in_flight >= path.cwnd_bytes / 4;
    if tried || path.controller == "dedicated" {
        rate.to_string()
    } else {
        format!("≥ {rate}")
    }
}

fn stream_table(session: &Session) -> Table {
    let columns = [
        "stream",
        "rule",
        "kind",
        "sent",
        "on time",
        "late",
        "expired c/l/u",
        "cancelled",
        "failed",
        "by redundancy",
        "by retransmission",
        "received",
        "bytes out",
        "bytes in",
    ];
    let mut table = table(&columns, 3);
    for stream in &session.streams {
        table.add_row(stream_row(stream));
    }
    table
}

fn kind_of(stream: &Stream) -> String {
    let kind = stream.kind.as_deref().unwrap_or("–");
    if stream.ended {
        format!("{kind} (ended)")
    } else {
        kind.to_owned()
    }
}

fn stream_row(stream: &Stream) -> [String; 14] {
    let expired = &stream.expired;
    [
        stream.stream.to_string(),
        stream.rule.clone().unwrap_or_else(|| "–".to_owned()),
        kind_of(stream),
        stream.blocks_sent.to_string(),
        stream.on_time.to_string(),
        stream.late.to_string(),
        format!(
            "{}/{}/{}",
            expired.capacity, expired.loss, expired.unreachable
        ),
        stream.cancelled.to_string(),
        stream.failed.to_string(),
        stream.recovered.redundancy.to_string(),
        stream.recovered.retransmission.to_string(),
        stream.blocks_received.to_string(),
        bytes(stream.bytes_sent),
        bytes(stream.bytes_received),
    ]
}

/// A table whose columns from the `texts`th on hold numbers.
fn table(columns: &[&str], texts: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(columns.iter().copied());
    for column in table.column_iter_mut().skip(texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// Reconfigurations are seconds apart, so a tenth counts.
fn short_age(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.1} s"),
        _ => age(seconds),
    }
}

fn age(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.0} s"),
        ..3600.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str, model: serde_json::Value, reconfigurations: serde_json::Value) -> Path {
        let path = serde_json::json!({
            "name": name, "remote": "127.0.0.1:1", "state": "up", "controller": "leocc2",
            "controller_state": "cruise", "cwnd_bytes": 1, "bytes_in_flight": 0,
            "model": model, "reconfigurations": reconfigurations,
        });
        serde_json::from_value(path).expect("a path")
    }

    fn session(paths: Vec<Path>) -> Session {
        Session {
            peer: "ground".to_owned(),
            opened_by: "us".to_owned(),
            age_s: 1.0,
            refused_streams: 0,
            paths,
            streams: Vec::new(),
        }
    }

    #[test]
    fn what_controllers_know_of_reconfigurations_fits_a_narrow_terminal() {
        let model = serde_json::json!({
            "bandwidth_aggressive_bit_per_s": 157_100_000_u64,
            "bandwidth_moderate_bit_per_s": 149_000_000_u64,
            "rtt_band_ms": [41.04, 52.5],
            "acted_on_ago_s": 3.2,
        });
        let last = serde_json::json!({ "ago_s": 3.21, "outage_ms": 68.2, "source": "probe", "confidence": 0.9 });
        let told = serde_json::json!({ "count": 13, "last": last });
        let never = serde_json::json!({ "count": 0, "last": null });
        let unknown = serde_json::json!({ "bandwidth_aggressive_bit_per_s": null,
            "bandwidth_moderate_bit_per_s": null, "rtt_band_ms": null, "acted_on_ago_s": null });
        let table = controller_table(&session(vec![
            path("starlink", model, told),
            path("oneweb", unknown, never.clone()),
            path("lte", serde_json::Value::Null, never.clone()),
        ]));
        let text = table.expect("two paths have a model").to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert_eq!(
            lines,
            [
                " path             bBW_a         bBW_m      RTT band  last reconfiguration",
                " starlink  157.1 Mbit/s  149.0 Mbit/s  41.0–52.5 ms  3.2 s ago, 68 ms, probe",
                " oneweb               –             –             –  –",
            ]
        );
        let plain = session(vec![path("lte", serde_json::Value::Null, never)]);
        assert!(controller_table(&plain).is_none(), "nothing to say");
    }

    #[test]
    fn a_prober_that_cannot_probe_says_so_under_its_path() {
        let none = serde_json::json!({ "count": 0, "last": null });
        let with = |state: &str, problem: Option<&str>| {
            let mut leo = path("leo", serde_json::Value::Null, none.clone());
            let detector = serde_json::json!({ "state": state, "target": null, "hops": null, "by": null,
                "problem": problem, "sent": 0, "answered": 0, "refused": 0, "found": 0, "rtt_ms": null,
                "real_time_priority": false });
            leo.detector = Some(serde_json::from_value(detector).expect("a detector"));
            let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
                "peers": [], "ingress": [], "sessions": [] });
            let mut status: Status = serde_json::from_value(status).expect("a status");
            status.sessions.push(session(vec![leo]));
            tables(&status, std::path::Path::new("control.sock"))
        };
        let why = "no permission for ICMP";
        let line = "\n leo: reconfigurations are not watched: no permission for ICMP\n";
        for state in ["waiting", "searching"] {
            let text = with(state, Some(why));
            assert!(text.contains(line), "{text}");
        }
        for (state, problem) in [("searching", None), ("probing", Some(why))] {
            let text = with(state, problem);
            assert!(!text.contains("not watched"), "{text}");
        }
    }

    /// A gateway of an earlier version says nothing of models.
    #[test]
    fn a_path_without_the_new_fields_is_read() {
        let old = r#"{"name":"a","remote":"127.0.0.1:1","state":"down","controller":"","controller_state":"",
            "cwnd_bytes":0,"bytes_in_flight":0}"#;
        let path: Path = serde_json::from_str(old).expect("a path");
        assert_eq!(path.reconfigurations.count, 0);
        assert!(path.model.is_none() && path.segment_rtt_ms.is_none());
    }
}
