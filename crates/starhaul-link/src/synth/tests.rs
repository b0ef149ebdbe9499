use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn leo_has_a_comb_of_reconfigurations() {
    for seed in 0..5 {
        let trace = LeoModel::default().generate(seed).unwrap();
        let gaps = trace.capacity.gaps(ms(45));
        // an outage that lies across the end of the series shows as two shorter ones
        assert!(
            (19..=21).contains(&gaps.len()),
            "seed {seed}: {} gaps",
            gaps.len()
        );
        let first = gaps[0].0.as_millis() % 15_000;
        for (start, length) in &gaps {
            let off = (start.as_millis() + 22_500 - first) % 15_000;
            assert!(
                (7_480..=7_520).contains(&off),
                "seed {seed}: gap at {start:?}"
            );
            assert!(*length <= ms(135), "seed {seed}: gap of {length:?}");
            let spike = trace.delay.as_ref().unwrap().at(*start + *length);
            assert!(
                spike > ms(20),
                "seed {seed}: {spike:?} after the outage at {start:?}"
            );
        }
        let mean = trace.capacity.mean_rate().mbit();
        assert!((40.0..58.0).contains(&mean), "seed {seed}: {mean} Mbit/s");
        assert!(
            rate_of_intervals(&trace, &gaps) > 0.05,
            "seed {seed}: no steps of capacity"
        );
    }
}

/// Mean relative change of rate from one interval to the next.
fn rate_of_intervals(trace: &Trace, gaps: &[(Duration, Duration)]) -> f64 {
    let rates: Vec<f64> = gaps
        .windows(2)
        .map(|pair| {
            let (from, to) = (pair[0].0 + pair[0].1, pair[1].0);
            let count = trace.capacity.until(to) - trace.capacity.until(from);
            Bandwidth::from_bytes_over(count * 1500, to - from).mbit()
        })
        .collect();
    let changes = rates.windows(2).map(|pair| (pair[1] / pair[0] - 1.0).abs());
    changes.sum::<f64>() / 18.0
}

#[test]
fn leo_delays_lie_in_narrow_bands() {
    let delay = LeoModel::default().generate(1).unwrap().delay.unwrap();
    let mut values: Vec<_> = (0..30_000).map(|i| delay.at(ms(10) * i)).collect();
    values.sort();
    assert!(
        (ms(9)..=ms(12)).contains(&values[15_000]),
        "median {:?}",
        values[15_000]
    );
    assert!(
        (ms(7)..=ms(9)).contains(&values[0]),
        "least {:?}",
        values[0]
    );
    assert!(
        (ms(31)..=ms(68)).contains(&values[29_999]),
        "greatest {:?}",
        values[29_999]
    );
}

#[test]
fn geo_keeps_its_rate_and_its_distance() {
    for seed in 0..20 {
        let trace = GeoModel::default().generate(seed).unwrap();
        let (least, greatest) = trace.delay.unwrap().range();
        assert!(
            ms(275) <= least && greatest <= ms(300),
            "seed {seed}: {least:?} to {greatest:?}"
        );
        assert!((trace.capacity.mean_rate().mbit() - 10.0).abs() < 0.01);
    }
}

#[test]
fn a_seed_is_a_link() {
    let leo = |seed| LeoModel::default().generate(seed).unwrap();
    assert_eq!(leo(3), leo(3));
    assert_ne!(leo(3), leo(4));
}

#[test]
fn impossible_models_are_refused() {
    let no_interval = LeoModel {
        interval: Duration::ZERO,
        ..LeoModel::default()
    };
    assert!(no_interval.generate(0).is_err());
    let endless = LeoModel {
        duration: Duration::MAX,
        ..LeoModel::default()
    };
    assert!(endless.generate(0).is_err());
    assert!(
        GeoModel::default()
            .with_rate(Some(Bandwidth::ZERO))
            .generate(0)
            .is_err()
    );
}

/// What the ranges of drawn links promise, over many seeds: the extremes are reached and never exceeded.
#[test]
fn drawn_links_lie_in_their_ranges_and_fill_them() {
    let models: Vec<LeoModel> = (0..400).map(LeoModel::drawn).collect();
    let within = |name: &str, least: f64, most: f64, of: &dyn Fn(&LeoModel) -> f64| {
        let values: Vec<f64> = models.iter().map(of).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        let margin = (most - least) / 20.0;
        assert!((least..=least + margin).contains(&low), "{name}: {low}");
        assert!((most - margin..=most).contains(&high), "{name}: {high}");
    };
    let of_u64 = |value: u64| f64::from(u32::try_from(value).unwrap());
    within("interval", 5.0, 60.0, &|m| m.interval.as_secs_f64());
    within("swing", 0.0, 30.0, &|m| {
        of_u64(m.drift_ms + m.delay_variation_ms.end())
    });
    within("bursts", 1.0, 20.0, &|m| of_u64(m.burst_ms));
    within("steps", 1.0, 5.0, &|m| m.rate_step);
    within("outage", 0.0, 2000.0, &|m| of_u64(*m.outage_ms.end()));
    within("loss", 0.0, 0.03, &|m| m.loss);
    within("delay", 5.0, 150.0, &|m| of_u64(*m.base_delay_ms.start()));
    for (seed, model) in (0..20).zip(models) {
        let trace = LeoModel {
            duration: Duration::from_secs(60),
            ..model
        };
        let trace = trace.generate(seed).unwrap();
        let greatest = trace.delay.unwrap().range().1;
        assert!(greatest <= ms(150 + 10 + 60), "seed {seed}: {greatest:?}");
    }
}

#[test]
fn bursts_leave_silence_between_them_and_the_same_capacity() {
    let model = |burst_ms| LeoModel {
        burst_ms,
        outage_ms: 0..=0,
        rate_variation: 0.0,
        ..LeoModel::default()
    };
    let even = model(1).generate(2).unwrap().capacity;
    let bursts = model(20).generate(2).unwrap().capacity;
    assert!(even.gaps(ms(10)).is_empty());
    assert!(bursts.gaps(ms(18)).len() > 10_000);
    let (even, bursts) = (even.per_period(), bursts.per_period());
    assert!(even.abs_diff(bursts) <= 1, "{even} {bursts}");
}

#[test]
fn a_drift_moves_the_base_within_an_interval() {
    let model = LeoModel {
        base_delay_ms: 20..=20,
        delay_variation_ms: 0..=0,
        spike_ms: 0..=0,
        drift_ms: 30,
        ..LeoModel::default()
    };
    let (least, greatest) = model.generate(1).unwrap().delay.unwrap().range();
    assert!(
        least >= ms(20) && greatest <= ms(50),
        "{least:?} {greatest:?}"
    );
    assert!(greatest - least > ms(15), "{least:?} {greatest:?}");
}
