//! Systems that carry blocks from one host to another in real time, each in a file of its own: our own stack, and rivals that this
//! computer has.

pub(crate) mod comparison;
mod mpquic;
mod mptcp;
mod own;
mod packets;
mod program;
mod rist;
mod srt;
pub(crate) mod stalls;
mod task;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use starhaul_replay::{Host, Hosts};
use starhaul_session::StreamConfig;
use starhaul_units::Bandwidth;

use crate::{Error, workload::blocks::number_of};

/// The links of an experiment by their places: the one to use first, and the one that is dearer or longer.
pub(crate) const CHEAP: usize = 0;
pub(crate) const DEAR: usize = 1;

/// A system that can be asked for.
pub(crate) trait BlockSystem: Debug + Send + Sync {
    /// Its name in tables and on the command line.
    fn name(&self) -> &'static str;

    /// Name of the scheduler that chooses its paths.
    fn scheduler(&self) -> &'static str {
        "its own"
    }

    /// How it protects blocks: the name of a mode, if it has one.
    fn mode(&self) -> &'static str {
        "its own"
    }

    /// The mode by whose name it can be asked for, too, if there is one.
    fn alias(&self) -> Option<&'static str> {
        None
    }

    /// Why this computer cannot run it, and what to install.
    fn missing(&self) -> Option<String>;

    /// Whether it gives streams paths of their own, so that there must be several.
    fn divides_streams(&self) -> bool {
        false
    }

    /// Sets both ends up, until blocks can be offered at the near host; what comes out at the far one is told to `arrivals`.
    ///
    /// # Errors
    /// A program or a socket that does not come up.
    fn open<'h>(
        &self,
        hosts: &'h Hosts,
        offer: &Offer,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn BlockSender + 'h>, Error>;
}

/// The near end of an open system; both ends close with it.
pub(crate) trait BlockSender {
    /// Takes a block that is to be sent now, and does not wait.
    ///
    /// # Errors
    /// The system has ended.
    fn offer(&mut self, block: OfferedBlock) -> Result<(), Error>;

    /// That both ends go on, asked at the end of a run: what came out of a system that died is no result of it.
    ///
    /// # Errors
    /// The system has ended.
    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// What is offered, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// What the application says of each of its streams. The mode is up to the system.
    pub(crate) streams: Vec<StreamConfig>,
    /// Bytes of a block by its number, which is unique among all streams.
    pub(crate) bytes_of: fn(u32) -> usize,
    /// By their places.
    pub(crate) links: [OfferedLink; 2],
}

/// A link, both directions of which are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferedLink {
    pub(crate) one_way: Duration,
    pub(crate) rate: Bandwidth,
    /// Price per byte.
    pub(crate) cost: f64,
}

/// A block that is to be sent now.
#[derive(Clone, Debug)]
pub(crate) struct OfferedBlock {
    /// Place of its stream in the offer.
    pub(crate) stream: usize,
    pub(crate) data: Bytes,
    pub(crate) role: Role,
}

/// Which blocks of a stream are useless without another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It needs none, and none needs it.
    Alone,
    /// It needs none, and others need it.
    Key,
    /// It needs the last key before it.
    AfterKey,
}

impl Offer {
    /// The place of the stream whose blocks can wait longest.
    fn most_patient(&self) -> Option<usize> {
        let streams = self.streams.iter().enumerate();
        let longest = streams.max_by_key(|(_, stream)| stream.deadline);
        longest.map(|(place, _)| place)
    }

    /// What these streams leave of a link, at least a tenth of it, in bytes per second. They take a quarter more than their data, for
    /// headers, repeats and redundancy.
    fn left_of(&self, link: usize, streams: impl Iterator<Item = usize>) -> u64 {
        let wanted = streams.filter_map(|place| self.streams.get(place)?.bandwidth);
        let wanted: u64 = wanted.map(Bandwidth::bytes_per_second).sum();
        let rate = self.links[link].rate.bytes_per_second();
        rate.saturating_sub(wanted + wanted / 4).max(rate / 10)
    }
}

impl OfferedBlock {
    /// A block of the only stream.
    pub(crate) const fn alone(data: Bytes) -> Self {
        Self {
            stream: 0,
            data,
            role: Role::Alone,
        }
    }
}

/// Which blocks came out whole, and when the last byte of each was with the application. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    bytes_of: fn(u32) -> usize,
    blocks: Arc<Mutex<BTreeMap<u32, Instant>>>,
}

impl Arrivals {
    /// Before the first block of this offer.
    pub(crate) fn new(offer: &Offer) -> Self {
        Self {
            bytes_of: offer.bytes_of,
            blocks: Arc::default(),
        }
    }

    /// A block has come out at this moment. A second one of its number, and one with a wrong byte, counts for nothing.
    pub(crate) fn arrived(&self, at: Instant, data: &[u8]) {
        if let Some(number) = number_of(data, self.bytes_of) {
            self.blocks.lock().entry(number).or_insert(at);
        }
    }

    /// Number of blocks that have arrived so far.
    pub(crate) fn count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// Whether each block of these numbers has arrived.
    pub(crate) fn have_all<'n>(&self, mut numbers: impl Iterator<Item = &'n u32>) -> bool {
        let blocks = self.blocks.lock();
        numbers.all(|number| blocks.contains_key(number))
    }

    /// All so far by their numbers.
    pub(crate) fn take(&self) -> BTreeMap<u32, Instant> {
        std::mem::take(&mut self.blocks.lock())
    }
}

/// Every system, in the order of the table.
pub(crate) fn all() -> Vec<Box<dyn BlockSystem>> {
    let mut all: Vec<Box<dyn BlockSystem>> = Vec::new();
    all.extend(own::Own::ALL.map(|own| Box::new(own) as _));
    all.extend(mptcp::Mptcp::ALL.map(|mptcp| Box::new(mptcp) as _));
    all.extend(srt::Srt::ALL.map(|srt| Box::new(srt) as _));
    all.extend(rist::Rist::ALL.map(|rist| Box::new(rist) as _));
    all.extend(mpquic::MpQuic::ALL.map(|mpquic| Box::new(mpquic) as _));
    all
}

/// The address of a host's end of a link.
fn address(hosts: &Hosts, host: Host, link: usize) -> Result<IpAddr, Error> {
    let missing = || Error::Failed(format!("link {link} has no address"));
    hosts.address(host, link).ok_or_else(missing)
}

/// The same with a port.
fn socket_address(hosts: &Hosts, host: Host, link: usize, port: u16) -> Result<SocketAddr, Error> {
    Ok(SocketAddr::new(address(hosts, host, link)?, port))
}

/// Calls `work` at a host, where threads that it starts stay.
fn at<T: Send>(
    hosts: &Hosts,
    host: Host,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let mut result = None;
    let entered = hosts.inside(host, || {
        // As the links. Threads that it starts have its priority; programs are started without.
        let _ = starhaul_net::run_first();
        result = Some(work());
        Ok(())
    });
    entered.map_err(Error::io("cannot enter a network namespace"))?;
    result.unwrap_or_else(|| {
        Err(Error::io("a thread ended early")(
            io::ErrorKind::Other.into(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text, audio and video of MPDTP over links of 50 and 300 ms one way, each of so many bytes per second.
    pub(super) fn media(bytes_per_second: u64) -> Offer {
        let stream = |(ms, priority, bytes): (u64, u8, u64)| StreamConfig {
            deadline: Duration::from_millis(ms),
            priority,
            bandwidth: Some(Bandwidth::from_bytes_per_second(bytes)),
            ..StreamConfig::default()
        };
        let streams = [(800, 1, 4_000), (1_000, 2, 117_500), (3_000, 3, 560_000)];
        Offer {
            streams: streams.map(stream).into(),
            bytes_of: |_| 200,
            links: [50, 300].map(|ms| link(ms, bytes_per_second)),
        }
    }

    /// The blocks of DMTP over two links of 15 Mbit/s and 60 ms one way.
    pub(super) fn alike() -> Offer {
        Offer {
            streams: vec![StreamConfig {
                deadline: Duration::from_millis(200),
                priority: 0,
                bandwidth: Some(Bandwidth::from_bytes_per_second(1_200_000)),
                ..StreamConfig::default()
            }],
            bytes_of: |_| 24_000,
            links: [60; 2].map(|ms| link(ms, 1_875_000)),
        }
    }

    fn link(ms: u64, bytes_per_second: u64) -> OfferedLink {
        OfferedLink {
            one_way: Duration::from_millis(ms),
            rate: Bandwidth::from_bytes_per_second(bytes_per_second),
            cost: 1.0,
        }
    }

    #[test]
    fn streams_leave_what_they_do_not_take_of_a_link_and_never_nothing() {
        let offer = media(1_000_000);
        assert_eq!(offer.most_patient(), Some(2));
        assert_eq!(offer.left_of(CHEAP, 0..2), 1_000_000 - 151_875);
        assert_eq!(offer.left_of(DEAR, 0..0), 1_000_000);
        assert_eq!(media(100_000).left_of(CHEAP, 0..2), 10_000);
        assert_eq!(alike().most_patient(), Some(0));
    }
}
