//! How fast this computer carries LTP over loopback by the size of segments and the system calls, beside raw UDP by the same calls; and
//! where the processor time of a segment goes. What is measured, and how, is that of `starhaul ltp bench`.

use std::time::Duration;

use starhaul_ltp::{Profile, SegmentSize};
use starhaul_net::IoMode;
use starhaul_plot::Column;
use starhaul_replay::NetworkNamespace;
use starhaul_transfer::bench::{self, Alone, Ceiling, Row, alone};

use crate::Error;

/// Sizes of HDTN's and ION's figures, one that fills a packet of Ethernet, and that of HDTN's fastest.
const SIZES: [usize; 6] = [1360, 2800, 4400, 8192, 16_000, 64_000];
const FEW_SIZES: [usize; 3] = [1360, 16_000, 64_000];
/// Where a segment's time goes: in a packet of Ethernet, and in as much as a datagram can have.
const COST_SIZES: [usize; 2] = [1360, 64_000];
const BLOCK_BYTES: usize = 300_000_000;
const FEW_BLOCK_BYTES: usize = 30_000_000;
const REPEATS: usize = 5;

/// A block over loopback.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Bytes of data per segment.
    pub segment: SegmentSize,
    /// The system calls.
    pub mode: IoMode,
    /// The MTU of a loopback interface of its own; `None`: that of this computer as it is.
    pub mtu: Option<u32>,
    /// Bytes of the block.
    pub block_bytes: usize,
    /// How often it is sent, after one transfer that is not counted; the median counts.
    pub repeats: usize,
    /// Of the run; nothing here is random.
    pub seed: u64,
}

/// The rate at which an end sends or receives.
#[derive(Clone, Debug)]
pub struct Rate {
    setup: Speed,
    /// LTP or raw datagrams.
    pub what: &'static str,
    /// The MTU of loopback in bytes, if the system tells.
    pub mtu: Option<usize>,
    /// Bytes of data per segment, at the end if they adapt.
    pub segment_bytes: usize,
    /// Data until their sender knew that all had arrived; of raw datagrams, those that arrived.
    pub gbit_per_s: f64,
    /// Of the rate of raw datagrams.
    share: Option<f64>,
    /// Processor time per segment of the sending and the receiving thread.
    pub us_per_segment: [f64; 2],
    /// Segments that were sent and did not arrive.
    lost: Option<u64>,
}

/// Where the processor time of a segment goes at one end, in microseconds.
#[derive(Clone, Debug)]
pub struct Cost {
    setup: Speed,
    segment_bytes: usize,
    /// `send` or `receive`.
    pub end: &'static str,
    /// All of it.
    pub total: f64,
    /// In the system calls: what raw datagrams take.
    pub calls: f64,
    /// In the engine without the checksum.
    pub engine: f64,
    /// In the checksum of the block.
    pub checksum: f64,
}

/// Each size by each kind of system calls, and the size that follows the path.
pub fn speeds(quick: bool, seed: u64) -> Vec<Speed> {
    speeds_over(None, quick, seed)
}

/// The same over loopback with an MTU of HDTN's figure.
pub(super) fn speeds_at<const MTU: u32>(quick: bool, seed: u64) -> Vec<Speed> {
    speeds_over(Some(MTU), quick, seed)
}

/// Why this computer cannot measure at another MTU than its own, if it cannot.
pub(super) fn no_mtu() -> Option<String> {
    let refused = NetworkNamespace::create().err()?;
    Some(format!(
        "it needs a network namespace ({refused}): run it as root, or by unshare -r"
    ))
}

fn speeds_over(mtu: Option<u32>, quick: bool, seed: u64) -> Vec<Speed> {
    let sizes: &[usize] = if quick { &FEW_SIZES } else { &SIZES };
    let fixed = sizes.iter().map(|bytes| SegmentSize::Bytes(*bytes));
    let sizes = fixed.chain([SegmentSize::Auto]);
    setups(sizes.collect(), mtu, quick, seed)
}

/// A small and a large size by each kind of system calls.
pub fn costs(quick: bool, seed: u64) -> Vec<Speed> {
    let sizes = COST_SIZES.map(SegmentSize::Bytes).to_vec();
    setups(sizes, None, quick, seed)
}

fn setups(sizes: Vec<SegmentSize>, mtu: Option<u32>, quick: bool, seed: u64) -> Vec<Speed> {
    let (block_bytes, repeats) = match quick {
        true => (FEW_BLOCK_BYTES, 1),
        false => (BLOCK_BYTES, REPEATS),
    };
    let each = |mode: IoMode| {
        let of = move |segment: &SegmentSize| Speed {
            segment: *segment,
            mode,
            mtu,
            block_bytes,
            repeats,
            seed,
        };
        sizes.iter().map(of)
    };
    IoMode::ALL.into_iter().flat_map(each).collect()
}

/// The table of rates.
pub(super) fn columns() -> Vec<Column<Rate>> {
    vec![
        Column::name("mode", "calls", |row: &Rate| row.setup.mode.name().into()),
        Column::name("what", "what", |row: &Rate| row.what.into()),
        Column::count("mtu", "MTU", |row: &Rate| row.mtu.into()),
        Column::number("segment_bytes", "segment", "bytes", 0, |row: &Rate| {
            row.segment_bytes.into()
        }),
        Column::count("seed", "run", |row: &Rate| row.setup.seed.into()).dropped(),
        Column::number("gbps", "rate", "Gbit/s", 2, |row: &Rate| {
            row.gbit_per_s.into()
        })
        .median(),
        Column::share("of_raw", "of raw", 0, |row: &Rate| row.share.into()).median(),
        Column::number("send_us", "send", "us/segment", 2, |row: &Rate| {
            row.us_per_segment[0].into()
        })
        .median(),
        Column::number("receive_us", "receive", "us/segment", 2, |row: &Rate| {
            row.us_per_segment[1].into()
        })
        .median(),
        Column::count("lost", "lost", |row: &Rate| row.lost.into()).greatest(),
    ]
}

/// The table of costs.
pub(super) fn cost_columns() -> Vec<Column<Cost>> {
    let time = |key, name, of: fn(&Cost) -> f64| {
        Column::number(key, name, "us", 2, move |row: &Cost| of(row).into()).median()
    };
    vec![
        Column::name("end", "end", |row: &Cost| row.end.into()),
        Column::name("mode", "calls", |row: &Cost| row.setup.mode.name().into()),
        Column::number("segment_bytes", "segment", "bytes", 0, |row: &Cost| {
            row.segment_bytes.into()
        }),
        Column::count("seed", "run", |row: &Cost| row.setup.seed.into()).dropped(),
        time("total_us", "in all", |row| row.total),
        time("calls_us", "system calls", |row| row.calls).brief("calls"),
        time("engine_us", "engine", |row| row.engine),
        time("checksum_us", "checksum", |row| row.checksum),
        time("rest_us", "the rest", Cost::rest).brief("rest"),
    ]
}

impl Speed {
    /// Measures raw datagrams and LTP in turns.
    ///
    /// # Errors
    /// The received block is not the one that was sent, or the system refuses.
    pub fn run(&self) -> Result<Vec<Rate>, Error> {
        let (mtu, raw, ltp) = self.measure()?;
        let is_auto = self.segment == SegmentSize::Auto;
        let ours = Rate {
            setup: *self,
            what: if is_auto { "LTP, auto" } else { "LTP" },
            mtu,
            segment_bytes: ltp.segment_bytes,
            gbit_per_s: ltp.gbit_per_s,
            share: Some(ltp.share_of_ceiling),
            us_per_segment: [ltp.send_us_per_segment, ltp.receive_us_per_segment],
            lost: Some(ltp.lost),
        };
        let theirs = Rate {
            what: "raw UDP",
            segment_bytes: raw.segment_bytes,
            gbit_per_s: raw.gbit_per_s,
            share: None,
            us_per_segment: [raw.send_us_per_segment, raw.receive_us_per_segment],
            lost: None,
            ..ours.clone()
        };
        // The ceiling of the size that was chosen is told by its share.
        Ok(if is_auto {
            vec![ours]
        } else {
            vec![theirs, ours]
        })
    }

    /// Measures where the time of a segment goes, at either end.
    ///
    /// # Errors
    /// As [`Speed::run`].
    pub fn cost(&self) -> Result<Vec<Cost>, Error> {
        let (_, raw, ltp) = self.measure()?;
        let size = ltp.segment_bytes;
        let engines = |integrity| {
            let alone: Result<Alone, _> = alone(size, self.block_bytes, integrity, self.repeats);
            alone.map_err(failed)
        };
        let (plain, checked) = (engines(false)?, engines(true)?);
        let cost = |end, total, calls, of: fn(&Alone) -> f64| Cost {
            setup: *self,
            segment_bytes: size,
            end,
            total,
            calls,
            engine: of(&plain),
            checksum: of(&checked) - of(&plain),
        };
        Ok(vec![
            cost(
                "send",
                ltp.send_us_per_segment,
                raw.send_us_per_segment,
                |alone| alone.send_us_per_segment,
            ),
            cost(
                "receive",
                ltp.receive_us_per_segment,
                raw.receive_us_per_segment,
                |alone| alone.receive_us_per_segment,
            ),
        ])
    }

    /// The MTU of loopback, raw datagrams and LTP.
    fn measure(&self) -> Result<(Option<usize>, Ceiling, Row), Error> {
        let options = bench::Options {
            segment: self.segment,
            beside: Vec::new(),
            profile: Profile::default(),
            block_bytes: self.block_bytes,
            modes: vec![self.mode],
            repeats: self.repeats,
            least_time: Duration::ZERO,
        };
        let mut report = match self.mtu {
            None => bench::run(&options, |_| {}),
            Some(mtu) => {
                let namespace = NetworkNamespace::with_loopback(mtu)
                    .map_err(|error| Error::Failed(format!("a loopback of its own: {error}")))?;
                // All sockets are made by the thread inside, and by those that it starts.
                let measured = namespace.inside(|| Ok(bench::run(&options, |_| {})));
                measured.map_err(|error| Error::Failed(error.to_string()))?
            }
        }
        .map_err(failed)?;
        let both = report.ceilings.pop().zip(report.rows.pop());
        let (raw, ltp) = both.ok_or_else(|| Error::Failed("nothing was measured".into()))?;
        Ok((report.mtu, raw, ltp))
    }
}

impl Cost {
    /// What neither raw datagrams nor the engines by themselves take: the driver between them, waiting for memory that the other end's
    /// processor has, and whatever one of these takes less alone. Below zero where LTP needs fewer calls.
    pub fn rest(&self) -> f64 {
        self.total - self.calls - self.engine - self.checksum
    }
}

fn failed(error: starhaul_transfer::Error) -> Error {
    Error::Failed(error.to_string())
}
