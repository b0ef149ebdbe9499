//! Who carries the data of a block that begins to leave: a block of many fragments leaves over each path that brings a part of it sooner.

use std::time::Instant;

use starhaul_paths::PathId;

use super::few::Few;
use crate::paths::{LAST_RESORT, Path, Paths};

/// What a block needs, and by when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cargo {
    pub(super) bytes: u64,
    pub(super) fragment: u64,
    pub(super) deadline: Instant,
}

/// Paths, and the share of the data that each carries.
#[derive(Clone, Debug)]
pub(super) struct Carriers(Few<(PathId, f64)>);

impl Carriers {
    /// One path carries the whole block.
    pub(super) fn alone(path: PathId) -> Self {
        Self(Few::One((path, 1.0)))
    }

    /// Of a block whose first fragment leaves over `first`. Others take a part as the rules have it (`rules::takes_data`): what arrives over
    /// them before the last of it would over `first`, but for the last resort, and for dearer ones while `first` brings all in time.
    pub(super) fn of(now: Instant, paths: &Paths, first: PathId, cargo: Cargo) -> Self {
        let alone = Self::alone(first);
        let Some(main) = paths.get(first) else {
            return alone;
        };
        if paths.len() == 1 {
            return alone;
        }
        let arrival = |path: &Path, bytes| path.monitor.predict_arrival(now, 0, bytes);
        let whole = arrival(main, cargo.bytes);
        let is_enough = whole <= cargo.deadline;
        let takes = |path: &Path| {
            let (cost, own) = (path.monitor.cost(), main.monitor.cost());
            let is_spared = cost >= LAST_RESORT && own < LAST_RESORT;
            let begins = arrival(path, cargo.fragment);
            !is_spared && (cost <= own || !is_enough) && begins < whole && begins <= cargo.deadline
        };
        let others = paths
            .carrying(cargo.fragment)
            .filter(|(id, path)| *id != first && takes(path));
        // When the first byte arrives, and bytes a second from then on.
        let mut flows: Vec<(PathId, f64, f64)> = std::iter::once((first, main))
            .chain(others)
            .map(|(id, path)| {
                let rate = path.monitor.bandwidth().bits_per_second() as f64 / 8.0;
                let begins = arrival(path, cargo.fragment).saturating_duration_since(now);
                let begins = begins.as_secs_f64() - cargo.fragment as f64 / rate;
                (id, begins.max(0.0), rate)
            })
            .collect();
        if flows.len() == 1 {
            return alone;
        }
        flows.sort_by(|a, b| a.1.total_cmp(&b.1));
        // All end at once: the last path that is needed begins before that.
        let (mut rates, mut begun, mut end) = (0.0, 0.0, f64::MAX);
        for (_, begins, rate) in &flows {
            if *begins >= end {
                break;
            }
            rates += rate;
            begun += begins * rate;
            end = (cargo.bytes as f64 + begun) / rates;
        }
        let shares = flows.into_iter().filter_map(|(id, begins, rate)| {
            let share = (end - begins) * rate / cargo.bytes.max(1) as f64;
            (share > 0.0).then_some((id, share))
        });
        Self(Few::Many(shares.collect()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PathId, f64)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use starhaul_paths::PathUpdate;
    use starhaul_units::Bandwidth;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Paths of so many Mbit/s, with this round trip and cost.
    fn paths(now: Instant, of: &[(u64, u32, f64)]) -> Paths {
        let mut paths = Paths::default();
        for (id, (mbit, rtt_ms, cost)) in (0..).zip(of) {
            let update = PathUpdate {
                cwnd: 1 << 20,
                bytes_in_flight: 0,
                bandwidth: Bandwidth::from_mbit(*mbit),
                smoothed_rtt: *rtt_ms * MS,
                min_rtt: *rtt_ms * MS,
                max_datagram: 1_200,
            };
            paths.add(now, PathId(id), *cost, update);
        }
        paths
    }

    fn shares(of: &[(u64, u32, f64)], first: u32, bytes: u64) -> Vec<(u32, f64)> {
        let now = Instant::now();
        let cargo = Cargo {
            bytes,
            fragment: 1_200,
            deadline: now + 100 * MS,
        };
        let carriers = Carriers::of(now, &paths(now, of), PathId(first), cargo);
        carriers.iter().map(|(id, share)| (id.0, share)).collect()
    }

    #[test]
    fn a_block_leaves_over_all_paths_that_bring_a_part_sooner() {
        // 24 kB take 38 ms of the first; the second, 40 ms longer there and back, is ten times as fast.
        let both = shares(&[(5, 30, 1.0), (50, 70, 1.0)], 0, 24_000);
        assert_eq!(both.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
        let sum: f64 = both.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{both:?}");
        assert!((0.3..0.7).contains(&both[1].1), "{both:?}");
        // A fragment leaves over one, and so does what the other would bring later.
        assert_eq!(shares(&[(5, 30, 1.0), (50, 70, 1.0)], 0, 1_200), [(0, 1.0)]);
        assert_eq!(
            shares(&[(50, 30, 1.0), (50, 70, 1.0)], 0, 24_000),
            [(0, 1.0)]
        );
    }

    #[test]
    fn a_dearer_path_takes_what_would_be_late_alone_and_the_last_resort_nothing() {
        let dear = |bytes| shares(&[(5, 30, 1.0), (50, 30, 2.0)], 0, bytes).len();
        assert_eq!([dear(24_000), dear(80_000)], [1, 2]);
        let last = [(5, 30, 1.0), (50, 30, LAST_RESORT)];
        assert_eq!(shares(&last, 0, 80_000), [(0, 1.0)]);
    }
}
