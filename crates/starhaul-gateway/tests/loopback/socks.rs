//! `[[socks5]]` from end to end, with a client of other people.

use std::{net::SocketAddr, time::Duration};

use fast_socks5::{
    ReplyError, SocksError,
    client::{Config, Socks5Datagram, Socks5Stream},
};
use starhaul_gateway::{Gateway, Resolver};
use starhaul_needs::Need;
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

use super::gateways::{
    ALLOW_LOOPBACK, Pair, ask, closed_port, head, pair, pair_with, pattern, run, session, start,
    tcp_echo_after_end, udp_echo, until,
};

const RULE: &str = "[[socks5]]\nname = \"proxy\"\nlisten = \"127.0.0.1:0\"\ndeadline = \"20s\"\n";

fn proxy(pair: &Pair) -> SocketAddr {
    pair.near.ingress_address("proxy").unwrap()
}

async fn connect(
    pair: &Pair,
    host: &str,
    port: u16,
) -> Result<Socks5Stream<TcpStream>, SocksError> {
    Socks5Stream::connect(proxy(pair), host.to_owned(), port, Config::default()).await
}

/// Hosts without IPv6 on loopback have nothing to test there.
async fn ipv6_echo() -> Option<SocketAddr> {
    match UdpSocket::bind("[::1]:0").await {
        Ok(_) => Some(tcp_echo_after_end("[::1]:0").await),
        Err(error) => {
            starhaul_needs::skip(Need::Ipv6, format!("[::1] cannot be bound: {error}"));
            None
        }
    }
}

#[test]
fn connect_by_name_ipv4_and_ipv6() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let pair = pair(RULE, ALLOW_LOOPBACK).await;
        let mut targets = vec![
            ("localhost".to_owned(), server.port()),
            ("127.0.0.1".to_owned(), server.port()),
        ];
        targets.extend(
            ipv6_echo()
                .await
                .map(|server| ("::1".to_owned(), server.port())),
        );
        for (host, port) in targets {
            let data = pattern(500_000);
            let stream = connect(&pair, &host, port)
                .await
                .unwrap_or_else(|error| panic!("{host}: {error}"));
            assert!(ask(stream, &data).await == data, "{host}");
        }
        pair.end().await;
    });
}

#[test]
fn failures_have_the_reply_that_names_them() {
    run(async {
        let pair = pair(
            RULE,
            "[egress]\nallow = [\"127.0.0.1/32:*\"]\ndeny = [\"127.0.0.1/32:9\"]\n",
        )
        .await;
        let closed = closed_port();
        let reply = async |host: &str, port: u16| match connect(&pair, host, port).await {
            Err(SocksError::ReplyError(reply)) => reply,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("connected"),
        };
        assert!(matches!(
            reply("127.0.0.1", closed.local_addr().unwrap().port()).await,
            ReplyError::ConnectionRefused
        ));
        assert!(matches!(
            reply("127.0.0.1", 9).await,
            ReplyError::ConnectionNotAllowed
        ));
        assert!(matches!(
            reply("127.0.0.2", 80).await,
            ReplyError::ConnectionNotAllowed
        ));
        // A name that leads to a forbidden address is no way around.
        assert!(matches!(
            reply("localhost", 9).await,
            ReplyError::ConnectionNotAllowed
        ));
        pair.end().await;
    });
}

/// The reply comes after the wait for a session.
#[test]
fn without_a_session_the_network_is_unreachable() {
    run(async {
        // This socket does not answer.
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let near = start(&format!(
            "{}{}{RULE}",
            head(&Identity::generate(), "far", &Identity::generate()),
            session("far", &[silent.local_addr().unwrap()])
        ))
        .await;
        let proxy = near.ingress_address("proxy").unwrap();
        let connect = Socks5Stream::connect(proxy, "127.0.0.1".to_owned(), 9, Config::default());
        let refused = connect.await.map(drop);
        let unreachable = matches!(
            refused,
            Err(SocksError::ReplyError(ReplyError::NetworkUnreachable))
        );
        assert!(unreachable, "{refused:?}");
        near.shutdown().await;
    });
}

#[test]
fn refused_targets_leave_no_streams_behind() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let pair = pair(
            RULE,
            "[egress]\nallow = [\"127.0.0.1/32:*\"]\ndeny = [\"127.0.0.1/32:9\"]\n",
        )
        .await;
        let socket = closed_port();
        let closed = socket.local_addr().unwrap().port();
        for _ in 0..20 {
            // Refused by the policy, by the target, and asked for by a client that does not wait for the answer.
            assert!(connect(&pair, "127.0.0.1", 9).await.is_err());
            assert!(connect(&pair, "127.0.0.1", closed).await.is_err());
            let mut hasty = TcpStream::connect(proxy(&pair)).await.unwrap();
            let request = [5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 9];
            hasty.write_all(&request).await.unwrap();
        }
        let open = |gateway: &Gateway| {
            let sessions = gateway.report().sessions;
            let streams = sessions.iter().flat_map(|session| &session.streams);
            streams.filter(|stream| !stream.ended).count()
        };
        until(|| open(&pair.near) == 0 && open(&pair.far) == 0).await;
        let stream = connect(&pair, "127.0.0.1", server.port()).await.unwrap();
        assert_eq!(ask(stream, b"still here").await, b"still here");
        pair.end().await;
    });
}

#[test]
fn a_configured_login_is_demanded() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let rule = format!("{RULE}username = \"me\"\npassword = \"hush\"\n");
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let login = async |password: &str| {
            let (host, user) = ("127.0.0.1".to_owned(), "me".to_owned());
            let config = Config::default();
            Socks5Stream::connect_with_password(
                proxy(&pair),
                host,
                server.port(),
                user,
                password.to_owned(),
                config,
            )
            .await
        };
        assert_eq!(ask(login("hush").await.unwrap(), b"hello").await, b"hello");
        assert!(login("hash").await.is_err());
        assert!(
            connect(&pair, "127.0.0.1", server.port()).await.is_err(),
            "without login"
        );
        pair.end().await;
    });
}

#[test]
fn udp_associate_relays_to_many_targets_until_its_connection_ends() {
    run(async {
        let (one, other) = (udp_echo().await, udp_echo().await);
        let forbidden = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let forbidden_port = forbidden.local_addr().unwrap().port();
        let far = format!("{ALLOW_LOOPBACK}deny = [\"127.0.0.1/32:{forbidden_port}\"]\n");
        let pair = pair(RULE, &far).await;
        let control = TcpStream::connect(proxy(&pair)).await.unwrap();
        let relay = Socks5Datagram::bind(control, "127.0.0.1:0").await.unwrap();
        let mut buffer = vec![0; 65_535];
        relay
            .send_to(b"forbidden", ("127.0.0.1", forbidden_port))
            .await
            .unwrap();
        for (host, target) in [("127.0.0.1", one), ("127.0.0.1", other), ("localhost", one)] {
            let data = pattern(3000);
            relay.send_to(&data, (host, target.port())).await.unwrap();
            let (length, from) = relay.recv_from(&mut buffer).await.unwrap();
            assert!(buffer[..length] == data);
            assert_eq!(
                from.to_string(),
                target.to_string(),
                "replies name their source"
            );
        }
        assert!(forbidden.try_recv(&mut buffer).is_err());

        // A stranger is not relayed.
        let relay_address: SocketAddr = relay.proxy_addr().unwrap().to_string().parse().unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let before = pair.near.report().ingress[0].dropped.refused;
        stranger
            .send_to(b"\0\0\0\x01\x7f\0\0\x01\0\x09x", relay_address)
            .await
            .unwrap();
        until(|| pair.near.report().ingress[0].dropped.refused > before).await;

        drop(relay);
        until(|| pair.near.report().ingress[0].clients == 0).await;
        pair.end().await;
    });
}

#[test]
fn what_is_not_socks_is_closed() {
    run(async {
        let pair = pair(RULE, ALLOW_LOOPBACK).await;
        let mut tcp = TcpStream::connect(proxy(&pair)).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut tcp, b"GET / HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        // With data unread, the close may come as a reset.
        let _ = tcp.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
        pair.end().await;
    });
}

/// The far side is still looking for the target.
#[test]
fn a_client_that_gives_up_before_it_has_an_answer_leaves_nothing() {
    run(async {
        let (_answer, silence) = std::sync::mpsc::channel::<SocketAddr>();
        let silence = std::sync::Mutex::new(silence);
        let resolver = Resolver::new(move |_, _| {
            let found = silence.lock().unwrap().recv();
            found
                .map(|found| vec![found])
                .map_err(std::io::Error::other)
        });
        let pair = pair_with(
            "",
            RULE,
            "[egress]\nallow = [\"127.0.0.0/8:*\", \"slow.test=127.0.0.0/8:*\"]\n",
            resolver,
        )
        .await;
        for is_hasty in [false, true] {
            let mut client = TcpStream::connect(proxy(&pair)).await.unwrap();
            client.write_all(&[5, 1, 0, 5, 1, 0, 3, 9]).await.unwrap();
            client.write_all(b"slow.test\x00\x50").await.unwrap();
            until(|| pair.near.report().ingress[0].clients == 1).await;
            until(|| !pair.far.report().sessions[0].streams.is_empty()).await;
            if is_hasty {
                // With data on their way, a reset tells of its end.
                client.write_all(b"early").await.unwrap();
                super::gateways::reset(client);
            } else {
                drop(client);
            }
            // Before the far side gives the name up, after 10 s.
            let gone = until(|| pair.near.report().ingress[0].clients == 0);
            let gone = tokio::time::timeout(Duration::from_secs(7), gone).await;
            assert!(gone.is_ok(), "hasty: {is_hasty}");
        }
        pair.end().await;
    });
}

/// The first address of a name takes no connection, and refuses none.
#[test]
fn a_silent_address_of_a_name_does_not_hide_the_others() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let silent =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        silent.bind(&any.into()).unwrap();
        silent.listen(1).unwrap();
        let address = silent.local_addr().unwrap().as_socket().unwrap();
        // Until its queue is full.
        let mut queued = Vec::new();
        let soon = Duration::from_millis(300);
        while let Ok(tcp) = tokio::time::timeout(soon, TcpStream::connect(address)).await {
            queued.push(tcp.unwrap());
        }
        let resolver = Resolver::new(move |_, _| Ok(vec![address, server]));
        let pair = pair_with(
            "",
            RULE,
            "[egress]\nallow = [\"two.test=127.0.0.0/8:*\", \"127.0.0.0/8:*\"]\n",
            resolver,
        )
        .await;
        let stream = connect(&pair, "two.test", 80).await.unwrap();
        assert_eq!(ask(stream, b"second").await, b"second");
        drop(queued);
        pair.end().await;
    });
}
