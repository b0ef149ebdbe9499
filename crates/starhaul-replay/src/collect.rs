//! The per-packet log of a run, and its time series of throughput and delay, made on a thread without deadlines.

use std::{
    fmt::Write as _,
    io::{self, Write},
    sync::mpsc::Receiver,
    time::Duration,
};

use starhaul_link::{Cause, Histogram, LinkSpec, Passage};

use crate::forward::{Batch, PacketFate, Record};

/// Greatest number of bins of a time series; for longer runs two become one.
const MAX_BINS: usize = 4096;
const FIRST_BIN: Duration = Duration::from_millis(20);
/// Greatest number of delay distributions of a time series.
const MAX_DELAY_BINS: usize = 700;
const FIRST_DELAY_BIN: Duration = Duration::from_millis(100);

/// Time series of the packets of one direction.
#[derive(Clone, Debug)]
pub struct TimeSeries {
    /// Time covered by each bin.
    pub bin: Duration,
    /// Bins from the start of the run.
    pub bins: Vec<Bin>,
    /// Time covered by each delay distribution: a multiple of [`TimeSeries::bin`].
    pub delay_bin: Duration,
    /// Delays of the packets that arrived, from the start of the run.
    pub delays: Vec<Histogram>,
}

/// An interval of a [`TimeSeries`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Packets that arrived at the far end.
    pub delivered: u64,
    /// Bytes of these packets.
    pub delivered_bytes: u64,
    /// Packets that were dropped for any cause.
    pub dropped: u64,
    /// Dropped packets for which the queue had no room, or that CoDel dropped.
    pub dropped_queue: u64,
    /// Dropped packets due to an outage; the others were lost at random.
    pub dropped_outage: u64,
    /// Sum of the delays of the packets that arrived, from their arrival at the link.
    pub delay_sum: Duration,
    /// The shortest of these delays.
    pub delay_min: Option<Duration>,
    /// The longest of these delays.
    pub delay_max: Duration,
}

/// The collected data of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Collected {
    pub(crate) series: TimeSeries,
    pub(crate) delay: Histogram,
    pub(crate) queueing: Histogram,
    /// The packets that arrived, if they are kept.
    pub(crate) passages: Option<Vec<Passage>>,
}

/// The name of a direction in the log.
#[derive(Clone)]
pub(crate) struct Label {
    pub(crate) link: String,
    pub(crate) direction: &'static str,
    pub(crate) spec: LinkSpec,
    pub(crate) seed: u64,
}

/// Reads batches until the last sender is gone. The second value is the error of the log, if any.
pub(crate) fn collect(
    batches: &Receiver<Batch>,
    labels: &[Label],
    mut log: Option<Box<dyn Write + Send>>,
    keep_passages: bool,
) -> (Vec<Collected>, Option<io::Error>) {
    let mut collected: Vec<_> = labels
        .iter()
        .map(|_| Collected::new(keep_passages))
        .collect();
    let mut failure = None;
    if let Some(out) = &mut log {
        failure = out.write_all(COLUMNS.as_bytes()).err();
    }
    let mut text = String::new();
    for batch in batches {
        let direction = labels
            .get(batch.direction)
            .zip(collected.get_mut(batch.direction));
        let Some((label, collected)) = direction else {
            continue;
        };
        for record in &batch.records {
            collected.add(record);
        }
        if let (Some(out), None) = (&mut log, &failure) {
            text.clear();
            for record in &batch.records {
                line(&mut text, label, record);
            }
            failure = out.write_all(text.as_bytes()).err();
        }
    }
    if let (Some(out), None) = (&mut log, &failure) {
        failure = out.flush().err();
    }
    (collected, failure)
}

const COLUMNS: &str = "\
# times are seconds since the start of the command: a packet arrived at the link, its last byte was sent, and it left the
# link at the far end or was dropped; until it was sent it waited, from then on it travelled
# fate: delivered, copy (the second of one delivered), queue (full), codel, loss (random), outage (link down), unfinished
# bytes count the whole IP packet; late_us: how much later than due it left
link\tdirection\tpacket\tarrived_s\tsent_s\tleft_s\tbytes\tprotocol\tfate\tlate_us
";

fn line(text: &mut String, label: &Label, record: &Record) {
    let protocol = if record.icmp { "icmp" } else { "-" };
    let fate = match record.fate {
        PacketFate::Delivered => "delivered",
        PacketFate::Copy => "copy",
        PacketFate::Dropped(Cause::Queue) => "queue",
        PacketFate::Dropped(Cause::Codel) => "codel",
        PacketFate::Dropped(Cause::Loss) => "loss",
        PacketFate::Dropped(Cause::Outage) => "outage",
        PacketFate::Unfinished => "unfinished",
    };
    let sent = record.sent.map(|sent| format!("{:.6}", sent.as_secs_f64()));
    let sent = sent.as_deref().unwrap_or("-");
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        text,
        "{}\t{}\t{}\t{:.6}\t{sent}\t{:.6}\t{}\t{protocol}\t{fate}\t{}",
        label.link,
        label.direction,
        record.number,
        record.arrived.as_secs_f64(),
        record.left.as_secs_f64(),
        record.bytes,
        record.late.as_micros()
    );
}

impl Collected {
    fn new(keep_passages: bool) -> Self {
        Self {
            series: TimeSeries {
                bin: FIRST_BIN,
                bins: Vec::new(),
                delay_bin: FIRST_DELAY_BIN,
                delays: Vec::new(),
            },
            delay: Histogram::default(),
            queueing: Histogram::default(),
            passages: keep_passages.then(Vec::new),
        }
    }

    fn add(&mut self, record: &Record) {
        let bytes = u64::from(record.bytes);
        match record.fate {
            PacketFate::Unfinished => {}
            PacketFate::Dropped(cause) => {
                if let Some(bin) = self.series.at(record.left) {
                    bin.dropped += 1;
                    bin.dropped_queue += u64::from(matches!(cause, Cause::Queue | Cause::Codel));
                    bin.dropped_outage += u64::from(cause == Cause::Outage);
                }
                // Both series cover the same time: one's bins are a multiple of the other's.
                _ = self.series.delays_at(record.left);
            }
            PacketFate::Delivered | PacketFate::Copy => {
                let took = record.left.saturating_sub(record.arrived);
                // When it was due, so that the figures are those of the link and not of this computer.
                let due = record.left.saturating_sub(record.late);
                self.delay.record(took);
                if let (false, Some(sent)) = (record.icmp, record.sent) {
                    let waited = sent.saturating_sub(record.arrived);
                    self.queueing.record(waited);
                    if let Some(passages) = &mut self.passages {
                        passages.push(Passage {
                            at: due,
                            bytes: record.bytes.try_into().unwrap_or(usize::MAX),
                            waited,
                            took: due.saturating_sub(record.arrived),
                        });
                    }
                }
                if let Some(bin) = self.series.at(due) {
                    bin.delivered += 1;
                    bin.delivered_bytes += bytes;
                    bin.delay_sum += took;
                    bin.delay_min = Some(bin.delay_min.map_or(took, |least| least.min(took)));
                    bin.delay_max = bin.delay_max.max(took);
                }
                if let Some(delays) = self.series.delays_at(due) {
                    delays.record(took);
                }
            }
        }
    }
}

impl TimeSeries {
    /// The bin at `offset`, which may widen the bins.
    fn at(&mut self, offset: Duration) -> Option<&mut Bin> {
        place(&mut self.bin, &mut self.bins, MAX_BINS, Bin::join, offset)
    }

    fn delays_at(&mut self, offset: Duration) -> Option<&mut Histogram> {
        let (width, delays) = (&mut self.delay_bin, &mut self.delays);
        place(width, delays, MAX_DELAY_BINS, Histogram::merge, offset)
    }
}

/// The value at `offset`, of at most a given number that cover `width` each: beyond it, each two become one.
fn place<'a, T: Default>(
    width: &mut Duration,
    values: &'a mut Vec<T>,
    most: usize,
    join: fn(&mut T, &T),
    offset: Duration,
) -> Option<&'a mut T> {
    let index = loop {
        let index = offset.as_nanos() / width.as_nanos().max(1);
        match usize::try_from(index) {
            Ok(index) if index < most => break index,
            _ => {
                *width = width.saturating_mul(2);
                let mut halves = std::mem::take(values).into_iter();
                while let Some(mut first) = halves.next() {
                    if let Some(second) = halves.next() {
                        join(&mut first, &second);
                    }
                    values.push(first);
                }
            }
        }
    };
    if values.len() <= index {
        values.resize_with(index + 1, T::default);
    }
    values.get_mut(index)
}

impl Bin {
    fn join(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.dropped += other.dropped;
        self.dropped_queue += other.dropped_queue;
        self.dropped_outage += other.dropped_outage;
        self.delay_sum += other.delay_sum;
        self.delay_min = [self.delay_min, other.delay_min]
            .into_iter()
            .flatten()
            .min();
        self.delay_max = self.delay_max.max(other.delay_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: Duration, took: Duration, fate: PacketFate) -> Record {
        Record {
            number: 1,
            arrived: at.saturating_sub(took),
            sent: Some(at),
            left: at,
            late: Duration::ZERO,
            bytes: 1500,
            icmp: false,
            fate,
        }
    }

    #[test]
    fn a_long_run_has_wider_bins_and_loses_no_packet() {
        let mut collected = Collected::new(false);
        let step = Duration::from_millis(10);
        for number in 0..100_000 {
            let took = Duration::from_millis(if number % 10 == 0 { 40 } else { 20 });
            collected.add(&record(step * number, took, PacketFate::Delivered));
        }
        for cause in [Cause::Queue, Cause::Codel, Cause::Loss, Cause::Outage] {
            collected.add(&record(step, Duration::ZERO, PacketFate::Dropped(cause)));
        }
        let series = collected.series;
        assert!(series.bins.len() <= MAX_BINS && series.delays.len() <= MAX_DELAY_BINS);
        let delivered: u64 = series.bins.iter().map(|bin| bin.delivered).sum();
        let delays: u64 = series.delays.iter().map(Histogram::count).sum();
        assert_eq!((delivered, delays), (100_000, 100_000));
        let dropped = series.bins[0];
        let dropped = (
            dropped.dropped,
            dropped.dropped_queue,
            dropped.dropped_outage,
        );
        assert_eq!(dropped, (4, 2, 1));
        // In whole bins of both kinds, so that their charts align.
        assert_eq!(series.delay_bin.as_nanos() % series.bin.as_nanos(), 0);
        let median = series.delays[100].quantile(0.5).as_secs_f64();
        assert!((0.020..0.021).contains(&median), "{median}");
    }

    #[test]
    fn what_is_lost_at_the_end_widens_the_bins_of_both_kinds() {
        let mut collected = Collected::new(false);
        let took = Duration::from_millis(20);
        collected.add(&record(
            Duration::from_secs(60),
            took,
            PacketFate::Delivered,
        ));
        let dropped = PacketFate::Dropped(Cause::Outage);
        collected.add(&record(Duration::from_secs(90), Duration::ZERO, dropped));
        let series = collected.series;
        assert_eq!(series.delay_bin.as_nanos() % series.bin.as_nanos(), 0);
    }
}
