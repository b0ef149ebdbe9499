//! What was found: causes from the most fundamental on, and which of them explain others.

use std::collections::BTreeSet;

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// All is as it should be.
    Good,
    /// It costs something, or will.
    Note,
    /// Something does not work, or not as configured.
    Problem,
}

/// What a finding is about. Of several problems of one path the first of this list is its cause, and the others follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// Our key file: missing, unreadable, or open to others.
    Key,
    /// The TUN device file, `/dev/net/tun`.
    TunDevice,
    /// A program that rules need.
    Program,
    /// Sockets that take connections of others (`IP_TRANSPARENT`).
    Transparent,
    /// A file system without room.
    Disk,
    /// No gateway answers at the control socket.
    Gateway,
    /// The processor is kept from the gateway by its control group.
    CpuQuota,
    /// A path's interface is missing.
    Interface,
    /// It is down, or without carrier.
    InterfaceDown,
    /// A name without an address.
    Name,
    /// No route to a path's remote.
    Route,
    /// This host drops what comes over a path, for it would answer over another interface.
    ReversePath,
    /// This host lets no datagram out.
    Firewall,
    /// The peer shows another key than the configured one.
    PeerKey,
    /// The peer does not know our key.
    OurKey,
    /// The peer's host runs no gateway at this port.
    PeerGateway,
    /// What we send over a path arrives, and nothing comes back over it, or the other way round.
    OneWay,
    /// The peer's host is there, and UDP is not let through.
    UdpBlocked,
    /// Nothing answers on a path.
    NoAnswer,
    /// A path is silent.
    PathSilent,
    /// A path is down for another reason.
    PathDown,
    /// No session with a peer.
    Session,
    /// The peer's clock and ours differ.
    Clock,
    /// A NAT forgets flows sooner than they are refreshed.
    Nat,
    /// Datagrams were lost in a socket's buffer.
    SocketBuffer,
    /// Packets as large as the interface's MTU do not pass.
    Mtu,
    /// A path loses packets.
    Loss,
    /// A tunnel's device is gone.
    TunnelDevice,
    /// Packets outside of a tunnel's networks.
    TunnelNetworks,
    /// The peer's `[egress]` refuses a rule's target.
    EgressRefuses,
    /// A rule's target refuses connections.
    TargetRefuses,
    /// A rule's target cannot be reached.
    TargetUnreachable,
    /// A path's monthly quota is used up or nearly so, or is not counted reliably.
    Quota,
    /// A bound was reached.
    Limit,
    /// An application does not read what it is sent.
    Reader,
    /// Blocks that were not on time.
    Blocks,
    /// What the configuration itself warns of.
    Configuration,
    /// A path is outside of its hours.
    Hours,
    /// The doctor runs in another network namespace than the gateway.
    Namespace,
    /// A path was ordered down.
    Ordered,
    /// Segmentation offload of UDP.
    Offload,
    /// A resolver that takes long.
    SlowName,
    /// What a session is limited by: a thread without time left.
    Processor,
    /// … the configured or ordered limit of its paths.
    PathLimit,
    /// … its controllers.
    Controller,
    /// … what its paths carry.
    Capacity,
    /// … the window of the receiver.
    Window,
    /// … what the applications send.
    Application,
}

impl Cause {
    /// The problems of a path of which the first explains the others.
    fn stops_path(self) -> bool {
        (Self::Interface..=Self::PathDown).contains(&self)
    }
}

/// One fact, with the evidence and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) cause: Cause,
    /// What it is about, as `path leo` or `socket buffers`.
    pub(super) subject: String,
    /// The observation, with its figures.
    pub(super) found: String,
    /// The one thing to do.
    pub(super) advice: Option<String>,
    /// The peer and the path of it.
    #[serde(skip)]
    of: Of,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    peer: Option<String>,
    path: Option<String>,
}

impl Finding {
    pub(super) fn good(cause: Cause, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            level: Level::Good,
            cause,
            subject: subject.into(),
            found: found.into(),
            advice: None,
            of: Of::default(),
        }
    }

    pub(super) fn note(
        cause: Cause,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Note,
            advice: Some(advice.into()),
            ..Self::good(cause, subject, found)
        }
    }

    pub(super) fn problem(
        cause: Cause,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Problem,
            ..Self::note(cause, subject, found, advice)
        }
    }

    /// What is missing is no problem where nothing that is configured needs it: it is only told.
    pub(super) fn unless_needed(self, is_needed: bool, rules: &str) -> Self {
        if is_needed || self.level == Level::Good {
            return self;
        }
        Self {
            level: Level::Good,
            found: format!("{}; only {rules} would need it", self.found),
            advice: None,
            ..self
        }
    }

    /// It concerns the sessions with this peer.
    pub(super) fn with(mut self, peer: &str) -> Self {
        self.of.peer = Some(peer.to_owned());
        self
    }

    /// It concerns this path to this peer.
    pub(super) fn on(mut self, peer: &str, path: &str) -> Self {
        self.of.path = Some(path.to_owned());
        self.with(peer)
    }

    /// The same as a note, with another advice.
    pub(super) fn only_noted(self, advice: impl Into<String>) -> Self {
        Self {
            level: Level::Note,
            advice: Some(advice.into()),
            ..self
        }
    }

    /// Whether both tell of the same thing.
    pub(super) fn is_of_the_same(&self, other: &Self) -> bool {
        (self.cause, &self.subject, &self.of) == (other.cause, &other.subject, &other.of)
    }

    fn stops(&self) -> bool {
        self.level == Level::Problem && self.cause.stops_path()
    }
}

/// Leaves out what follows from other findings, and puts the worst first; of equal ones the most fundamental.
pub(super) fn settle(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.level), finding.cause));
    let (mut paths, mut peers) = (BTreeSet::new(), BTreeSet::new());
    // Causes come before what follows from them.
    findings.retain(|finding| {
        if finding.stops() && finding.of.path.is_some() {
            peers.insert(finding.of.peer.clone());
            return paths.insert(finding.of.clone());
        }
        // Of what a path lost while it was stopped nothing follows.
        if finding.cause == Cause::Loss && paths.contains(&finding.of) {
            return false;
        }
        let is_no_session = finding.level == Level::Problem && finding.cause == Cause::Session;
        !(is_no_session && peers.contains(&finding.of.peer))
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(cause: Cause) -> Finding {
        Finding::problem(cause, "", "", "")
    }

    #[test]
    fn what_nothing_needs_is_told_without_advice() {
        let told = problem(Cause::TunDevice).unless_needed(false, "[[tun]]");
        assert_eq!((told.level, told.advice), (Level::Good, None));
        assert_eq!(told.found, "; only [[tun]] would need it");
        let needed = problem(Cause::TunDevice).unless_needed(true, "[[tun]]");
        assert_eq!(needed, problem(Cause::TunDevice));
    }

    #[test]
    fn only_the_cause_is_left_of_what_follows_from_it() {
        let note = Finding::note(Cause::Mtu, "", "", "");
        let settled = settle(vec![
            note.clone(),
            problem(Cause::Session).with("far"),
            problem(Cause::PathDown).on("far", "leo"),
            problem(Cause::Interface).on("far", "leo"),
            problem(Cause::Loss).on("far", "leo"),
            problem(Cause::PathDown).on("far", "geo"),
            problem(Cause::Session).with("other"),
            problem(Cause::Clock).on("far", "leo"),
        ]);
        assert_eq!(
            settled,
            [
                problem(Cause::Interface).on("far", "leo"),
                problem(Cause::PathDown).on("far", "geo"),
                problem(Cause::Session).with("other"),
                problem(Cause::Clock).on("far", "leo"),
                note
            ]
        );
    }
}
