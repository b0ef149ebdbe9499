//! The clients of a rule for datagrams: when each is forgotten, and which gives way to a new one.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::config::ClientLimits;

/// Greatest number of datagrams of a client that is forgotten early once it has as many answers, as after a DNS query.
const MOST_REQUESTS: u64 = 4;
/// A client gives way to a new one after this silence, though it may send again later.
const GIVES_WAY: Duration = Duration::from_secs(1);
/// Where none gives way, none is looked for again for so long: in a flood of new clients, all others would be looked through for each.
const FULL_FOR: Duration = Duration::from_millis(10);

/// Who sends: where a client is, and to which of this host's addresses it sends, if the rule has several. Answers leave from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) client: SocketAddr,
    pub(super) local: Option<IpAddr>,
}

/// The clients of one rule.
#[derive(Debug, Default)]
pub(super) struct Clients {
    known: HashMap<Ends, Client>,
    full_until: Option<Instant>,
}

/// A client as the receiving loop sees it.
#[derive(Debug)]
pub(super) struct Client {
    /// To its task, which ends when this is dropped and empty.
    pub(super) queue: mpsc::Sender<Bytes>,
    pub(super) life: Arc<Life>,
}

/// How many datagrams a client has sent and received, and when the last.
#[derive(Debug)]
pub(super) struct Life {
    began: Instant,
    sent: AtomicU64,
    answered: AtomicU64,
    /// Time of the last datagram in either direction, in milliseconds since `began`.
    last_ms: AtomicU64,
}

impl Clients {
    pub(super) fn get(&self, ends: Ends) -> Option<&Client> {
        self.known.get(&ends)
    }

    pub(super) fn insert(&mut self, ends: Ends, client: Client) {
        self.known.insert(ends, client);
    }

    /// Forgets all; their tasks wait for replies only.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Forgets those whose tasks have ended.
    pub(super) fn forget_ended(&mut self) {
        self.known.retain(|_, client| !client.queue.is_closed());
    }

    /// Makes room for one more of at most `most`: `Some(true)` when a client had to give way, `None` when none could.
    pub(super) fn make_room(&mut self, now: Instant, most: usize) -> Option<bool> {
        if self.known.len() < most {
            return Some(false);
        }
        if self.full_until.is_some_and(|until| now < until) {
            return None;
        }
        self.forget_ended();
        if self.known.len() < most {
            return Some(false);
        }
        let may_go = |life: &Life| life.is_answered() || life.silence(now) >= GIVES_WAY;
        let candidates = self.known.iter().filter(|(_, client)| may_go(&client.life));
        // Answered clients go first, and of these the one that has been silent longest.
        let least = candidates
            .max_by_key(|(_, client)| (client.life.is_answered(), client.life.silence(now)));
        let Some(ends) = least.map(|(ends, _)| *ends) else {
            self.full_until = Some(now + FULL_FOR);
            return None;
        };
        self.known.remove(&ends);
        Some(true)
    }
}

impl Life {
    /// The life of a client that sends its first datagram now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            sent: AtomicU64::new(1),
            answered: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        }
    }

    /// The client sent a datagram.
    pub(super) fn sent(&self, now: Instant) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.touch(now);
    }

    /// The client was sent so many datagrams.
    pub(super) fn answered(&self, now: Instant, datagrams: usize) {
        self.answered.fetch_add(datagrams as u64, Ordering::Relaxed);
        self.touch(now);
    }

    /// When it is to be forgotten if no more datagrams are sent in either direction.
    pub(super) fn ends(&self, limits: &ClientLimits) -> Instant {
        let timeout = match self.is_answered() {
            true => limits.answered_timeout.min(limits.idle_timeout),
            false => limits.idle_timeout,
        };
        self.last() + timeout
    }

    /// Whether it sent few datagrams, and has as many back.
    pub(super) fn is_answered(&self) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        sent <= MOST_REQUESTS && self.answered.load(Ordering::Relaxed) >= sent
    }

    fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last())
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(since, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn add(clients: &mut Clients, port: u16, life: Life) -> mpsc::Receiver<Bytes> {
        let (queue, receiver) = mpsc::channel(1);
        let life = Arc::new(life);
        clients.insert(ends(port), Client { queue, life });
        receiver
    }

    fn ends(port: u16) -> Ends {
        Ends {
            client: SocketAddr::from(([127, 0, 0, 1], port)),
            local: None,
        }
    }

    fn has(clients: &Clients, port: u16) -> bool {
        clients.get(ends(port)).is_some()
    }

    #[test]
    fn answered_clients_give_way_first_then_the_one_silent_longest() {
        let start = Instant::now();
        let mut clients = Clients::default();
        let talks = Life::new(start);
        (0..9).for_each(|step| talks.sent(start + MS * 300 * step));
        talks.answered(start + MS * 2700, 1);
        let asks = Life::new(start);
        let answered = Life::new(start + MS * 2000);
        answered.answered(start + MS * 2500, 1);
        let _open = [
            add(&mut clients, 1, talks),
            add(&mut clients, 2, asks),
            add(&mut clients, 3, answered),
        ];
        let now = start + MS * 3000;
        assert_eq!(clients.make_room(now, 4), Some(false));
        assert_eq!(clients.make_room(now, 3), Some(true));
        assert!(!has(&clients, 3), "it has its answer");
        assert_eq!(clients.make_room(now, 2), Some(true));
        assert!(!has(&clients, 2), "silent for 3 s");
        assert_eq!(clients.make_room(now, 1), None, "it talks");
        assert_eq!(clients.make_room(now + MS * 700, 1), Some(true));
    }

    #[test]
    fn a_flood_has_not_all_clients_looked_through_for_each_new_one() {
        let start = Instant::now();
        let mut clients = Clients::default();
        let open = add(&mut clients, 1, Life::new(start));
        let now = start + GIVES_WAY - MS;
        assert_eq!(clients.make_room(now, 1), None);
        // Then it would go, which is found out a moment later.
        assert_eq!(clients.make_room(now + FULL_FOR - MS, 1), None);
        assert_eq!(clients.make_room(now + FULL_FOR, 1), Some(true));
        // A place that is known to be free is taken at once.
        drop(open);
        let open = add(&mut clients, 1, Life::new(start));
        assert_eq!(clients.make_room(start, 1), None);
        drop(open);
        clients.forget_ended();
        assert_eq!(clients.make_room(start, 1), Some(false));
    }

    #[test]
    fn few_requests_with_answers_end_early_and_conversations_do_not() {
        let limits = ClientLimits {
            max_clients: 1,
            idle_timeout: MS * 120_000,
            answered_timeout: MS * 10_000,
            max_queued: 1,
        };
        let start = Instant::now();
        // A and AAAA from one port.
        let query = Life::new(start);
        query.sent(start);
        query.answered(start + MS * 20, 1);
        assert_eq!(query.ends(&limits), start + MS * 120_020);
        query.answered(start + MS * 30, 1);
        assert_eq!(query.ends(&limits), start + MS * 10_030);
        (0..3).for_each(|_| query.sent(start + MS * 40));
        query.answered(start + MS * 50, 9);
        assert_eq!(query.ends(&limits), start + MS * 120_050);
    }
}
