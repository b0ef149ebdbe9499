//! Packets as blocks of their own, as an IP tunnel sends them: as many as the paths carry, and more.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its world has failed"
)]

use std::time::Duration;

use bytes::Bytes;
use starhaul_cc::ControllerConfig;
use starhaul_lab::worlds::stack::{HostSettings, PathSetup, World};
use starhaul_session::{BlockOptions, Event, Mode, Outcome, SchedulerChoice, StreamConfig};
use starhaul_units::Bandwidth;

const PACKET_BYTES: usize = 1150;
/// What startup of the controllers takes is not judged.
const JUDGED_FROM: Duration = Duration::from_secs(2);
const END: Duration = Duration::from_secs(8);
const FAST: &str = "rate=20mbit,delay=15ms,loss=2%,queue=100p";
const SLOWER: &str = "rate=10mbit,delay=40ms,loss=2%,queue=100p";
const GEO: &str = "rate=10mbit,delay=300ms,loss=1%,queue=500p";

struct Load {
    links: [&'static str; 2],
    mode: Mode,
    mbit: u64,
    deadline_ms: u64,
}

/// Outcomes of the blocks of a run.
struct Told {
    offered: u32,
    on_time: u32,
    late: u32,
}

impl Told {
    fn on_time_mbit(&self) -> f64 {
        let bytes = f64::from(self.on_time) * PACKET_BYTES as f64;
        bytes * 8.0 / (END - JUDGED_FROM).as_secs_f64() / 1e6
    }
}

fn run(scheduler: SchedulerChoice, seed: u64, load: &Load) -> Told {
    let settings = HostSettings {
        scheduler,
        ..HostSettings::default()
    };
    let path = |link: &str| PathSetup {
        forward: link.parse().unwrap(),
        backward: link.parse().unwrap(),
        cost: 0.0,
        controller: ControllerConfig::Bbr,
    };
    let mut world = World::starhaul_with(seed, &load.links.map(path), &[], &settings).unwrap();
    let config = StreamConfig {
        mode: load.mode,
        deadline: Duration::from_millis(load.deadline_ms),
        ..StreamConfig::default()
    };
    let stream = world.open_stream(config).unwrap();
    let data = Bytes::from_static(&[7; PACKET_BYTES]);
    let every = Bandwidth::from_mbit(load.mbit).time_to_send(PACKET_BYTES as u64);
    let (mut sent, mut told) = (
        0,
        Told {
            offered: 0,
            on_time: 0,
            late: 0,
        },
    );
    world.run(END, |world| {
        let (now, elapsed) = (world.now(), world.elapsed());
        while every * sent <= elapsed {
            let session = world.sender().session().unwrap();
            let block = session.send_block(now, stream, data.clone(), BlockOptions::default());
            block.unwrap();
            sent += 1;
        }
        for event in world.sender().events() {
            if let Event::BlockOutcome { outcome, .. } = event
                && elapsed >= JUDGED_FROM
            {
                told.offered += 1;
                match outcome {
                    Outcome::Delivered { on_time: true, .. } => told.on_time += 1,
                    Outcome::Delivered { .. } => told.late += 1,
                    _ => {}
                }
            }
        }
        world.receiver().events();
        Some(every * sent)
    });
    let (
        name,
        Load {
            mode,
            mbit,
            deadline_ms,
            ..
        },
    ) = (scheduler.name(), load);
    println!(
        "{name}, seed {seed}: {mbit} Mbit/s {mode:?} due in {deadline_ms} ms: {:.1} Mbit/s on time, {} of {} late",
        told.on_time_mbit(),
        told.late,
        told.offered,
    );
    let judged = (END - JUDGED_FROM).as_secs_f64() / every.as_secs_f64();
    assert!(
        f64::from(told.offered) > 0.95 * judged,
        "{} ended",
        told.offered
    );
    told
}

/// So many Mbit/s at least are on time, and few are sent to arrive late.
fn each_brings(least: f64, load: &Load) {
    for scheduler in SchedulerChoice::ALL {
        for seed in 1..3 {
            let told = run(scheduler, seed, load);
            let on_time = told.on_time_mbit();
            assert!(on_time > least, "{on_time} Mbit/s");
            assert!(told.late * 30 < told.offered, "{} late", told.late);
        }
    }
}

/// No path carries them alone, both do. The first of those that wait always arrive sooner over the fast path; one of those far behind must take the
/// other.
#[test]
fn packets_that_two_paths_carry_are_on_time() {
    let load = Load {
        links: [FAST, SLOWER],
        mode: Mode::FecRetransmit,
        mbit: 24,
        deadline_ms: 300,
    };
    each_brings(0.99 * 24.0, &load);
}

/// With headers the paths carry 26.4 Mbit/s of such packets, less 2 % lost; lost ones are sent again, which takes the place of others, and
/// few are sent to arrive late.
#[test]
fn of_more_than_the_paths_carry_as_much_is_on_time_as_they_carry() {
    for (mode, mbit, least) in [
        (Mode::FecRetransmit, 28, 23.5),
        (Mode::FecRetransmit, 40, 23.5),
        (Mode::FecRetransmit, 100, 22.5),
        (Mode::None, 40, 24.5),
    ] {
        let load = Load {
            links: [FAST, SLOWER],
            mode,
            mbit,
            deadline_ms: 300,
        };
        each_brings(least, &load);
    }
}

/// Only one of the paths brings them in time, and carries 17.2 Mbit/s of them; what both carry is no measure.
#[test]
fn more_than_the_only_path_carries_that_is_fast_enough_is_an_overload() {
    let load = Load {
        links: [FAST, GEO],
        mode: Mode::FecRetransmit,
        mbit: 24,
        deadline_ms: 150,
    };
    each_brings(15.5, &load);
}
