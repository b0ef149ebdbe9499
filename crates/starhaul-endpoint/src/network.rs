//! The kernel's notifications of the network, collected until the sockets are checked.

use std::{
    collections::HashMap,
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use starhaul_net::{NetworkChange, NetworkMonitor};

/// Notifications come in bursts, on a host of containers all day. The sockets are checked at once after the first, and after
/// this time for all that follow.
const PAUSE: Duration = Duration::from_millis(100);
/// Greatest number of interfaces remembered between two checks.
const MAX_REMEMBERED: usize = 256;
/// Greatest number of interfaces whose state is remembered.
const MAX_INTERFACES: usize = 4096;

/// Collects the notifications and limits the rate of checks.
#[derive(Debug, Default)]
pub(crate) struct NetworkWatch {
    monitor: Option<NetworkMonitor>,
    /// Whether each interface, by its number, was running at its last notification.
    running: HashMap<u32, bool>,
    news: News,
    checked_at: Option<Instant>,
}

/// The changes since the last check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    any: bool,
    /// A new address, interface or route may help paths that are down.
    pub(crate) better: bool,
    /// Interfaces that began to run.
    pub(crate) started: Vec<u32>,
}

impl NetworkWatch {
    /// Opens the notifications; without them, timers must suffice.
    pub(crate) fn start() -> Self {
        let monitor = NetworkMonitor::open();
        let monitor = monitor.inspect_err(|error| {
            tracing::warn!(%error, "no news of links and addresses: paths return more slowly when they change");
        });
        Self {
            monitor: monitor.ok(),
            ..Self::default()
        }
    }

    pub(crate) fn monitor(&self) -> Option<BorrowedFd<'_>> {
        self.monitor.as_ref().map(NetworkMonitor::as_fd)
    }

    /// Reads the kernel's notifications.
    pub(crate) fn read(&mut self) {
        let Some(mut monitor) = self.monitor.take() else {
            return;
        };
        match monitor.recv(|change| self.note(change)) {
            Ok(()) => self.monitor = Some(monitor),
            Err(error) => tracing::warn!(%error, "no more news of links and addresses"),
        }
    }

    /// The changes to check for now.
    pub(crate) fn poll_news(&mut self, now: Instant) -> Option<News> {
        if !self.news.any || self.pause_ends().is_some_and(|end| now < end) {
            return None;
        }
        self.checked_at = Some(now);
        let news = std::mem::take(&mut self.news);
        tracing::debug!(?news, "the network changed");
        Some(news)
    }

    /// When the next check is due, without further notifications.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pause_ends().filter(|_| self.news.any)
    }

    fn pause_ends(&self) -> Option<Instant> {
        self.checked_at.map(|checked_at| checked_at + PAUSE)
    }

    fn note(&mut self, change: NetworkChange) {
        let news = &mut self.news;
        news.any = true;
        match change {
            NetworkChange::Link { index, running } => {
                if self.running.len() >= MAX_INTERFACES {
                    self.running.clear();
                }
                let before = self.running.insert(index, running);
                if running && before == Some(false) {
                    news.started.push(index);
                }
                news.better |= running;
            }
            NetworkChange::LinkGone { index } => _ = self.running.remove(&index),
            NetworkChange::Address { .. } | NetworkChange::DefaultRoute => news.better = true,
            NetworkChange::AddressGone { .. } => {}
            NetworkChange::Missed => {
                news.better = true;
                self.running.clear();
            }
        }
        if news.started.len() > MAX_REMEMBERED {
            news.started.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn link(index: u32, running: bool) -> NetworkChange {
        NetworkChange::Link { index, running }
    }

    #[test]
    fn the_first_news_are_followed_at_once_and_a_burst_of_them_together() {
        let mut watch = NetworkWatch::default();
        assert_eq!(watch.deadline(), None);
        watch.note(link(3, false));
        let start = Instant::now();
        assert!(watch.poll_news(start).is_some_and(|news| !news.better));
        watch.note(link(3, true));
        watch.note(NetworkChange::DefaultRoute);
        assert_eq!(watch.deadline(), Some(start + PAUSE));
        assert_eq!(watch.poll_news(start + PAUSE / 2), None);
        let news = watch.poll_news(start + PAUSE).unwrap();
        assert!(news.better && news.started == [3], "{news:?}");
        assert_eq!(watch.poll_news(start + 2 * PAUSE), None);
    }

    #[test]
    fn an_interface_starts_when_it_ran_not_before() {
        let mut watch = NetworkWatch::default();
        // The first notification of an interface does not say what it was before.
        for (running, started) in [(true, 0), (true, 0), (false, 0), (true, 1), (true, 1)] {
            watch.note(link(7, running));
            assert_eq!(watch.news.started.len(), started);
        }
        watch.note(NetworkChange::LinkGone { index: 7 });
        watch.note(link(7, true));
        assert_eq!(watch.news.started.len(), 1, "another one of that number");
    }

    #[test]
    fn a_flood_of_news_is_bounded() {
        let mut watch = NetworkWatch::default();
        for n in 0..100_000_u32 {
            let address = IpAddr::from(n.to_be_bytes());
            watch.note(NetworkChange::AddressGone { index: n, address });
            watch.note(link(n, n % 2 == 0));
        }
        assert!(watch.running.len() <= MAX_INTERFACES);
        let news = watch.poll_news(Instant::now()).unwrap();
        assert!(news.any && news.started.len() <= MAX_REMEMBERED);
    }
}
