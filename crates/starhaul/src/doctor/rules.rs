//! What rules and tunnels ran into: targets that are refused, limits, blocks that come late.

use starhaul_gateway::status::{
    FlowTotals, IngressStatus, LimitStatus, RefusalCounts, Status, TunnelStatus,
};

use super::{Cause, Finding};

/// Share of late or lost blocks above which an application suffers.
const MISSING: f64 = 0.001;

pub(super) fn examine(first: &Status, last: &Status, peer: Option<&str>) -> Vec<Finding> {
    let is_meant = |name: &str| peer.is_none_or(|peer| peer == name);
    let mut findings = Vec::new();
    for rule in last.ingress.iter().filter(|rule| is_meant(&rule.peer)) {
        let before = first.ingress.iter().find(|other| other.rule == rule.rule);
        let before = before.map_or_else(RefusalCounts::default, |before| before.refusals);
        findings.extend(refusals(rule, &before));
    }
    for reached in &last.limits {
        let before = first.limits.iter();
        let mut before =
            before.filter(|other| other.name == reached.name && other.rule == reached.rule);
        findings.extend(limit(
            reached,
            before.next(),
            is_full(first, reached) && is_full(last, reached),
        ));
    }
    findings.extend(last.classes.iter().filter_map(|class| {
        let before = first.classes.iter();
        let mut before = before.filter(|other| other.totals.priority == class.totals.priority);
        blocks(&class.totals, before.next().map(|before| &before.totals))
    }));
    for known in last.tunnels.iter().filter(|tunnel| is_meant(&tunnel.peer)) {
        let before = first.tunnels.iter().find(|other| other.rule == known.rule);
        findings.extend(tunnel(known, before));
    }
    findings
}

/// Connections of a rule that the far side did not make.
fn refusals(rule: &IngressStatus, before: &RefusalCounts) -> Vec<Finding> {
    let (now, subject) = (&rule.refusals, format!("rule {}", rule.rule));
    let causes = [
        (
            Cause::EgressRefuses,
            now.not_allowed,
            before.not_allowed,
            "the [egress] of the peer does not allow their target",
            "allow it there (\"allow\" of [egress]), or correct the rule's target",
        ),
        (
            Cause::TargetRefuses,
            now.connection_refused,
            before.connection_refused,
            "their target, on the peer's side, refuses connections",
            "start the server there, or correct the rule's target",
        ),
        (
            Cause::TargetUnreachable,
            now.unreachable,
            before.unreachable,
            "the peer cannot reach their target",
            "look at the target's name and address from the peer's host",
        ),
    ];
    let finding = |(cause, now, before, why, advice): (Cause, u64, u64, &str, &str)| {
        let new = now.saturating_sub(before);
        match (new, now) {
            (_, 0) => None,
            (0, _) => {
                let found = format!("{now} connections failed before: {why}");
                Some(Finding::note(cause, subject.clone(), found, advice))
            }
            _ => {
                let found = format!("{new} connections failed while watched: {why}");
                Some(Finding::problem(cause, subject.clone(), found, advice))
            }
        }
    };
    causes.into_iter().filter_map(finding).collect()
}

/// Whether a rule has as many clients now as the limit allows: then no other client is let in, and the limit is not reached again.
fn is_full(status: &Status, limit: &LimitStatus) -> bool {
    let mut rules = status.ingress.iter();
    let rule = rules.find(|rule| Some(&rule.rule) == limit.rule.as_ref());
    limit.key == "max_connections" && rule.is_some_and(|rule| rule.clients >= limit.limit)
}

fn limit(limit: &LimitStatus, before: Option<&LimitStatus>, is_full: bool) -> Option<Finding> {
    let before = before.map_or(0, |before| before.count);
    let at = limit.rule.as_deref();
    let at = at.map_or(String::new(), |rule| format!(" of {rule}"));
    let found = format!(
        "{}{at}, {}, was reached {} times",
        limit.name, limit.limit, limit.count
    );
    let advice = format!("raise {}", limit.key);
    match limit.count {
        0 => None,
        _ if is_full => {
            let found = format!("{found}, and is reached now: others wait");
            Some(Finding::problem(Cause::Limit, "limits", found, advice))
        }
        count if count > before => Some(Finding::problem(Cause::Limit, "limits", found, advice)),
        _ => Some(Finding::note(Cause::Limit, "limits", found, advice)),
    }
}

fn tunnel(tunnel: &TunnelStatus, before: Option<&TunnelStatus>) -> Vec<Finding> {
    let subject = format!("tun {}", tunnel.rule);
    let mut findings = Vec::new();
    if tunnel.device.is_none() {
        findings.push(Finding::problem(
            Cause::TunnelDevice,
            subject.clone(),
            "its device is gone",
            "another program deletes it, or it cannot be made: the log of the gateway says more",
        ));
    }
    let before = before.map_or(0, |before| before.dropped.forbidden);
    let forbidden = tunnel.dropped.forbidden.saturating_sub(before);
    if forbidden > 0 {
        findings.push(Finding::problem(
            Cause::TunnelNetworks,
            subject,
            format!("{forbidden} packets were not to or from its networks"),
            "write the network behind the peer into \"networks\"",
        ));
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
        Cause::Blocks,
        format!("blocks of priority {}", class.priority),
        format!(
            "{missing} of {} were not on time while watched, {count} of them {cause}",
            on_time + missing
        ),
        advice,
    ))
}
