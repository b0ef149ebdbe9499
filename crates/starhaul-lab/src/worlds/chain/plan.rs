//! Links between nodes, and flows over them whose paths change over time.

use std::{collections::BTreeMap, net::SocketAddr, ops::Range, sync::Arc, time::Duration};

use starhaul_link::{Delay, LinkSpec, Loss, QueueLimit, Rate};
use starhaul_sim::{LinkId, Load, Network};
use starhaul_units::Bandwidth;

use crate::Error;

/// A link between two nodes, as the data pass it; the way back is as fast and as long, and loses nothing.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Its rate, with all headers.
    pub rate: Rate,
    /// Delay of one direction.
    pub delay: Delay,
    /// Share of the packets that are lost, if as many leave as the rate allows at each time.
    pub loss: f64,
    /// Its queue, in packets.
    pub queue: usize,
    /// All of the link, if it was described as one: then loss and queue are its own.
    pub link: Option<Arc<LinkSpec>>,
}

/// A transfer over the chain.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The content; flows of one content fetch the same.
    pub content: u64,
    /// When the transfer begins, from the start of the run.
    pub start: Duration,
    /// From when on it takes which nodes, from the responder to the requester. The first is at 0.
    pub path: Vec<(Duration, Vec<usize>)>,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Links by the nodes that they join, in the direction of the data.
    pub hops: BTreeMap<(usize, usize), Hop>,
    /// Transfers over these hops.
    pub flows: Vec<Flow>,
    /// Bytes of a content; `None`: more than can be sent.
    pub bytes: Option<u64>,
    /// When the run ends at the latest.
    pub time: Duration,
}

impl Hop {
    /// A link of so many Mbit/s and ms that loses a share, with a queue of 200 packets.
    pub fn new(mbit: u64, delay_ms: u64, loss: f64) -> Self {
        Self {
            rate: Rate::Constant(Bandwidth::from_mbit(mbit)),
            delay: Delay::Constant(Duration::from_millis(delay_ms)),
            loss,
            queue: 200,
            link: None,
        }
    }

    /// A link as described.
    pub fn of_link(link: LinkSpec) -> Self {
        Self {
            rate: link.rate.clone(),
            delay: link.delay.clone(),
            loss: mean_loss(&link),
            link: Some(Arc::new(link)),
            ..Self::new(0, 0, 0.0)
        }
    }

    fn specs(&self) -> Result<[LinkSpec; 2], Error> {
        if let Some(link) = &self.link {
            let link = LinkSpec::clone(link);
            return Ok([link.clone(), link.with_loss(Loss::NONE)]);
        }
        let failed = |error: starhaul_link::Error| Error::Failed(error.to_string());
        let loss = Loss::bernoulli(self.loss).map_err(failed)?;
        let link = LinkSpec {
            rate: self.rate.clone(),
            delay: self.delay.clone(),
            ..LinkSpec::default()
        };
        let link = link.with_queue(QueueLimit::Packets(self.queue));
        Ok([link.clone().with_loss(loss), link])
    }
}

impl Plan {
    /// One transfer over a chain of equal or different hops.
    pub fn chain(hops: &[Hop], time: Duration) -> Self {
        let links = hops
            .iter()
            .enumerate()
            .map(|(at, hop)| ((at, at + 1), hop.clone()));
        Self {
            hops: links.collect(),
            flows: vec![Flow {
                content: 1,
                start: Duration::ZERO,
                path: vec![(Duration::ZERO, (0..=hops.len()).collect())],
            }],
            bytes: None,
            time,
        }
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.hops
            .keys()
            .map(|(a, b)| a.max(b) + 1)
            .max()
            .unwrap_or(0)
    }

    /// Adds the links to a network: the one of each hop for data, and the one back.
    pub(super) fn links<P: Load>(
        &self,
        network: &mut Network<P>,
    ) -> Result<BTreeMap<(usize, usize), [LinkId; 2]>, Error> {
        let add = |(&nodes, hop): (&(usize, usize), &Hop)| {
            let specs = hop.specs()?;
            Ok((nodes, specs.map(|spec| network.add_link(&spec))))
        };
        self.hops.iter().map(add).collect()
    }

    /// How long a path takes one way at an instant after the start, without queues.
    pub(super) fn delay(&self, path: &[usize], at: Duration) -> Duration {
        let hops = path
            .windows(2)
            .filter_map(|pair| self.hops.get(&(pair[0], pair[1])));
        let delay = |hop: &Hop| match &hop.delay {
            Delay::Constant(delay) => *delay,
            Delay::Trace(series) => series.at(at),
        };
        hops.map(delay).sum()
    }

    /// Every instant at which the path of a flow changes.
    pub(super) fn changes(&self) -> Vec<Duration> {
        let mut changes: Vec<Duration> = self
            .flows
            .iter()
            .flat_map(|flow| flow.path.iter().map(|(at, _)| *at))
            .collect();
        changes.sort_unstable();
        changes.dedup();
        changes
    }

    /// Bytes of a content: as many as were asked for, or more than its widest link carries.
    pub(super) fn content_bytes(&self) -> u64 {
        let most = Bandwidth::from_mbit(1000);
        self.bytes.unwrap_or_else(|| most.bytes_in(self.time))
    }
}

impl Flow {
    /// The path at an instant after the start.
    pub fn path_at(&self, at: Duration) -> &[usize] {
        let past = self.path.iter().take_while(|(from, _)| *from <= at);
        past.last()
            .or(self.path.first())
            .map_or(&[], |(_, path)| path)
    }
}

/// The share of packets that a link loses in the mean while it is always busy: where it loses more when it carries more, more packets are lost.
fn mean_loss(link: &LinkSpec) -> f64 {
    let mean = link.loss.mean();
    let Some(series) = &link.loss_trace else {
        return mean;
    };
    let over_time = match &link.rate {
        Rate::Trace(rate) if rate.period() == series.period() => {
            let count = |packets: u64| f64::from(u32::try_from(packets).unwrap_or(u32::MAX));
            let lost = |(span, loss): (Range<Duration>, f64)| {
                loss * count(rate.until(span.end) - rate.until(span.start))
            };
            series.steps().map(lost).sum::<f64>() / count(rate.per_period()).max(1.0)
        }
        _ => series.mean(),
    };
    // By either of two independent causes.
    mean + over_time * (1.0 - mean)
}

/// The address of a node's socket.
pub(super) fn address(node: usize, socket: u16) -> SocketAddr {
    let [high, low, ..] = u16::try_from(node).unwrap_or(u16::MAX).to_be_bytes();
    ([10, 0, high, low], 1 + socket).into()
}
