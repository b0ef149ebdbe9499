//! Gateways for tests: keys made afresh, kernel-chosen ports, two paths.

use std::{future::Future, net::SocketAddr, path::Path, time::Duration};

use starhaul_gateway::{Config, Gateway, Resolver};
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
    runtime::Builder,
};
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Loopback is allowed to peers of the far gateway.
pub(crate) const ALLOW_LOOPBACK: &str = "[egress]\nallow = [\"127.0.0.0/8:*\", \"[::1]:*\"]\n";
/// A test that hangs fails; no test needs more than a small part of this, on a busy computer either.
const HANG: Duration = Duration::from_secs(300);

/// A gateway whose peers are called `near` and `far`, connected.
pub(crate) struct Pair {
    pub(crate) near: Gateway,
    pub(crate) far: Gateway,
}

/// Runs a test on a runtime of its own and fails it when it hangs. `STARHAUL_LOG=debug` shows what the gateways say.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_on(Builder::new_multi_thread().worker_threads(2), test);
}

/// The same with all tasks on this thread: none of them runs while the test does not wait.
pub(crate) fn run_on_one_thread(test: impl Future<Output = ()>) {
    run_on(&mut Builder::new_current_thread(), test);
}

fn run_on(runtime: &mut Builder, test: impl Future<Output = ()>) {
    let rules = std::env::var("STARHAUL_LOG").unwrap_or_else(|_| "error".to_owned());
    let rules: Targets = rules.parse().expect("rules in STARHAUL_LOG");
    let lines = tracing_subscriber::fmt::layer().with_test_writer();
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(rules))
        .try_init();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(HANG, test)
            .await
            .expect("the test hangs");
    });
}

/// The start of a configuration: identity and one peer.
pub(crate) fn head(identity: &Identity, peer: &str, peer_identity: &Identity) -> String {
    format!(
        "control = \"off\"\n{}",
        identity_and_peer(identity, peer, peer_identity)
    )
}

fn identity_and_peer(identity: &Identity, peer: &str, peer_identity: &Identity) -> String {
    format!(
        "[identity]\nsecret = \"\"\"{}\"\"\"\n[[peer]]\nname = \"{peer}\"\npublic_key = \"{}\"\n",
        identity.to_secret_text(),
        peer_identity.public_key()
    )
}

/// A session to `peer` with two paths.
pub(crate) fn session(peer: &str, addresses: &[SocketAddr]) -> String {
    let mut text = format!("[[session]]\npeer = \"{peer}\"\n");
    for (index, address) in addresses.iter().enumerate() {
        text += &format!("[[session.path]]\nname = \"path{index}\"\nremote = \"{address}\"\n");
    }
    text
}

pub(crate) async fn start(text: &str) -> Gateway {
    start_with(text, Resolver::default()).await
}

pub(crate) async fn start_with(text: &str, resolver: Resolver) -> Gateway {
    let config = Config::parse(text, Path::new("test.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    Gateway::start_with(config, resolver).await.unwrap()
}

/// Two gateways; the near one opens the session over two paths. Each gets further tables.
pub(crate) async fn pair(near_tables: &str, far_tables: &str) -> Pair {
    pair_with("", near_tables, far_tables, Resolver::default()).await
}

/// The same with further keys at the top of both, and with a resolver of the far one.
pub(crate) async fn pair_with(
    top: &str,
    near_tables: &str,
    far_tables: &str,
    resolver: Resolver,
) -> Pair {
    let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
    let far = format!(
        "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n{top}{}{far_tables}",
        head(&far_identity, "near", &near_identity)
    );
    let far = start_with(&far, resolver).await;
    let near = start(&format!(
        "{top}{}{}{near_tables}",
        head(&near_identity, "far", &far_identity),
        session("far", &far.listen_addresses())
    ))
    .await;
    near.connected("far").await;
    far.connected("near").await;
    Pair { near, far }
}

impl Pair {
    pub(crate) async fn end(self) {
        tokio::join!(self.near.shutdown(), self.far.shutdown());
    }
}

/// A server that sends every datagram back.
pub(crate) async fn udp_echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        loop {
            let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&buffer[..length], client).await.unwrap();
        }
    });
    address
}

/// A server that reads to the end, and only then sends back what it read, and ends.
pub(crate) async fn tcp_echo_after_end(address: &str) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut data = Vec::new();
                tcp.read_to_end(&mut data).await.unwrap();
                tcp.write_all(&data).await.unwrap();
            });
        }
    });
    address
}

/// Sends `data`, half closes, and gives all that comes back.
pub(crate) async fn ask(
    mut tcp: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    data: &[u8],
) -> Vec<u8> {
    tcp.write_all(data).await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.unwrap();
    answer
}

/// A socket that keeps its port from others and does not listen: who connects to it is refused.
pub(crate) fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    socket
}

/// Bytes that repeat nowhere soon.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut bytes = Vec::with_capacity(length + 3);
    while bytes.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend(state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Ends a TCP connection by RST.
pub(crate) fn reset(tcp: TcpStream) {
    tcp.set_zero_linger().unwrap();
    drop(tcp);
}

/// Waits until something has come true.
pub(crate) async fn until(mut come_true: impl FnMut() -> bool) {
    while !come_true() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
