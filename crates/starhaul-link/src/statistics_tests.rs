use starhaul_needs::trace;

use super::*;
use crate::{DelaySeries, GeoModel, LeoModel, LossSeries, Model, Recording, Trace};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A recording of the given seconds whose delay is 10 ms, and 40 ms for 30 ms at each of the instants.
fn spiky(seconds: u64, spikes: &[u64]) -> Recording {
    let mut steps = Vec::new();
    let mut at = 0;
    for &spike in spikes {
        steps.extend([(ms(spike - at), ms(10)), (ms(30), ms(40))]);
        at = spike + 30;
    }
    steps.push((ms(seconds * 1000 - at), ms(10)));
    Recording::of_delay(DelaySeries::from_steps(steps).unwrap())
}

#[test]
fn a_comb_is_found_between_other_spikes_and_where_some_are_missing() {
    let spikes = [
        3_100, 4_000, 18_090, 30_500, 33_110, 63_100, 78_080, 93_120, 101_000,
    ];
    let comb = Summary::of(&spiky(120, &spikes)).reconfigurations.unwrap();
    assert!(comb.period.abs_diff(ms(15_000)) < ms(20), "{comb:?}");
    assert!(comb.offset.abs_diff(ms(3_100)) < ms(40), "{comb:?}");
    // none at 48.1 and 108.1 s
    assert_eq!((comb.found, comb.expected), (6, 8));
    assert_eq!(comb.evidence, Evidence::DelaySpikes);
    assert_eq!(comb.instants(ms(120_000)).count(), 8);
}

#[test]
fn irregular_events_are_no_comb() {
    for spikes in [
        &[5_000, 9_100, 27_000, 60_000, 61_000, 99_000][..],
        &[10_000, 25_000],
        &[],
    ] {
        assert_eq!(
            Summary::of(&spiky(120, spikes)).reconfigurations,
            None,
            "{spikes:?}"
        );
    }
    for seed in 0..5 {
        let geo = GeoModel::default().generate(seed).unwrap();
        let summary = Summary::of(&geo.into());
        assert_eq!((summary.reconfigurations, summary.outages.len()), (None, 0));
    }
}

#[test]
fn capacity_and_delay_are_weighed_by_time() {
    let second = Duration::from_secs(1);
    let rates = [10, 20, 60, 30].map(|mbit| (second, Bandwidth::from_mbit(mbit)));
    let capacity = Opportunities::from_rates(rates).unwrap();
    let delay = DelaySeries::from_steps([(ms(3_900), ms(20)), (ms(100), ms(90))]);
    let loss = LossSeries::from_steps([(second, 0.04), (second * 3, 0.0)]).unwrap();
    let summary = Summary::of(&Trace::new(capacity, delay).unwrap().with_loss(loss).into());
    let capacity = summary.capacity.unwrap();
    let mbit = [
        capacity.mean,
        capacity.median,
        capacity.least,
        capacity.greatest,
    ];
    for (rate, expected) in mbit
        .map(Bandwidth::mbit)
        .into_iter()
        .zip([30.0, 30.0, 10.0, 60.0])
    {
        assert!((rate - expected).abs() < 0.05, "{rate} for {expected}");
    }
    let delay = summary.delay.unwrap();
    let quantiles = [
        delay.least,
        delay.median,
        delay.p95,
        delay.p99,
        delay.greatest,
    ];
    assert_eq!(quantiles, [20, 20, 20, 90, 90].map(ms));
    assert!((summary.loss.unwrap() - 0.01).abs() < 1e-9);
}

#[test]
fn a_slow_link_is_not_a_broken_one() {
    let rate = Bandwidth::from_kbit(64);
    let steady = Opportunities::from_rates([(ms(60_000), rate)]).unwrap();
    let recording = Recording::default().with_capacity(steady).unwrap();
    assert_eq!(Summary::of(&recording).outages, []);
}

#[test]
fn the_recorded_uplink_has_its_comb() {
    let (Some(bw), Some(delay)) = (
        trace("leocc-example/bw_example.txt"),
        trace("leocc-example/delay_example.txt"),
    ) else {
        return;
    };
    let recording = Recording::from(Trace::read(&bw, Some(&delay)).unwrap());
    let summary = Summary::of(&recording);
    assert_eq!(summary.outages.len(), 8);
    let comb = summary.reconfigurations.unwrap();
    assert!(comb.period.abs_diff(ms(15_000)) < ms(10), "{comb:?}");
    assert!(comb.offset.abs_diff(ms(8_687)) < ms(20), "{comb:?}");
    assert_eq!((comb.found, comb.expected), (8, 8));
}

#[test]
fn every_recorded_path_shows_its_comb() {
    let downlinks = ["q25_A_downlink_600", "q75_C_downlink_599"];
    let downlinks = downlinks.map(|name| format!("leocc-downlink/{name}.csv"));
    let delays = [1, 2, 10, 11, 12, 13, 14, 15].map(|n| format!("leocc-delay/delay_{n}.txt"));
    for file in downlinks.into_iter().chain(delays) {
        let Some(path) = trace(&file) else { return };
        let (recording, _) = Recording::read(&path, None).unwrap();
        let comb = Summary::of(&recording).reconfigurations;
        let comb = comb.unwrap_or_else(|| panic!("{file} has no comb"));
        assert!(
            comb.period.abs_diff(ms(15_000)) < ms(50),
            "{file}: {comb:?}"
        );
    }
}

/// Figures that compare the model with recordings.
#[derive(Debug)]
struct Shape {
    /// Outage lengths: least, mean, greatest, in ms.
    outage_ms: [f64; 3],
    period_s: f64,
    mean_mbit: f64,
    /// Mean relative change of capacity at a reconfiguration.
    step: f64,
    /// Over intervals of 100 ms between reconfigurations: standard deviation as a share of the mean, and correlation of
    /// neighbours.
    variation: f64,
    correlation: f64,
    /// Correlation over one second of the whole recording.
    correlation_1s: f64,
    /// Least and greatest median delay over all intervals, in ms.
    band_ms: [f64; 2],
    p5_ms: f64,
    p95_ms: f64,
    greatest_ms: f64,
}

fn shape(recording: &Recording) -> Shape {
    let summary = Summary::of(recording);
    let (delay, comb) = (summary.delay.unwrap(), summary.reconfigurations.unwrap());
    let lengths: Vec<f64> = summary
        .outages
        .iter()
        .map(|(_, length)| length.as_secs_f64() * 1e3)
        .collect();
    let rates: Vec<f64> = recording
        .capacity
        .as_ref()
        .unwrap()
        .rates(ms(100))
        .iter()
        .map(|rate| rate.mbit())
        .collect();
    let edges: Vec<Duration> = comb.instants(summary.duration).collect();
    // 300 ms after a reconfiguration the spike is over
    let intervals: Vec<&[f64]> = edges
        .windows(2)
        .map(|pair| {
            let index = |at: Duration| usize::try_from(at.as_millis() / 100).unwrap();
            &rates[index(pair[0]) + 3..index(pair[1]) - 1]
        })
        .collect();
    let means: Vec<f64> = intervals.iter().map(|rates| mean(rates)).collect();
    let steps: Vec<f64> = means
        .windows(2)
        .map(|pair| (pair[1] / pair[0] - 1.0).abs())
        .collect();
    let spread = |rates: &&[f64]| correlated(rates, 0).sqrt() / mean(rates);
    let neighbours = |rates: &&[f64]| correlated(rates, 1) / correlated(rates, 0);
    let bands: Vec<f64> = edges
        .windows(2)
        .map(|pair| {
            let part = recording.cut(pair[0] + ms(300)..pair[1] - ms(100)).unwrap();
            Summary::of(&part).delay.unwrap().median.as_secs_f64() * 1e3
        })
        .collect();
    Shape {
        outage_ms: [least(&lengths), mean(&lengths), greatest(&lengths)],
        period_s: comb.period.as_secs_f64(),
        mean_mbit: summary.capacity.unwrap().mean.mbit(),
        step: mean(&steps),
        variation: mean(&intervals.iter().map(spread).collect::<Vec<_>>()),
        correlation: mean(&intervals.iter().map(neighbours).collect::<Vec<_>>()),
        correlation_1s: correlated(&rates, 10) / correlated(&rates, 0),
        band_ms: [least(&bands), greatest(&bands)],
        p5_ms: delay.p5.as_secs_f64() * 1e3,
        p95_ms: delay.p95.as_secs_f64() * 1e3,
        greatest_ms: delay.greatest.as_secs_f64() * 1e3,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The autocovariance at a distance.
fn correlated(values: &[f64], distance: usize) -> f64 {
    let middle = mean(values);
    let pairs = values.iter().zip(&values[distance..]);
    pairs.map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>() / values.len() as f64
}

#[test]
fn the_leo_model_has_the_shape_of_the_recorded_uplink() {
    let (Some(bw), Some(delay)) = (
        trace("leocc-example/bw_example.txt"),
        trace("leocc-example/delay_example.txt"),
    ) else {
        return;
    };
    let real = shape(&Trace::read(&bw, Some(&delay)).unwrap().into());
    for seed in 0..5 {
        let model = shape(&LeoModel::default().generate(seed).unwrap().into());
        let what = format!("seed {seed}: {model:#?}\nrecorded: {real:#?}");
        let near = |a: f64, b: f64, by: f64| assert!((a - b).abs() <= by, "{a} and {b}: {what}");
        near(model.period_s, real.period_s, 0.02);
        near(model.mean_mbit, real.mean_mbit, 8.0);
        near(model.outage_ms[1], real.outage_ms[1], 20.0);
        assert!(
            model.outage_ms[0] > 45.0 && model.outage_ms[2] <= 135.0,
            "{what}"
        );
        near(model.step, real.step, 0.1);
        near(model.variation, real.variation, 0.04);
        near(model.correlation, real.correlation, 0.2);
        near(model.correlation_1s, real.correlation_1s, 0.3);
        near(model.band_ms[0], real.band_ms[0], 1.5);
        near(model.band_ms[1], real.band_ms[1], 1.5);
        near(model.p5_ms, real.p5_ms, 1.0);
        near(model.p95_ms, real.p95_ms, 1.5);
        assert!((50.0..=68.0).contains(&model.greatest_ms), "{what}");
    }
}

#[test]
fn the_cellular_model_wanders_and_has_sticky_outages() {
    let mut outages = 0;
    for seed in 0..5 {
        let trace = Model::Cellular.generate(None, None, seed).unwrap();
        let (recording, capacity) = (Recording::from(trace.clone()), trace.capacity);
        let summary = Summary::of(&recording);
        let of = summary.capacity.unwrap();
        assert!((of.mean.mbit() - 12.0).abs() < 0.3, "seed {seed}: {of:?}");
        assert!(
            of.greatest.mbit() > 17.0 && of.least.mbit() < 5.0,
            "seed {seed}: {of:?}"
        );
        // Sprout: the rate of a second is close to that of the second before, and far from that of a minute before
        let rates: Vec<f64> = capacity
            .rates(ms(1_000))
            .iter()
            .map(|rate| rate.mbit())
            .collect();
        let near = correlated(&rates, 1) / correlated(&rates, 0);
        let far = correlated(&rates, 60) / correlated(&rates, 0);
        assert!(near > 0.7 && far < 0.5, "seed {seed}: {near}, {far}");
        outages += summary
            .outages
            .iter()
            .filter(|(_, length)| *length > ms(200))
            .count();
        let delay = summary.delay.unwrap();
        assert!(
            delay.least >= ms(18) && delay.greatest <= ms(55),
            "seed {seed}: {delay:?}"
        );
        assert!(delay.p99 >= delay.median + ms(8), "seed {seed}: {delay:?}");
    }
    assert!(outages > 5, "{outages} long outages in 25 minutes");
}
