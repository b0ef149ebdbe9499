//! The running gateway: its sessions, paths, blocks and limits, from two statuses taken one after the other.

use starhaul_gateway::status::{FlowTotals, Path, PathFigures, Session, Status};

use super::Finding;

/// Loss above which redundancy or retransmission costs noticeably.
const LOSS: f64 = 0.005;
/// Share of late or lost blocks above which an application suffers.
const MISSING: f64 = 0.001;
/// Our largest packets over Ethernet with IPv4; IPv6 leaves 20 bytes less.
const FULL_PACKET: u16 = 1452;

pub(super) fn examine(first: &Status, last: &Status, peer: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_meant = |name: &str| peer.is_none_or(|peer| peer == name);
    let mut problems = last.problems();
    problems.retain(|problem| peer.is_none_or(|peer| problem.contains(peer)));
    findings.extend(problems.into_iter().map(|problem| {
        let advice = advice_for(&problem);
        Finding::problem("sessions", problem, advice)
    }));
    for session in last
        .sessions
        .iter()
        .filter(|session| is_meant(&session.peer))
    {
        for path in &session.paths {
            let before = first
                .sessions
                .iter()
                .find_map(|other| same(other, session, path));
            findings.extend(of_path(path, before));
        }
    }
    for limit in &last.limits {
        let before = first
            .limits
            .iter()
            .find(|other| other.name == limit.name && other.rule == limit.rule);
        let before = before.map_or(0, |before| before.count);
        let at = limit
            .rule
            .as_deref()
            .map_or(String::new(), |rule| format!(" of {rule}"));
        let found = format!(
            "{}{at}, {}, was reached {} times",
            limit.name, limit.limit, limit.count
        );
        let advice = format!("raise {}", limit.key);
        match limit.count {
            0 => {}
            count if count > before => findings.push(Finding::problem("limits", found, advice)),
            _ => findings.push(Finding::note("limits", found, advice)),
        }
    }
    findings.extend(last.classes.iter().filter_map(|class| {
        let before = first.classes.iter();
        let mut before = before.filter(|other| other.totals.priority == class.totals.priority);
        blocks(&class.totals, before.next().map(|before| &before.totals))
    }));
    for tunnel in last.tunnels.iter().filter(|tunnel| is_meant(&tunnel.peer)) {
        let subject = format!("tun {}", tunnel.rule);
        if tunnel.device.is_none() {
            let advice = "another program deletes it: find out which";
            findings.push(Finding::problem(
                subject.clone(),
                "its device is gone",
                advice,
            ));
        }
        let before = first.tunnels.iter().find(|other| other.rule == tunnel.rule);
        let before = before.map_or(0, |before| before.dropped.forbidden);
        if tunnel.dropped.forbidden > before {
            findings.push(Finding::problem(
                subject,
                format!(
                    "{} packets were not to or from its networks",
                    tunnel.dropped.forbidden - before
                ),
                "write the network behind the peer into \"networks\"",
            ));
        }
    }
    findings
}

fn advice_for(problem: &str) -> &'static str {
    match problem {
        text if text.contains("key") => {
            "compare the key with what `starhaul pubkey FILE` prints on the other side"
        }
        text if text.contains("does not answer") || text.contains("not reached") => {
            "check that the peer runs, its address and port, and that firewalls let UDP through both ways"
        }
        text if text.contains("resolve") => "ask the resolver, or write an address",
        _ => "the log of the gateway says more",
    }
}

/// The same path, if this is the session of then.
fn same<'s>(other: &'s Session, session: &Session, path: &Path) -> Option<&'s Path> {
    let is_same = other.peer == session.peer && other.opened_by == session.opened_by;
    let mut paths = other.paths.iter();
    paths.find(|other| is_same && other.name == path.name)
}

fn of_path(path: &Path, before: Option<&Path>) -> Vec<Finding> {
    let subject = format!("path {}", path.name);
    let mut findings = Vec::new();
    let Some(figures) = &path.figures else {
        return findings;
    };
    // A busy computer makes any path silent for a moment: it must have been so at both times.
    if path.state == "suspect" && before.is_none_or(|before| before.state == "suspect") {
        let earlier = before.and_then(|before| before.figures.as_ref());
        let grew =
            |of: fn(&PathFigures) -> u64| earlier.is_some_and(|earlier| of(figures) > of(earlier));
        let (sent, received) = (grew(|f| f.bytes_sent), grew(|f| f.bytes_received));
        let found = match (sent, received) {
            (true, false) => "we send, and nothing comes back: it works in one direction at most",
            (_, true) => "the peer is heard, and what we send is not acknowledged",
            _ => "it is silent",
        };
        findings.push(Finding::problem(
            subject.clone(),
            found,
            "check the link, and the firewall and NAT on its way; the other paths carry its data meanwhile",
        ));
    }
    let loss = figures.loss.unwrap_or_default();
    if loss > LOSS {
        let burst = figures.loss_burst_length.unwrap_or(1.0);
        findings.push(Finding::note(
            subject.clone(),
            format!("it loses {:.1} % of its packets, {burst:.1} in a row", loss * 100.0),
            "look at signal, cable or a policer on its way; deadlines below an RTT need mode = \"fec+retransmit\"",
        ));
    }
    if path.state == "up" && path.packet_bytes > 0 && path.packet_bytes < FULL_PACKET {
        findings.push(Finding::note(
            subject.clone(),
            format!("it carries packets of at most {} bytes", path.packet_bytes),
            "a tunnel or a small MTU on its way costs some of the link; raise the MTU if it can be",
        ));
    }
    if findings.is_empty() {
        let rtt = figures
            .rtt_ms
            .map_or("–".to_owned(), |rtt| format!("{rtt:.0}"));
        let found = format!("{}, RTT {rtt} ms, loss {:.2} %", path.state, loss * 100.0);
        findings.push(Finding::good(subject, found));
    }
    findings
}

/// Blocks of a class that came late or not at all since the first status.
fn blocks(class: &FlowTotals, before: Option<&FlowTotals>) -> Option<Finding> {
    let since = |of: fn(&FlowTotals) -> u64| of(class) - before.map_or(0, of).min(of(class));
    let on_time = since(|class| class.blocks.on_time);
    let causes = [
        (
            since(|class| class.blocks.late),
            "late",
            "raise the deadline: the slowest path decides",
        ),
        (
            since(|class| class.blocks.expired.capacity),
            "given up because others went first",
            "more is sent than the paths carry: send less, or lower the priority of what matters less",
        ),
        (
            since(|class| class.blocks.expired.loss),
            "given up because of losses",
            "raise the deadline or max_coding_rate, or use mode = \"fec+retransmit\"",
        ),
        (
            since(|class| class.blocks.expired.unreachable),
            "given up because no path is fast enough",
            "the deadline is shorter than the delay of every path",
        ),
    ];
    let missing: u64 = causes.iter().map(|(count, ..)| count).sum();
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let share = number(missing) / number(on_time + missing).max(1.0);
    if share <= MISSING {
        return None;
    }
    let (count, cause, advice) = causes.into_iter().max_by_key(|(count, ..)| *count)?;
    Some(Finding::problem(
        format!("blocks of priority {}", class.priority),
        format!(
            "{missing} of {} were not on time while watched, {count} of them {cause}",
            on_time + missing
        ),
        advice,
    ))
}
