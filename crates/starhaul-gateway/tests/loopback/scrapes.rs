//! Metrics beside ten thousand streams: as many series as beside one, and what scrapes cost.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_gateway::Resolver;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
};

use super::{
    gateways::{ALLOW_LOOPBACK, Pair, pair_with, run, udp_echo, until},
    metrics::{STALE, scrape},
};

const STREAMS: usize = 10_000;
/// Clients that ask at once.
const AT_ONCE: usize = 50;

/// A pair whose rule `u` may have all of the streams, and whose rule `t` leads to `sink`; `None` where so many files may not be opened.
async fn roomy_pair(sink: SocketAddr) -> Option<Pair> {
    // Of each stream the far side has a socket.
    if starhaul_gateway::raise_open_files() < STREAMS + 1000 {
        let why = format!("this process may not open {STREAMS} files");
        starhaul_needs::skip(starhaul_needs::Need::OpenFiles, why);
        return None;
    }
    let top = "metrics = \"127.0.0.1:0\"\nmax_streams = 50000\n";
    let udp = udp_echo().await;
    let rules = format!(
        "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{udp}\"\ndeadline = \"20s\"\n\
         max_clients = 20000\nidle_timeout = \"10min\"\nanswered_timeout = \"10min\"\n\
         [[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{sink}\"\n"
    );
    let far = format!("{ALLOW_LOOPBACK}max_streams = 50000\n");
    Some(pair_with(top, &rules, &far, Resolver::default()).await)
}

/// Lets as many clients as that, each with an address of its own, ask once; their streams stay open.
async fn open_streams(pair: &Pair, count: usize) {
    let address = pair.near.ingress_address("u").unwrap();
    let mut clients = JoinSet::new();
    let ask = |number: usize| async move {
        let [.., a, b] = u32::try_from(number).unwrap().to_be_bytes();
        let from = Ipv4Addr::new(127, 1, a, b);
        let client = UdpSocket::bind((from, 0)).await.unwrap();
        let mut answer = [0; 200];
        loop {
            client.send_to(&[1; 100], address).await.unwrap();
            let answered = client.recv(&mut answer);
            if tokio::time::timeout(Duration::from_secs(2), answered)
                .await
                .is_ok()
            {
                return;
            }
        }
    };
    for number in 0..count {
        if clients.len() >= AT_ONCE {
            clients.join_next().await.unwrap().unwrap();
        }
        clients.spawn(ask(number));
    }
    clients.join_all().await;
}

fn open_now(pair: &Pair) -> usize {
    let status = pair.near.report();
    let streams = status.sessions.iter().flat_map(|session| &session.streams);
    streams.filter(|stream| !stream.ended).count()
}

async fn names(address: SocketAddr) -> BTreeSet<String> {
    tokio::time::sleep(STALE).await;
    let names = scrape(address).await.into_keys();
    // Phases of controllers come and go.
    names.filter(|name| !name.contains("phase=")).collect()
}

#[test]
fn ten_thousand_streams_have_as_many_series_as_one() {
    run(async {
        let Some(pair) = roomy_pair("127.0.0.1:9".parse().unwrap()).await else {
            return;
        };
        let addresses = [&pair.near, &pair.far].map(|side| side.metrics_address().unwrap());
        // Until all paths have been measured.
        until(|| {
            [&pair.near, &pair.far].iter().all(|side| {
                let status = side.report();
                let paths = status.sessions.iter().flat_map(|session| &session.paths);
                let mut figures = paths.map(|path| path.figures.as_ref());
                figures.all(|known| known.is_some_and(|known| known.rtt_ms.is_some()))
            })
        })
        .await;
        open_streams(&pair, 100).await;
        let before = [names(addresses[0]).await, names(addresses[1]).await];
        open_streams(&pair, STREAMS).await;
        assert!(open_now(&pair) >= STREAMS, "{}", open_now(&pair));
        let after = [names(addresses[0]).await, names(addresses[1]).await];
        for (before, after) in before.iter().zip(&after) {
            assert!(before.len() > 50, "{}", before.len());
            let new: Vec<_> = after.difference(before).collect();
            assert!(new.is_empty(), "streams add {new:#?}");
        }
        pair.end().await;
    });
}

/// A server that counts what it reads.
async fn sink() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bytes = Arc::<AtomicU64>::default();
    let count = bytes.clone();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 1 << 20];
        while let Ok(read @ 1..) = tcp.read(&mut buffer).await {
            count.fetch_add(read as u64, Ordering::Relaxed);
        }
    });
    (address, bytes)
}

/// Mbit/s that the sink got in this time, and bytes of scrapes meanwhile.
async fn measure(bytes: &AtomicU64, time: Duration, scraped: Option<SocketAddr>) -> (f64, usize) {
    /// 1 Mbit/s in bytes per second.
    const BYTES_PER_S: f64 = 125_000.0;
    let (begun, before) = (Instant::now(), bytes.load(Ordering::Relaxed));
    let mut got = 0;
    while begun.elapsed() < time {
        match scraped {
            Some(address) if got as f64 <= BYTES_PER_S * begun.elapsed().as_secs_f64() => {
                got += super::metrics::get(address, "/metrics").await.len();
            }
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    let carried = bytes.load(Ordering::Relaxed) - before;
    let rate = carried as f64 * 8e-6 / begun.elapsed().as_secs_f64();
    (rate, got)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Prints what scrapes of 1 Mbit/s cost a transfer beside ten thousand open streams: medians of turns with and without them.
#[test]
#[ignore = "a measurement, of two minutes of an idle computer: STARHAUL_CI_LONG=1 .ci/run"]
fn what_scrapes_cost() {
    const TURNS: usize = 15;
    const TURN: Duration = Duration::from_secs(3);
    let measured = async {
        let (address, bytes) = sink().await;
        let Some(pair) = roomy_pair(address).await else {
            return;
        };
        open_streams(&pair, STREAMS).await;
        let to = pair.near.ingress_address("t").unwrap();
        let mut tcp = TcpStream::connect(to).await.unwrap();
        let source = tokio::spawn(async move {
            let chunk = vec![7; 1 << 20];
            while tcp.write_all(&chunk).await.is_ok() {}
        });
        let scraped = pair.near.metrics_address().unwrap();
        measure(&bytes, TURN, None).await;
        let (mut without, mut with, mut got) = (Vec::new(), Vec::new(), 0);
        for _ in 0..TURNS {
            without.push(measure(&bytes, TURN, None).await.0);
            let (rate, scrape) = measure(&bytes, TURN, Some(scraped)).await;
            with.push(rate);
            got += scrape;
        }
        source.abort();
        assert!(open_now(&pair) >= STREAMS, "{}", open_now(&pair));
        let scrapes = got as f64 * 8e-6 / (TURN.as_secs_f64() * TURNS as f64);
        let [without, with] = [without, with].map(median);
        println!(
            "{} streams open; {scrapes:.2} Mbit/s of scrapes; without {without:.0} Mbit/s, with {with:.0} Mbit/s: {:+.2} %",
            open_now(&pair),
            (with / without - 1.0) * 100.0
        );
        pair.end().await;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(measured);
}
