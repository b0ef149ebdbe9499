//! The running gateway: its sessions and paths, from two statuses taken one after the other.

use super::{Cause, Finding, network::Way};
use starhaul_gateway::status::{Path, PathFigures, PeerStatus, Session, Status};

/// Loss above which redundancy or retransmission costs noticeably.
const LOSS: f64 = 0.005;
/// Our largest packets over Ethernet with IPv4; IPv6 leaves 20 bytes less.
const FULL_PACKET: u16 = 1452;
/// A search for the greatest packet has ended by then.
const SEARCHED_S: f64 = 10.0;
/// What usual tunnels take; a path is not called narrow for one of them.
const TUNNEL: u16 = 100;
/// So many losses in a row have one cause.
const FEW_IN_A_ROW: f64 = 4.0;
/// Of fewer datagrams a single one that a busy host acknowledged late makes a great share.
const FEW_SENT: u64 = 64;
/// An RTT above the least one by this factor: packets queue, and loss may be the queue's overflow.
const QUEUES: f64 = 1.5;

pub(super) fn examine(
    first: &Status,
    last: &Status,
    peer: Option<&str>,
    ways: &[Way],
) -> Vec<Finding> {
    let is_meant = |name: &str| peer.is_none_or(|peer| peer == name);
    let mut findings = sessions(last, peer);
    let meant = last.sessions.iter();
    for session in meant.filter(|session| is_meant(&session.peer)) {
        for path in &session.paths {
            let mut before = first.sessions.iter();
            let before = before.find_map(|other| same(other, session, path));
            let mut ways = ways.iter();
            let way = ways.find(|way| way.peer == session.peer && way.path == path.name);
            let mtu = way.and_then(|way| way.mtu);
            findings.extend(of_path(session, path, before, mtu));
        }
    }
    findings
}

/// What is missing of what is configured.
fn sessions(status: &Status, peer: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let peers = status.peers.iter();
    for known in peers.filter(|known| peer.is_none_or(|peer| peer == known.name)) {
        let problems = status.lacks_of(known);
        findings.extend(problems.into_iter().map(|problem| {
            let found = match &problem.path {
                Some(path) => Finding::problem(
                    cause_of(&problem.text).unwrap_or(Cause::PathDown),
                    format!("path {path}"),
                    problem.text.clone(),
                    advice_for(&problem.text),
                )
                .on(&known.name, path),
                None => no_session(known, &problem.text),
            };
            found.with(&known.name)
        }));
    }
    if status.waits_in_vain() {
        findings.push(Finding::problem(
            Cause::Session,
            "sessions",
            "no session is open, and the peers are to open them",
            "look at a peer with starhaul doctor, and whether UDP reaches the addresses of \"listen\"",
        ));
    }
    findings
}

fn no_session(peer: &PeerStatus, text: &str) -> Finding {
    let cause = cause_of(text).unwrap_or(Cause::Session);
    let subject = format!("session with {}", peer.name);
    Finding::problem(cause, subject, text, advice_for(text))
}

/// What a reason of `starhaul-quic` means, where it means one thing.
fn cause_of(reason: &str) -> Option<Cause> {
    let causes = [
        ("does not trust our key", Cause::OurKey),
        ("the peer's key is not the one pinned", Cause::PeerKey),
        ("name does not resolve", Cause::Name),
    ];
    let told = causes.iter().find(|(words, _)| reason.contains(words));
    told.map(|(_, cause)| *cause)
}

fn advice_for(problem: &str) -> &'static str {
    // Names of peers and paths are part of it.
    match (cause_of(problem), problem) {
        (Some(Cause::OurKey | Cause::PeerKey), _) => {
            "compare the key with what `starhaul pubkey FILE` prints on the other side"
        }
        (Some(Cause::Name), _) => "ask the resolver, or write an address",
        (_, text) if text.contains("does not answer") || text.contains("not reached") => {
            "check that the peer runs, its address and port, and that firewalls let UDP through both ways"
        }
        _ => "the log of the gateway says more",
    }
}

/// The same path, if this is the session of then.
fn same<'s>(other: &'s Session, session: &Session, path: &Path) -> Option<&'s Path> {
    let is_same = other.peer == session.peer && other.opened_by == session.opened_by;
    let mut paths = other.paths.iter();
    paths.find(|other| is_same && other.name == path.name)
}

fn of_path(
    session: &Session,
    path: &Path,
    before: Option<&Path>,
    mtu: Option<u32>,
) -> Vec<Finding> {
    let Some(figures) = &path.figures else {
        return Vec::new();
    };
    let earlier = before.and_then(|before| before.figures.as_ref());
    let mut findings = Vec::new();
    // A busy computer makes any path silent for a moment: it must have been so at both times.
    if path.state == "suspect" && before.is_none_or(|before| before.state == "suspect") {
        findings.extend(silence(path, figures, earlier));
    }
    if path.state == "up" && before.is_some_and(|before| before.state == "up") {
        findings.extend(loss(path, figures, earlier));
    }
    findings.extend(packets(session, path, before, mtu));
    if findings.is_empty() {
        let rtt = figures
            .rtt_ms
            .map_or("–".to_owned(), |rtt| format!("{rtt:.0}"));
        let loss = figures.loss.unwrap_or_default() * 100.0;
        let packets = match path.packet_bytes {
            0 => String::new(),
            bytes => format!(", packets of up to {bytes} bytes"),
        };
        let found = format!("{}, RTT {rtt} ms, loss {loss:.2} %{packets}", path.state);
        findings.push(Finding::good(
            Cause::PathDown,
            format!("path {}", path.name),
            found,
        ));
    }
    let named = |finding: Finding| finding.on(&session.peer, &path.name);
    findings.into_iter().map(named).collect()
}

fn silence(path: &Path, figures: &PathFigures, earlier: Option<&PathFigures>) -> Option<Finding> {
    let grew =
        |of: fn(&PathFigures) -> u64| earlier.is_some_and(|earlier| of(figures) > of(earlier));
    let heard = grew(|figures| figures.bytes_received);
    let arrives = figures.newest_acked && earlier.is_some_and(|earlier| earlier.newest_acked);
    let (cause, found) = match (arrives, heard) {
        // Both: it is no longer silent, and the state will say so.
        (true, true) => return None,
        (true, false) => (
            Cause::OneWay,
            "it works in one direction: what we send arrives, by the peer's word over another path, and nothing comes back",
        ),
        (false, true) => (
            Cause::OneWay,
            "it works in one direction: the peer is heard, and what we send does not arrive",
        ),
        (false, false) => (Cause::PathSilent, "we send, and nothing comes back"),
    };
    let advice = "check the link, and the firewall and NAT on its way; the other paths carry its data meanwhile";
    let subject = format!("path {}", path.name);
    Some(Finding::problem(cause, subject, found, advice))
}

fn loss(path: &Path, figures: &PathFigures, earlier: Option<&PathFigures>) -> Option<Finding> {
    let loss = figures.loss.unwrap_or_default();
    if loss <= LOSS {
        return None;
    }
    let burst = figures.loss_burst_length.unwrap_or(1.0);
    let subject = format!("path {}", path.name);
    let found = format!(
        "it loses {:.1} % of its packets, {burst:.1} in a row",
        loss * 100.0
    );
    let while_watched = |of: fn(&PathFigures) -> u64| {
        earlier.map(|earlier| of(figures).saturating_sub(of(earlier)))
    };
    let lost = while_watched(|figures| figures.datagrams_lost);
    let few = while_watched(|figures| figures.datagrams_sent).filter(|sent| *sent < FEW_SENT);
    let queues = figures
        .rtt_ms
        .zip(figures.min_rtt_ms)
        .is_some_and(|(rtt, least)| rtt > QUEUES * least && rtt > least + 5.0);
    // What is lost at one moment only: an interference, or a host that was busy and read too late.
    let at_once = |lost: u64| burst >= FEW_IN_A_ROW && lost as f64 <= 1.5 * burst;
    Some(match (lost, few, queues) {
        (Some(lost), _, _) if lost > 0 && at_once(lost) => Finding::note(
            Cause::Loss,
            subject,
            format!("{found}; while watched {lost}, all at once"),
            "look again: once is a moment's interference, or a host that was busy",
        ),
        (Some(0), _, _) => Finding::note(
            Cause::Loss,
            subject,
            format!("{found}; none while watched"),
            "look again while it carries data",
        ),
        (Some(lost), Some(sent), _) => Finding::note(
            Cause::Loss,
            subject,
            format!("{found}; while watched {lost} of {sent}"),
            "look again while it carries data: these are too few to tell",
        ),
        (_, _, true) => Finding::note(
            Cause::Loss,
            subject,
            format!("{found}, while packets queue before it"),
            "a queue on its way overflows: it is full, or a policer cuts it",
        ),
        _ => Finding::problem(
            Cause::Loss,
            subject,
            found,
            "look at signal, cable or a policer on its way; deadlines below an RTT need mode = \"fec+retransmit\"",
        ),
    })
}

/// Whether packets as large as the interface's `mtu` are carried.
fn packets(
    session: &Session,
    path: &Path,
    before: Option<&Path>,
    mtu: Option<u32>,
) -> Option<Finding> {
    let bytes = path.packet_bytes;
    let is_settled =
        session.age_s >= SEARCHED_S && before.is_some_and(|before| before.packet_bytes == bytes);
    if path.state != "up" || bytes == 0 || bytes >= FULL_PACKET || !is_settled {
        return None;
    }
    let subject = format!("path {}", path.name);
    let found = format!("it carries packets of at most {bytes} bytes");
    let headers = match path.remote.contains('[') {
        true => 48,
        false => 28,
    };
    let promised = mtu.map(|mtu| mtu.saturating_sub(headers).min(FULL_PACKET.into()));
    Some(match promised {
        Some(promised) if u32::from(bytes + TUNNEL) < promised => Finding::problem(
            Cause::Mtu,
            subject,
            format!(
                "{found}, {} with their headers, while its interface has an MTU of {}: larger ones vanish on the way",
                u32::from(bytes) + headers,
                mtu.unwrap_or_default()
            ),
            "a tunnel or a narrower link is on its way: set the interface's MTU to what it carries, or raise that",
        ),
        _ => Finding::note(
            Cause::Mtu,
            subject,
            found,
            "a tunnel or a small MTU on its way costs some of the link; raise the MTU if it can be",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    /// A path that lost so many datagrams of those that it was given.
    fn path(sent: u64, lost: u64, burst: f64) -> Path {
        let path = serde_json::json!({ "name": "leo", "remote": "127.0.0.1:1", "state": "up", "controller": "bbr",
            "controller_state": "", "cwnd_bytes": 1, "bytes_in_flight": 0, "loss": 0.01, "loss_burst_length": burst,
            "rate_bit_per_s": 1, "bytes_sent": 1, "bytes_received": 1, "datagrams_sent": sent, "datagrams_lost": lost });
        serde_json::from_value(path).expect("a path")
    }

    #[test]
    fn advice_follows_from_the_reason_and_not_from_names_in_it() {
        let of_keys = advice_for("no session: the peer does not trust our key");
        assert!(of_keys.contains("pubkey"), "{of_keys}");
        let unreached = advice_for("peer whiskey not reached on any path: it does not answer");
        assert!(unreached.contains("firewalls"), "{unreached}");
    }

    #[test]
    fn a_session_lacks_only_where_a_peer_is_to_open_one() {
        let found = |peers: serde_json::Value| {
            let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
                "peers": peers, "ingress": [], "sessions": [] });
            let status: Status = serde_json::from_value(status).expect("a status");
            super::sessions(&status, None).len()
        };
        let peer = |service: serde_json::Value| {
            serde_json::json!([{ "name": "far", "public_key": "k", "sessions": 0, "failed_attempts": 0,
                "last_error": null, "service": service }])
        };
        assert_eq!(found(peer(serde_json::json!([]))), 1);
        assert_eq!(found(serde_json::json!([])), 0, "over LEOTP or bundles");
        let closed = serde_json::json!([{ "path": "lte", "out": "hours" }]);
        assert_eq!(found(peer(closed)), 0, "its hours are over");
    }

    #[test]
    fn losses_are_a_problem_unless_all_came_at_one_moment_or_few_went() {
        let level_of = |sent: u64, burst: f64, lost: u64| {
            let before = path(9000, 100, burst);
            let after = path(9000 + sent, 100 + lost, burst);
            let figures = after.figures.as_ref().expect("figures");
            let found = super::loss(&after, figures, before.figures.as_ref());
            found.expect("a finding").level
        };
        let level = |burst, lost| level_of(1000, burst, lost);
        assert_eq!(level(1.0, 20), Level::Problem);
        assert_eq!(level(1.0, 1), Level::Problem, "one of a few");
        assert_eq!(level(26.3, 27), Level::Note);
        assert_eq!(level(26.3, 80), Level::Problem, "several times");
        assert_eq!(level(26.3, 0), Level::Note);
        assert_eq!(level_of(40, 1.0, 5), Level::Note, "too few went");
    }
}
