//! Rules with `service = "leotp"`: connections along a chain of relays.

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use fast_socks5::{
    ReplyError, SocksError,
    client::{Config as Client, Socks5Stream},
};
use starhaul_contents::Relay;
use starhaul_gateway::{Config, Gateway};
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::gateways::{
    ALLOW_LOOPBACK, ask, closed_port, pattern, reset, run, tcp_echo_after_end, until,
};

/// Two gateways with two relays between them.
struct Chain {
    near: Gateway,
    far: Gateway,
    _relays: Vec<Running>,
    _folder: tempfile::TempDir,
}

/// A relay in a thread.
struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(folder: &Path, keys: [&str; 2], upstream: SocketAddr) -> Self {
        let [up, down] = keys;
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"up\"\n\
             [[neighbour]]\nname = \"up\"\naddress = \"{upstream}\"\nkey = \"{up}\"\n\
             [[neighbour]]\nname = \"down\"\nkey = \"{down}\"\n"
        );
        let config = starhaul_contents::config::Config::parse(&text, &folder.join("relay.toml"));
        let mut relay = Relay::open(config.unwrap(), false).unwrap();
        let address = relay.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                relay
                    .turn(Instant::now() + Duration::from_millis(20))
                    .unwrap();
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

async fn gateway(folder: &Path, rest: &str) -> Gateway {
    let identity = Identity::generate();
    let text = format!(
        "control = \"off\"\n[identity]\nsecret = \"\"\"{}\"\"\"\n{rest}",
        identity.to_secret_text()
    );
    let config = Config::parse(&text, &folder.join("gateway.toml"));
    Gateway::start(config.unwrap_or_else(|error| panic!("{error}\n{text}")))
        .await
        .unwrap()
}

impl Chain {
    async fn start(rules: &str, egress: &str, secrets: [&str; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.key", "b.key", "c.key", "chain.key", "other.key"] {
            fs::write(folder.path().join(name), format!("0123456789abcdef {name}")).unwrap();
        }
        let [near_secret, far_secret] = secrets;
        let far = format!(
            "[leotp]\nlisten = \"127.0.0.1:0\"\nsecret = \"{far_secret}\"\n\
             [[leotp.neighbour]]\nname = \"relay\"\nkey = \"c.key\"\n{egress}"
        );
        let far = gateway(folder.path(), &far).await;
        let second = Running::start(
            folder.path(),
            ["c.key", "b.key"],
            far.leotp_address().unwrap(),
        );
        let first = Running::start(folder.path(), ["b.key", "a.key"], second.address);
        let near = format!(
            "{rules}[leotp]\nlisten = \"127.0.0.1:0\"\nsecret = \"{near_secret}\"\nupstream = \"relay\"\n\
             [[leotp.neighbour]]\nname = \"relay\"\naddress = \"{}\"\nkey = \"a.key\"\n",
            first.address
        );
        let near = gateway(folder.path(), &near).await;
        Self {
            near,
            far,
            _relays: vec![first, second],
            _folder: folder,
        }
    }

    async fn usual(rules: &str) -> Self {
        Self::start(rules, ALLOW_LOOPBACK, ["chain.key"; 2]).await
    }

    fn near(&self) -> SocketAddr {
        self.near.ingress_address("r").unwrap()
    }

    async fn end(self) {
        let idle = |gateway: &Gateway| gateway.report().leotp.unwrap().streams == 0;
        until(|| idle(&self.near) && idle(&self.far)).await;
        tokio::join!(self.near.shutdown(), self.far.shutdown());
    }
}

fn rule(target: impl std::fmt::Display) -> String {
    format!(
        "[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\nservice = \"leotp\"\ntarget = \"{target}\"\n"
    )
}

const SOCKS5: &str = "[[socks5]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\nservice = \"leotp\"\n";

#[test]
fn bytes_and_half_closes_pass_in_both_directions() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let chain = Chain::usual(&rule(server)).await;
        for data in [&b""[..], b"x", &pattern(3_000_000)] {
            let answer = ask(TcpStream::connect(chain.near()).await.unwrap(), data).await;
            assert!(answer == data, "{} of {} bytes", answer.len(), data.len());
        }
        let report = chain.near.report().leotp.unwrap();
        assert_eq!(report.streams_total, 3);
        let mut neighbours = report.neighbours.iter();
        assert!(neighbours.all(|neighbour| neighbour.has_been_heard));
        chain.end().await;
    });
}

#[test]
fn many_connections_at_once_each_get_their_own_bytes() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let chain = Chain::usual(&rule(server)).await;
        let near = chain.near();
        let one = |number: usize| async move {
            let data = pattern(1000 + number * 977);
            let answer = ask(TcpStream::connect(near).await.unwrap(), &data).await;
            assert!(answer == data, "{} of {} bytes", answer.len(), data.len());
        };
        let all: Vec<_> = (0..100).map(|number| tokio::spawn(one(number))).collect();
        for one in all {
            one.await.unwrap();
        }
        chain.end().await;
    });
}

/// Windows grow with what is read, so one that is not read must stay small and stop the server behind it.
#[test]
fn a_client_that_does_not_read_stops_its_server_and_nobody_else() {
    /// More than a window that begins, and what sockets hold at each end; less than a window may be.
    const MOST: usize = 48 << 20;
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = Chain::usual(&rule(server.local_addr().unwrap())).await;
        let connect = async || {
            let near = TcpStream::connect(chain.near());
            let (client, accepted) = tokio::join!(near, server.accept());
            (client.unwrap(), accepted.unwrap().0)
        };
        let (mut stopped, mut sender) = connect().await;
        let (block, mut sent) = (pattern(1 << 16), 0);
        let wait = Duration::from_secs(2);
        while let Ok(written) = tokio::time::timeout(wait, sender.write(&block)).await {
            sent += written.unwrap();
            assert!(sent < MOST, "{sent} bytes are on the way");
        }
        let (mut client, mut far) = connect().await;
        let data = pattern(5_000_000);
        let mut got = Vec::new();
        let send = async {
            far.write_all(&data).await.unwrap();
            far.shutdown().await.unwrap();
        };
        let (read, ()) = tokio::join!(client.read_to_end(&mut got), send);
        assert!(read.is_ok() && got == data, "{read:?}");
        // All that was taken comes when it is read.
        sender.shutdown().await.unwrap();
        let mut read = Vec::new();
        stopped.read_to_end(&mut read).await.unwrap();
        assert_eq!(read.len(), sent);
        drop((stopped, sender, client, far));
        chain.end().await;
    });
}

#[test]
fn a_reset_is_a_reset_at_the_other_side() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = Chain::usual(&rule(server.local_addr().unwrap())).await;
        let broken = async |tcp: &mut TcpStream| {
            let ended = tcp.read_to_end(&mut Vec::new()).await;
            ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
        };
        for client_resets in [true, false] {
            let near = TcpStream::connect(chain.near());
            let (client, accepted) = tokio::join!(near, server.accept());
            let (mut client, mut far) = (client.unwrap(), accepted.unwrap().0);
            client.write_all(b"x").await.unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 1);
            if client_resets {
                reset(client);
                assert!(broken(&mut far).await, "the client's reset");
            } else {
                reset(far);
                assert!(broken(&mut client).await, "the server's reset");
            }
        }
        chain.end().await;
    });
}

#[test]
fn a_gateway_that_ends_resets_its_connections_at_the_other_side() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = Chain::usual(&rule(server.local_addr().unwrap())).await;
        let near = TcpStream::connect(chain.near());
        let (client, accepted) = tokio::join!(near, server.accept());
        let (mut client, mut far) = (client.unwrap(), accepted.unwrap().0);
        client.write_all(b"x").await.unwrap();
        assert_eq!(far.read(&mut [0]).await.unwrap(), 1);
        let Chain {
            near, far: other, ..
        } = &chain;
        assert_eq!(
            (
                near.report().leotp.unwrap().streams,
                other.report().leotp.unwrap().streams
            ),
            (1, 1)
        );
        chain.near.shutdown().await;
        // Long before it would be given up as silent.
        let ended = tokio::time::timeout(Duration::from_secs(10), far.read(&mut [0])).await;
        assert!(
            ended.unwrap().is_err(),
            "the server's connection ended in order"
        );
        chain.far.shutdown().await;
    });
}

#[test]
fn a_rule_over_leotp_waits_for_a_restart_where_there_was_no_chain() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let folder = tempfile::tempdir().unwrap();
        let top = "listen = \"127.0.0.1:0\"\n";
        let peer = Identity::generate().public_key();
        let peer = format!("[[peer]]\nname = \"p\"\npublic_key = \"{peer}\"\n");
        let identity = Identity::generate();
        let config = |rest: &str| {
            let secret = identity.to_secret_text();
            let text = format!(
                "control = \"off\"\n{top}[identity]\nsecret = \"\"\"{secret}\"\"\"\n{peer}{rest}"
            );
            Config::parse(&text, &folder.path().join("gateway.toml")).unwrap()
        };
        let session = rule(server).replace("service = \"leotp\"\n", "");
        let mut gateway = Gateway::start(config(&session)).await.unwrap();
        let before = gateway.ingress_address("r").unwrap();
        let chain = "[leotp]\nlisten = \"127.0.0.1:0\"\nsecret = \"s\"\nupstream = \"u\"\n\
                     [[leotp.neighbour]]\nname = \"u\"\nkey = \"k\"\naddress = \"127.0.0.1:9\"\n";
        let reload = gateway
            .reload(config(&format!("{}{chain}", rule(server))))
            .await
            .unwrap();
        assert_eq!(reload.needs_restart, ["leotp"]);
        let [failed] = &reload.failed[..] else {
            panic!("{:?}", reload.failed);
        };
        assert!(
            failed.to_string().contains("rule \"r\" needs a restart"),
            "{failed}"
        );
        assert_eq!(gateway.ingress_address("r"), Some(before));
        gateway.shutdown().await;
    });
}

#[test]
fn socks5_clients_learn_why_a_target_is_not_reached() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let closed = closed_port();
        let chain = Chain::usual(SOCKS5).await;
        let connect = async |host: &str, port: u16| {
            Socks5Stream::connect(chain.near(), host.to_owned(), port, Client::default()).await
        };
        let data = pattern(100_000);
        let stream = connect("127.0.0.1", server.port()).await.unwrap();
        assert!(ask(stream, &data).await == data);
        let refused = connect("127.0.0.1", closed.local_addr().unwrap().port()).await;
        assert!(
            matches!(
                refused,
                Err(SocksError::ReplyError(ReplyError::ConnectionRefused))
            ),
            "{refused:?}"
        );
        let forbidden = connect("192.0.2.1", 80).await;
        assert!(
            matches!(
                forbidden,
                Err(SocksError::ReplyError(ReplyError::ConnectionNotAllowed))
            ),
            "{forbidden:?}"
        );
        chain.end().await;
    });
}

#[test]
fn without_the_secret_nothing_is_reached() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let secrets = ["other.key", "chain.key"];
        let chain = Chain::start(&rule(server), ALLOW_LOOPBACK, secrets).await;
        let asked = async {
            let mut client = TcpStream::connect(chain.near()).await?;
            client.write_all(b"x").await?;
            client.read_to_end(&mut Vec::new()).await
        };
        let ended = asked.await;
        assert!(ended.is_err(), "{ended:?}");
        // The relays passed it on, and what came there did not open.
        assert!(chain.far.report().leotp.unwrap().packets_received > 0);
        chain.end().await;
    });
}

#[test]
fn reconfigurations_of_a_hop_are_heard_of_and_counted() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        for name in ["c.key", "chain.key"] {
            fs::write(folder.path().join(name), format!("0123456789abcdef {name}")).unwrap();
        }
        let rest = "[leotp]\nlisten = \"127.0.0.1:0\"\nsecret = \"chain.key\"\n\
             [[leotp.neighbour]]\nname = \"relay\"\nkey = \"c.key\"\ntimetable = \"0s every 1s\"\n";
        let gateway = gateway(folder.path(), rest).await;
        until(|| gateway.report().leotp.unwrap().reconfigurations > 0).await;
        gateway.shutdown().await;
    });
}
