//! Two paths that are one behind the first hop, and two that are not: the session's figures tell them apart.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_link::LinkSpec;
use starhaul_session::{Fact, Observer, SchedulerChoice};

use super::{
    CLIENTS, each_seed, seeds,
    world::{PERIOD, World, address},
};

const LINKS: [&str; 2] = [
    "rate=10mbit,delay=30ms,jitter=1ms,queue=150p",
    "rate=10mbit,delay=50ms,jitter=1ms,queue=150p",
];
/// In the mean a link keeps a rate for so long.
const STEADY: Duration = Duration::from_millis(700);
/// What is remembered of the paths, and what their controllers take to start.
const LONG: Duration = Duration::from_secs(36);

/// What observers were told of shared bottlenecks.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<bool>>>);

impl Observer for Heard {
    fn on_fact(&mut self, _now: Instant, fact: &Fact<'_>) {
        if let Fact::BottleneckShared { is_shared, .. } = fact {
            self.0.lock().expect("no panic").push(*is_shared);
        }
    }
}

/// Whether the client says that its paths share a bottleneck, after they carried all they could. Where they do, the second one crosses the
/// first link, too; the link of each bottleneck changes its rate by chance, as radio links do.
fn is_found(scheduler: SchedulerChoice, seed: u64, is_shared: bool) -> bool {
    let links = LINKS.map(|text| {
        let link: LinkSpec = text.parse().expect("a link");
        [link.clone(), link]
    });
    let mut world = World::with(scheduler, seed, links, |_, _| {});
    let bottlenecks = if is_shared { 0..1 } else { 0..2 };
    if is_shared {
        let (first, second) = (world.links[0].forward, world.links[1].forward);
        let (client, server) = (address(0, 1), address(1, 1));
        let network = &mut world.sim.network;
        network.set_route(client, server, &[first, second]);
        world.set_rate(1, CLIENTS, 100);
    }
    let heard = Heard::default();
    world.sim.nodes[0]
        .session()
        .observe(Box::new(heard.clone()));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    world.run_full(LONG, |world| {
        for path in bottlenecks.clone() {
            if rng.random_bool(PERIOD.as_secs_f64() / STEADY.as_secs_f64()) {
                world.set_rate(path, CLIENTS, rng.random_range(4..=14));
            }
        }
    });
    let paths = world.sim.nodes[0].session().path_stats();
    let [one, other] = &paths[..] else {
        panic!("{}: not two paths: {paths:?}", world.name);
    };
    let found = one.shares_bottleneck_with(other);
    assert_eq!(found, other.shares_bottleneck_with(one), "{}", world.name);
    let heard = heard.0.lock().expect("no panic");
    let told = heard.last().copied().unwrap_or_default();
    assert_eq!(told, found, "{}: told {heard:?}", world.name);
    found
}

#[test]
fn a_shared_bottleneck_is_told_and_bottlenecks_of_equal_rates_are_not() {
    let shared = each_seed(seeds(1..4), |scheduler, seed| {
        is_found(scheduler, seed, true)
    });
    let apart = each_seed(seeds(1..4), |scheduler, seed| {
        is_found(scheduler, seed, false)
    });
    println!("shared: {shared:?}, apart: {apart:?}");
    for (scheduler, found) in shared {
        assert!(found.iter().all(|found| *found), "{}", scheduler.name());
    }
    for (scheduler, found) in apart {
        assert!(!found.iter().any(|found| *found), "{}", scheduler.name());
    }
}
