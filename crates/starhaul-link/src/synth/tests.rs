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
