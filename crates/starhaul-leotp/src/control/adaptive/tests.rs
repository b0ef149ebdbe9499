//! The rule over one hop in virtual time.

mod told;

use super::*;

/// A hop of constant round-trip time in virtual time: what the control finds of it.
struct Hop {
    start: Instant,
    control: Adaptive,
    /// Seconds since `start`.
    now: f64,
    busy_until: f64,
    last: f64,
    rates: VecDeque<(f64, f64)>,
    rtt: f64,
    /// The receiver sleeps so long at the end of each period.
    sleeps: (f64, f64),
    /// Packets that wait at most; others are lost.
    buffer: f64,
    lost: u32,
    /// One in so many is lost whatever is sent, if it is not zero.
    one_lost_in: u64,
    random: u64,
    /// Packets of the last run, lost ones included.
    offered: u32,
}

const RTT: f64 = 0.02;
const BYTES: u32 = 1500;

impl Hop {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            control: Adaptive::default(),
            now: 0.0,
            busy_until: 0.0,
            last: 0.0,
            rates: [(0.0, 1e6)].into(),
            rtt: RTT,
            sleeps: (1.0, 0.0),
            buffer: f64::INFINITY,
            lost: 0,
            one_lost_in: 0,
            random: 1,
            offered: 0,
        }
    }

    fn is_unlucky(&mut self) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.one_lost_in > 0 && (self.random >> 33).is_multiple_of(self.one_lost_in)
    }

    /// When the receiver sees what arrives then.
    fn awake_at(&self, at: f64) -> f64 {
        let (period, asleep) = self.sleeps;
        let wakes = (at / period).ceil() * period;
        if at > wakes - asleep { wakes } else { at }
    }

    /// Sends for a time over a hop of this capacity and one-way delay; returns bytes per second and the mean queue
    /// in seconds.
    fn run(&mut self, seconds: f64, capacity: f64, delay: f64) -> (f64, f64) {
        let (end, mut sent, mut waited) = (self.now + seconds, 0.0, 0.0);
        let bytes = f64::from(BYTES);
        self.offered = 0;
        while self.now < end {
            while self.rates.get(1).is_some_and(|(at, _)| *at <= self.now) {
                self.rates.pop_front();
            }
            self.offered += 1;
            let is_full = self.busy_until - self.now > self.buffer * bytes / capacity;
            if is_full || self.is_unlucky() {
                self.lost += 1;
                self.now += bytes / self.rates[0].1;
                continue;
            }
            let leaves = self.busy_until.max(self.now) + bytes / capacity;
            self.busy_until = leaves;
            let micros =
                |seconds: f64| i64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap();
            let arrives = self.awake_at(leaves + delay);
            // What is overtaken tells nothing.
            let is_late = arrives < self.last;
            self.last = self.last.max(arrives);
            let taken = Arrived {
                now: self.start + Duration::from_secs_f64(arrives),
                sent: micros(self.now),
                delay: micros(arrives) - micros(self.now) - 77_000,
                bytes: BYTES,
                missing: self.lost,
                is_limited: false,
                rtt: Duration::from_secs_f64(self.rtt),
            };
            if !is_late {
                self.lost = 0;
                self.control.on_data(&taken);
            }
            if let Some(rate) = self.control.rate() {
                self.rates.push_back((arrives - delay + self.rtt, rate));
            }
            sent += bytes;
            waited += leaves - self.now - bytes / capacity;
            self.now += bytes / self.rates[0].1;
        }
        (sent / seconds, waited / (sent / bytes))
    }
}

/// The least of recent samples, found by a search of the whole window.
fn least_of_recent(control: &Adaptive, packet: &Arrived, round: Duration) -> i64 {
    let samples = control.window.iter().rev();
    let is_recent = |at: Instant| packet.now.saturating_duration_since(at) <= round / 8;
    let recent = samples.clone().take_while(|sample| is_recent(sample.at));
    let least = recent.chain(samples.take(2)).map(|sample| sample.delay);
    least.min().unwrap()
}

#[test]
fn the_least_delay_of_the_last_packets_is_that_of_a_look_at_each() {
    let mut control = Adaptive::default();
    let (start, mut random) = (Instant::now(), 1_u64);
    let mut micros = 0;
    for number in 0..50_000_u32 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let [a, b, c] = [40, 48, 56].map(|bits| i64::from((random >> bits).to_le_bytes()[0]));
        // Some come at once, some after a pause.
        micros += match a {
            0..100 => 0,
            255 => 200_000,
            more => more * 4,
        };
        let packet = Arrived {
            now: start + Duration::from_micros(micros.unsigned_abs()),
            sent: i64::from(number) * 300,
            delay: 1000 + b * b / 8,
            bytes: BYTES,
            missing: 0,
            is_limited: false,
            rtt: Duration::from_millis(5 + c.unsigned_abs()),
        };
        control.on_data(&packet);
        for millis in [8, 20, 300, 5000] {
            let round = Duration::from_millis(millis);
            let expected = least_of_recent(&control, &packet, round);
            assert_eq!(control.recent_delay(&packet, round), expected, "{number}");
        }
        if number % 10_000 == 9_999 {
            control.forget_delays();
        }
    }
}

#[test]
fn the_capacity_is_found_soon_and_kept_with_a_short_queue() {
    let mut hop = Hop::new();
    let (_, worst) = hop.run(0.3, 2.5e6, 0.01);
    assert!(worst < 0.02, "{worst}");
    let (rate, queue) = hop.run(20.0, 2.5e6, 0.01);
    assert!(rate > 0.99 * 2.5e6, "{rate}");
    assert!(queue < 0.002, "{queue}");
}

#[test]
fn a_base_that_is_known_costs_short_drains() {
    let mut hop = Hop::new();
    // What the start made of the base is corrected by the first drain, and found again by the second.
    hop.run(12.0, 2.5e6, 0.01);
    let (steady, _) = hop.run(0.25, 2.5e6, 0.01);
    // Three of a quarter of a round trip at most: 0.4 ms are not sent in each 5 s, where whole ones take 4.
    let quarters: Vec<_> = (0..60).map(|_| hop.run(0.25, 2.5e6, 0.01)).collect();
    let mean = quarters.iter().map(|(rate, _)| rate).sum::<f64>() / 60.0;
    assert!(mean > 0.9995 * steady, "{mean} of {steady}");
    assert!(
        quarters.iter().all(|(_, queue)| *queue < 0.00134),
        "{quarters:?}"
    );
}

#[test]
fn steps_of_the_capacity_are_followed() {
    let mut hop = Hop::new();
    hop.run(2.0, 1.25e6, 0.01);
    let (mut rates, mut queues) = (0.0, 0.0);
    for _ in 0..5 {
        for capacity in [1.375e6, 1.125e6] {
            let (rate, queue) = hop.run(2.0, capacity, 0.01);
            rates += rate / 10.0;
            queues += queue / 10.0;
        }
    }
    assert!(rates > 0.985 * 1.25e6, "{rates}");
    assert!(queues < 0.004, "{queues}");
}

/// What arrives while a host sleeps is seen at once: neither a queue nor a faster hop.
#[test]
fn a_host_that_sleeps_changes_no_rate() {
    let hops = [
        (0.0002, 12.5e6),
        (0.0002, 125e6),
        (0.002, 125e6),
        (0.02, 12.5e6),
    ];
    for (rtt, capacity) in hops {
        for sleeps in [(1.0, 0.0), (0.1, 0.001), (0.05, 0.004), (0.01, 0.001)] {
            let mut hop = Hop::new();
            (hop.rtt, hop.sleeps) = (rtt, sleeps);
            hop.run(1.0, capacity, rtt / 2.0);
            let (rate, queue) = hop.run(4.0, capacity, rtt / 2.0);
            let what = format!("{rtt} s, {capacity} B/s, asleep {sleeps:?}: {rate} B/s, {queue} s");
            assert!((0.96..1.01).contains(&(rate / capacity)), "{what}");
            assert!(queue < 0.0003_f64.max(1.1 * rtt / 32.0), "{what}");
        }
    }
}

#[test]
fn a_buffer_of_some_packets_bounds_the_rate() {
    for (rtt, capacity, buffer) in [
        (0.1, 125e6, 200.0),
        (0.6, 12.5e6, 64.0),
        (0.02, 12.5e6, 32.0),
    ] {
        let mut hop = Hop::new();
        (hop.rtt, hop.buffer) = (rtt, buffer);
        hop.run(4.0, capacity, rtt / 2.0);
        let (rate, _) = hop.run(6.0, capacity, rtt / 2.0);
        let what = format!("{rtt} s, {capacity} B/s, {buffer} packets: {rate} B/s");
        assert!((0.95..1.03).contains(&(rate / capacity)), "{what}");
    }
}

/// Lost packets counted as carried without a bound: where next to nothing waits, as in a policer, the rate only grew.
#[test]
fn a_hop_that_drops_without_a_queue_bounds_the_rate() {
    let hops = [(0.1, 125e6), (0.6, 1.25e6), (0.02, 2.5e6), (0.002, 12.5e6)];
    for ((rtt, capacity), buffer) in hops.into_iter().flat_map(|hop| [(hop, 1.0), (hop, 4.0)]) {
        let mut hop = Hop::new();
        (hop.rtt, hop.buffer) = (rtt, buffer);
        let rounds = 100.0 * LEAST_ROUND.as_secs_f64().max(rtt);
        for capacity in [capacity, capacity / 3.0, capacity] {
            hop.run(rounds, capacity, rtt / 2.0);
            let (rate, _) = hop.run(rounds, capacity, rtt / 2.0);
            let offered = f64::from(hop.offered) * f64::from(BYTES) / (rounds * capacity);
            let what = format!("{rtt} s, {capacity} B/s, {buffer} packets: {rate} B/s");
            assert!(offered < 1.5, "{what} of {offered}");
            assert!(rate > 0.95 * capacity, "{what}");
        }
    }
}

#[test]
fn what_the_path_loses_whatever_is_sent_does_not_lower_the_rate() {
    let hops = [(0.1, 12.5e6), (0.6, 1.25e6), (0.02, 2.5e6), (0.002, 12.5e6)];
    for (rtt, capacity) in hops {
        for (one_in, least) in [(100, 0.98), (10, 0.98), (5, 0.95), (3, 0.9)] {
            let mut hop = Hop::new();
            (hop.rtt, hop.one_lost_in) = (rtt, one_in);
            let rounds = LEAST_ROUND.as_secs_f64().max(rtt);
            hop.run(50.0 * rounds, capacity, rtt / 2.0);
            let (rate, _) = hop.run(200.0 * rounds, capacity, rtt / 2.0);
            let what = format!("{rtt} s, {capacity} B/s, one in {one_in}: {rate} B/s");
            assert!(rate > least * capacity, "{what}");
        }
    }
}

/// What was lost in a row says nothing of the rate.
#[test]
fn an_outage_does_not_lower_the_rate() {
    for (rtt, capacity) in [(0.1, 12.5e6), (0.6, 1.25e6), (0.02, 2.5e6), (0.02, 0.25e6)] {
        let mut hop = Hop::new();
        (hop.rtt, hop.one_lost_in) = (rtt, 50);
        hop.run(4.0 + 50.0 * rtt, capacity, rtt / 2.0);
        for lasts in [0.05, 0.2, 0.5] {
            let lost = Duration::from_secs_f64(lasts * capacity / f64::from(BYTES));
            hop.lost += u32::try_from(lost.as_secs()).unwrap();
            hop.now += lasts;
            for _ in 0..20 {
                hop.run(rtt.max(0.05), capacity, rtt / 2.0);
                assert!(
                    !hop.control.losses.is_bound(),
                    "{rtt} s, {capacity} B/s, {lasts} s"
                );
            }
        }
    }
}

#[test]
fn a_longer_path_is_no_queue() {
    let mut hop = Hop::new();
    hop.run(2.0, 2.5e6, 0.01);
    let (rate, _) = hop.run(2.0, 2.5e6, 0.03);
    assert!(rate > 0.95 * 2.5e6, "{rate}");
    let (rate, queue) = hop.run(5.0, 2.5e6, 0.01);
    assert!(rate > 0.98 * 2.5e6, "{rate}");
    assert!(queue < 0.002, "{queue}");
}

/// The rate falls too slowly for it to be noticed within a few round trips.
#[test]
fn a_path_that_is_a_little_longer_is_no_queue() {
    for (rtt, longer) in [(0.08, 0.002), (0.08, 0.003), (0.08, 0.006), (0.3, 0.005)] {
        let mut hop = Hop::new();
        hop.rtt = rtt;
        hop.run(4.0, 2.5e6, rtt / 2.0);
        let rates: Vec<f64> = (0..12)
            .map(|_| hop.run(1.0, 2.5e6, rtt / 2.0 + longer).0 / 2.5e6)
            .collect();
        let mean = rates.iter().sum::<f64>() / 12.0;
        assert!(mean > 0.93, "{rtt} s, {longer} s longer: {rates:?}");
    }
}

/// As where a path goes to a satellite that has just risen: while that link carries little, the other delay passes for the queue that is kept.
#[test]
fn a_longer_path_over_a_link_that_recovers_is_no_queue() {
    for (rtt, longer) in [
        (0.02, 1.0),
        (0.02, 2.0),
        (0.08, 0.8),
        (0.08, 1.5),
        (0.08, 2.0),
        (0.12, 1.0),
        (0.12, 2.0),
        (0.3, 1.0),
        (0.3, 2.0),
    ] {
        let mut hop = Hop::new();
        hop.rtt = rtt;
        hop.run(4.0 + 20.0 * rtt, 1.25e6, rtt / 2.0);
        // Packets of the slow link.
        let longer_s = longer * f64::from(BYTES) / 0.6e6;
        hop.run(1.0, 0.6e6, rtt / 2.0 + longer_s);
        let lasts = 2.0 + 50.0 * rtt;
        let (rate, queue) = hop.run(lasts, 1.25e6, rtt / 2.0 + longer_s);
        let what = format!("{rtt} s, {longer} packets longer, {lasts} s: {rate} B/s, {queue} s");
        println!("{what} {:.3}", rate / 1.25e6);
        assert!(rate > 0.9 * 1.25e6, "{what}");
    }
}

/// As a satellite's link to the ground while it sets.
#[test]
fn a_capacity_that_falls_is_no_longer_path() {
    for (rtt, step) in [(0.008, 0.05), (0.008, 0.12), (0.02, 0.05), (0.02, 0.12)] {
        let mut hop = Hop::new();
        hop.rtt = rtt;
        let mut capacity = 1.25e6;
        hop.run(3.0, capacity, rtt / 2.0);
        while capacity > 0.5e6 {
            capacity *= 1.0 - step;
            let (_, queue) = hop.run(1.0, capacity, rtt / 2.0);
            let least = 4.0 * f64::from(BYTES) / capacity;
            let what = format!("{rtt} s, {step}, {capacity} B/s: {queue} s");
            assert!(queue < least.max(rtt / 4.0), "{what}");
        }
    }
}

#[test]
fn what_a_busy_host_reads_at_once_is_no_rate() {
    let mut hop = Hop::new();
    hop.run(2.0, 2.5e6, 0.01);
    // What was sent in 24 ms is read within a tenth of one, when the last of it has arrived.
    let (read, spacing) = (hop.now + 0.036, f64::from(BYTES) / 2.5e6);
    for number in 0..40_u32 {
        let (sent, now) = (
            hop.now + spacing * f64::from(number),
            read + 2e-6 * f64::from(number),
        );
        let micros =
            |seconds: f64| i64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap();
        hop.control.on_data(&Arrived {
            now: hop.start + Duration::from_secs_f64(now),
            sent: micros(sent),
            delay: micros(now) - micros(sent) - 77_000,
            bytes: BYTES,
            missing: 0,
            is_limited: false,
            rtt: Duration::from_secs_f64(RTT),
        });
        let rate = hop.control.rate().unwrap();
        assert!(rate < 2.0 * 2.5e6, "{rate} after {number}");
    }
}

/// A packet takes 1.2 µs, of which stamps tell whole ones.
#[test]
fn ten_gigabits_are_found_soon_and_kept_with_a_short_queue() {
    // Seconds in which the rate doubles ten times.
    for (rtt, found) in [(0.002, 0.15), (0.02, 0.6)] {
        let mut hop = Hop::new();
        hop.rtt = rtt;
        hop.run(found, 1.25e9, rtt / 2.0);
        let (rate, queue) = hop.run(0.2, 1.25e9, rtt / 2.0);
        let least = least_queue(LEAST_ROUND.max(Duration::from_secs_f64(rtt)));
        let what = format!("{rtt} s: {rate} B/s, {queue} s wait");
        assert!(rate > 0.99 * 1.25e9, "{what}");
        assert!(queue < 1.2 * least.as_secs_f64(), "{what}");
    }
}
