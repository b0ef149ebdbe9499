//! Whether the peers' gateways answer over each path, asked from a socket of the doctor: UDP, the peer's clock, NAT.

use std::{net::IpAddr, time::Duration};

use starhaul_gateway::status::Status;
use starhaul_net::prober::{Mapping, Reached, Unreached, Via, answers_ping, reach};
use tokio::task::JoinSet;

use super::{Cause, Finding, network::Way};

/// Longest silence that a NAT is tried with.
const MOST_IDLE: Duration = Duration::from_secs(5);
/// How long a ping is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clocks that differ by more are not set by the network.
const CLOCKS_AGREE_S: f64 = 5.0;

/// What came back over the paths.
#[derive(Debug, Default)]
pub(super) struct Answers(Vec<(Way, Answer)>);

#[derive(Debug)]
enum Answer {
    Reached(Reached),
    Unreached {
        why: Unreached,
        /// Whether its host answers ICMP, if that may be asked.
        pings: Option<bool>,
    },
}

/// Asks over all paths at once, and again after a path's longest silence.
pub(super) async fn ask(ways: Vec<Way>, keepalive: Duration) -> Answers {
    let idle = keepalive.min(MOST_IDLE);
    let mut asking = JoinSet::new();
    for (number, way) in ways.into_iter().enumerate() {
        asking.spawn_blocking(move || {
            let answer = over(&way, idle);
            (number, way, answer)
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(number, ..)| *number);
    let answers = answers.into_iter();
    Answers(answers.map(|(_, way, answer)| (way, answer)).collect())
}

fn over(way: &Way, idle: Duration) -> Answer {
    let why = match reach(way.remote, &way.options, idle) {
        Ok(reached) => return Answer::Reached(reached),
        Err(why) => why,
    };
    let local = way.options.address.ip();
    let via = Via {
        local: (!local.is_unspecified()).then_some(local),
        interface: way.options.interface.clone(),
    };
    let host: IpAddr = way.remote.ip();
    let pings = match why {
        Unreached::Silent => answers_ping(host, &via, PATIENCE),
        _ => None,
    };
    Answer::Unreached { why, pings }
}

impl Answers {
    /// What does not answer us counts only where the gateway's path is not up either.
    pub(super) fn findings(&self, status: Option<&Status>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (way, answer) in &self.0 {
            match answer {
                Answer::Reached(reached) => findings.extend(of_reached(way, reached)),
                Answer::Unreached { why, pings } if !is_up(status, way) => {
                    findings.push(of_unreached(way, why, *pings));
                }
                Answer::Unreached { .. } => {}
            }
        }
        findings
    }
}

fn is_up(status: Option<&Status>, way: &Way) -> bool {
    let sessions = status.into_iter().flat_map(|status| &status.sessions);
    let ours = sessions.filter(|session| session.peer == way.peer && session.opened_by == "us");
    ours.flat_map(|session| &session.paths)
        .any(|path| path.name == way.path && path.state == "up")
}

fn of_reached(way: &Way, reached: &Reached) -> Vec<Finding> {
    let subject = format!("path {}", way.path);
    let mut findings = Vec::new();
    findings.push(match reached.mapping {
        Mapping::Forgotten(idle) => Finding::problem(
            Cause::Nat,
            subject.clone(),
            format!(
                "a NAT on its way gave our flow another port after {:.1} s without packets",
                idle.as_secs_f64()
            ),
            "set \"keepalive\" below that, or raise the NAT's timeout for UDP: what the peer sends meanwhile is lost",
        ),
        Mapping::Kept(idle) => Finding::good(
            Cause::Nat,
            subject,
            format!(
                "UDP passes both ways, {:.0} ms; its flow keeps its port for {:.1} s without packets at least",
                reached.rtt.as_secs_f64() * 1e3,
                idle.as_secs_f64()
            ),
        ),
        Mapping::Unknown => Finding::good(
            Cause::Nat,
            subject,
            format!("UDP passes both ways, {:.0} ms", reached.rtt.as_secs_f64() * 1e3),
        ),
    });
    findings.push(clock(way, reached));
    findings
}

fn clock(way: &Way, reached: &Reached) -> Finding {
    let subject = format!("clock of {}", way.peer);
    let Some(ahead) = reached.clock_ahead_s else {
        return Finding::good(Cause::Clock, subject, "the peer does not tell it");
    };
    // Half a round trip is what the two ways may differ by.
    let uncertain = reached.rtt.as_secs_f64() / 2.0;
    if ahead.abs() - uncertain <= CLOCKS_AGREE_S {
        let found = format!(
            "it agrees with ours within {:.1} s",
            ahead.abs() + uncertain
        );
        return Finding::good(Cause::Clock, subject, found);
    }
    let side = if ahead > 0.0 { "ahead of" } else { "behind" };
    Finding::problem(
        Cause::Clock,
        subject,
        format!(
            "it is {:.0} s {side} ours: one of the two is wrong",
            ahead.abs()
        ),
        "set both by NTP (timedatectl): contact plans, lifetimes of bundles and logs go by them",
    )
}

fn of_unreached(way: &Way, why: &Unreached, pings: Option<bool>) -> Finding {
    let subject = format!("path {}", way.path);
    let remote = way.remote;
    let host = remote.ip();
    let problem = |cause, found: String, advice| {
        Finding::problem(cause, subject, found, advice).on(&way.peer, &way.path)
    };
    match (why, pings) {
        (Unreached::Refused, _) => problem(
            Cause::PeerGateway,
            format!(
                "the host {host} says that nothing listens on its UDP port {}",
                remote.port()
            ),
            "start the gateway there, or correct the port",
        ),
        (Unreached::Forbidden(error), _) => problem(
            Cause::Firewall,
            format!("this host does not send UDP to {remote}: {error}"),
            "its own firewall forbids it: nft list ruleset",
        ),
        (Unreached::NoWay(error), _) => problem(
            Cause::NoAnswer,
            format!("UDP to {remote} comes back as undeliverable: {error}"),
            "look at the link and at the routes on its way",
        ),
        (Unreached::Socket(error), _) => problem(
            Cause::Route,
            format!("no socket for it: {error}"),
            "the address, the interface or the right to use it is missing",
        ),
        (Unreached::Silent, Some(true)) => problem(
            Cause::UdpBlocked,
            format!(
                "{host} answers ping, and nothing answers on its UDP port {}",
                remote.port()
            ),
            "let UDP of this port through both ways, in the firewalls on its way and there",
        ),
        (Unreached::Silent, _) => problem(
            Cause::NoAnswer,
            format!("nothing answers at {remote}, neither UDP nor ping"),
            "check the address, that the peer's host runs, and the link",
        ),
    }
}
