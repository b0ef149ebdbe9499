//! What gateways take for connections falls back when these have ended. A test program of its own, for it chooses the allocator, and counts
//! what the whole process has allocated.

#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{fs, net::SocketAddr, time::Duration};

use cap::Cap;
use fast_socks5::client::{Config, Socks5Stream};
use mimalloc::MiMalloc;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use gateways::{ALLOW_LOOPBACK, Pair, pair, run, until};

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "loopback/gateways.rs"]
mod gateways;

/// As in the program, which does not count.
#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

const RULE: &str = "[[socks5]]\nname = \"proxy\"\nlisten = \"127.0.0.1:0\"\n";
const HELD: usize = 1000;
const OPENED_AT_ONCE: usize = 50;
/// How often so many are held after a first time, in which tables and buffers grow: what connections leave behind adds up.
const TIMES: usize = 3;
const REQUEST_BYTES: usize = 200;
static ANSWER: [u8; 10_000] = [8; 10_000];
/// By then a gateway has given back what its last connections have left. If it has not, the test sees less, and fails no sooner.
const GIVEN_BACK: Duration = Duration::from_secs(4);
/// What the resident memory of a process goes up and down by without any cause of ours.
const SWING_BYTES: usize = 8 << 20;
/// What is still kept then is kept for ever.
const FOR_EVER: Duration = Duration::from_secs(120);

/// Of this process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    allocated: usize,
    resident: usize,
}

impl Memory {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kb = line.unwrap().split_whitespace().nth(1).unwrap();
        Self {
            allocated: ALLOCATOR.allocated(),
            resident: kb.parse::<usize>().unwrap() << 10,
        }
    }
}

/// A server that answers each request.
async fn serve() -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = server.accept().await.unwrap();
            tokio::spawn(async move {
                while tcp.read_exact(&mut [0; REQUEST_BYTES]).await.is_ok() {
                    if tcp.write_all(&ANSWER).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Opens [`HELD`] connections, each of which has carried a request and its answer.
async fn hold(proxy: SocketAddr, target: SocketAddr) -> Vec<Socks5Stream<TcpStream>> {
    let mut opening = JoinSet::new();
    for _ in 0..OPENED_AT_ONCE {
        opening.spawn(async move {
            let mut open = Vec::new();
            for _ in 0..HELD / OPENED_AT_ONCE {
                let host = target.ip().to_string();
                let tcp = Socks5Stream::connect(proxy, host, target.port(), Config::default());
                let mut tcp = tcp.await.unwrap();
                tcp.write_all(&[7; REQUEST_BYTES]).await.unwrap();
                let mut answer = vec![0; ANSWER.len()];
                tcp.read_exact(&mut answer).await.unwrap();
                assert!(answer == ANSWER, "another answer");
                open.push(tcp);
            }
            open
        });
    }
    opening.join_all().await.into_iter().flatten().collect()
}

/// Waits until no gateway has a stream that has not ended.
async fn ended(pair: &Pair) {
    let has_ended = |gateway: &starhaul_gateway::Gateway| {
        let sessions = gateway.report().sessions;
        let mut streams = sessions.iter().flat_map(|session| &session.streams);
        streams.all(|stream| stream.ended)
    };
    until(|| has_ended(&pair.near) && has_ended(&pair.far)).await;
}

#[test]
fn what_a_thousand_held_connections_took_falls_back_after_their_end() {
    run(async {
        // Client, ingress, egress and server are one process here.
        if starhaul_gateway::raise_open_files() < HELD * 4 + 200 {
            let why = format!("this process may not open {} files", HELD * 4);
            return starhaul_needs::skip(starhaul_needs::Need::OpenFiles, why);
        }
        let target = serve().await;
        let pair = pair(RULE, ALLOW_LOOPBACK).await;
        let proxy = pair.near.ingress_address("proxy").unwrap();
        drop(hold(proxy, target).await);
        ended(&pair).await;
        tokio::time::sleep(GIVEN_BACK).await;
        let before = Memory::now();

        let mut with = before;
        for time in 0..TIMES {
            let held = hold(proxy, target).await;
            if time == 0 {
                with = Memory::now();
            }
            drop(held);
            ended(&pair).await;
        }
        let taken = with.allocated.saturating_sub(before.allocated);
        // Otherwise there is nothing to fall back.
        assert!(taken > HELD << 10, "{before:?} before, {with:?} with them");
        let most = Memory {
            allocated: before.allocated + taken / 2,
            resident: before.resident
                + with.resident.saturating_sub(before.resident) / 2
                + SWING_BYTES,
        };
        let falls_back = async {
            loop {
                let now = Memory::now();
                if now.allocated <= most.allocated && now.resident <= most.resident {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let after = tokio::time::timeout(FOR_EVER, falls_back).await;
        let connections = TIMES * HELD;
        println!("{before:?} before, {with:?} with {HELD}, {after:?} after {connections}");
        assert!(
            after.is_ok(),
            "{before:?} before, {with:?} with {HELD}, {:?} after {connections}, and {most:?} is allowed",
            Memory::now()
        );
        pair.end().await;
    });
}
