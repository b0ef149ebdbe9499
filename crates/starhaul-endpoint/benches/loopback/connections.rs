//! Short connections through SOCKS5 of two gateways against direct ones and those through two bare TCP relays, and the memory of held
//! connections.

use std::{fs, net::SocketAddr};

use starhaul_gateway::Gateway;
use starhaul_needs::Floor;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{clocks, gateways, median, relays, stream};

/// Short connections of one turn, of which so many are open at once.
const SHORT: usize = 2000;
const AT_ONCE: usize = 100;
const TURNS: usize = 5;
/// Each short connection sends a request, waits for an answer and closes.
const REQUEST_BYTES: usize = 200;
const ANSWER_BYTES: usize = 10_000;
const HELD: usize = 1000;
/// Processor time of a short connection through two bare relays as a share of that through gateways, as docs/performance.md notes it of a
/// build (336 of 565 µs): later ones must not fall far behind.
const HELD_SHARE: f64 = 0.59;

/// Prints what short connections cost by each way, and what held connections leave behind.
pub(crate) fn print(floor: &mut Floor) {
    stream::runtime().block_on(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = server.local_addr().unwrap();
        tokio::spawn(serve(server));
        let rule = "socks5 = [{ name = \"s\", listen = \"127.0.0.1:0\" }]\n";
        let gateways = gateways::pair(rule).await;
        let proxy = gateways[0].ingress_address("s").unwrap();
        let relays = relays::start(relays::SHORT_BYTES).await;
        print_costs([relays, proxy], target, floor).await;
        print_memory(&gateways, proxy, target).await;
    });
}

/// What the short connections of a turn cost.
struct Cost {
    /// Connections per second.
    rate: f64,
    /// Processor time of this process for each, in microseconds: client, target and all between them.
    processor: f64,
}

async fn print_costs([relays, gateways]: [SocketAddr; 2], target: SocketAddr, floor: &mut Floor) {
    let ways = [
        ("directly", None),
        ("through two bare TCP relays", Some(relays)),
        ("through SOCKS5 of two gateways", Some(gateways)),
    ];
    let mut turns: Vec<Vec<Cost>> = Vec::new();
    for _ in 0..TURNS {
        let mut turn = Vec::new();
        for (_, proxy) in ways {
            turn.push(cost(proxy, target).await);
        }
        turns.push(turn);
    }
    println!("short connections, medians of {TURNS} turns; ratios are of one turn");
    for (at, (name, _)) in ways.iter().enumerate() {
        let figure = |of: &dyn Fn(&[Cost]) -> f64| median(turns.iter().map(|turn| of(turn)));
        println!(
            "{name:32} {:7.0} per second, ratio to the direct rate {:.3}, to that of two bare relays {:.3}; \
             {:5.0} µs of processor time each, {:.2} times that of two bare relays",
            figure(&|turn| turn[at].rate),
            figure(&|turn| turn[at].rate / turn[0].rate),
            figure(&|turn| turn[at].rate / turn[1].rate),
            figure(&|turn| turn[at].processor),
            figure(&|turn| turn[at].processor / turn[1].processor),
        );
    }
    let shares = turns
        .iter()
        .map(|turn| turn[1].processor / turn[2].processor);
    let what = "short connections: processor time through bare relays, of that through gateways";
    floor.at_least(what, median(shares), HELD_SHARE);
}

async fn cost(proxy: Option<SocketAddr>, target: SocketAddr) -> Cost {
    let began = clocks();
    let mut clients = JoinSet::new();
    for _ in 0..AT_ONCE {
        clients.spawn(async move {
            for _ in 0..SHORT / AT_ONCE {
                let mut tcp = connect(proxy, target).await;
                tcp.write_all(&[7; REQUEST_BYTES]).await.unwrap();
                tcp.read_exact(&mut [0; ANSWER_BYTES]).await.unwrap();
            }
        });
    }
    clients.join_all().await;
    let now = clocks();
    Cost {
        rate: SHORT as f64 / (now.1 - began.1).as_secs_f64(),
        processor: (now.0 - began.0).as_secs_f64() * 1e6 / SHORT as f64,
    }
}

async fn print_memory(gateways: &[Gateway; 2], proxy: SocketAddr, target: SocketAddr) {
    let before = resident_mb();
    let mut held = Vec::new();
    for _ in 0..HELD {
        let mut tcp = connect(Some(proxy), target).await;
        tcp.write_all(&[7; REQUEST_BYTES]).await.unwrap();
        tcp.read_exact(&mut [0; ANSWER_BYTES]).await.unwrap();
        held.push(tcp);
    }
    let while_held = resident_mb();
    drop(held);
    for gateway in gateways {
        while gateway
            .report()
            .sessions
            .iter()
            .any(|session| session.streams.iter().any(|stream| !stream.ended))
        {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    println!(
        "memory: {before:.0} MB, with {HELD} held connections {while_held:.0} MB, after their end {:.0} MB",
        resident_mb()
    );
}

async fn serve(listener: TcpListener) {
    loop {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            while tcp.read_exact(&mut [0; REQUEST_BYTES]).await.is_ok() {
                if tcp.write_all(&[8; ANSWER_BYTES]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Connects to the target, through the SOCKS5 server `proxy` if there is one.
pub(crate) async fn connect(proxy: Option<SocketAddr>, target: SocketAddr) -> TcpStream {
    let Some(proxy) = proxy else {
        return TcpStream::connect(target).await.unwrap();
    };
    let mut tcp = TcpStream::connect(proxy).await.unwrap();
    // RFC 1928: one method, none; then CONNECT to an IPv4 address.
    tcp.write_all(&[5, 1, 0]).await.unwrap();
    tcp.read_exact(&mut [0; 2]).await.unwrap();
    let SocketAddr::V4(target) = target else {
        panic!("an IPv4 address");
    };
    let mut request = vec![5, 1, 0, 1];
    request.extend(target.ip().octets());
    request.extend(target.port().to_be_bytes());
    tcp.write_all(&request).await.unwrap();
    let mut answer = [0; 10];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[1], 0, "refused");
    tcp
}

/// Resident memory of this process.
fn resident_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<f64>().unwrap() / 1e3
}
