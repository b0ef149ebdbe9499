//! What the packets of a run tell: the log of each one, and the course of throughput and delay, made on a thread that
//! nothing waits for.

use std::{
    fmt::Write as _,
    io::{self, Write},
    sync::mpsc::Receiver,
    time::Duration,
};

use starhaul_link::LinkSpec;

use super::forward::{Batch, Fate, Record};
use crate::Histogram;

/// Bins of a course; when a run needs more, two become one.
const MAX_BINS: usize = 4096;
const FIRST_BIN: Duration = Duration::from_millis(20);

/// What one direction's packets did, over time.
#[derive(Clone, Debug)]
pub struct Course {
    /// Time that each of the bins covers.
    pub bin: Duration,
    /// From the start of the run.
    pub bins: Vec<Bin>,
}

/// A stretch of time in a [`Course`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Packets that arrived at the far end.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that were dropped, for whatever reason.
    pub dropped: u64,
    /// Sum of the delays of those that arrived, from when they came to the link.
    pub delay_sum: Duration,
    /// The shortest of these delays.
    pub delay_min: Option<Duration>,
    /// The longest.
    pub delay_max: Duration,
}

/// One direction as its packets showed it.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    pub(super) course: Course,
    pub(super) delay: Histogram,
    pub(super) queueing: Histogram,
    /// Bytes delivered in each second.
    pub(super) seconds: Vec<u64>,
}

/// How a direction is called in the log.
#[derive(Clone)]
pub(super) struct Label {
    pub(super) link: String,
    pub(super) direction: &'static str,
    pub(super) spec: LinkSpec,
}

/// Reads batches until the last sender is gone. The second value is what went wrong with the log, if anything.
pub(super) fn collect(
    batches: &Receiver<Batch>,
    labels: &[Label],
    mut log: Option<Box<dyn Write + Send>>,
) -> (Vec<Collected>, Option<io::Error>) {
    let mut collected: Vec<_> = labels.iter().map(|_| Collected::new()).collect();
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
        Fate::Delivered => "delivered",
        Fate::Copy => "copy",
        Fate::Queue => "queue",
        Fate::Codel => "codel",
        Fate::Loss => "loss",
        Fate::Outage => "outage",
        Fate::Unfinished => "unfinished",
    };
    let sent = record.sent.map(|sent| format!("{:.6}", sent.as_secs_f64()));
    let sent = sent.as_deref().unwrap_or("-");
    // A `String` takes all.
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
    fn new() -> Self {
        Self {
            course: Course {
                bin: FIRST_BIN,
                bins: Vec::new(),
            },
            delay: Histogram::default(),
            queueing: Histogram::default(),
            seconds: Vec::new(),
        }
    }

    fn add(&mut self, record: &Record) {
        let bytes = u64::from(record.bytes);
        match record.fate {
            Fate::Unfinished => {}
            Fate::Queue | Fate::Codel | Fate::Loss | Fate::Outage => {
                if let Some(bin) = self.course.at(record.left) {
                    bin.dropped += 1;
                }
            }
            Fate::Delivered | Fate::Copy => {
                let took = record.left.saturating_sub(record.arrived);
                // When it was due, so that the figures are those of the link and not of this computer.
                let due = record.left.saturating_sub(record.late);
                self.delay.record(took);
                if let (false, Some(sent)) = (record.icmp, record.sent) {
                    self.queueing.record(sent.saturating_sub(record.arrived));
                }
                if let Some(bin) = self.course.at(due) {
                    bin.delivered += 1;
                    bin.delivered_bytes += bytes;
                    bin.delay_sum += took;
                    bin.delay_min = Some(bin.delay_min.map_or(took, |least| least.min(took)));
                    bin.delay_max = bin.delay_max.max(took);
                }
                let second = usize::try_from(due.as_secs()).unwrap_or(usize::MAX);
                if second < crate::MAX_SECONDS {
                    if self.seconds.len() <= second {
                        self.seconds.resize(second + 1, 0);
                    }
                    if let Some(sum) = self.seconds.get_mut(second) {
                        *sum += bytes;
                    }
                }
            }
        }
    }
}

impl Course {
    /// The bin at `offset`, which may make the bins wider.
    fn at(&mut self, offset: Duration) -> Option<&mut Bin> {
        let index = loop {
            let index = offset.as_nanos() / self.bin.as_nanos().max(1);
            match usize::try_from(index) {
                Ok(index) if index < MAX_BINS => break index,
                _ => self.widen(),
            }
        };
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        self.bins.get_mut(index)
    }

    fn widen(&mut self) {
        self.bin = self.bin.saturating_mul(2);
        let pairs = self.bins.chunks(2);
        self.bins = pairs
            .map(|pair| pair.iter().copied().reduce(Bin::join).unwrap_or_default())
            .collect();
    }
}

impl Bin {
    fn join(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            dropped: self.dropped + other.dropped,
            delay_sum: self.delay_sum + other.delay_sum,
            delay_min: [self.delay_min, other.delay_min]
                .into_iter()
                .flatten()
                .min(),
            delay_max: self.delay_max.max(other.delay_max),
        }
    }
}
