//! The applications themselves, over a carrier on clean loopback: whatever they count as late or lost later was the stack's doing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use starhaul_demo::{
    self as demo, DemoOptions, DemoRun,
    apps::{self, download::Server},
    baseline::{Carrier, Controller},
    load::{Applications, Class},
};
use starhaul_gateway::QlogFolder;
use starhaul_link::Loss;

/// Short and without loss: it ends by itself, every block of both arrives, both downloads are intact, and the time series are there for the
/// report.
///
/// A host that stands still for longer than a deadline makes the stack drop blocks, as it is meant to: the run with all of them may be the
/// second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_runs_both_systems_to_the_end() {
    let mut missing = lost(&run_to_the_end().await);
    if !missing.is_empty() {
        println!("once more: {missing:?}");
        missing = lost(&run_to_the_end().await);
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// The blocks of each system and class that did not arrive.
fn lost(run: &DemoRun) -> Vec<String> {
    let systems = run.result.systems.named().into_iter();
    let classes = systems.flat_map(|(name, system)| {
        Class::ALL.map(|class| (name, class.name(), system.classes.of(class).lost))
    });
    let short = classes.filter(|(.., lost)| *lost > 0);
    short
        .map(|(name, class, lost)| format!("{name}: {lost} blocks of {class}"))
        .collect()
}

/// A run of the demo in which all is as it should be but, perhaps, lost blocks.
async fn run_to_the_end() -> DemoRun {
    let records = tempfile::tempdir().unwrap();
    let options = DemoOptions {
        seconds: 2,
        leo_trace: Vec::new(),
        leo_loss: Loss::NONE,
        geo_loss: Loss::NONE,
        baseline: Controller::default(),
        applications: Applications::All,
        seed: 5,
        qlog: Some(QlogFolder::create(records.path(), 1 << 26).unwrap()),
    };
    let mut told = 0;
    let run = demo::run(&options, |_| told += 1).await.unwrap();
    assert!(told >= 4, "progress was told {told} times");
    for (name, system) in run.result.systems.named() {
        assert!(
            system.download.sha256_ok && system.download.bytes > 500_000,
            "{name}: {:?}",
            system.download
        );
        assert!(
            system.paths.leo.bytes > 1_000_000 && system.paths.geo.bytes > 1_000,
            "{name}: {:?}",
            system.paths
        );
        let by = [&system.paths.leo, &system.paths.geo].map(|path| path.controller.as_str());
        // The LEO path is one of `link = "leo"`, and its prober has an answer: it is there, though nothing happens in two seconds.
        let (expected, probed) = match name {
            "starhaul" => (["leocc2", "bbr"], true),
            _ => (["cubic", "cubic"], false),
        };
        assert_eq!(by, expected, "{name}");
        assert_eq!(
            system.paths.leo.reconfigurations.is_some(),
            probed,
            "{name}"
        );
        assert_eq!(system.paths.geo.reconfigurations, None, "{name}");
        for class in Class::ALL {
            let score = system.classes.of(class);
            let sent = class.blocks(Duration::from_secs(2)).count() as u64;
            let ended = score.on_time + score.late + score.lost;
            assert_eq!((score.sent, ended), (sent, sent), "{name}: {score:?}");
        }
    }
    let names = std::fs::read_dir(records.path()).unwrap();
    let mut names: Vec<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for gateway in ["field", "ground"] {
        let of = names.iter().filter(|name| name.starts_with(gateway));
        // Of the session and its two paths.
        assert_eq!(of.count(), 3, "{names:?}");
    }
    for (name, series) in run.all_series.named() {
        assert!(
            series.samples.len() >= 4,
            "{name}: {} samples",
            series.samples.len()
        );
    }
    run
}

/// What the figures of all together are compared with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_audio_and_video_run_without_the_download_and_it_without_them() {
    let only = |applications| DemoOptions {
        seconds: 1,
        leo_trace: Vec::new(),
        leo_loss: Loss::NONE,
        geo_loss: Loss::NONE,
        baseline: Controller::default(),
        applications,
        seed: 5,
        qlog: None,
    };
    let options = [Applications::Blocks, Applications::Download].map(only);
    let [blocks, download] = options.each_ref().map(|options| demo::run(options, |_| ()));
    let (blocks, download) = tokio::try_join!(blocks, download).unwrap();
    for (name, system) in blocks.result.systems.named() {
        let text = &system.classes.text;
        assert!(text.sent == 20 && text.p50_ms.is_some(), "{name}: {text:?}");
        assert_eq!(system.download.bytes, 0, "{name}");
    }
    for (name, system) in download.result.systems.named() {
        assert!(system.download.sha256_ok, "{name}: {:?}", system.download);
        for class in Class::ALL {
            assert_eq!(system.classes.of(class).sent, 0, "{name}");
        }
    }
    let warnings = [&blocks, &download].map(|run| &run.result.warnings);
    for warning in warnings.into_iter().flatten() {
        assert!(!warning.contains("download"), "{warning}");
    }
}

/// The same of the baseline: where the host stands still, the kernel drops datagrams of the applications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_application_crosses_the_baseline() {
    let mut missing = cross_the_baseline().await;
    if !missing.is_empty() {
        println!("once more: {missing:?}");
        missing = cross_the_baseline().await;
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// The blocks that did not arrive within a minute, where all else is as it should be.
async fn cross_the_baseline() -> Vec<String> {
    const LENGTH: Duration = Duration::from_millis(1_500);
    let mut egress = Vec::new();
    let mut receivers = Vec::new();
    for class in Class::ALL {
        let socket = apps::loopback_socket().unwrap();
        egress.push((class, apps::local_address(&socket).unwrap()));
        receivers.push((class, socket));
    }
    let far = Carrier::start(true, Controller::default(), 1, &egress)
        .await
        .unwrap();
    let mut near = Carrier::start(false, Controller::default(), 1, &[])
        .await
        .unwrap();
    near.connect(&[far.address()], Duration::from_secs(60))
        .await
        .unwrap();

    let start = Instant::now();
    let mut senders = tokio::task::JoinSet::new();
    let mut logs = Vec::new();
    for (class, socket) in receivers {
        let log = apps::shared_log(class);
        tokio::spawn(apps::receive(class, socket, start, log.clone()));
        senders.spawn(apps::send(
            class,
            near.ingress(class).unwrap(),
            start,
            LENGTH,
            log.clone(),
        ));
        logs.push(log);
    }
    let server = Server::start(9, LENGTH).unwrap();
    let proxy = near.socks().await.unwrap();
    let progress = AtomicU64::new(0);
    let score = server
        .download(proxy, Instant::now() + Duration::from_secs(60), &progress)
        .await
        .unwrap();
    assert!(score.sha256_ok && score.bytes > 1_000_000, "{score:?}");
    while let Some(sender) = senders.join_next().await {
        sender.unwrap().unwrap();
    }
    let mut missing = Vec::new();
    for log in logs {
        for _ in 0..1200 {
            if log.lock().is_complete() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let score = log.lock().score();
        let class = log.lock().class();
        let sent = class.blocks(LENGTH).count() as u64;
        assert_eq!(score.sent, sent, "{}", class.name());
        if score.lost > 0 {
            missing.push(format!("{} blocks of {}", score.lost, class.name()));
        }
    }
    missing
}

/// The figures of the demo would compare with nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_lost_is_a_failure_of_the_baseline() {
    let far = Carrier::start(true, Controller::default(), 1, &[])
        .await
        .unwrap();
    let near = Carrier::start(false, Controller::default(), 1, &[])
        .await
        .unwrap();
    near.connect(&[far.address()], Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(near.failure(), None);
    drop(far);
    for _ in 0..1200 {
        if near.failure().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let why = near.failure().unwrap();
    assert!(why.contains(" was lost: "), "{why}");
}
