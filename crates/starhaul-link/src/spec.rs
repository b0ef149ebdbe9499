//! The description of one direction of a link, as a value and as text.

use std::{ops::Range, sync::Arc, time::Duration};

use starhaul_units::Bandwidth;

use crate::{
    Codel, DelaySeries, Error, Loss, LossSeries, Opportunities, Recording, Trace, text::setting,
};

/// The sending rate of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// A constant rate; zero sends nothing, [`Bandwidth::MAX`] takes no time.
    Constant(Bandwidth),
    /// The delivery opportunities of a trace.
    Trace(Arc<Opportunities>),
}

/// The one-way delay of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// A constant delay.
    Constant(Duration),
    /// A delay that depends on the instant of sending.
    Trace(Arc<DelaySeries>),
}

/// The bound of a queue, without the packet being sent; packets beyond it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// A bound in packets.
    Packets(usize),
    /// A bound in bytes.
    Bytes(usize),
}

/// Reordering: some packets are held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The share of packets held back, 0 to 1.
    pub fraction: f64,
    /// The additional delay of these packets.
    pub extra: Duration,
}

/// One direction of a link.
///
/// As text, comma-separated settings: `rate=50mbit,delay=25ms,loss=ge:1%:5,queue=500p`, `bw=FILE,delay=FILE,loss=0.2%`,
/// `csv=FILE`, `synth=leo,seed=3`.
///
/// | setting | value |
/// |---|---|
/// | `rate` | a [`Bandwidth`]; with `synth`, the model's mean rate; none at all means no limit |
/// | `bw` | mahimahi or LeoReplayer capacity file |
/// | `csv` | table of capacity and delay, see [`crate::parse_csv`] |
/// | `synth` | `leo`, `geo` or `cellular`: a [`crate::LeoModel`], [`crate::GeoModel`] or [`crate::CellularModel`] |
/// | `seed` | of `synth`, default 0 |
/// | `delay` | one way: a time, or else a LeoReplayer delay file; replaces that of `csv` and `synth`; default 0 |
/// | `jitter` | adds a random time from 0 to this |
/// | `loss` | a [`Loss`]: `0.2%`, `ge:1%:5`; replaces that of `csv` and `synth` |
/// | `queue` | `500p` (packets, the default) or `64000b` (bytes); `codel`, `codel:500p`, `codel:64000b` for [`Codel`] |
/// | `target`, `interval` | of `queue=codel`, as times; default 5 ms and 100 ms |
/// | `icmp` | `band` (the default): ICMP has a [`crate::Band`] of its own; `queue`: it waits in the data queue |
/// | `reorder` | `FRACTION%:EXTRA`, for example `1%:20ms` |
/// | `duplicate` | the share of packets that arrive twice |
/// | `outage` | `FROM..TO` since the start, for example `10s..12s`; may be repeated |
///
/// Each but `outage` is given once at most. Capacity and delay repeat together, see [`Trace::new`]. File names cannot
/// hold a comma.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// The sending rate.
    pub rate: Rate,
    /// One-way delay of propagation.
    pub delay: Delay,
    /// Greatest random addition to the delay, evenly distributed; packets keep their order.
    pub jitter: Duration,
    /// The bound of the queue.
    pub queue: QueueLimit,
    /// CoDel settings of the queue; droptail if `None`.
    pub codel: Option<Codel>,
    /// Whether ICMP has a band of its own, see [`crate::Band`]; otherwise it waits in the data queue.
    pub icmp_band: bool,
    /// Random loss of packets.
    pub loss: Loss,
    /// Random loss over time, in addition.
    pub loss_trace: Option<Arc<LossSeries>>,
    /// Packets that are delayed, so that later ones overtake them.
    pub reorder: Option<Reorder>,
    /// The share of packets that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Outages of the link after its start: [from, to) each.
    pub outages: Vec<Range<Duration>>,
}

impl Default for LinkSpec {
    /// A link without rate limit, delay or loss; a queue of 500 packets.
    fn default() -> Self {
        Self {
            rate: Rate::Constant(Bandwidth::MAX),
            delay: Delay::Constant(Duration::ZERO),
            jitter: Duration::ZERO,
            queue: QueueLimit::Packets(500),
            codel: None,
            icmp_band: true,
            loss: Loss::NONE,
            loss_trace: None,
            reorder: None,
            duplicate: 0.0,
            outages: Vec::new(),
        }
    }
}

impl LinkSpec {
    /// A link of constant rate and one-way delay, otherwise as the default.
    pub fn constant(rate: Bandwidth, delay: Duration) -> Self {
        Self {
            rate: Rate::Constant(rate),
            delay: Delay::Constant(delay),
            ..Self::default()
        }
    }

    /// A link as recorded or modelled, otherwise as the default.
    pub fn from_trace(trace: Trace) -> Self {
        Self {
            rate: Rate::Trace(trace.capacity),
            delay: trace
                .delay
                .map_or(Delay::Constant(Duration::ZERO), Delay::Trace),
            loss_trace: trace.loss,
            ..Self::default()
        }
    }

    /// The description with this random loss in place of all others. Times at which all is lost stay: there is no path then,
    /// whatever else is lost.
    pub fn with_loss(self, loss: Loss) -> Self {
        Self {
            loss,
            loss_trace: self.loss_trace.and_then(|series| series.only_total()),
            ..self
        }
    }

    /// The description with this bound of the queue.
    pub fn with_queue(self, queue: QueueLimit) -> Self {
        Self { queue, ..self }
    }
}

impl Recording {
    /// The recording that a description gives; constant values last for `duration`, or as long as the values that change. A capacity without limit is
    /// missing; of random loss it has the mean, in addition to that over time. Jitter, reordering, duplicates, the queue, bursts of
    /// loss and outages of the description are not part of a recording.
    ///
    /// # Errors
    /// [`Error`] for a rate that makes no trace.
    pub fn of_spec(spec: &LinkSpec, duration: Duration) -> Result<Self, Error> {
        let delays = match &spec.delay {
            Delay::Trace(series) => Some(series.period()),
            Delay::Constant(_) => None,
        };
        let losses = spec.loss_trace.as_ref().map(|series| series.period());
        let duration = delays.max(losses).unwrap_or(duration);
        let capacity = match &spec.rate {
            Rate::Trace(trace) => Some(Arc::clone(trace)),
            Rate::Constant(starhaul_units::Bandwidth::MAX) => None,
            Rate::Constant(rate) => {
                let trace = Opportunities::from_rates([(duration, *rate)])
                    .map_err(|why| setting("rate", &rate.to_string(), why))?;
                Some(Arc::new(trace))
            }
        };
        let delay = match &spec.delay {
            Delay::Trace(series) => Some(Arc::clone(series)),
            Delay::Constant(delay) => DelaySeries::from_steps([(duration, *delay)]).map(Arc::new),
        };
        let lasts = losses.unwrap_or(duration);
        let mean = spec.loss.mean();
        let mean_loss = (losses.is_none() || mean > 0.0)
            .then(|| LossSeries::from_steps([(lasts, mean)]))
            .flatten();
        let recording = Self {
            capacity: None,
            delay,
            loss: spec.loss_trace.clone(),
        };
        let recording = recording.and_loss(mean_loss.map(Arc::new));
        match capacity {
            Some(capacity) => recording.with_capacity(Arc::unwrap_or_clone(capacity)),
            None => Ok(recording),
        }
    }
}
