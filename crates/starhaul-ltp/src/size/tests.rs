use super::*;

const MS: Duration = Duration::from_millis(1);

/// A peer whose light is near, with its sizes for a path of this MTU.
fn sizes(now: Instant, mtu: usize) -> SegmentSizes {
    let mut sizes = SegmentSizes::new(&PeerConfig::new(Duration::ZERO, None));
    sizes.set_mtu(now, mtu);
    sizes
}

fn fate(data: usize, sent: u64, lost: u64) -> SegmentFate {
    SegmentFate { data, sent, lost }
}

/// Sends spans and has them reported, each byte at its cost, until sizes settle; no segment is lost that `arrives` says to arrive.
fn run(
    sizes: &mut SegmentSizes,
    now: &mut Instant,
    spans: usize,
    cost: impl Fn(usize) -> f64,
    arrives: impl Fn(usize) -> bool,
) {
    for _ in 0..spans {
        let (mut sent, mut probed) = (0, 0);
        while !sizes.wants_report(*now) {
            let data = sizes.next(u64::MAX);
            let is_probe = data != sizes.again();
            *now += Duration::from_secs_f64(cost(data) * data as f64);
            match is_probe {
                true => probed += 1,
                false => sent += 1,
            }
            let probe = sizes.probe.map_or(0, |probe| probe.data);
            sizes.sent(*now, data as u64);
            if is_probe {
                let lost = u64::from(!arrives(probe));
                sizes.take(*now, &[fate(probe, 1, lost)]);
            }
        }
        let data = sizes.again();
        let lost = if arrives(data) { 0 } else { sent };
        sizes.checkpoint(*now);
        let position = sizes.position();
        sizes.reported(*now, position, Some(MS));
        sizes.take(*now, &[fate(data, sent, lost)]);
        assert!(probed <= 16, "{probed} probes in one span");
    }
}

/// Costs of a processor: so much per call, fragment and byte.
fn per_call(data: usize) -> f64 {
    let packets = data.div_ceil(1400) as f64;
    (20e-6 + 1e-6 * packets) / data as f64 + 0.3e-9
}

#[test]
fn where_calls_are_dear_large_segments_are_found_and_kept() {
    let mut now = Instant::now();
    let mut sizes = sizes(now, 1500);
    assert_eq!(sizes.again(), 1360);
    run(&mut sizes, &mut now, 60, per_call, |_| true);
    let choice = sizes.choice();
    assert!(choice.data_bytes > 30_000, "{choice:?}");
    assert_eq!(choice.reason, SizeReason::Faster);
    assert_eq!(
        sizes.single_packet(),
        1360,
        "what asks for reports fills one packet"
    );
}

#[test]
fn where_the_kernel_cuts_batches_into_packets_larger_ones_are_tried_and_left() {
    let mut now = Instant::now();
    let mut sizes = sizes(now, 1500);
    let offloaded = |data| if data <= 1360 { 25e-9 } else { 100e-9 };
    run(&mut sizes, &mut now, 60, offloaded, |_| true);
    let choice = sizes.choice();
    assert_eq!((choice.data_bytes, choice.changes), (1360, 0), "{choice:?}");
    assert_eq!(choice.reason, SizeReason::NoGain);
    // For a minute and more, few segments are of another size.
    let before = sizes.choice().probes;
    run(&mut sizes, &mut now, 500, offloaded, |_| true);
    assert!(sizes.choice().probes < before + 64);
}

#[test]
fn fragments_that_never_arrive_cost_a_few_segments_and_are_tried_again_ever_more_rarely() {
    let mut now = Instant::now();
    let mut sizes = sizes(now, 1500);
    let start = now;
    run(&mut sizes, &mut now, 300, per_call, |data| data <= 1360);
    let choice = sizes.choice();
    assert_eq!(choice.data_bytes, 1360, "{choice:?}");
    assert_eq!(choice.reason, SizeReason::BlackHole);
    // Each time after twice as long, and in the first seconds four smaller ones.
    let seconds = (now - start).as_secs() + 1;
    let tries = u64::from(seconds.ilog2()) + 6;
    assert!(
        (1..=tries).contains(&choice.black_holes),
        "{choice:?} in {seconds} s"
    );
    assert!(choice.probes <= 16 * tries, "{choice:?}");
}

#[test]
fn a_path_that_begins_to_drop_fragments_is_left_at_once() {
    let mut now = Instant::now();
    let mut sizes = sizes(now, 1500);
    run(&mut sizes, &mut now, 60, per_call, |_| true);
    let large = sizes.again();
    assert!(large > 1360);
    sizes.take(now, &[fate(large, 16, 16)]);
    assert_eq!(sizes.again(), 1360);
    assert_eq!(sizes.choice().reason, SizeReason::BlackHole);
}

#[test]
fn jumbo_packets_are_used_when_one_has_arrived_and_left_when_nothing_is_heard() {
    let mut now = Instant::now();
    let mut sizes = sizes(now, 9000);
    assert_eq!(sizes.again(), 1360, "none has arrived");
    assert_eq!(sizes.next(u64::MAX), 8860);
    assert_eq!(sizes.next(9000), 1360, "a block's rest tells nothing");
    for _ in 0..4 {
        sizes.sent(now, 8860);
    }
    assert_eq!(sizes.next(u64::MAX), 1360, "four are enough");
    sizes.take(now, &[fate(8860, 4, 0)]);
    assert_eq!((sizes.again(), sizes.single_packet()), (8860, 8860));
    // One step at a time, and back as soon as they are known to arrive.
    sizes.silent(now + MS, MS * 100, 8860);
    assert_eq!(sizes.again(), 8860, "other packets of its size arrived");
    now += MS * 400;
    sizes.silent(now, MS * 100, 1000);
    assert_eq!(
        sizes.again(),
        8860,
        "a short one tells nothing of long ones"
    );
    sizes.silent(now, MS * 100, 8860);
    sizes.silent(now + MS, MS * 100, 8860);
    assert_eq!((sizes.again(), sizes.single_packet()), (1360, 1360));
    sizes.take(now, &[fate(1360, 10, 0)]);
    assert_eq!(sizes.next(u64::MAX), 8860);
    sizes.take(now, &[fate(8860, 4, 0)]);
    assert_eq!(sizes.again(), 8860);
    sizes.set_mtu(now, 1500);
    assert_eq!((sizes.again(), sizes.single_packet()), (1360, 1360));
}

#[test]
fn a_configured_size_stays_and_a_slow_link_has_short_segments() {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::ZERO, None);
    (config.adapts_segments, config.segment_data) = (false, 5000);
    let mut fixed = SegmentSizes::new(&config);
    fixed.set_mtu(now, 9000);
    assert_eq!(
        (fixed.again(), fixed.single_packet(), fixed.next(u64::MAX)),
        (5000, 5000, 5000)
    );
    assert_eq!(fixed.choice().reason, SizeReason::Fixed);
    assert_eq!(fixed.packets(5000), 1);
    fixed.set_mtu(now, 1500);
    assert_eq!((fixed.again(), fixed.packets(5000)), (5000, 4));
    let choice = fixed.choice();
    assert_eq!((choice.packets, choice.path_mtu), (4, Some(1500)));
    assert_eq!(fixed.packets_of(&[fate(5000, 10, 2)]), None);
    assert!(
        !fixed.counts(5000) && !fixed.wants_report(now),
        "nothing is compared"
    );
    let slow = PeerConfig::new(Duration::ZERO, Some(Bandwidth::from_kbit(64)));
    let mut slow = SegmentSizes::new(&slow);
    slow.set_mtu(now, 65_536);
    assert_eq!(slow.next(u64::MAX), 1360);
}

/// What was learnt before is looked for anew behind them.
#[test]
fn while_red_parts_have_repair_segments_each_fills_a_packet_of_ethernet() {
    let now = Instant::now();
    let mut sizes = sizes(now, 9000);
    sizes.take(now, &[fate(8860, 4, 0)]);
    assert_eq!(sizes.single_packet(), 8860);
    sizes.set_coded(true);
    let in_use = |sizes: &SegmentSizes| (sizes.again(), sizes.single_packet());
    assert_eq!(in_use(&sizes), (1360, 1360));
    assert_eq!(sizes.choice().reason, SizeReason::Coded);
    sizes.take(now, &[fate(8860, 10, 10), fate(1360, 10, 0)]);
    assert_eq!(sizes.next(u64::MAX), 1360, "nothing is tried");
    assert!(!sizes.counts(1360) && !sizes.wants_report(now));
    sizes.set_coded(false);
    assert_eq!(in_use(&sizes), (1360, 1360));
    sizes.take(now, &[fate(1360, 10, 0)]);
    assert_eq!(sizes.next(u64::MAX), 8860, "it is tried again");
    // A longer packet that did not arrive is not in use behind codes either.
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.coding = Some(crate::Coding::new(0.05));
    let mut coded = SegmentSizes::new(&config);
    coded.set_mtu(now, 9000);
    assert_eq!(coded.next(u64::MAX), 1360);
    assert_eq!(coded.choice().reason, SizeReason::Coded);
}

/// Segments of many packets seem to lose more than packets do, and what is sent to find out whether a size arrives says nothing of others.
#[test]
fn losses_are_told_of_packets() {
    let now = Instant::now();
    let mut sizes = sizes(now, 1500);
    assert_eq!(sizes.packets_of(&[]), None);
    assert_eq!(sizes.packets_of(&[fate(1360, 100, 3)]), None);
    let tried = [fate(1360, 100, 0), fate(64_000, 4, 4)];
    assert_eq!(sizes.packets_of(&tried), Some((0, 0)));
    sizes.take(now, &[fate(64_000, 4, 1)]);
    let told = sizes.packets_of(&[fate(1360, 100, 1), fate(64_000, 10, 2)]);
    assert_eq!(told, Some((100 + 10 * 45, 3)));
}

/// Whatever a peer claims, sizes are those of the ladder.
#[test]
fn forged_reports_leave_the_size_within_its_bounds() {
    use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
    for seed in 0..200 {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut now = Instant::now();
        let rate = (seed % 3 == 0).then(|| Bandwidth::from_mbit(1000));
        let mut sizes = SegmentSizes::new(&PeerConfig::new(Duration::ZERO, rate));
        for _ in 0..3000 {
            now += Duration::from_micros(u64::from(random.next_u32() % 5000));
            let of = [1140, 1360, 8860, 63_612, 64_000, 0, 7][random.next_u32() as usize % 7];
            let count = u64::from(random.next_u32() % 40);
            match random.next_u32() % 8 {
                0 if random.next_u32() % 50 == 0 => {
                    sizes.set_mtu(now, random.next_u32() as usize % 70_000);
                }
                0 => sizes.silent(now, MS, of as u64),
                1 => sizes.take(now, &[fate(of, count, count / (1 + count % 3))]),
                2 => sizes.take(now, &[fate(sizes.again(), count, count)]),
                3 => sizes.reported(now, u64::from(random.next_u32()), None),
                4 => sizes.checkpoint(now),
                5 => sizes.idle(now),
                _ => {
                    for _ in 0..count {
                        sizes.sent(now, sizes.next(u64::MAX) as u64);
                    }
                }
            }
            for data in [sizes.next(u64::MAX), sizes.again(), sizes.single_packet()] {
                assert!((64..=64_000).contains(&data), "{data} bytes, seed {seed}");
            }
            let packets = sizes.classes.get(sizes.safe).map(|class| class.fragments);
            assert_eq!(packets, Some(1), "seed {seed}");
        }
    }
}

/// Segments that are counted together are as many as could leave one by one without a report or another size, and leave the same behind.
#[test]
fn a_run_leaves_what_its_segments_leave_one_by_one() {
    use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
    const MOST: u64 = 100;
    for seed in 0..60 {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut now = Instant::now();
        let rate = (seed % 4 == 0).then(|| Bandwidth::from_mbit(1000));
        let config = PeerConfig::new(Duration::ZERO, rate);
        let mut both = [(); 2].map(|()| SegmentSizes::new(&config));
        let mtu = [1500, 9000, 65_536][random.next_u32() as usize % 3];
        both.iter_mut().for_each(|sizes| sizes.set_mtu(now, mtu));
        for _ in 0..500 {
            now += Duration::from_micros(u64::from(random.next_u32() % 1000));
            let [step, lost] = [(); 2].map(|()| random.next_u32());
            let [together, alone] = &mut both;
            let (run, data) = (together.run(now), together.next(u64::MAX));
            for number in 0..run.min(MOST) {
                assert!(!alone.wants_report(now), "{number} of {run}, seed {seed}");
                assert_eq!(alone.next(u64::MAX), data, "{number}, seed {seed}");
                alone.sent(now, data as u64);
            }
            if run > 0 {
                together.sent(now, run.min(MOST) * data as u64);
            }
            let goes_on = !alone.wants_report(now) && alone.next(u64::MAX) == data;
            // Where each may end a span, or is a probe, they are counted one by one.
            assert!(run == 1 || run > MOST || !goes_on, "{run}, seed {seed}");
            for sizes in &mut both {
                let (position, data) = (sizes.position(), sizes.again());
                match step % 6 {
                    0 => sizes.reported(now, position, Some(MS)),
                    1 => sizes.take(now, &[fate(data, 20, u64::from(lost % 40 == 0))]),
                    2 if step % 5 == 0 => sizes.idle(now),
                    3 => sizes.take(now, &[fate(sizes.next(u64::MAX), 4, 0)]),
                    _ => sizes.checkpoint(now),
                }
            }
            let [together, alone] = both.each_ref().map(|sizes| format!("{sizes:?}"));
            assert_eq!(together, alone, "seed {seed}");
        }
    }
}
