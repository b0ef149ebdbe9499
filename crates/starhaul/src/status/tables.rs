//! The status as tables of at most 80 columns.

use comfy_table::{CellAlignment, Table};
use starhaul_gateway::status::{
    BudgetStatus, FlowTotals, IngressStatus, Path, PathFigures, PeerStatus, Scheduler, Session,
    Status, Traffic, TunnelStatus,
};
use starhaul_units::Bandwidth;

use super::cells::{
    WIDTH, age, compact, cost, cut, cut_front, rate, short_age, show, spaced, table, wrapped,
};
use super::{hints, service};

/// Names have up to 64 characters; longer ones than this are cut.
const NAME: usize = 12;
/// An IPv4 address and its port.
const ADDRESS: usize = 21;

/// The tables of the status, with this many streams of each session.
pub(super) fn tables(status: &Status, socket: &std::path::Path, streams: usize) -> String {
    let mut text = String::new();
    let up = format!("gateway up {} · ", age(status.uptime_s));
    let socket = cut_front(&socket.display().to_string(), WIDTH - up.chars().count());
    text.push_str(&format!("{up}{socket}\nkey {}\n", status.public_key));
    for address in &status.listen {
        text.push_str(&format!("accepts peers on {address}\n"));
    }
    text.push_str("out: to the peer, in: from it; /s: bits over the last second, else bytes\n");
    for peer in &status.peers {
        text.push_str(&peer_text(status, peer));
        let sessions = status.sessions.iter();
        for session in sessions.filter(|session| session.peer == peer.name) {
            text.push_str(&session_text(session, streams));
        }
    }
    text.push_str(&leotp_text(status));
    text.push_str(&bundle_text(status));
    text.push_str(&reached_limits(status));
    if status.classes.len() > 1 {
        let rows = status.classes.iter().map(|class| {
            let name = format!("priority {}", class.totals.priority);
            flow_row(&name, &class.totals)
        });
        text.push_str(&format!("\n{}\n", flow_table("class", rows)));
    }
    text
}

/// The flows over bundles, and the rules that lead to far gateways.
fn bundle_text(status: &Status) -> String {
    let Some(bundle) = &status.bundle else {
        return String::new();
    };
    let node = match &bundle.endpoint {
        Some(endpoint) => format!("as {}", cut(endpoint, 40)),
        None => "the node does not answer".to_owned(),
    };
    let known = &bundle.counters;
    let mut text = format!("\nBundles {node}\n");
    text.push_str(&wrapped(&format!(
        "{} streams, {} since the start, of which {} failed; {} flows of datagrams, {} datagrams dropped",
        known.streams, known.streams_total, known.streams_failed, known.flows, known.dropped
    )));
    if bundle.node_is_full {
        text.push_str("the node has no room for the next bundle\n");
    }
    let of_far = |rule: &&IngressStatus| bundle.peers.contains(&rule.peer);
    let is_peer = |rule: &&IngressStatus| status.peers.iter().any(|peer| peer.name == rule.peer);
    let rules = status.ingress.iter();
    let rules: Vec<_> = rules.filter(of_far).filter(|rule| !is_peer(rule)).collect();
    if !rules.is_empty() {
        text.push_str(&format!("\n{}\n", rule_table(&rules)));
    }
    text
}

/// The end of a chain of relays, and the rules that lead along it.
fn leotp_text(status: &Status) -> String {
    let Some(leotp) = &status.leotp else {
        return String::new();
    };
    let mut text = "\n".to_owned();
    text.push_str(&wrapped(&format!(
        "LEOTP at {} · {} streams, {} since the start",
        leotp.listen, leotp.streams, leotp.streams_total
    )));
    for neighbour in &leotp.neighbours {
        let state = if neighbour.has_been_heard {
            "has been heard"
        } else {
            "has not been heard"
        };
        text.push_str(&format!("neighbour {} {state}\n", cut(&neighbour.name, 24)));
    }
    let (lost, received) = (leotp.packets_lost, leotp.packets_received);
    if received > 0 {
        text.push_str(&wrapped(&format!(
            "of {received} packets with data {lost} were lost on the last hop; {} were sent again on the first",
            leotp.packets_repaired
        )));
    }
    let rules = status.ingress.iter().filter(|rule| rule.peer.is_empty());
    let rules: Vec<_> = rules.collect();
    if !rules.is_empty() {
        text.push_str(&format!("\n{}\n", rule_table(&rules)));
        rules
            .iter()
            .for_each(|rule| text.push_str(&rule_problems(rule)));
    }
    text
}

/// The limits that were reached, and the settings that raise them.
fn reached_limits(status: &Status) -> String {
    let reached = status.limits.iter().filter(|limit| limit.count > 0);
    let lines: String = reached
        .map(|limit| {
            let rule = limit.rule.as_deref();
            let at = rule.map_or_else(String::new, |rule| format!(" at {}", cut(rule, NAME)));
            let (name, most, count, key) = (&limit.name, limit.limit, limit.count, &limit.key);
            wrapped(&format!(
                "limit reached {count} times: {name}{at}, {most}; {key} raises it"
            ))
        })
        .collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{lines}"),
    }
}

/// A peer, the rules that lead to it, and the traffic of their streams.
fn peer_text(status: &Status, peer: &PeerStatus) -> String {
    let mut text = format!("\npeer {}", cut(&peer.name, 24));
    match peer.sessions {
        0 => text.push_str(" · no session"),
        _ => text.push_str(&rates(peer.traffic)),
    }
    text.push('\n');
    if let Some(error) = peer.last_error.as_ref().filter(|_| peer.sessions == 0) {
        let failed = peer.failed_attempts;
        text.push_str(&wrapped(&format!(
            "{failed} attempts failed, lately: {error}"
        )));
    }
    text.push_str(&service::lines(peer));
    let rules = status.ingress.iter().filter(|rule| rule.peer == peer.name);
    let rules: Vec<_> = rules.collect();
    if !rules.is_empty() {
        text.push_str(&format!("\n{}\n", rule_table(&rules)));
        rules
            .iter()
            .for_each(|rule| text.push_str(&rule_problems(rule)));
    }
    let tunnels = status.tunnels.iter().filter(|rule| rule.peer == peer.name);
    let tunnels: Vec<_> = tunnels.collect();
    if !tunnels.is_empty() {
        text.push_str(&format!("\n{}\n", tunnel_table(&tunnels)));
    }
    for (side, title) in [("us", "our rule"), ("peer", "peer's rule")] {
        let flows = peer.flows.iter().filter(|flow| flow.rule_of == side);
        let rows: Vec<_> = flows
            .map(|flow| flow_row(flow.rule.as_deref().unwrap_or("–"), &flow.totals))
            .collect();
        if !rows.is_empty() {
            text.push_str(&format!("\n{}\n", flow_table(title, rows)));
        }
    }
    text
}

fn session_text(session: &Session, streams: usize) -> String {
    let mut text = format!(
        "\nsession with {} · opened by {} · {}\n",
        cut(&session.peer, 24),
        session.opened_by,
        age(session.age_s)
    );
    if session.refused_streams > 0 {
        text.push_str(&format!(
            "{} streams of the peer were refused; see the log\n",
            session.refused_streams
        ));
    }
    text.push_str(&format!("\n{}\n", path_table(session)));
    text.push_str(&format!("\n{}\n", way_table(session)));
    text.push_str(&packet_sizes(session));
    text.push_str(&hints::lines(session));
    text.push_str(&plan_text(&session.scheduler));
    for path in &session.paths {
        if let Some(error) = &path.last_error {
            text.push_str(&wrapped(&format!("{}: {error}", path.name)));
        }
        if let Some(problem) = prober_problem(path) {
            text.push_str(&wrapped(&format!(
                "{}: reconfigurations are not watched: {problem}",
                path.name
            )));
        }
    }
    if let Some(table) = controller_table(session) {
        text.push_str(&format!("\n{table}\n"));
    }
    if !session.streams.is_empty() && streams > 0 {
        text.push_str(&format!("\n{}\n", stream_table(session, streams)));
    }
    let more = session.streams.len().saturating_sub(streams);
    if more > 0 {
        text.push_str(&format!(
            " and {more} more streams; --streams {} shows all\n",
            session.streams.len()
        ));
    }
    text
}

/// What of it is spent shows that the budget keeps data back.
const SPENT_SHARE: f64 = 0.9;

/// The budget of the session, if it has one, and whether it keeps data back.
#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn budget_text(spending: &BudgetStatus) -> String {
    let (budget, spent) = (spending.budget_bit_per_s, spending.spent_bit_per_s);
    let is_spent = spent as f64 >= SPENT_SHARE * budget as f64;
    let all = match is_spent {
        true => ": it keeps data off the paths with a cost",
        false => "",
    };
    wrapped(&format!(
        "budget {}bit/s at cost 1, {}bit/s spent{all}",
        spaced(compact(budget)),
        spaced(compact(spent))
    ))
}

/// The plan for the paths, if there is one, and why it is what it is.
fn plan_text(scheduler: &Scheduler) -> String {
    let budget = scheduler.spending.as_ref();
    let budget = budget.map_or_else(String::new, budget_text);
    let Some(reason) = &scheduler.reason else {
        return match scheduler.name.as_str() {
            "rules" => budget,
            name => format!("{budget} paths by the {name}: no plan yet\n"),
        };
    };
    let mut text = budget;
    text += &wrapped(&format!(
        "paths by the {}: plan {}, since {}",
        scheduler.name,
        scheduler.plans,
        cut(reason, 60)
    ));
    for class in &scheduler.classes {
        let percent = |share: Option<f64>| 100.0 * share.unwrap_or_default();
        let ways = class.ways.iter().map(|way| {
            let again = way.again.as_ref();
            let again =
                again.map_or_else(String::new, |again| format!(", again {}", cut(again, NAME)));
            let coded = match way.coded_share {
                Some(coded) if coded > 0.0 => format!(", {:.0} % coded", 100.0 * coded),
                _ => String::new(),
            };
            format!(
                "{:.0} % {}{again}{coded}",
                percent(way.share),
                cut(&way.path, NAME)
            )
        });
        text.push_str(&wrapped(&format!(
            "priority {}, {} ms: {} (in time: {:.2} %)",
            class.priority,
            class.deadline_ms,
            ways.collect::<Vec<_>>().join("; "),
            percent(class.quality)
        )));
    }
    text
}

fn rates(traffic: Traffic) -> String {
    format!(
        " · out {}bit/s · in {}bit/s",
        spaced(rate(traffic.sent_bit_per_s)),
        spaced(rate(traffic.received_bit_per_s))
    )
}

fn rule_table(rules: &[&IngressStatus]) -> Table {
    let columns = [
        "rule", "kind", "listen", "clients", "out/s", "in/s", "out", "in",
    ];
    let mut table = table(&columns, 3);
    for rule in rules {
        let traffic = rule.traffic;
        table.add_row([
            cut(&rule.rule, NAME),
            rule.kind.clone(),
            cut_front(&rule.listen.to_string(), ADDRESS),
            compact(rule.clients),
            rate(traffic.sent_bit_per_s),
            rate(traffic.received_bit_per_s),
            compact(traffic.sent_bytes),
            compact(traffic.received_bytes),
        ]);
    }
    table
}

/// Packets from the device and to it, and those that were dropped.
fn tunnel_table(rules: &[&TunnelStatus]) -> Table {
    let columns = [
        "tunnel",
        "device",
        "out/s",
        "in/s",
        "packets out",
        "in",
        "dropped",
        "marked",
    ];
    let mut table = table(&columns, 2);
    for rule in rules {
        let (traffic, dropped) = (rule.traffic, rule.dropped);
        let dropped = dropped.no_session
            + dropped.queue
            + dropped.refused
            + dropped.forbidden
            + dropped.malformed;
        table.add_row([
            cut(&rule.rule, NAME),
            rule.device.clone().unwrap_or_else(|| "gone".to_owned()),
            rate(traffic.sent_bit_per_s),
            rate(traffic.received_bit_per_s),
            compact(rule.packets_in),
            compact(rule.packets_out),
            compact(dropped),
            compact(rule.marked),
        ]);
    }
    table
}

/// The losses of applications at a rule, if any.
fn rule_problems(rule: &IngressStatus) -> String {
    let dropped = &rule.dropped;
    let counts = [
        (dropped.no_session, "datagrams came without a session"),
        (dropped.too_many_clients, "datagrams of too many clients"),
        (dropped.refused, "datagrams refused"),
        (rule.failed_connections, "connections failed"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let said: Vec<_> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match said.is_empty() {
        true => String::new(),
        false => wrapped(&format!("{}: {}", rule.rule, said.join(", "))),
    }
}

fn flow_table(title: &str, rows: impl IntoIterator<Item = [String; 10]>) -> Table {
    let columns = [
        title, "open", "out/s", "in/s", "out", "in", "on time", "late", "expired", "failed",
    ];
    let mut table = table(&columns, 1);
    rows.into_iter().for_each(|row| _ = table.add_row(row));
    table
}

fn flow_row(name: &str, totals: &FlowTotals) -> [String; 10] {
    let (traffic, blocks) = (totals.traffic, &totals.blocks);
    let expired = &blocks.expired;
    let causes = [expired.capacity, expired.loss, expired.unreachable];
    let by_cause = causes.map(compact).join("/");
    let expired = match by_cause.len() {
        _ if causes == [0; 3] => "0".to_owned(),
        ..=12 => by_cause,
        _ => compact(causes.iter().sum()),
    };
    [
        cut(name, NAME),
        compact(totals.streams),
        rate(traffic.sent_bit_per_s),
        rate(traffic.received_bit_per_s),
        compact(traffic.sent_bytes),
        compact(traffic.received_bytes),
        compact(blocks.on_time),
        compact(blocks.late),
        expired,
        compact(blocks.cancelled + blocks.failed),
    ]
}

fn path_table(session: &Session) -> Table {
    let columns = [
        "path",
        "state",
        "rtt ms",
        "loss %",
        "out/s",
        "in/s",
        "out",
        "in",
        "cost",
        "can carry",
    ];
    let mut table = table(&columns, 2);
    for path in &session.paths {
        let (figures, traffic) = (path.figures.as_ref(), path.traffic);
        let show = |number: Option<f64>, digits: usize| {
            show(number.map(|number| format!("{number:.digits$}")))
        };
        table.add_row([
            cut(&path.name, NAME),
            path.state.clone(),
            show(figures.and_then(|figures| figures.rtt_ms), 1),
            show(figures.and_then(|f| f.loss).map(|loss| loss * 100.0), 2),
            rate(traffic.sent_bit_per_s),
            rate(traffic.received_bit_per_s),
            compact(traffic.sent_bytes),
            compact(traffic.received_bytes),
            cut(
                &figures.and_then(|f| f.cost).map_or("–".to_owned(), cost),
                6,
            ),
            figures.map_or("–".to_owned(), |figures| capacity(path, figures)),
        ]);
    }
    table
}

/// The destinations of the paths, and their limits.
fn way_table(session: &Session) -> Table {
    let mut table = table(&["path", "remote", "controller"], 3);
    for path in &session.paths {
        let controller = match (path.state.as_str(), path.controller_state.as_str()) {
            ("down", _) | (_, "") => "–".to_owned(),
            (_, state) => format!("{} ({state})", path.controller),
        };
        table.add_row([
            cut(&path.name, NAME),
            cut_front(&path.remote, 32),
            cut(&controller, 26),
        ]);
    }
    table
}

/// The packet size of each connected path.
fn packet_sizes(session: &Session) -> String {
    let known = session.paths.iter().filter(|path| path.packet_bytes > 0);
    let sizes: Vec<_> = known
        .map(|path| format!("{} on {}", path.packet_bytes, cut(&path.name, NAME)))
        .collect();
    match sizes.is_empty() {
        true => String::new(),
        false => wrapped(&format!("packets of up to {} bytes", sizes.join(", "))),
    }
}

/// Why the prober of a path cannot probe.
fn prober_problem(path: &Path) -> Option<&str> {
    let detector = path.detector.as_ref()?;
    let problem = detector.problem.as_deref()?;
    (detector.state != "probing").then_some(problem)
}

/// The models of controllers that use reconfigurations; narrow, so that it fits 80 columns.
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
        cut(&path.name, 12),
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

/// The estimated capacity of our direction of a path; a lower bound if little is sent.
fn capacity(path: &Path, figures: &PathFigures) -> String {
    let rate = compact(figures.rate_bit_per_s);
    let tried = path.bytes_in_flight >= path.cwnd_bytes / 4;
    if tried || path.controller == "dedicated" {
        rate
    } else {
        format!("≥{rate}")
    }
}

fn stream_table(session: &Session, most: usize) -> Table {
    let columns = [
        "stream", "rule", "kind", "target", "out/s", "in/s", "out", "in",
    ];
    let mut table = table(&columns, 4);
    for stream in session.streams.iter().take(most) {
        let traffic = stream.traffic;
        let (sent, received) = match stream.ended {
            true => ("ended".to_owned(), "–".to_owned()),
            false => (
                rate(traffic.sent_bit_per_s),
                rate(traffic.received_bit_per_s),
            ),
        };
        table.add_row([
            stream.stream.to_string(),
            cut(stream.rule.as_deref().unwrap_or("–"), NAME),
            stream.kind.clone().unwrap_or_else(|| "–".to_owned()),
            cut_front(stream.target.as_deref().unwrap_or("–"), ADDRESS - 2),
            sent,
            received,
            compact(stream.bytes_sent),
            compact(stream.bytes_received),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
