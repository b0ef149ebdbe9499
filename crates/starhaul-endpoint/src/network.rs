//! The kernel's news of the network, gathered until the sockets are looked after.

use std::{
    collections::HashMap,
    net::IpAddr,
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use starhaul_net::{NetworkChange, NetworkMonitor};

/// News come in bursts; a host of containers has them all day. The first is followed at once, those after it together.
const PAUSE: Duration = Duration::from_millis(100);
/// Interfaces and addresses remembered between two looks; beyond, everything is looked at.
const MAX_REMEMBERED: usize = 256;
/// Interfaces whose state is remembered.
const MAX_INTERFACES: usize = 4096;

/// Hears the news and hands them out, not too often.
#[derive(Debug, Default)]
pub(crate) struct NetworkWatch {
    monitor: Option<NetworkMonitor>,
    /// Of each interface by its number: whether it was running when that was last told.
    running: HashMap<u32, bool>,
    news: News,
    looked_at: Option<Instant>,
}

/// What happened since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    any: bool,
    /// There is an address, an interface or a route that may help.
    pub(crate) better: bool,
    /// Everything may have changed.
    pub(crate) missed: bool,
    /// Interfaces that began to run.
    pub(crate) started: Vec<u32>,
    /// Addresses that this host has no more.
    pub(crate) lost: Vec<IpAddr>,
}

impl NetworkWatch {
    /// Where the kernel tells nothing, timers have to do.
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

    /// Reads what the kernel tells.
    pub(crate) fn read(&mut self) {
        let Some(mut monitor) = self.monitor.take() else {
            return;
        };
        match monitor.recv(|change| self.note(change)) {
            Ok(()) => self.monitor = Some(monitor),
            Err(error) => tracing::warn!(%error, "no more news of links and addresses"),
        }
    }

    /// What there is to follow now.
    pub(crate) fn poll_news(&mut self, now: Instant) -> Option<News> {
        if !self.news.any || self.pause_ends().is_some_and(|end| now < end) {
            return None;
        }
        self.looked_at = Some(now);
        let news = std::mem::take(&mut self.news);
        tracing::debug!(?news, "the network changed");
        Some(news)
    }

    /// When there will be something to follow, if nothing else is told until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pause_ends().filter(|_| self.news.any)
    }

    fn pause_ends(&self) -> Option<Instant> {
        self.looked_at.map(|looked_at| looked_at + PAUSE)
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
            NetworkChange::AddressGone { address, .. } => news.lost.push(address),
            NetworkChange::Missed => {
                (news.missed, news.better) = (true, true);
                self.running.clear();
            }
        }
        if news.started.len() > MAX_REMEMBERED || news.lost.len() > MAX_REMEMBERED {
            news.missed = true;
            news.started.clear();
            news.lost.clear();
        }
    }
}

#[cfg(test)]
mod tests {
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
        // The first word of an interface says nothing of what it was before.
        for (running, started) in [(true, 0), (true, 0), (false, 0), (true, 1), (true, 1)] {
            watch.note(link(7, running));
            assert_eq!(watch.news.started.len(), started);
        }
        watch.note(NetworkChange::LinkGone { index: 7 });
        watch.note(link(7, true));
        assert_eq!(watch.news.started.len(), 1, "another one of that number");
    }

    #[test]
    fn a_flood_of_news_is_bounded_and_means_that_all_is_looked_at() {
        let mut watch = NetworkWatch::default();
        for n in 0..100_000_u32 {
            let address = IpAddr::from(n.to_be_bytes());
            watch.note(NetworkChange::AddressGone { index: n, address });
            watch.note(link(n, n % 2 == 0));
        }
        assert!(watch.running.len() <= MAX_INTERFACES);
        let news = watch.poll_news(Instant::now()).unwrap();
        assert!(news.missed && news.lost.len() <= MAX_REMEMBERED);
    }
}
