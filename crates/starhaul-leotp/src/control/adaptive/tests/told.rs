//! Signals that a hop was reconfigured, right ones and false ones.

use super::*;

/// Bytes per second.
const CAPACITY: f64 = 2.5e6;

/// A hop of this one-way delay that is filled.
fn filled(delay: f64, capacity: f64) -> Hop {
    let mut hop = Hop::new();
    hop.rtt = 2.0 * delay;
    hop.rates = [(0.0, capacity / 2.0)].into();
    hop.run(4.0 + 120.0 * delay, capacity, delay);
    hop
}

impl Hop {
    /// The path is another one from now on, and for this long nothing leaves the link.
    fn reconfigure(&mut self, delay: f64, outage: f64) {
        self.rtt = 2.0 * delay;
        self.busy_until = self.busy_until.max(self.now + outage);
    }
}

/// Seconds in which nothing was sent of those that were to be filled.
fn unsent((rate, _): (f64, f64), seconds: f64) -> f64 {
    (1.0 - rate / CAPACITY) * seconds
}

#[test]
fn a_longer_path_that_is_told_is_soon_no_queue() {
    let paths = [
        (0.005, 0.02),
        (0.01, 0.015),
        (0.01, 0.03),
        (0.02, 0.03),
        (0.05, 0.06),
        (0.1, 0.115),
    ];
    for (delay, longer) in paths {
        let [told, untold] = [true, false].map(|is_told| {
            let mut hop = filled(delay, CAPACITY);
            hop.reconfigure(longer, 0.0);
            // Until a probe has come back over the new path: that is when the last of these arrives.
            hop.run(longer, CAPACITY, longer);
            if is_told {
                hop.control.on_reconfiguration();
            }
            let soon = 4.0 * longer + 0.2;
            let lost = unsent(hop.run(soon, CAPACITY, longer), soon);
            let later = hop.run(1.0, CAPACITY, longer);
            (lost + unsent(later, 1.0), later)
        });
        let what = format!("{delay} s, then {longer}: {told:?}, untold {untold:?}");
        let (lost, (rate, queue)) = told;
        assert!(rate > 0.98 * CAPACITY, "{what}");
        assert!(queue < 0.0025, "{what}");
        assert!(lost < 0.92 * untold.0, "{what}");
    }
}

/// Packets waited for a little too long. The drain that looks for a shorter path let less arrive, of which as much seems to be the queue that is
/// kept: for seconds the rate stayed so low.
#[test]
fn a_path_that_is_a_little_longer_and_told_is_found_as_soon_as_untold() {
    for (delay, longer) in [(0.01, 0.0018), (0.01, 0.0019), (0.02, 0.0018)] {
        let [told, untold] = [true, false].map(|is_told| {
            let (mut hop, after) = (filled(delay, CAPACITY), delay + longer);
            hop.reconfigure(after, 0.0);
            hop.run(after, CAPACITY, after);
            if is_told {
                hop.control.on_reconfiguration();
            }
            unsent(hop.run(4.0, CAPACITY, after), 4.0)
        });
        assert!(
            told < untold + 0.05,
            "{delay} s, {longer} s longer: {told} s unsent, untold {untold}"
        );
    }
}

/// A shorter path hid below what had waited during the outage, for as long as there was enough to send.
#[test]
fn a_shorter_path_that_is_told_is_found_below_a_queue() {
    let queue_after = |is_told: bool| {
        let mut hop = filled(0.03, CAPACITY);
        hop.reconfigure(0.01, 0.1);
        hop.run(0.125, CAPACITY, 0.01);
        if is_told {
            hop.control.on_reconfiguration();
        }
        hop.run(1.0, CAPACITY, 0.01);
        hop.run(1.0, CAPACITY, 0.01)
    };
    let ((rate, queue), (_, untold)) = (queue_after(true), queue_after(false));
    assert!(rate > 0.98 * CAPACITY, "{rate} B/s");
    assert!(queue < 0.003, "{queue} s, untold {untold}");
    assert!(
        untold > 0.008,
        "{untold} s: this set-up shows nothing any more"
    );
}

/// What waits since an outage stays as long as all that is carried is sent: it would be taken for the path if the signal were believed
/// before less was sent.
#[test]
fn what_waited_during_an_outage_is_no_longer_path() {
    for (delay, after) in [(0.01, 0.01), (0.02, 0.02), (0.01, 0.03), (0.03, 0.035)] {
        for outage in [0.05, 0.1] {
            let [told, untold] = [true, false].map(|is_told| {
                let mut hop = filled(delay, CAPACITY);
                hop.reconfigure(after, outage);
                hop.run(outage + 0.035 - after, CAPACITY, after);
                if is_told {
                    hop.control.on_reconfiguration();
                }
                let soon = hop.run(1.5, CAPACITY, after);
                (unsent(soon, 1.5), hop.run(1.0, CAPACITY, after))
            });
            let what = format!("{delay} s, {outage} s, then {after}: {told:?}, untold {untold:?}");
            let (lost, (rate, queue)) = told;
            assert!(queue < 0.003, "{what}");
            assert!(rate > 0.98 * CAPACITY, "{what}");
            assert!(lost < untold.0 + 0.02, "{what}");
        }
    }
}

#[test]
fn false_signals_cost_less_than_a_hundredth_of_the_rate() {
    for (delay, capacity) in [(0.002, 12.5e6), (0.01, 2.5e6), (0.05, 2.5e6), (0.15, 2.5e6)] {
        // News is passed on once a second.
        for (apart, count) in [(1.0, 10), (5.0, 3)] {
            let mut hop = filled(delay, capacity);
            let (mut carried, mut worst) = (0.0, 0.0_f64);
            for _ in 0..count {
                hop.control.on_reconfiguration();
                let (rate, queue) = hop.run(apart, capacity, delay);
                carried += rate / f64::from(count);
                worst = worst.max(queue);
            }
            let what = format!("{delay} s, {apart} s apart: {carried} of {capacity}, {worst} s");
            assert!(carried > 0.99 * capacity, "{what}");
            assert!(worst < 0.0025, "{what}");
        }
    }
}

#[test]
fn signals_without_end_leave_the_queue_short_whatever_the_capacity_does() {
    let mut hop = filled(0.01, 1.25e6);
    let (mut rates, mut queues) = (0.0, 0.0);
    for _ in 0..5 {
        for capacity in [1.375e6, 1.125e6] {
            for _ in 0..4 {
                hop.control.on_reconfiguration();
                let (rate, queue) = hop.run(0.5, capacity, 0.01);
                rates += rate / 40.0;
                queues += queue / 40.0;
            }
        }
    }
    assert!(rates > 0.98 * 1.25e6, "{rates}");
    assert!(queues < 0.004, "{queues}");
    // As a satellite's link to the ground while it sets.
    let mut capacity = 1.25e6;
    while capacity > 0.5e6 {
        capacity *= 0.88;
        hop.control.on_reconfiguration();
        let (_, queue) = hop.run(1.0, capacity, 0.01);
        let least = 4.0 * f64::from(BYTES) / capacity;
        assert!(queue < least.max(0.005), "{capacity} B/s: {queue} s");
    }
}

/// There is nothing to forget: the start goes on.
#[test]
fn a_signal_at_the_start_does_not_hold_it_up() {
    let start = |is_told: bool| {
        let mut hop = Hop::new();
        if is_told {
            hop.control.on_reconfiguration();
        }
        hop.run(0.3, CAPACITY, 0.01).0
    };
    let (told, untold) = (start(true), start(false));
    assert!(told > 0.97 * untold, "{told} of {untold} B/s");
}
