//! LeoCC's model of the path since the last reconfiguration: two bandwidth estimates and the RTT with its band (LeoCC
//! §4.1.2, §4.2.1, eqs. 1–3), or the same as in the published code.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{LeoCcOptions, band::RttBand, mean_rate::MeanRate};
use crate::{
    delivery_rate::RateSample,
    filter::WindowedFilter,
    kalman::Kalman,
    limits::{real, window_bytes},
};

/// W_BW, in rounds.
const BANDWIDTH_WINDOW_ROUNDS: u64 = 10;
/// W_RT, the window of RTT samples.
const RTT_WINDOW: Duration = Duration::from_secs(20);
/// Noise of the published code's filters: variances of process, measurement and first estimate.
const CODE_NOISE: (f64, f64, f64) = (4.0, 4.0, 25.0);
/// Number of RTTs from which the published code takes its band's width.
const CODE_BAND_SAMPLES: usize = 100;
/// RTTs are filtered as means over this share of the least RTT: samples of one moment share their noise, so single ones
/// would look like changes of the RTT.
const RTT_MEAN_SHARE: f64 = 0.25;

/// The estimates bBW_a, bBW_m, bRTT_l, bRTT_h and bRTT_latest.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    options: LeoCcOptions,
    aggressive: WindowedFilter<Bandwidth, u64>,
    moderate: Kalman,
    moderate_raw: Option<Bandwidth>,
    mean_rate: MeanRate,
    latest: Kalman,
    latest_raw: Option<Duration>,
    mean: RttMean,
    band: RttBand,
    min_rtt: WindowedFilter<Duration, Instant>,
    /// The first RTTs, from which the published code takes the band's width.
    code_rtts: Vec<Duration>,
    code_width: Option<Duration>,
    since: Option<Instant>,
}

/// The mean of the RTT samples of one moment.
#[derive(Clone, Copy, Debug, Default)]
struct RttMean {
    since: Option<Instant>,
    sum: Duration,
    count: u32,
}

impl Estimate {
    pub(super) fn new(options: LeoCcOptions) -> Self {
        let filter = || {
            let (process, measurement, initial) = CODE_NOISE;
            if options.published_code {
                Kalman::fixed(process, measurement, initial)
            } else {
                Kalman::estimating()
            }
        };
        Self {
            options,
            aggressive: WindowedFilter::max(BANDWIDTH_WINDOW_ROUNDS),
            moderate: filter(),
            moderate_raw: None,
            mean_rate: MeanRate::default(),
            latest: filter(),
            latest_raw: None,
            mean: RttMean::default(),
            band: RttBand::new(RTT_WINDOW),
            min_rtt: WindowedFilter::min(RTT_WINDOW),
            code_rtts: Vec::new(),
            code_width: None,
            since: None,
        }
    }

    /// Discards all measurements before the reconfiguration at `now`, as in the paper.
    pub(super) fn discard(&mut self, now: Instant) {
        self.since = Some(now);
        self.aggressive = WindowedFilter::max(BANDWIDTH_WINDOW_ROUNDS);
        self.moderate.reset();
        self.discard_rtt(now);
    }

    /// Discards the RTTs only.
    pub(super) fn discard_rtt(&mut self, now: Instant) {
        if self.options.published_code {
            return;
        }
        self.latest.reset();
        self.mean = RttMean::default();
        self.band.reset(now);
        self.min_rtt = WindowedFilter::min(RTT_WINDOW);
    }

    /// Discards the greatest rates only, as in the published code.
    pub(super) fn discard_aggressive(&mut self) {
        self.aggressive = WindowedFilter::max(BANDWIDTH_WINDOW_ROUNDS);
    }

    /// Sets bBW_a = bBW_m = `rate` (LeoCC §4.2.2).
    pub(super) fn restart_from(&mut self, round: u64, rate: Bandwidth) {
        self.aggressive.update(round, rate);
        self.moderate.restart_from(real(rate.bits_per_second()));
        self.mean_rate.restart_from(rate);
        self.moderate_raw = Some(rate);
    }

    /// Raises bBW_m and the mean to a rate that the path has carried without a queue.
    pub(super) fn raise(&mut self, rate: Bandwidth) {
        if self.moderate().is_some_and(|moderate| moderate < rate) {
            self.moderate.restart_from(real(rate.bits_per_second()));
            self.moderate_raw = Some(rate);
        }
        if self.mean_rate.get().is_some_and(|mean| mean < rate) {
            self.mean_rate.restart_from(rate);
        }
    }

    /// Whether a sample was sent and acknowledged since the last reconfiguration.
    pub(super) fn is_current(&self, now: Instant, rtt: Duration) -> bool {
        self.since
            .is_none_or(|since| now.checked_sub(rtt).is_some_and(|sent| sent >= since))
    }

    /// Adds the rate of any ACK to the aggressive filter.
    pub(super) fn on_rate(&mut self, now: Instant, round: u64, sample: &RateSample) {
        if let Some(rate) = sample.delivery_rate
            && (!sample.app_limited || self.aggressive.best().is_none_or(|best| rate >= best))
            && (self.options.published_code || self.is_current(now, sample.rtt))
        {
            self.aggressive.update(round, rate);
        }
    }

    /// Adds the rate of a whole round, which took `elapsed`, to the mean and to the moderate filter; samples within a round
    /// overlap.
    pub(super) fn on_round_rate(&mut self, rate: Bandwidth, elapsed: Duration, queued: bool) {
        self.mean_rate.update(rate, elapsed, queued);
        self.moderate_raw = Some(rate);
        self.moderate.update(real(rate.bits_per_second()));
    }

    /// Adds an RTT; `unloaded` if the path was not full when it was measured.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration, unloaded: bool) {
        if self.options.published_code {
            self.latest.update(rtt.as_secs_f64());
            self.min_rtt.update(now, rtt);
            self.learn_code_width(rtt);
            return;
        }
        if !self.is_current(now, rtt) {
            return;
        }
        self.min_rtt.update(now, rtt);
        if unloaded {
            self.band.update(now, rtt);
        }
        let least = self.min_rtt.best().unwrap_or(rtt);
        let since = *self.mean.since.get_or_insert(now);
        self.mean.sum += rtt;
        self.mean.count += 1;
        if now.saturating_duration_since(since) >= least.mul_f64(RTT_MEAN_SHARE) {
            let mean = self.mean.sum / self.mean.count.max(1);
            self.latest.update(mean.as_secs_f64());
            self.latest_raw = Some(mean);
            self.mean = RttMean::default();
        }
    }

    /// Adds an RTT of the prober; the published code makes its band of the first of these.
    pub(super) fn on_probe_rtt(&mut self, rtt: Duration) {
        if self.options.published_code {
            self.learn_code_width(rtt);
        }
    }

    pub(super) fn aggressive(&self) -> Option<Bandwidth> {
        self.aggressive.best()
    }

    pub(super) fn moderate(&self) -> Option<Bandwidth> {
        if !self.options.kalman {
            return self.moderate_raw;
        }
        let bits = self.moderate.estimate()?;
        Some(Bandwidth::from_bits_per_second(window_bytes(bits, 0)))
    }

    /// The rate of rounds averaged over time.
    pub(super) fn mean_rate(&self) -> Option<Bandwidth> {
        self.mean_rate.get()
    }

    /// The latest RTT, bRTT_latest.
    pub(super) fn latest_rtt(&self) -> Option<Duration> {
        if !self.options.kalman {
            return self.latest_raw;
        }
        self.latest
            .estimate()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// The band, bRTT_l and bRTT_h.
    pub(super) fn band(&self) -> Option<(Duration, Duration)> {
        if self.options.published_code {
            let least = self.min_rtt.best()?;
            return Some((least, least + self.code_width.unwrap_or_default()));
        }
        let least = self.min_rtt.best();
        match self.band.band() {
            Some(band) if self.options.band => Some(band),
            _ => least.map(|least| (least, least)),
        }
    }

    /// The least RTT of late, whatever was in flight.
    pub(super) fn least_rtt(&self) -> Option<Duration> {
        self.min_rtt.best()
    }

    /// The typical RTT of the path without a queue.
    pub(super) fn middle_rtt(&self) -> Option<Duration> {
        let middle = self.band.middle().filter(|_| self.options.band);
        middle.or_else(|| self.band().map(|(low, _)| low))
    }

    fn learn_code_width(&mut self, rtt: Duration) {
        if self.code_width.is_some() {
            return;
        }
        self.code_rtts.push(rtt);
        if self.code_rtts.len() == CODE_BAND_SAMPLES {
            self.code_rtts.sort_unstable();
            let low = self.code_rtts.get(CODE_BAND_SAMPLES / 20);
            let high = self.code_rtts.get(CODE_BAND_SAMPLES * 19 / 20);
            self.code_width = low.zip(high).map(|(low, high)| *high - *low);
            self.code_rtts = Vec::new();
        }
    }
}
