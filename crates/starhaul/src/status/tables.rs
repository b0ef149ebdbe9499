//! The status as tables of at most 80 columns.

use comfy_table::{CellAlignment, Table};
use starhaul_gateway::status::{
    FlowTotals, Ingress, Path, PathFigures, Peer, Scheduler, Session, Spending, Status, Traffic,
    Tunnel,
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
    let of_far = |rule: &&Ingress| bundle.peers.contains(&rule.peer);
    let is_peer = |rule: &&Ingress| status.peers.iter().any(|peer| peer.name == rule.peer);
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
fn peer_text(status: &Status, peer: &Peer) -> String {
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
fn budget_text(spending: &Spending) -> String {
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

fn rule_table(rules: &[&Ingress]) -> Table {
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
fn tunnel_table(rules: &[&Tunnel]) -> Table {
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
fn rule_problems(rule: &Ingress) -> String {
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
mod tests {
    use starhaul_gateway::control::{answer, read_answer};

    use super::*;

    #[test]
    fn the_plan_and_its_reason_are_shown_and_rules_need_no_line() {
        let scheduler = |value| serde_json::from_value::<Scheduler>(value).expect("a scheduler");
        let rules = serde_json::json!({ "name": "rules", "plans": 0 });
        assert_eq!(plan_text(&scheduler(rules)), "");
        let none = serde_json::json!({ "name": "optimizer", "plans": 0 });
        assert!(plan_text(&scheduler(none)).contains("no plan yet"));
        let budget = |spent: u64| {
            plan_text(&scheduler(serde_json::json!({ "name": "rules", "plans": 0,
                "spending": { "budget_bit_per_s": 2_000_000, "spent_bit_per_s": spent, "left": 0.1 } })))
        };
        assert!(budget(500_000).contains("budget 2.00 Mbit/s at cost 1, 500 kbit/s spent"));
        assert!(!budget(500_000).contains("keeps data off"));
        assert!(budget(1_990_000).contains("keeps data off"));
        let planned = serde_json::json!({ "name": "optimizer", "plans": 3,
            "reason": "path 0: loss 1.00 % → 5.00 %",
            "classes": [{ "priority": 1, "deadline_ms": 128, "rate_bit_per_s": 1, "quality": 0.9999,
                "ways": [{ "path": "sat", "share": 0.7, "again": "lte", "coding_rate": 0.0, "coded_share": 0.0 },
                    { "path": "a-path-with-quite-a-long-name", "share": 0.3, "coding_rate": 0.4, "coded_share": 0.5 }] }] });
        let text = plan_text(&scheduler(planned));
        for part in [
            "plan 3, since path 0: loss 1.00 % → 5.00 %",
            "priority 1, 128 ms: 70 % sat, again lte; 30 %",
            "50 % coded",
            "99.99 %",
        ] {
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(joined.contains(part), "{part}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

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
            held_send_bytes: 0,
            held_receive_bytes: 0,
            peer: "ground".to_owned(),
            opened_by: "us".to_owned(),
            age_s: 1.0,
            refused_streams: 0,
            scheduler: Scheduler::default(),
            traffic: Traffic::default(),
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
                " path            bBW_a        bBW_m     RTT band last reconfiguration",
                " starlink 157.1 Mbit/s 149.0 Mbit/s 41.0–52.5 ms 3.2 s ago, 68 ms, probe",
                " oneweb              –            –            – –",
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
                "peers": [{ "name": "ground", "public_key": "k", "sessions": 1, "failed_attempts": 0,
                    "last_error": null }], "ingress": [], "sessions": [] });
            let mut status: Status = serde_json::from_value(status).expect("a status");
            status.sessions.push(session(vec![leo]));
            tables(&status, std::path::Path::new("control.sock"), 10)
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

    /// A gateway of an earlier version has no models in its status.
    #[test]
    fn a_path_without_the_new_fields_is_read() {
        let old = r#"{"name":"a","remote":"127.0.0.1:1","state":"down","controller":"","controller_state":"",
            "cwnd_bytes":0,"bytes_in_flight":0}"#;
        let path: Path = serde_json::from_str(old).expect("a path");
        assert_eq!(path.reconfigurations.count, 0);
        assert!(path.model.is_none() && path.segment_rtt_ms.is_none());
        assert_eq!(path.packet_bytes, 0);
    }

    /// A peer names the paths that it opens, and says why it ends a session.
    #[test]
    fn no_name_of_a_peer_controls_the_terminal() {
        let none = serde_json::json!({ "count": 0, "last": null });
        let model = serde_json::json!({ "bandwidth_aggressive_bit_per_s": null,
            "bandwidth_moderate_bit_per_s": null, "rtt_band_ms": null, "acted_on_ago_s": null });
        let mut evil = path("a\u{1b}[2J\u{9b}1mb\r\nup", model, none);
        (evil.packet_bytes, evil.state) = (1452, "down".to_owned());
        evil.last_error = Some("gone\u{7}\u{7f}".to_owned());
        let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
            "peers": [{ "name": "ground", "public_key": "k", "sessions": 1, "failed_attempts": 0,
                "last_error": "bye\u{1b}c" }], "ingress": [], "sessions": [] });
        let mut status: Status = serde_json::from_value(status).expect("a status");
        status.sessions.push(session(vec![evil]));
        let request = br#"{"request":"status"}"#;
        let answer = answer(request, || status.clone(), |_| Ok(()));
        let status = read_answer(&answer).expect("an answer").expect("a status");
        let text = tables(&status, std::path::Path::new("control.sock"), 10);
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{text:?}");
        assert!(text.contains("a\u{fffd}[2J"), "{text}");
    }

    /// All values of greatest length, and a thousand streams.
    #[test]
    fn the_worst_status_fits_eighty_columns_and_few_lines() {
        let name = "n".repeat(64);
        let many = u64::MAX / 4000;
        let traffic = serde_json::json!({ "sent_bytes": many, "received_bytes": many,
            "sent_bit_per_s": many, "received_bit_per_s": many,
            "mean_sent_bit_per_s": many, "mean_received_bit_per_s": many });
        let blocks = serde_json::json!({ "blocks_sent": many, "blocks_received": many,
            "on_time": many, "late": many, "cancelled": many, "failed": many,
            "expired": { "capacity": many, "loss": many, "unreachable": many },
            "recovered": { "redundancy": many, "retransmission": many } });
        let flow = |side: &str| {
            serde_json::json!({ "rule": name, "rule_of": side, "priority": 255, "streams": many,
                "streams_total": many, "traffic": traffic, "blocks": blocks })
        };
        let path = |state: &str| {
            serde_json::json!({ "name": name, "remote": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "state": state, "controller": "leocc2", "controller_state": "competition probing",
                "cwnd_bytes": 1, "bytes_in_flight": 0, "traffic": traffic,
                "last_error": "words that say at length ".repeat(8),
                "cost": 1_234.567_891, "rtt_ms": 99_999.9, "min_rtt_ms": 1.0, "one_way_delay_ms": 1.0,
                "rate_bit_per_s": many, "loss": 1.0, "loss_window_max": 1.0, "loss_burst_length": 1.0,
                "bytes_sent": many, "bytes_received": many, "datagrams_sent": many, "datagrams_lost": many })
        };
        let stream = |number: u32| {
            let mut stream = serde_json::json!({ "stream": number, "rule": name, "kind": "associate",
                "target": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "mode": "fec+retransmit",
                "traffic": traffic, "bytes_sent": many, "bytes_received": many });
            let more = blocks.as_object().expect("an object").clone();
            stream.as_object_mut().expect("an object").extend(more);
            stream
        };
        let streams: Vec<_> = (0..1000).map(|number| stream(u32::MAX - number)).collect();
        let status = serde_json::json!({ "version": "0", "uptime_s": 1e9,
            "public_key": "XPmmbvZGPxeT1WOPneDI/i4gDpryrSOfIgfiVFSmxEI=",
            "listen": ["[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535"],
            "peers": [{ "name": name, "public_key": "k", "sessions": 1, "failed_attempts": many,
                "last_error": "words ".repeat(40), "traffic": traffic,
                "service": [{ "path": name, "out": "uncounted",
                    "quota": { "monthly_bytes": many, "used_bytes": many, "share": 1e9, "level": "above",
                        "month": "2026-11-01", "ends_in_s": 2_678_400, "at_80": "warn", "at_100": "down",
                        "problem": "words that say at length ".repeat(8) },
                    "hours": { "hours": "mon-fri 08:00-17:59 UTC, ".repeat(8), "open": false, "changes_in_s": 600_000 } }],
                "flows": [flow("us"), flow("peer")] }],
            "tunnels": [{ "rule": name, "device": "d".repeat(15), "peer": name, "packets_in": many, "bytes_in": many,
                "packets_out": many, "bytes_out": many, "marked": many, "traffic": traffic,
                "dropped": { "no_session": many, "queue": 0, "refused": 0, "forbidden": 0, "malformed": 0 } }],
            "leotp": { "listen": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "streams": many,
                "streams_total": many, "bytes_sent": many, "packets_received": many, "packets_lost": many,
                "packets_repaired": many,
                "neighbours": [{ "name": name, "has_been_heard": false }] },
            "bundle": { "endpoint": "dtn://".to_owned() + &name, "peers": ["b"], "streams": many, "streams_total": many,
                "streams_failed": many, "flows": many, "bundles_sent": many, "bytes_sent": many, "bundles_received": many,
                "bytes_received": many, "unreadable": many, "former_life": many, "repeated": many, "limited": many,
                "dropped": many, "node_is_full": true },
            "ingress": [{ "rule": name, "kind": "socks5", "peer": name, "clients": many,
                "listen": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "clients_total": many, "datagrams_in": many, "datagrams_out": many,
                "dropped": { "no_session": many, "too_many_clients": many, "refused": many },
                "failed_connections": many, "traffic": traffic }],
            "classes": [flow("us"), flow("us")],
            "limits": [{ "name": "bytes that wait in a session", "rule": name, "count": many,
                "limit": many, "key": "[accept] max_sessions, or max_sessions_per_peer," },
                { "name": "never", "count": 0, "limit": 1, "key": "k" }],
            "sessions": [{ "peer": name, "opened_by": "peer", "age_s": 1e9, "refused_streams": many,
                "traffic": traffic, "paths": [path("suspect"), path("down")], "streams": streams }] });
        let status: Status = serde_json::from_value(status).expect("a status");
        let socket = format!("/run/{}/control.sock", "deep/".repeat(20));
        let text = tables(&status, std::path::Path::new(&socket), 10);
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= 80, "{line}\n{text}");
        }
        assert!(text.lines().count() < 120, "{text}");
        for told in [
            "LEOTP at",
            "Bundles as",
            "tunnel",
            "is not counted reliably",
        ] {
            assert!(text.contains(told), "nothing of {told}: {text}");
        }
        assert!(text.contains("max_sessions_per_peer, raises it"), "{text}");
        assert!(
            !text.contains("never"),
            "a limit that was not reached: {text}"
        );
        assert!(
            text.contains("and 990 more streams; --streams 1000 shows all"),
            "{text}"
        );
    }
}
