use std::time::{Duration, Instant};

use starhaul_cc::{ControllerConfig, DetectorConfig, QueueWish};
use starhaul_link::{LeoModel, LinkSpec, Loss, QueueLimit};
use starhaul_units::Bandwidth;

use crate::*;

fn path(forward: &str) -> FlowPath {
    FlowPath {
        forward: vec![forward.parse().unwrap()],
        backward: vec!["rate=100mbit,delay=20ms".parse().unwrap()],
    }
}

fn world(path: &FlowPath, controllers: &[&str]) -> FlowNetwork {
    let base = Instant::now();
    let mut world = FlowNetwork::new(path, 7, base);
    for name in controllers {
        let config: ControllerConfig = name.parse().unwrap();
        world.add_flow(FlowSetup::saturating(config.build(base, 1500)));
    }
    world
}

fn run(path: &FlowPath, controllers: &[&str], seconds: u64) -> Vec<FlowReport> {
    let mut world = world(path, controllers);
    world.run(Duration::from_secs(seconds));
    world.reports()
}

#[test]
fn a_flow_fills_the_link_and_waits_in_its_queue_only() {
    let reports = run(&path("rate=12mbit,delay=20ms,queue=40p"), &["cubic"], 20);
    let Metrics {
        throughput_mbps,
        capacity_mbps,
        queue_delay_p95_ms,
        rtt_mean_ms,
        ..
    } = reports[0].metrics;
    assert!((capacity_mbps - 12.0).abs() < 0.001, "{capacity_mbps}");
    assert!(
        (11.4..=12.0).contains(&throughput_mbps),
        "{throughput_mbps}"
    );
    // 40 packets and the one being sent, at 1 ms each
    assert!(
        (10.0..=41.1).contains(&queue_delay_p95_ms),
        "{queue_delay_p95_ms}"
    );
    assert!((41.0..=110.0).contains(&rtt_mean_ms), "{rtt_mean_ms}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let path = path("rate=8mbit,delay=20ms,loss=1%");
    let run = |seed, base: Instant| {
        let mut world = FlowNetwork::new(&path, seed, base);
        let config: ControllerConfig = "bbr".parse().unwrap();
        world.add_flow(FlowSetup::saturating(config.build(base, 1500)));
        world.run(Duration::from_secs(5));
        world.reports()[0].metrics
    };
    let now = Instant::now();
    assert_eq!(run(3, now), run(3, now + Duration::from_secs(1000)));
    assert_ne!(run(3, now), run(4, now));
}

#[test]
fn random_loss_is_measured_and_repaired() {
    let reports = run(&path("rate=20mbit,delay=10ms,loss=2%"), &["bbr"], 10);
    let FlowReport {
        metrics, recovery, ..
    } = &reports[0];
    assert!((0.016..0.024).contains(&metrics.loss_rate), "{metrics:?}");
    assert!(metrics.utilisation > 0.85, "{metrics:?}");
    assert!(
        recovery.lost > 200 && recovery.spurious == 0,
        "{recovery:?}"
    );
}

#[test]
fn loss_is_measured_on_long_paths_too() {
    // More packets are under way than are lost, and as many acknowledgements.
    let way = path("rate=10mbit,delay=300ms,loss=0.5%");
    let mut world = FlowNetwork::new(&way, 7, Instant::now());
    let config: ControllerConfig = "bbr".parse().unwrap();
    world.add_flow(FlowSetup::saturating(config.build(Instant::now(), 1500)));
    world.run(Duration::from_secs(10));
    world.restart_figures();
    world.run(Duration::from_secs(30));
    let (_, link) = world.take_passages();
    let told = world.reports()[0].metrics.loss_rate;
    let dropped = (link.dropped_loss + link.dropped_queue) as f64 / link.enqueued as f64;
    assert!((told - dropped).abs() < 1e-3, "{told} of {dropped}");
    assert!(told > 3e-3, "{told}");
}

#[test]
fn what_is_sent_twice_in_vain_counts_once() {
    // Packets overtaken by more than three others are declared lost, and arrive all the same.
    let reports = run(
        &path("rate=10mbit,delay=20ms,reorder=5%:15ms"),
        &["bbr"],
        10,
    );
    let FlowReport {
        metrics, recovery, ..
    } = &reports[0];
    assert!(recovery.spurious > 100, "{recovery:?}");
    assert!(
        metrics.utilisation < 0.99 && metrics.loss_rate < 0.01,
        "{metrics:?}"
    );
}

#[test]
fn a_flow_goes_on_after_a_long_outage() {
    let mut world = world(&path("rate=10mbit,delay=20ms,outage=3s..5s"), &["cubic"]);
    world.run(Duration::from_secs(6));
    world.restart_figures();
    world.run(Duration::from_secs(4));
    let reports = world.reports();
    assert!(reports[0].recovery.timeouts > 0, "{reports:?}");
    assert!(
        reports[0].metrics.utilisation > 0.7,
        "{:?}",
        reports[0].metrics
    );
}

#[test]
fn an_application_with_little_to_send_gets_it_through_without_a_queue() {
    let base = Instant::now();
    let mut world = FlowNetwork::new(&path("rate=20mbit,delay=20ms"), 1, base);
    world.add_flow(FlowSetup {
        source: Source::Rate(Bandwidth::from_mbit(3)),
        ..FlowSetup::saturating(ControllerConfig::NewReno.build(base, 1500))
    });
    world.run(Duration::from_secs(10));
    let metrics = world.reports()[0].metrics;
    assert!((metrics.throughput_mbps - 3.0).abs() < 0.05, "{metrics:?}");
    assert!(metrics.queue_delay_p95_ms <= 1.0, "{metrics:?}");
}

/// What bounds the queue of a session with deadlines bounds it here, too: BBR's startup fills a deep queue otherwise.
#[test]
fn a_queue_bound_keeps_startup_out_of_a_deep_queue() {
    let longest_wait = |bound| {
        let base = Instant::now();
        let mut world = FlowNetwork::new(&path("rate=10mbit,delay=20ms,queue=2000p"), 1, base);
        world.add_flow(FlowSetup {
            queue: QueueWish {
                bound,
                short: false,
            },
            ..FlowSetup::saturating(ControllerConfig::Bbr.build(base, 1500))
        });
        world.run(Duration::from_secs(3));
        let metrics = world.reports()[0].metrics;
        assert!(metrics.utilisation > 0.9, "{metrics:?}");
        metrics.queue_delay_p95_ms
    };
    let bounded = longest_wait(Some(Duration::from_millis(20)));
    let free = longest_wait(None);
    assert!(bounded < 0.6 * free, "{bounded} of {free} ms");
}

/// Where interactive data share the path with bulk `leocc2` gives up a little of the rate for a shorter queue. Beside another flow, which keeps
/// the usual one, it still has a quarter of the link.
#[test]
fn ours_keeps_a_shorter_queue_where_that_is_preferred() {
    for seed in 1..=4 {
        let model = LeoModel {
            duration: Duration::from_secs(45),
            ..LeoModel::default()
        };
        let spec = LinkSpec::from_trace(model.generate(seed).unwrap());
        let path = FlowPath {
            forward: vec![spec.clone()],
            backward: vec![spec],
        };
        let run = |flows: &[bool]| {
            let base = Instant::now();
            let mut world = FlowNetwork::new(&path, seed, base);
            for &short in flows {
                let config: ControllerConfig = "leocc2".parse().unwrap();
                world.add_flow(FlowSetup {
                    queue: QueueWish { bound: None, short },
                    ..FlowSetup::saturating(config.build(base, 1500))
                });
            }
            world.run(Duration::from_secs(45));
            let metrics = world.reports().into_iter().map(|report| report.metrics);
            metrics.collect::<Vec<_>>()
        };
        let ([usual], [shorter]) = (&run(&[false])[..], &run(&[true])[..]) else {
            panic!("two runs of one flow");
        };
        let rate = shorter.throughput_mbps / usual.throughput_mbps;
        let queue = shorter.queue_delay_mean_ms / usual.queue_delay_mean_ms;
        println!("seed {seed}: {rate:.3} of the rate, {queue:.3} of the queue");
        assert!(rate > 0.95, "seed {seed}: {rate}");
        assert!(queue < 0.88, "seed {seed}: {queue}");
        let both = run(&[true, false]);
        let share = both[0].throughput_mbps / (both[0].throughput_mbps + both[1].throughput_mbps);
        println!("seed {seed}: {share:.3} beside one with the usual queue");
        assert!(share > 0.25, "seed {seed}: {share}");
    }
}

/// Who knows when the link can carry a packet uses all of it, but for what is lost, and hardly waits.
#[test]
fn an_oracle_uses_all_there_is() {
    for (seed, loss) in [(3, 0.0), (4, 0.02)] {
        let model = LeoModel {
            duration: Duration::from_secs(30),
            ..LeoModel::default()
        };
        let trace = model.generate(seed).unwrap();
        let (base, capacity) = (Instant::now(), trace.capacity.clone());
        let spec = LinkSpec::from_trace(trace).with_loss(Loss::NONE);
        let lossy = spec.clone().with_loss(Loss::bernoulli(loss).unwrap());
        let path = FlowPath {
            forward: vec![lossy],
            backward: vec![spec],
        };
        let mut world = FlowNetwork::new(&path, seed, base);
        world.add_flow(FlowSetup {
            foresight: Some(capacity),
            ..FlowSetup::saturating(ControllerConfig::NewReno.build(base, 1500))
        });
        world.run(Duration::from_secs(30));
        let metrics = world.reports()[0].metrics;
        let used = metrics.utilisation / (1.0 - loss);
        assert!((0.99..=1.001).contains(&used), "seed {seed}: {metrics:?}");
        assert!(
            metrics.queue_delay_p95_ms <= 2.0,
            "seed {seed}: {metrics:?}"
        );
    }
}

#[test]
fn flows_share_what_is_there() {
    let mut setup = path("rate=20mbit,delay=20ms");
    setup.forward[0] = setup.forward[0]
        .clone()
        .with_queue(QueueLimit::Packets(100));
    let reports = run(&setup, &["newreno", "newreno", "newreno"], 15);
    let sum: f64 = reports.iter().map(|r| r.metrics.utilisation).sum();
    assert!((0.95..=1.0).contains(&sum), "{sum}");
    assert!(
        reports.iter().all(|r| r.metrics.utilisation > 0.1),
        "{reports:?}"
    );
}

#[test]
fn the_narrowest_of_several_links_counts() {
    let mut setup = path("rate=50mbit,delay=10ms");
    let ground = LinkSpec::constant(Bandwidth::from_mbit(5), Duration::from_millis(5));
    setup.forward.push(ground.with_loss(Loss::NONE));
    let metrics = run(&setup, &["bbr"], 8)[0].metrics;
    assert!((metrics.capacity_mbps - 5.0).abs() < 0.01, "{metrics:?}");
    assert!(metrics.utilisation > 0.85, "{metrics:?}");
}

/// A trace with an outage of 80 ms each second.
fn gaps() -> FlowPath {
    let ms = Duration::from_millis;
    let rates = [
        (ms(920), Bandwidth::from_mbit(12)),
        (ms(80), Bandwidth::ZERO),
    ];
    let capacity = starhaul_link::Opportunities::from_rates(rates).unwrap();
    let delay = starhaul_link::DelaySeries::from_steps([(ms(1000), ms(20))]);
    let trace = starhaul_link::Trace::new(capacity, delay).unwrap();
    let spec = LinkSpec::from_trace(trace);
    FlowPath {
        forward: vec![spec.clone()],
        backward: vec![spec],
    }
}

#[test]
fn the_far_ends_detector_is_heard_where_no_flow_runs() {
    let mut world = world(&gaps(), &[]);
    world.probe(DetectorConfig::default(), ProbeSide::Receiver);
    world.run(Duration::from_millis(4900));
    assert_eq!(world.alarms().len(), 4, "{:?}", world.alarms());
}

#[test]
fn probes_find_outages_beside_a_full_queue_and_news_from_the_far_end_come_later() {
    let told = |side| {
        let mut world = world(&gaps(), &["cubic"]);
        world.probe(DetectorConfig::default(), side);
        world.run(Duration::from_millis(4900));
        let told: Vec<Duration> = world.alarms().iter().map(|alarm| alarm.told).collect();
        told
    };
    let (near, far) = (told(ProbeSide::Sender), told(ProbeSide::Receiver));
    assert_eq!((near.len(), far.len()), (4, 4), "{near:?} {far:?}");
    for (number, (near, far)) in (1..).zip(near.iter().zip(&far)) {
        let end = Duration::from_secs(number);
        let late = near.saturating_sub(end);
        assert!(late <= Duration::from_millis(60), "{near:?} for {end:?}");
        assert!(
            *far >= *near + Duration::from_millis(15),
            "{near:?} {far:?}"
        );
    }
}
