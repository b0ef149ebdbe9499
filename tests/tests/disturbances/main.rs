//! What strikes a session in its life, in virtual time: longer delays, a tenth of the rate, outages, other clocks, a receiver that
//! does not read. Each block has one outcome, and the right one; all that physics allows arrives in time, and memory
//! returns to its level.

mod side;
mod world;

use std::time::Duration;

use starhaul_session::SchedulerChoice;
use world::World;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const NEVER: std::ops::Range<Duration> = Duration::ZERO..Duration::ZERO;

#[test]
fn undisturbed_all_blocks_are_on_time() {
    for scheduler in SchedulerChoice::ALL {
        for seed in 0..3 {
            let mut world = World::new(scheduler, seed);
            world.run_secs(30);
            let level = world.rest();
            println!("{}: late {:?} held {:?} level {level}", world.name, world.late().len(), world.most_held);
            world.judge([NEVER; 2]);
            world.assert_late_only_in(&[]);
        }
    }
}

#[test]
fn explore() {
    for scheduler in SchedulerChoice::ALL {
        for which in 0..9 { if std::env::var("ONLY").is_ok_and(|o| o != which.to_string()) { continue; }
            let mut world = World::new(scheduler, 1);
            world.name = format!("{which} {}", world.name);
            world.run_secs(10);
            let before = world.rest();
            world.run_secs(10);
            let struck = world.elapsed();
            world.most_held = Default::default();
            let both: &[usize] = &[0, 1];
            match which {
                0 => world.set_rate(0, both, 2),
                1 => { world.set_rate(0, both, 2); world.set_rate(1, both, 2) }
                2 => world.set_rate(0, &[0], 2),
                3 => world.cut(0, both),
                4 => world.cut(1, both),
                5 => world.cut(0, &[0]),
                6 => world.cut(0, &[1]),
                7 => { world.cut(0, both); world.cut(1, both) }
                _ => { world.cut(0, &[0]); world.cut(1, &[0]) }
            }
            if std::env::var("SERIES").is_ok() { for step in 0..30 {
                let (from, passed) = (world.elapsed(), world.links.iter().flat_map(|l| [l.forward, l.backward]).map(|l| world.sim.network[l].stats()).collect::<Vec<_>>());
                let _ = from;
                world.run_secs(1);
                let now: Vec<_> = world.links.iter().flat_map(|l| [l.forward, l.backward]).map(|l| world.sim.network[l].stats()).collect();
                println!("  {step}: {}", now.iter().zip(&passed).map(|(a, b)| format!("{:.2}M drop {} ", (a.delivered_bytes - b.delivered_bytes) as f64 * 8e-6, a.dropped_queue - b.dropped_queue)).collect::<String>());
                for path in world.sim.nodes[0].paths() { let s = path.stats; println!("      {} up {} {} cwnd {} fl {} {:?}", path.name, path.up, path.controller_state, path.cwnd, path.bytes_in_flight, s.map(|s| (s.bandwidth, s.smoothed_rtt, s.min_rtt, s.suspect, s.loss_rate))); }
            } } else { world.run_secs(30); }
            let ended = world.elapsed();
            let held = world.most_held;
            for path in 0..2 {
                world.mend(path, both);
                world.set_rate(path, both, 20);
            }
            world.run_secs(30);
            let after = world.rest();
            let at = |at: Duration| (at.as_secs_f64() - struck.as_secs_f64());
            let late = world.late();
            println!("{}: late {} held {held:?} level {before} {after}", world.name, late.len());
            for side in 0..2 { for load in 0..2 {
                let mine: Vec<_> = late.iter().filter(|l| (l.0, l.1) == (side, load)).collect();
                let during = mine.iter().filter(|l| l.2 >= struck + s(2) && l.2 < ended).count();
                let begin: Vec<_> = mine.iter().filter(|l| l.2 < struck + s(2)).map(|l| (at(l.2), format!("{:?}", l.3))).collect();
                let after: Vec<_> = mine.iter().filter(|l| l.2 >= ended).map(|l| at(l.2) - 30.0).collect();
                println!("   side {side} load {load}: {} late, {during} during, begin {:?} .. {:?}, after {:?} .. {:?}", mine.len(), begin.first(), begin.last(), after.first(), after.last());
            }}
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.judge([NEVER; 2])));
            if std::env::var("SERIES").is_ok() { for side in 0..2 { let mut per = vec![0; 31]; late.iter().filter(|l| l.0 == side && l.1 == 1).for_each(|l| { let a = at(l.2); if (0.0..31.0).contains(&a) { per[a as usize] += 1 } }); println!("   side {side} late per s {per:?}"); } }
            println!("   judged {}", ok.is_ok());
        }
    }
}
