//! Peers whose address is a name: each is looked up in a thread of its own until it has an address, and again now and then, so
//! that neither a start nor a transfer waits for the system's resolver, which may be silent for many seconds.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs as _},
    str::FromStr,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use crate::{Error, Waker};

/// Time from a lookup without an address to the next.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Time from a lookup with one to the next: how long a peer that was given another address is sought at the old one.
const KNOWN: Duration = Duration::from_secs(60);
/// Stack of a lookup's thread; the resolver and its modules need little.
const STACK_BYTES: usize = 512 << 10;

/// The address of a peer, or its name and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// A fixed address and port.
    At(SocketAddr),
    /// Where the system's resolver says: host:port.
    Named(String),
}

/// The text is neither an address nor a name with a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not host:port, for example 10.0.0.2:4511, [2001:db8::1]:4511 or relay.example.org:4511"
)]
pub struct ParsePeerAddressError(String);

impl FromStr for PeerAddress {
    type Err = ParsePeerAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePeerAddressError(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(error()),
                _ => Ok(Self::At(address)),
            };
        }
        let (name, port) = text.rsplit_once(':').ok_or_else(error)?;
        let label = |label: &str| {
            let mut bytes = label.bytes();
            !label.is_empty()
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let mut labels = name.strip_suffix('.').unwrap_or(name).split('.');
        // What looks like an address but is none must not reach a resolver, which may read 127.1 as one.
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = name.len() <= 253
            && labels.clone().all(label)
            && !labels.next_back().is_some_and(is_number);
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse().is_ok_and(|port: u16| port > 0);
        match is_name && is_port {
            true => Ok(Self::Named(text.to_owned())),
            false => Err(error()),
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// Names that are followed for the peers of a driver; their threads end with it.
#[derive(Debug)]
pub(crate) struct PeerNames<I> {
    answers: (Sender<Answer<I>>, Receiver<Answer<I>>),
    waker: Waker,
    /// Closed at the end.
    ends: Vec<Sender<()>>,
}

/// The addresses of a peer that its driver can reach, never none.
pub(crate) type Answer<I> = (I, Vec<SocketAddr>);

impl<I: Send + Copy + 'static> PeerNames<I> {
    /// Answers wake the driver by this.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            answers: mpsc::channel(),
            waker,
            ends: Vec::new(),
        }
    }

    /// Looks up the name of a peer until the end, for addresses that a socket at `local` reaches.
    ///
    /// # Errors
    /// [`Error::System`]: there is no thread.
    pub(crate) fn follow(
        &mut self,
        peer: I,
        name: &str,
        local: SocketAddr,
        reaches: fn(SocketAddr, SocketAddr) -> bool,
    ) -> Result<(), Error> {
        let ask = move |name: &str| {
            let mut found: Vec<SocketAddr> = name.to_socket_addrs()?.collect();
            found.retain(|address| reaches(local, *address));
            match found.is_empty() {
                true => Err(io::Error::other(format!(
                    "the name has no address that is reached from {local}"
                ))),
                false => Ok(found),
            }
        };
        self.follow_by(peer, name.to_owned(), [UNKNOWN, KNOWN], ask)
    }

    fn follow_by(
        &mut self,
        peer: I,
        name: String,
        [unknown, known]: [Duration; 2],
        ask: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<(), Error> {
        let (end, ended) = mpsc::channel();
        let (answers, waker) = (self.answers.0.clone(), self.waker.clone());
        let follow = move || {
            let mut is_told = false;
            loop {
                let wait = match ask(&name) {
                    Ok(found) => {
                        if answers.send((peer, found)).is_err() {
                            return;
                        }
                        waker.wake();
                        is_told = false;
                        known
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut is_told, true) {
                            tracing::warn!(name, %error, "the name of a peer does not resolve; it is looked up again every {unknown:?}");
                        }
                        unknown
                    }
                };
                if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("lookup".to_owned());
        thread
            .stack_size(STACK_BYTES)
            .spawn(follow)
            .map_err(Error::System)?;
        self.ends.push(end);
        Ok(())
    }

    /// The next answer.
    pub(crate) fn poll(&self) -> Option<Answer<I>> {
        self.answers.1.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::Poller;

    fn parsed(text: &str) -> Option<PeerAddress> {
        text.parse().ok()
    }

    #[test]
    fn addresses_and_names_are_told_apart_and_all_else_is_refused() {
        let at = |text: &str| Some(PeerAddress::At(text.parse().unwrap()));
        let named = |text: &str| Some(PeerAddress::Named(text.to_owned()));
        assert_eq!(parsed("10.0.0.2:4511"), at("10.0.0.2:4511"));
        assert_eq!(parsed("[2001:db8::1]:4511"), at("[2001:db8::1]:4511"));
        for name in [
            "relay:4511",
            "a-b.example.org:1",
            "relay_1.example.org.:65535",
        ] {
            assert_eq!(parsed(name), named(name));
        }
        for wrong in [
            "",
            "10.0.0.2:0",
            "[2001:db8::1]:0",
            ":",
            "relay",
            "relay:",
            ":4511",
            "relay:0",
            "relay:65536",
            "relay:+1",
            "127.1:4511",
            "10.0.0.256:1",
            "re lay:1",
            "a..b:1",
            "http://relay:1",
            "2001:db8::1:4511",
            "relay:1:2",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_name_is_looked_up_until_it_has_an_address_and_again_and_no_longer_than_its_driver_lives() {
        let mut poller = Poller::new().unwrap();
        let mut names = PeerNames::new(poller.waker());
        let asked = Arc::new(AtomicUsize::new(0));
        let [first, second] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let ask = {
            let asked = asked.clone();
            move |name: &str| {
                assert_eq!(name, "relay:4511");
                match asked.fetch_add(1, Ordering::SeqCst) {
                    0..3 => Err(io::Error::other("no server answers")),
                    3..5 => Ok(vec![first]),
                    _ => Ok(vec![second]),
                }
            }
        };
        let often = [Duration::from_millis(1); 2];
        names.follow_by(7, "relay:4511".into(), often, ask).unwrap();
        let mut answers = Vec::new();
        while answers.len() < 3 {
            // Answers end the wait.
            poller.wait(&[], None).unwrap();
            answers.extend(std::iter::from_fn(|| names.poll()));
        }
        assert_eq!(
            answers[..3],
            [(7, vec![first]), (7, vec![first]), (7, vec![second])]
        );
        drop(names);
        // The thread has a copy of what it asks.
        while Arc::strong_count(&asked) > 1 {
            thread::yield_now();
        }
    }
}
