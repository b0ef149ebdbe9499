//! Differences between a gateway's state and its configuration.

use super::{PeerStatus, Session, Status};

/// Something that a configured peer lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Name of the path that carries nothing; `None` where there is no session at all.
    pub path: Option<String>,
    /// What it is, and why as far as that is known, for people.
    pub text: String,
}

impl Status {
    /// What an operator would want to be woken for, one line each: a peer to which no session is open, a configured path that is
    /// down. Where no sessions are configured, one that is open will do.
    pub fn problems(&self) -> Vec<String> {
        let opened = self
            .peers
            .iter()
            .filter(|peer| !peer.configured_paths.is_empty());
        let lacks = opened.flat_map(|peer| self.lacks_of(peer));
        let mut problems: Vec<_> = lacks.map(|lack| lack.text).collect();
        problems.extend(self.peers.iter().filter_map(all_out_of_service));
        if self.waits_in_vain() {
            problems.push("no session is open".to_owned());
        }
        problems
    }

    /// There are peers, all of them are to open the sessions, and none has. Without peers all goes over LEOTP or bundles, and
    /// paths that are out of service are ours to open.
    pub fn waits_in_vain(&self) -> bool {
        let opens =
            |peer: &PeerStatus| !(peer.configured_paths.is_empty() && peer.service.is_empty());
        !self.peers.is_empty() && !self.peers.iter().any(opens) && self.sessions.is_empty()
    }

    /// The same of one peer; nothing where this side opens no session to it.
    pub fn lacks_of(&self, peer: &PeerStatus) -> Vec<Lack> {
        if peer.configured_paths.is_empty() {
            return Vec::new();
        }
        let sessions = self.sessions.iter();
        let ours: Vec<_> = sessions
            .filter(|session| session.peer == peer.name && session.opened_by == "us")
            .collect();
        if ours.is_empty() {
            let cause = peer.last_error.as_ref();
            let cause = cause.map(|error| format!(": {error}")).unwrap_or_default();
            return vec![Lack {
                path: None,
                text: format!("no session with {}{cause}", peer.name),
            }];
        }
        let names = peer.configured_paths.iter();
        names
            .filter_map(|name| {
                let text = path_problem(peer, &ours, name)?;
                Some(Lack {
                    path: Some(name.clone()),
                    text,
                })
            })
            .collect()
    }
}

/// Tells of a peer whose last path a quota has put out of service; hours and orders are as they are meant to be.
fn all_out_of_service(peer: &PeerStatus) -> Option<String> {
    let mut out = peer.service.iter();
    let by_quota = out.any(|path| matches!(path.out.as_deref(), Some("quota" | "uncounted")));
    (peer.configured_paths.is_empty() && by_quota).then(|| {
        let name = &peer.name;
        format!("no path to {name} is in service: quotas are used up, or not counted reliably")
    })
}

/// Why a configured path carries nothing; `None` while it does.
fn path_problem(peer: &PeerStatus, sessions: &[&Session], name: &str) -> Option<String> {
    let paths = sessions.iter().flat_map(|session| &session.paths);
    let mut same: Vec<_> = paths.filter(|path| path.name == name).collect();
    let Some(newest) = same.pop() else {
        return Some(format!(
            "path {name} to {} is not there: its name is not resolved, or the peer refused it",
            peer.name
        ));
    };
    // Where one path takes the place of another, the newer one is the configured one.
    if newest.state != "down" {
        return None;
    }
    let cause = newest.last_error.as_ref();
    let cause = cause.map(|error| format!(": {error}")).unwrap_or_default();
    Some(format!("path {name} to {} is down{cause}", peer.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(peers: serde_json::Value, sessions: serde_json::Value) -> Status {
        let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0,
            "listen": [], "ingress": [], "peers": peers, "sessions": sessions });
        serde_json::from_value(status).expect("a status")
    }

    fn peer(paths: &[&str]) -> serde_json::Value {
        serde_json::json!({ "name": "far", "public_key": "k", "sessions": 1, "failed_attempts": 3,
            "last_error": "no answer", "configured_paths": paths })
    }

    fn session(opened_by: &str, paths: &[(&str, &str)]) -> serde_json::Value {
        let paths = paths.iter().map(|(name, state)| {
            serde_json::json!({ "name": name, "remote": "192.0.2.1:1", "state": state,
                "controller": "", "controller_state": "", "cwnd_bytes": 0, "bytes_in_flight": 0,
                "last_error": "gone" })
        });
        serde_json::json!({ "peer": "far", "opened_by": opened_by, "age_s": 1.0,
            "refused_streams": 0, "paths": paths.collect::<Vec<_>>(), "streams": [] })
    }

    #[test]
    fn what_is_down_is_named_and_what_is_up_is_not() {
        let none = Vec::<String>::new();
        let mut closed = peer(&[]);
        closed["service"] = serde_json::json!([{ "path": "a", "out": "hours" }]);
        for (peers, sessions, problems) in [
            (
                vec![peer(&["a"])],
                vec![session("us", &[("a", "up")])],
                none.clone(),
            ),
            (
                vec![peer(&["a"])],
                vec![session("us", &[("a", "suspect")])],
                none.clone(),
            ),
            (
                vec![peer(&["a", "b", "c"])],
                vec![session("us", &[("a", "up"), ("b", "down")])],
                vec![
                    "path b to far is down: gone".to_owned(),
                    "path c to far is not there: its name is not resolved, or the peer refused it"
                        .to_owned(),
                ],
            ),
            // The new one counts of two with one name.
            (
                vec![peer(&["a"])],
                vec![session("us", &[("a", "up"), ("a", "down")])],
                vec!["path a to far is down: gone".to_owned()],
            ),
            (
                vec![peer(&["a"])],
                vec![session("peer", &[("x", "up")])],
                vec!["no session with far: no answer".to_owned()],
            ),
            (
                vec![peer(&[])],
                vec![session("peer", &[("x", "up")])],
                none.clone(),
            ),
            (
                vec![peer(&[])],
                vec![],
                vec!["no session is open".to_owned()],
            ),
            // Only LEOTP or bundles; the last path is outside of its hours.
            (vec![], vec![], none.clone()),
            (vec![closed], vec![], none),
        ] {
            let status = status(peers.into(), sessions.into());
            assert_eq!(status.problems(), problems, "{status:#?}");
        }
    }
}
