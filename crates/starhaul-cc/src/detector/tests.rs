use std::fs;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Start and end of each gap.
type Gaps = Vec<(Duration, Duration)>;

const MS: Duration = Duration::from_millis(1);

/// A simulated path: silent during outages, else answering after an RTT.
struct Path {
    outages: Gaps,
    rtt: Box<dyn Fn(Duration) -> Duration>,
    /// Loss of probes sent then.
    loss: Box<dyn Fn(Duration) -> f64>,
    /// Lateness of each probe, by its number.
    late: fn(u64) -> Duration,
    /// Probes sent in an outage are lost rather than late.
    outage_loses: bool,
}

impl Path {
    fn quiet() -> Self {
        Self {
            outages: Vec::new(),
            rtt: Box::new(|_| 22 * MS),
            loss: Box::new(|_| 0.0),
            late: |_| Duration::ZERO,
            outage_loses: false,
        }
    }

    /// Start and length of each reconfiguration that the detector finds.
    fn found(&self, config: DetectorConfig, seconds: u64, seed: u64) -> Vec<(Duration, Duration)> {
        let start = Instant::now();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut detector = Detector::new(config, start);
        let mut answers = VecDeque::new();
        let mut found = Vec::new();
        let mut latest = Duration::ZERO;
        for n in 0.. {
            let due = detector.next_probe() - start + (self.late)(n);
            if due > Duration::from_secs(seconds) {
                break;
            }
            while let Some(&(at, sequence)) = answers.front().filter(|(at, _)| *at <= due) {
                answers.pop_front();
                if let Some(event) = detector.on_response(start + at, sequence) {
                    found.push((event.at - start, event.outage));
                }
            }
            let sequence = detector.on_probe_sent(start + due);
            let outage = self
                .outages
                .iter()
                .find(|(from, to)| (*from..*to).contains(&due));
            let long = outage.is_some_and(|(from, to)| *to - *from > 25 * MS);
            if rng.random_bool((self.loss)(due)) || (self.outage_loses && long) {
                continue;
            }
            let leaves = outage.map_or(due, |(_, to)| *to);
            latest = latest.max(leaves + (self.rtt)(leaves));
            answers.push_back((latest, sequence));
        }
        found
    }
}

/// The gaps of the recorded link, and its one-way delays in steps of 10 ms.
fn example() -> Option<(Gaps, Vec<Duration>)> {
    let read = |name: &str| {
        let file = starhaul_needs::trace(&format!("leocc-example/{name}"))?;
        Some(fs::read_to_string(file).unwrap())
    };
    let number = |line: &str| line.trim().parse::<u32>().unwrap();
    let stamps: Vec<u32> = read("bw_example.txt")?.lines().map(number).collect();
    let delays = read("delay_example.txt")?
        .lines()
        .map(|l| MS * number(l))
        .collect();
    let outages = stamps
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > 4)
        .map(|pair| (MS * pair[0] + MS / 2, MS * pair[1]))
        .collect();
    Some((outages, delays))
}

/// The eight gaps of the recorded uplink that exceed 45 ms, and nothing else: neither its shorter
/// gaps nor its jitter nor its spikes of delay.
#[test]
fn finds_the_eight_reconfigurations_of_a_recorded_link_and_no_other() {
    let Some((outages, delays)) = example() else {
        return;
    };
    let truth: Vec<_> = outages
        .iter()
        .filter(|(from, to)| *to - *from > 45 * MS)
        .copied()
        .collect();
    assert_eq!(truth.len(), 8);
    for (loss, seed, outage_loses) in [
        (0.0, 1, false),
        (0.002, 2, false),
        (0.005, 3, true),
        (0.02, 4, true),
    ] {
        let delays = delays.clone();
        let path = Path {
            outages: outages.clone(),
            rtt: Box::new(move |at| {
                let line = usize::try_from(at.as_millis() / 10).unwrap();
                2 * delays[line.min(delays.len() - 1)]
            }),
            loss: Box::new(move |_| loss),
            outage_loses,
            ..Path::quiet()
        };
        let found = path.found(DetectorConfig::default(), 120, seed);
        assert_eq!(found.len(), 8, "loss {loss}, seed {seed}: {found:?}");
        for ((at, outage), (from, to)) in found.iter().zip(&truth) {
            let late = *at - *to;
            assert!(
                late < 150 * MS,
                "loss {loss}, seed {seed}: {late:?} after its end"
            );
            assert!(
                *outage > 45 * MS && *outage < *to - *from + 150 * MS,
                "{outage:?}"
            );
        }
    }
}

#[test]
fn losing_three_probes_in_a_row_is_no_reconfiguration() {
    let mut path = Path::quiet();
    path.outages = vec![(1000 * MS, 1030 * MS), (2000 * MS, 2051 * MS)];
    path.outage_loses = true;
    let found = path.found(DetectorConfig::default(), 4, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 > 2051 * MS && found[0].0 < 2090 * MS);
}

/// A flow overfills the queue shared with the probes for ten minutes: probes are dropped at random, sometimes five in a
/// row. Outages are detected all the same: queued probes arrive late, and an outage loses more than chance does.
#[test]
fn probes_that_a_full_queue_drops_by_chance_are_no_reconfiguration() {
    for (loss, seed) in [(0.05, 1), (0.1, 2), (0.2, 3), (0.3, 4)] {
        let mut path = Path::quiet();
        path.loss = Box::new(move |_| loss);
        path.rtt = Box::new(|_| 170 * MS);
        let found = path.found(DetectorConfig::default(), 600, seed);
        assert!(found.len() <= 3, "loss {loss}, seed {seed}: {found:?}");
        path.outages = (1..40)
            .map(|n| (n * 15_000 * MS, (n * 15_000 + 90) * MS))
            .collect();
        let found = path.found(DetectorConfig::default(), 600, seed);
        let right = |(from, to): &&(Duration, Duration)| {
            let mut times = found.iter().map(|(at, _)| *at);
            times.any(|at| (*from..*to + 300 * MS).contains(&at))
        };
        let right = path.outages.iter().filter(right).count();
        assert!(right >= 38, "loss {loss}, seed {seed}: {right} of 39");
        assert!(
            found.len() <= right + 3,
            "loss {loss}, seed {seed}: {found:?}"
        );
    }
}

/// The flow begins after two seconds on a path that lost nothing. The first losses show little of its rate, so a few of 300 such flows
/// do cause a reconfiguration; with the memory of two seconds alone it was one in five of those that lose three in ten.
#[test]
fn the_first_probes_that_a_full_queue_drops_are_seldom_a_reconfiguration() {
    for (loss, most) in [(0.1, 5), (0.2, 12), (0.3, 30)] {
        let mut path = Path::quiet();
        path.loss = Box::new(move |at| f64::from(u8::from(at > 2000 * MS)) * loss);
        let found = (0..300).map(|seed| path.found(DetectorConfig::default(), 9, seed).len());
        let found: usize = found.sum();
        assert!(found <= most, "loss {loss}: {found} in 300 runs");
        // An outage that loses all of nine probes is more than chance.
        path.outages = vec![(6_000 * MS, 6_090 * MS)];
        path.outage_loses = true;
        let during = 6_000 * MS..6_300 * MS;
        let recall = (0..300).filter(|seed| {
            let found = path.found(DetectorConfig::default(), 9, *seed);
            found.iter().any(|(at, _)| during.contains(at))
        });
        let recall = recall.count();
        assert!(recall >= 200, "loss {loss}: {recall} of 300");
    }
}

/// A kernel of 250 ticks a second rounds 10 ms up to 12, and a busy machine stops the prober for 200 ms.
#[test]
fn a_prober_that_is_late_itself_finds_nothing() {
    let mut path = Path::quiet();
    path.late = |n| if n % 50 == 49 { 200 * MS } else { 4 * MS };
    assert_eq!(path.found(DetectorConfig::default(), 20, 1), []);
    path.outages = vec![(10_000 * MS, 10_080 * MS)];
    assert_eq!(path.found(DetectorConfig::default(), 20, 1).len(), 1);
}

/// A concurrent flow fills 400 ms of queue in a second and drains it in two, and after an outage a whole burst is
/// dropped: one event.
#[test]
fn a_queue_that_fills_and_overflows_after_an_outage_is_one_event() {
    let mut path = Path::quiet();
    path.rtt = Box::new(|at| {
        let phase = at.as_secs_f64() % 3.0;
        let queue = if phase < 1.0 {
            phase * 0.4
        } else {
            0.6 - phase * 0.2
        };
        22 * MS + Duration::from_secs_f64(queue.max(0.0))
    });
    assert_eq!(path.found(DetectorConfig::default(), 30, 1), []);
    path.outages = vec![(9_000 * MS, 9_080 * MS), (9_160 * MS, 9_230 * MS)];
    path.outage_loses = true;
    assert_eq!(path.found(DetectorConfig::default(), 30, 1).len(), 1);
}

/// With a timetable a shorter silence counts at its times; elsewhere the threshold stays.
#[test]
fn a_timetable_helps_and_is_not_required() {
    let mut path = Path::quiet();
    path.outages = vec![
        (3000 * MS, 3041 * MS),
        (12_000 * MS, 12_041 * MS),
        (15_500 * MS, 15_600 * MS),
    ];
    let start = Instant::now();
    let plain = DetectorConfig::default();
    assert_eq!(path.found(plain, 20, 1).len(), 1);
    let schedule = Schedule {
        anchor: start + 12_000 * MS,
        period: 15_000 * MS,
    };
    let found = path.found(
        DetectorConfig {
            schedule: Some(schedule),
            ..plain
        },
        20,
        1,
    );
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn a_timetable_reaches_both_ways_from_its_anchor() {
    let anchor = Instant::now() + Duration::from_secs(100);
    let schedule = Schedule {
        anchor,
        period: Duration::from_secs(15),
    };
    for (at, next, distance) in [
        (anchor, 15_000, 0),
        (anchor + 14_000 * MS, 15_000, 1000),
        (anchor + 16_000 * MS, 30_000, 1000),
    ] {
        assert_eq!(schedule.next_after(at), Some(anchor + next * MS));
        assert_eq!(schedule.distance(at), distance * MS);
    }
    assert_eq!(
        schedule.next_after(anchor - 31_000 * MS),
        Some(anchor - 30_000 * MS)
    );
    assert_eq!(
        schedule.next_after(anchor - 30_000 * MS),
        Some(anchor - 15_000 * MS)
    );
    assert_eq!(schedule.distance(anchor - 31_000 * MS), 1000 * MS);
}

#[test]
fn answers_out_of_order_twice_or_unasked_change_nothing() {
    let start = Instant::now();
    let mut detector = Detector::new(DetectorConfig::default(), start);
    for n in 0..5u32 {
        detector.on_probe_sent(start + 10 * MS * n);
    }
    for (at, sequence) in [(20, 0), (21, 0), (22, 99), (40, 2), (50, 1), (51, 1)] {
        let found = detector.on_response(start + MS * at, sequence);
        assert_eq!(found, None, "response {sequence} at {at} ms");
    }
    // Probe 3 was sent and is the next answered after probe 2: 60 ms of silence are real.
    assert!(detector.on_response(start + 100 * MS, 3).is_some());
}

#[test]
fn an_outage_shows_before_it_ends_and_the_segments_rtt_is_known() {
    let start = Instant::now();
    let mut detector = Detector::new(DetectorConfig::default(), start);
    for n in 0..10u32 {
        let sequence = detector.on_probe_sent(start + 10 * MS * n);
        if n < 5 {
            detector.on_response(start + 10 * MS * n + 8 * MS, sequence);
        }
    }
    assert_eq!(detector.segment_rtt(), Some(8 * MS));
    assert_eq!(detector.outage_in_progress(start + 90 * MS), None);
    assert_eq!(detector.outage_in_progress(start + 98 * MS), Some(50 * MS));
}

/// Longer than the probes that are remembered.
#[test]
fn the_length_of_a_long_outage_is_known() {
    let mut path = Path::quiet();
    let (from, to) = (Duration::from_secs(5), Duration::from_secs(14));
    path.outages = vec![(from, to)];
    path.outage_loses = true;
    let found = path.found(DetectorConfig::default(), 20, 1);
    let [(at, outage)] = found[..] else {
        panic!("{found:?}");
    };
    assert!(at >= to && at < to + 100 * MS, "{at:?}");
    let length = to - from;
    assert!(
        outage + 50 * MS > length && outage < length + 50 * MS,
        "{outage:?}"
    );
}

/// The interface is down for a second, which is no reconfiguration.
#[test]
fn probes_that_could_not_be_sent_are_no_silence() {
    let start = Instant::now();
    let mut detector = Detector::new(DetectorConfig::default(), start);
    for n in 0..200u32 {
        let now = start + 10 * MS * n;
        let sequence = detector.on_probe_sent(now);
        if (50..150).contains(&n) {
            detector.on_probe_refused(sequence);
        } else {
            let found = detector.on_response(now + 8 * MS, sequence);
            assert_eq!(found, None, "probe {n}");
        }
    }
}

/// A busy host delayed the probe between call and device: that time is not the path's.
#[test]
fn a_probe_that_left_late_has_the_round_trip_of_the_path() {
    let start = Instant::now();
    let mut detector = Detector::new(DetectorConfig::default(), start);
    let sequence = detector.on_probe_sent(start);
    detector.on_probe_left(start + 3 * MS, sequence);
    detector.on_probe_left(start + 9 * MS, sequence + 1);
    detector.on_response(start + 23 * MS, sequence);
    assert_eq!(detector.segment_rtt(), Some(20 * MS));
}

#[test]
fn a_detector_that_rests_probes_seldom_and_what_it_missed_is_no_outage() {
    let start = Instant::now();
    let mut detector = Detector::new(DetectorConfig::default(), start);
    let mut now = start;
    let mut probes = 0;
    let mut round = |detector: &mut Detector, until: Instant, answered: &dyn Fn(u64) -> bool| {
        let mut found = Vec::new();
        while detector.next_probe() < until {
            now = detector.next_probe();
            let sequence = detector.on_probe_sent(now);
            probes += 1;
            if answered(sequence) {
                found.extend(detector.on_response(now + 5 * MS, sequence));
            }
        }
        (found, std::mem::take(&mut probes))
    };
    let (found, sent) = round(&mut detector, start + 1000 * MS, &|_| true);
    assert_eq!((found.len(), sent), (0, 100));
    detector.rest();
    // Every other probe is lost, which at this rate indicates nothing.
    let (found, sent) = round(&mut detector, start + 21_000 * MS, &|sequence| {
        sequence % 2 == 0
    });
    assert_eq!(found.len(), 0);
    assert!((19..=21).contains(&sent), "{sent} probes in 20 s");
    assert_eq!(detector.outage_in_progress(start + 21_500 * MS), None);
    assert_eq!(
        detector.segment_rtt(),
        Some(5 * MS),
        "it is known all the same"
    );
    let late = detector.on_probe_sent(start + 21_900 * MS);
    detector.resume(start + 22_000 * MS);
    let next = detector.next_probe() - start;
    assert!((22_000 * MS..22_001 * MS).contains(&next), "{next:?}");
    // The response to an earlier probe arrives now and ends no outage.
    assert_eq!(detector.on_response(start + 22_400 * MS, late), None);
    let silent = start + 23_000 * MS..start + 23_090 * MS;
    let (found, _) = round(&mut detector, start + 22_990 * MS, &|_| true);
    assert_eq!(found.len(), 0, "{found:?}");
    while detector.next_probe() < silent.end {
        detector.on_probe_sent(detector.next_probe());
    }
    let (found, _) = round(&mut detector, start + 24_000 * MS, &|_| true);
    assert_eq!(found.len(), 1, "and an outage is found as ever: {found:?}");
}

/// Each second a neighbour's picture takes 60 ms on a slow uplink that the probes share, which is as silent as an outage.
#[test]
fn outages_more_frequent_than_any_operators_are_believed_for_a_while_only() {
    let start = Instant::now();
    let mut detector = Detector::new(DetectorConfig::default(), start);
    let mut confidences = Vec::new();
    // Seconds 0 to 59, and a minute later an outage alone.
    let is_silent = |ms: u128| {
        let second = ms / 1000;
        (1..60).contains(&second) && ms % 1000 < 60 || (130_000..130_060).contains(&ms)
    };
    while detector.next_probe() < start + Duration::from_secs(131) {
        let now = detector.next_probe();
        let sequence = detector.on_probe_sent(now);
        if !is_silent((now - start).as_millis()) {
            let event = detector.on_response(now + 5 * MS, sequence);
            confidences.extend(event.map(|event| event.confidence));
        }
    }
    assert_eq!(confidences.len(), 60, "{confidences:?}");
    let believed: Vec<bool> = confidences.iter().map(|share| *share >= 0.5).collect();
    assert!(believed[..20].iter().all(|is| *is), "{confidences:?}");
    assert!(!believed[20..59].iter().any(|is| *is), "{confidences:?}");
    assert!(believed[59], "{confidences:?}");
}

/// The far end began anew and knows no cookie of before: what it did not answer meanwhile is no outage.
#[test]
fn a_silence_of_the_far_end_itself_is_excused() {
    for excused in [true, false] {
        let start = Instant::now();
        let mut detector = Detector::new(DetectorConfig::default(), start);
        let mut found = 0;
        for n in 0..300_u32 {
            let now = start + 10 * MS * n;
            let sequence = detector.on_probe_sent(now);
            if n == 200 && excused {
                detector.excuse_silence();
            } else if !(50..=200).contains(&n) {
                found += usize::from(detector.on_response(now + 8 * MS, sequence).is_some());
            }
        }
        assert_eq!(found, usize::from(!excused));
        assert_eq!(detector.segment_rtt(), Some(8 * MS));
    }
}
