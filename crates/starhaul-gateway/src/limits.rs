//! Bounds that an operator can meet: how often each was reached, which key raises it, and a line in the log at most once
//! a minute.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

pub(crate) use starhaul_log::Seldom;

use crate::status;

/// A bound that has been reached a number of times; the caller knows its present value.
#[derive(Debug)]
pub(crate) struct Limit {
    name: &'static str,
    key: &'static str,
    reached: AtomicU64,
    log: Seldom,
}

impl Limit {
    /// A bound that `key` of the configuration raises.
    pub(crate) fn new(name: &'static str, key: &'static str) -> Self {
        Self {
            name,
            key,
            reached: AtomicU64::new(0),
            log: Seldom::default(),
        }
    }

    /// Counts that the bound `most` was reached at the rule or peer `whose`.
    pub(crate) fn reach(&self, whose: &str, most: usize) {
        self.reach_times(whose, most, 1);
    }

    /// Counts that the bound was reached `times` times since the last call.
    pub(crate) fn reach_times(&self, whose: &str, most: usize, times: u64) {
        if times == 0 {
            return;
        }
        self.reached.fetch_add(times, Ordering::Relaxed);
        if self.log.is_due(Instant::now()).is_some() {
            let (limit, key) = (self.name, self.key);
            let times = self.count();
            tracing::warn!(
                limit,
                whose,
                most,
                times,
                "a limit was reached; {key} raises it"
            );
        }
    }

    /// How often it was reached.
    pub(crate) fn count(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    pub(crate) fn snapshot(&self, rule: Option<&str>, most: usize) -> status::LimitStatus {
        status::LimitStatus {
            name: self.name.to_owned(),
            rule: rule.map(str::to_owned),
            count: self.count(),
            limit: most as u64,
            key: self.key.to_owned(),
        }
    }
}

/// The bounds that all peers and rules share.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Their values at the start; they hold until the end.
    pub(crate) of_sessions: crate::config::SessionLimits,
    max_sessions: usize,
    max_handshakes: usize,
    sessions: Limit,
    handshakes: Limit,
    received: Limit,
    pub(crate) streams: Limit,
    pub(crate) send_bytes: Limit,
    blocks: Limit,
    taken_streams: Limit,
    pub(crate) peer_streams: Limit,
    pub(crate) lookups: Limit,
    pub(crate) targets: Limit,
    pub(crate) open_files: Limit,
}

impl Limits {
    pub(crate) fn new(
        of_sessions: crate::config::SessionLimits,
        accept: &crate::config::AcceptRule,
    ) -> Self {
        Self {
            of_sessions,
            max_sessions: accept.max_sessions,
            max_handshakes: accept.max_handshakes,
            sessions: Limit::new(
                "sessions",
                "[accept] max_sessions, or max_sessions_per_peer,",
            ),
            handshakes: Limit::new(
                "handshakes",
                "[accept] max_handshakes, or max_handshakes_per_host,",
            ),
            received: Limit::new("bytes of received blocks", "max_receive_bytes"),
            streams: Limit::new("streams of a session", "max_streams"),
            send_bytes: Limit::new("bytes that wait in a session", "max_send_bytes"),
            blocks: Limit::new(
                "blocks of a stream at once",
                "a shorter deadline of the rule",
            ),
            taken_streams: Limit::new(
                "streams that a peer takes of us, at most",
                "max_streams of the peer",
            ),
            peer_streams: Limit::new("streams that a peer has through us", "[egress] max_streams"),
            lookups: Limit::new("lookups for peers", "[egress] max_lookups"),
            targets: Limit::new("targets of a UDP association", "[egress] max_targets"),
            open_files: Limit::new("open files", "LimitNOFILE of the service, or ulimit -n,"),
        }
    }

    /// Counts the bound of a session that is the reason for `error`; `whose` names the rule or peer.
    pub(crate) fn note(&self, whose: &str, error: &starhaul_endpoint::Error) {
        use starhaul_endpoint::Error;
        use starhaul_session::StreamError;
        match error {
            Error::Stream(StreamError::TooManyStreams(most)) => self.streams.reach(whose, *most),
            // The peer takes the lesser of both gateways' keys, less what its applications have not read to the end.
            Error::Stream(StreamError::PeerStreams) => {
                self.taken_streams
                    .reach(whose, self.of_sessions.max_streams);
            }
            Error::Stream(StreamError::QueueFull { limit, .. })
                if *limit == self.of_sessions.max_send_bytes =>
            {
                self.send_bytes.reach(whose, *limit);
            }
            Error::Stream(StreamError::TooManyBlocks(_)) => {
                self.blocks.reach(whose, starhaul_session::MAX_LIVE_BLOCKS);
            }
            _ => {}
        }
    }

    /// Counts the sessions of peers that were refused for lack of room: `refused` is their number since the start.
    pub(crate) fn note_sessions(&self, refused: u64) {
        let new = refused.saturating_sub(self.sessions.count());
        self.sessions.reach_times("peers", self.max_sessions, new);
    }

    /// Counts connections that were refused before their peer was known: `refused` is their number since the start.
    pub(crate) fn note_handshakes(&self, refused: u64) {
        let new = refused.saturating_sub(self.handshakes.count());
        self.handshakes
            .reach_times("hosts", self.max_handshakes, new);
    }

    /// Counts blocks of a peer that were dropped on receipt for lack of memory since the last call.
    pub(crate) fn note_received(&self, peer: &str, dropped: u64) {
        let most = self.of_sessions.max_receive_bytes;
        self.received.reach_times(peer, most, dropped);
    }

    /// Counts `error` if it means that the process may open no more files.
    pub(crate) fn note_io(&self, whose: &str, error: &std::io::Error) {
        use rustix::io::Errno;
        if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(error) {
            self.open_files.reach(whose, most_open_files());
        }
    }

    pub(crate) fn snapshot(
        &self,
        egress: crate::egress_policy::EgressLimits,
    ) -> Vec<status::LimitStatus> {
        vec![
            self.sessions.snapshot(None, self.max_sessions),
            self.handshakes.snapshot(None, self.max_handshakes),
            self.streams.snapshot(None, self.of_sessions.max_streams),
            self.taken_streams
                .snapshot(None, self.of_sessions.max_streams),
            self.send_bytes
                .snapshot(None, self.of_sessions.max_send_bytes),
            self.blocks
                .snapshot(None, starhaul_session::MAX_LIVE_BLOCKS),
            self.received
                .snapshot(None, self.of_sessions.max_receive_bytes),
            self.peer_streams.snapshot(None, egress.max_streams),
            self.lookups.snapshot(None, egress.max_lookups),
            self.targets.snapshot(None, egress.max_targets),
            self.open_files.snapshot(None, most_open_files()),
        ]
    }
}

/// Number of files that this process may have open, sockets included.
fn most_open_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Lets this process open as many files as the system lets it ask for; each connection and each UDP client takes one.
/// Returns their number.
pub fn raise_open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    // If it fails the old limit holds, and reaching that is logged.
    let _ = setrlimit(Resource::Nofile, raised);
    most_open_files()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_counted() {
        let limit = Limit::new("clients", "max_clients");
        (0..5).for_each(|_| limit.reach("dns", 3));
        let shown = limit.snapshot(Some("dns"), 3);
        assert_eq!(
            (shown.count, shown.limit, shown.key.as_str()),
            (5, 3, "max_clients")
        );
    }

    #[test]
    fn a_stream_with_too_many_blocks_says_what_helps() {
        let limits = Limits::new(
            crate::config::SessionLimits {
                max_streams: 4,
                max_send_bytes: 1 << 20,
                max_receive_bytes: 1 << 20,
            },
            &crate::config::AcceptRule::default(),
        );
        let id = starhaul_session::StreamId(4);
        let error = starhaul_session::StreamError::TooManyBlocks(id);
        limits.note("dns", &starhaul_endpoint::Error::Stream(error));
        let told = limits.snapshot(crate::egress_policy::EgressLimits::default());
        let reached: Vec<_> = told.iter().filter(|limit| limit.count > 0).collect();
        assert_eq!(reached.len(), 1);
        assert_eq!(
            (reached[0].limit, reached[0].key.as_str()),
            (16_384, "a shorter deadline of the rule")
        );
    }

    /// What was logged, as lines.
    #[derive(Clone, Default)]
    struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_limit_that_is_reached_again_and_again_is_logged_once_with_its_key() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            let limit = Limit::new("clients", "max_clients");
            (0..1000).for_each(|_| limit.reach("dns", 3));
        });
        let logged = String::from_utf8(lines.0.lock().clone()).expect("text");
        assert_eq!(logged.lines().count(), 1, "{logged}");
        for part in ["WARN", "max_clients raises it", "clients", "dns", "most=3"] {
            assert!(logged.contains(part), "{part}: {logged}");
        }
    }
}
