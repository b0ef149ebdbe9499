//! What peers reach through a gateway, and what they learn of it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use fast_socks5::{
    ReplyError, SocksError,
    client::{Config, Socks5Datagram, Socks5Stream},
};
use starhaul_gateway::Resolver;
use tokio::net::{TcpStream, UdpSocket};

use super::gateways::{Pair, ask, pair_with, run, tcp_echo_after_end, udp_echo, until};

const RULE: &str = "[[socks5]]\nname = \"proxy\"\nlisten = \"127.0.0.1:0\"\ndeadline = \"20s\"\n";

async fn connect(
    pair: &Pair,
    host: &str,
    port: u16,
) -> Result<Socks5Stream<TcpStream>, SocksError> {
    let proxy = pair.near.ingress_address("proxy").unwrap();
    Socks5Stream::connect(proxy, host.to_owned(), port, Config::default()).await
}

async fn is_forbidden(pair: &Pair, host: &str, port: u16) -> bool {
    let connected = connect(pair, host, port).await;
    matches!(
        connected,
        Err(SocksError::ReplyError(ReplyError::ConnectionNotAllowed))
    )
}

#[test]
fn no_other_name_of_this_host_gets_past_a_list_that_denies_loopback() {
    run(async {
        let server = tcp_echo_after_end("0.0.0.0:0").await;
        let echo = loop {
            let echo = udp_echo().await;
            if echo.port() != server.port() {
                break echo;
            }
        };
        // But for one port.
        let (below, above) = (echo.port() - 1, echo.port() + 1);
        let egress = format!(
            "[egress]\nallow = [\"*:*\"]\n\
             deny = [\"127.0.0.0/8:1-{below}\", \"127.0.0.0/8:{above}-65535\", \"[::1]:*\"]\n"
        );
        let pair = pair_with("", RULE, &egress, Resolver::default()).await;
        for host in [
            "127.0.0.1",
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "localhost",
            "a.localhost",
        ] {
            assert!(is_forbidden(&pair, host, server.port()).await, "{host}");
        }
        // Nor by UDP.
        let sink = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let port = sink.local_addr().unwrap().port();
        let proxy = pair.near.ingress_address("proxy").unwrap();
        let control = TcpStream::connect(proxy).await.unwrap();
        let relay = Socks5Datagram::bind(control, "127.0.0.1:0").await.unwrap();
        for host in ["0.0.0.0", "127.0.0.1"] {
            relay.send_to(b"x", (host, port)).await.unwrap();
        }
        until(|| {
            let streams = pair.far.report().sessions[0].streams.clone();
            streams
                .iter()
                .any(|stream| stream.blocks.blocks_received == 2)
        })
        .await;
        // What comes behind them is answered.
        relay
            .send_to(b"y", ("127.0.0.1", echo.port()))
            .await
            .unwrap();
        let (length, _) = relay.recv_from(&mut [0; 9]).await.unwrap();
        assert_eq!(length, 1);
        assert!(sink.try_recv(&mut [0; 9]).is_err());
        pair.end().await;
    });
}

#[test]
fn only_names_that_a_rule_names_are_looked_up_and_they_lead_to_no_local_network_by_themselves() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let resolver = Resolver::new({
            let asked = asked.clone();
            move |name, port| {
                asked.lock().unwrap().push(name.to_owned());
                match name.ends_with(".nowhere.test") {
                    true => Err(std::io::Error::other("no such name")),
                    false => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                }
            }
        });
        let egress = "[egress]\nallow = [\"127.0.0.0/8:*\", \"*.public.test:*\", \"inside.test=127.0.0.0/8:*\", \"*.nowhere.test:*\"]\n";
        let pair = pair_with("", RULE, egress, resolver).await;
        let port = server.port();
        // A client that no rule lets ask for a name does not learn whether it exists.
        for host in ["secret.test", "a.secret.test", "public.test"] {
            assert!(is_forbidden(&pair, host, port).await, "{host}");
        }
        assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());
        assert!(
            is_forbidden(&pair, "www.public.test", port).await,
            "to loopback"
        );
        assert!(!is_forbidden(&pair, "a.nowhere.test", port).await);
        let stream = connect(&pair, "inside.test", port).await.unwrap();
        assert_eq!(ask(stream, b"hello").await, b"hello");
        let stream = connect(&pair, "127.0.0.1", port).await.unwrap();
        assert_eq!(ask(stream, b"hello").await, b"hello");
        assert_eq!(
            *asked.lock().unwrap(),
            ["www.public.test", "a.nowhere.test", "inside.test"]
        );
        pair.end().await;
    });
}

/// A burst of datagrams to one name asks for it once, and none of them is lost.
#[test]
fn datagrams_to_a_name_wait_for_its_look_up() {
    run(async {
        let echo = udp_echo().await;
        let asked = Arc::new(AtomicUsize::new(0));
        let resolver = Resolver::new({
            let asked = asked.clone();
            move |_, port| {
                asked.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(200));
                Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
            }
        });
        let egress = "[egress]\nallow = [\"echo.test=*:*\"]\n";
        let pair = pair_with("", RULE, egress, resolver).await;
        let proxy = pair.near.ingress_address("proxy").unwrap();
        let control = TcpStream::connect(proxy).await.unwrap();
        let relay = Socks5Datagram::bind(control, "127.0.0.1:0").await.unwrap();
        for number in 0..20_u8 {
            relay
                .send_to(&[number], ("echo.test", echo.port()))
                .await
                .unwrap();
        }
        let mut seen = [false; 20];
        while seen.contains(&false) {
            let mut buffer = [0; 9];
            let (_, _) = relay.recv_from(&mut buffer).await.unwrap();
            seen[usize::from(buffer[0])] = true;
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        pair.end().await;
    });
}
