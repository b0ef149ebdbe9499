//! What rules and tunnels ran into: targets that are refused, readers that stand still, limits, blocks that come late.

use starhaul_gateway::status::{
    FlowTotals, Ingress, Limit, Refusals, Session, Status, Stream, Tunnel,
};

use super::{Cause, Finding};

/// Share of late or lost blocks above which an application suffers.
const MISSING: f64 = 0.001;
/// So much unread data waits only where an application does not read.
const UNREAD_BYTES: u64 = 32 << 10;

pub(super) fn examine(first: &Status, last: &Status, peer: Option<&str>) -> Vec<Finding> {
    let is_meant = |name: &str| peer.is_none_or(|peer| peer == name);
    let mut findings = Vec::new();
    for rule in last.ingress.iter().filter(|rule| is_meant(&rule.peer)) {
        let before = first.ingress.iter().find(|other| other.rule == rule.rule);
        let before = before.map_or_else(Refusals::default, |before| before.refusals);
        findings.extend(refusals(rule, &before));
    }
    for session in last
        .sessions
        .iter()
        .filter(|session| is_meant(&session.peer))
    {
        let mut before = first.sessions.iter();
        let before = before.find(|other| {
            other.peer == session.peer
                && other.opened_by == session.opened_by
                && other.age_s <= session.age_s
        });
        findings.extend(before.and_then(|before| far_readers(session, before)));
        findings.extend(before.and_then(|before| our_readers(session, before)));
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
fn refusals(rule: &Ingress, before: &Refusals) -> Vec<Finding> {
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

/// Streams of the session at both times.
fn in_both<'s>(
    session: &'s Session,
    before: &'s Session,
) -> impl Iterator<Item = (&'s Stream, &'s Stream)> {
    let open = session.streams.iter().filter(|stream| !stream.ended);
    open.filter_map(|stream| {
        let mut earlier = before.streams.iter();
        let earlier = earlier.find(|earlier| earlier.stream == stream.stream)?;
        Some((stream, earlier))
    })
}

/// Streams that could not go on because nobody reads them at the peer.
fn far_readers(session: &Session, before: &Session) -> Option<Finding> {
    let stands_still = |(now, earlier): &(&Stream, &Stream)| {
        now.peer_reads_no_more && earlier.peer_reads_no_more && now.bytes_sent == earlier.bytes_sent
    };
    let still: Vec<_> = in_both(session, before).filter(stands_still).collect();
    let (one, _) = still.first()?;
    Some(reader(
        session,
        one,
        still.len(),
        "the application at the peer has not read what it was sent: the window of the receiver is closed",
    ))
}

/// Streams whose data wait here for an application.
fn our_readers(session: &Session, before: &Session) -> Option<Finding> {
    if session.held_receive_bytes.min(before.held_receive_bytes) < UNREAD_BYTES {
        return None;
    }
    // What is incomplete for lack of a packet is held too, but not while nothing at all is read for so long.
    let reads =
        in_both(session, before).any(|(now, earlier)| now.bytes_received > earlier.bytes_received);
    let mut streams = in_both(session, before).filter(|(now, _)| now.bytes_received > 0);
    let (one, _) = streams.next().filter(|_| !reads)?;
    let count = 1 + streams.count();
    let why = format!(
        "an application here has not read what it was sent; {} bytes wait for it",
        session.held_receive_bytes
    );
    Some(reader(session, one, count, &why))
}

fn reader(session: &Session, one: &Stream, count: usize, why: &str) -> Finding {
    let rule = one.rule.as_deref().unwrap_or("?");
    let target = one.target.as_deref();
    let target = target.map_or_else(String::new, |target| format!(" to {target}"));
    Finding::problem(
        Cause::Reader,
        format!("rule {rule}"),
        format!("{count} stream(s), one{target}, stand still: {why}"),
        "find out why that application does not read: it is neither the paths nor the gateways",
    )
    .with(&session.peer)
}

/// Whether a rule has as many clients now as the limit allows: then nobody else is let in, and the limit is not reached again.
fn is_full(status: &Status, limit: &Limit) -> bool {
    let mut rules = status.ingress.iter();
    let rule = rules.find(|rule| Some(&rule.rule) == limit.rule.as_ref());
    limit.key == "max_connections" && rule.is_some_and(|rule| rule.clients >= limit.limit)
}

fn limit(limit: &Limit, before: Option<&Limit>, is_full: bool) -> Option<Finding> {
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

fn tunnel(tunnel: &Tunnel, before: Option<&Tunnel>) -> Vec<Finding> {
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
