//! What scrapes cost a bundle node and a relay: processor time at rest, and throughput.

use std::{
    fs,
    net::SocketAddr,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Nodes, Process, get, relay};
use crate::program::{path, run, starhaul, text};

/// 1 Mbit/s in bytes per second.
const BYTES_PER_S: f64 = 125_000.0;
/// How long a program is watched at rest.
const REST: Duration = Duration::from_secs(10);
const TURNS: usize = 9;

/// Scrapes at 1 Mbit/s until it is ended.
struct Scraping {
    end: Arc<AtomicBool>,
    thread: JoinHandle<(usize, usize)>,
}

impl Scraping {
    fn begin(address: SocketAddr) -> Self {
        let end = Arc::<AtomicBool>::default();
        let ended = end.clone();
        let thread = thread::spawn(move || {
            let (begun, mut bytes, mut count) = (Instant::now(), 0, 0);
            while !ended.load(Ordering::Relaxed) {
                if bytes as f64 <= BYTES_PER_S * begun.elapsed().as_secs_f64() {
                    bytes += get(address, "/metrics").unwrap().len();
                    count += 1;
                } else {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            (bytes, count)
        });
        Self { end, thread }
    }

    /// Bytes and number of the answers.
    fn end(self) -> (usize, usize) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Processor time of all threads of a process that are there.
fn processor_time(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let times = tasks.flatten().filter_map(|task| {
        let told = fs::read_to_string(task.path().join("schedstat")).ok()?;
        told.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// The part of a processor that a program at rest uses.
fn share(process: u32) -> f64 {
    let (begun, before) = (Instant::now(), processor_time(process));
    thread::sleep(REST);
    let used = processor_time(process).saturating_sub(before);
    used.as_secs_f64() / begun.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Prints both costs. `transfer` carries something over the program and gives the Mbit/s.
fn print_cost(name: &str, process: u32, address: SocketAddr, mut transfer: impl FnMut() -> f64) {
    let without = share(process);
    let scraping = Scraping::begin(address);
    let with = share(process);
    let (bytes, count) = scraping.end();
    let each = (with - without) * REST.as_secs_f64() / count as f64;
    println!(
        "{name}: {count} scrapes of {} bytes in {REST:?}; {:.2} % of a processor without, {:.2} % with, {:.0} us each",
        bytes / count,
        without * 100.0,
        with * 100.0,
        each * 1e6
    );
    let (mut without, mut with) = (Vec::new(), Vec::new());
    transfer();
    for _ in 0..TURNS {
        without.push(transfer());
        let scraping = Scraping::begin(address);
        with.push(transfer());
        scraping.end();
    }
    let [without, with] = [without, with].map(median);
    println!(
        "{name}: without {without:.0} Mbit/s, with {with:.0} Mbit/s: {:+.2} %",
        (with / without - 1.0) * 100.0
    );
}

/// One after the other: neither is measured beside the other.
#[test]
#[ignore = "a measurement, of three minutes of an idle computer: STARHAUL_CI_LONG=1 .ci/run"]
fn what_scrapes_cost_relays_and_bundle_nodes() {
    measure_relay();
    measure_node();
}

fn measure_relay() {
    let (folder, [_server, relay], metrics) = relay();
    folder.write("files/large", 100_000_000);
    let transfer = || {
        let into = folder.at("large");
        // The server looks for new files every two seconds.
        loop {
            let mut fetch = folder.fetch("large", relay.address, "b.key", &into);
            let output = fetch.output().unwrap();
            if output.status.success() {
                fs::remove_file(&into).unwrap();
                let told: Value = serde_json::from_slice(&output.stdout).unwrap();
                return told["mbit_per_s"].as_f64().unwrap();
            }
            assert!(text(&output.stderr).contains("large"), "{output:?}");
            thread::sleep(Duration::from_millis(200));
        }
    };
    print_cost("relay", relay.process(), metrics, transfer);
}

fn measure_node() {
    const BYTES: usize = 64_000_000;
    let nodes = Nodes::start();
    let folder = tempfile::tempdir().unwrap();
    let received = folder.path().join("received");
    let mut receive = starhaul(&["dtn", "receive", "--log", "off", "--to", path(&received)]);
    receive.args(["--socket", &nodes.far_socket]);
    let receiver: Child = receive.stdout(Stdio::null()).spawn().unwrap();
    let _receiver = Process(receiver);
    let mut number = 0_u64;
    let transfer = || {
        number += 1;
        let file = folder.path().join(format!("{number}"));
        let content = number.to_le_bytes().repeat(BYTES / 8);
        fs::write(&file, content).unwrap();
        let begun = Instant::now();
        let send = ["dtn", "send", path(&file), "--to", "ipn:2.0"];
        let sent = run(&[&send[..], &["--socket", &nodes.socket]].concat());
        let took = begun.elapsed();
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        fs::remove_file(&file).unwrap();
        fs::remove_file(received.join(file.file_name().unwrap())).unwrap();
        BYTES as f64 * 8e-6 / took.as_secs_f64()
    };
    let process = nodes.processes[0].0.id();
    print_cost("bundle node", process, nodes.metrics, transfer);
}
