//! A recording as files: a LeoReplayer pair, a table with loss, and a summary.

use std::{
    io::{self, Write},
    time::Duration,
};

use starhaul_link::{LossSeries, OPPORTUNITY_BYTES, Opportunities};

use crate::{DelaySource, Direction, LossEstimate, Recording};

const DELAY_STEP: Duration = Duration::from_millis(10);
const TABLE_STEP: Duration = Duration::from_millis(50);

/// The summary of a recording, for people and programs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Summary {
    /// Direction of the heavy flow.
    pub direction: Direction,
    /// The server's address as given.
    pub server: String,
    /// The wall clock at the start of the trace, milliseconds since 1970.
    pub started_unix_ms: u128,
    /// Duration of the trace in seconds.
    pub seconds: f64,
    /// Whether the recording was completed; otherwise it was interrupted.
    pub complete: bool,
    /// Mean capacity in Mbit/s, IP headers included.
    pub mean_capacity_mbit: f64,
    /// Capacity of each whole second in Mbit/s.
    pub capacity_mbit: Vec<f64>,
    /// Seconds in which the link was perhaps not saturated, as no queue dropped packets. The capacity may be greater
    /// there.
    pub unsaturated_seconds: Vec<u32>,
    /// Whether `--max-rate` is the likely reason.
    pub limited_by_max_rate: bool,
    /// The rate limit of the heavy flow, in Mbit/s.
    pub max_rate_mbit: f64,
    /// Source of the delay.
    pub delay_source: DelaySource,
    /// Least, median and greatest one-way delay in milliseconds.
    pub delay_ms: [f64; 3],
    /// Intervals longer than 45 ms without capacity: start and length in seconds.
    pub outages_s: Vec<(f64, f64)>,
    /// Random loss of this direction.
    pub loss: LossEstimate,
    /// The loss as a setting of a link; `None` if it could not be measured.
    pub loss_setting: Option<String>,
    /// Packets of the light flow.
    pub light_packets: u64,
    /// Packets of the light flow without an answer, lost in either direction.
    pub light_lost: u64,
    /// Additional delay of packets behind the full queue, in milliseconds.
    pub queue_ms: f64,
    /// Milliseconds without feedback about arrivals.
    pub missing_ms: u128,
}

impl Recording {
    /// The summary of the recording.
    pub fn summary(&self) -> Summary {
        let capacity = &self.trace.capacity;
        let period = capacity.period();
        let delays = self.steps(DELAY_STEP).map(|at| self.delay_ms(at));
        let mut delays: Vec<f64> = delays.collect();
        delays.sort_by(f64::total_cmp);
        let delay = |index: usize| delays.get(index).copied().unwrap_or(0.0);
        let seconds =
            |(start, length): (Duration, Duration)| (start.as_secs_f64(), length.as_secs_f64());
        Summary {
            direction: self.begin.direction,
            server: self.begin.server.clone(),
            started_unix_ms: u128::from(self.begin.started_unix_ms) + self.started.as_millis(),
            seconds: period.as_secs_f64(),
            complete: self.complete,
            mean_capacity_mbit: capacity.mean_rate().mbit(),
            capacity_mbit: (0..period.as_secs())
                .map(|second| {
                    rate_mbit(
                        capacity,
                        Duration::from_secs(second),
                        Duration::from_secs(1),
                    )
                })
                .collect(),
            unsaturated_seconds: self.unsaturated_seconds.clone(),
            limited_by_max_rate: self.is_limited(),
            max_rate_mbit: self.begin.max_rate.mbit(),
            delay_source: self.delay_source,
            delay_ms: [
                delay(0),
                delay(delays.len() / 2),
                delay(delays.len().saturating_sub(1)),
            ],
            outages_s: capacity.outages().into_iter().map(seconds).collect(),
            loss: self.loss,
            loss_setting: self.loss.setting(),
            light_packets: self.light.0,
            light_lost: self.light.1,
            queue_ms: self.queue.as_secs_f64() * 1e3,
            missing_ms: self.missing.as_millis(),
        }
    }

    /// Writes the capacity in the format of mahimahi and LeoReplayer.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_capacity(&self, out: impl Write) -> io::Result<()> {
        starhaul_link::write_capacity(&self.trace.capacity, out)
    }

    /// Writes the delays in the format of LeoReplayer.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_delay(&self, out: impl Write) -> io::Result<()> {
        match &self.trace.delay {
            Some(delay) => starhaul_link::write_delay(delay, out),
            None => Ok(()),
        }
    }

    /// Writes a table with loss, in steps of 50 ms.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_table(&self, out: impl Write) -> io::Result<()> {
        let measured = (self.loss.packets > 0).then_some(self.loss.share);
        let loss = measured
            .and_then(|loss| LossSeries::from_steps([(self.trace.capacity.period(), loss)]));
        let trace = match loss {
            Some(loss) => self.trace.clone().with_loss(loss),
            None => self.trace.clone(),
        };
        starhaul_link::write_csv(&trace.into(), TABLE_STEP, out)
    }

    fn steps(&self, step: Duration) -> impl Iterator<Item = Duration> {
        let end = self.trace.capacity.period();
        std::iter::successors(Some(Duration::ZERO), move |at| Some(*at + step))
            .take_while(move |at| *at < end)
    }

    fn delay_ms(&self, at: Duration) -> f64 {
        let delay = self.trace.delay.as_ref().map(|series| series.at(at));
        delay.unwrap_or_default().as_secs_f64() * 1e3
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one step")]
fn rate_mbit(capacity: &Opportunities, from: Duration, time: Duration) -> f64 {
    let count = capacity.until(from + time) - capacity.until(from);
    (count * OPPORTUNITY_BYTES * 8) as f64 / time.as_secs_f64() / 1e6
}
