//! Many peers, sessions that end and come back, and what the status says.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use starhaul_gateway::{ask_status, status::Status};
use starhaul_quic::Identity;
use tokio::net::{TcpStream, UdpSocket};

use super::gateways::{
    ALLOW_LOOPBACK, ask, head, pair, pattern, run, session, start, tcp_echo_after_end, udp_echo,
    until,
};

#[test]
fn many_peers_at_once_do_not_mix() {
    run(async {
        const PEERS: usize = 6;
        let hub_identity = Identity::generate();
        let identities: Vec<_> = (0..PEERS).map(|_| Identity::generate()).collect();
        let (udp, tcp) = (udp_echo().await, tcp_echo_after_end("127.0.0.1:0").await);
        let mut text = format!(
            "listen = \"127.0.0.1:0\"\n{}{ALLOW_LOOPBACK}",
            head(&hub_identity, "peer0", &identities[0])
        );
        for (index, identity) in identities.iter().enumerate().skip(1) {
            text += &format!(
                "[[peer]]\nname = \"peer{index}\"\npublic_key = \"{}\"\n",
                identity.public_key()
            );
        }
        let hub = start(&text).await;
        let mut peers = Vec::new();
        for identity in &identities {
            let rules = format!(
                "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{udp}\"\ndeadline = \"20s\"\n\
                 [[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{tcp}\"\n"
            );
            let text = format!(
                "{}{}{rules}",
                head(identity, "hub", &hub_identity),
                session("hub", &hub.listen_addresses())
            );
            peers.push(start(&text).await);
        }
        let mut work = tokio::task::JoinSet::new();
        for (index, peer) in peers.iter().enumerate() {
            peer.connected("hub").await;
            let (u, t) = (
                peer.ingress_address("u").unwrap(),
                peer.ingress_address("t").unwrap(),
            );
            work.spawn(async move {
                let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                client.connect(u).await.unwrap();
                let message = format!("from {index}");
                client.send(message.as_bytes()).await.unwrap();
                let mut buffer = [0; 100];
                let length = client.recv(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..length], message.as_bytes());
                let data = pattern(100_000 + index);
                assert!(ask(TcpStream::connect(t).await.unwrap(), &data).await == data);
            });
        }
        while let Some(result) = work.join_next().await {
            result.unwrap();
        }
        let report = hub.report();
        assert_eq!(report.sessions.len(), PEERS);
        assert!(report.peers.iter().all(|peer| peer.sessions == 1));
        for peer in peers {
            peer.shutdown().await;
        }
        hub.shutdown().await;
    });
}

#[test]
fn an_accepting_gateway_sends_to_its_peer_too() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let rule =
            format!("[[tcp]]\nname = \"back\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{server}\"\n");
        let pair = pair(ALLOW_LOOPBACK, &rule).await;
        let tcp = TcpStream::connect(pair.far.ingress_address("back").unwrap())
            .await
            .unwrap();
        assert_eq!(ask(tcp, b"back and forth").await, b"back and forth");
        pair.end().await;
    });
}

#[test]
fn a_session_comes_back_while_the_listeners_stay() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let far_text = |listen: &str| {
            format!(
                "listen = \"{listen}\"\n{}{ALLOW_LOOPBACK}",
                head(&far_identity, "near", &near_identity)
            )
        };
        // An address that no other socket has while it is not bound.
        let address = starhaul_needs::free();
        let far = start(&far_text(&address.to_string())).await;
        let rule =
            format!("[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{server}\"\n");
        let near = start(&format!(
            "{}{}{rule}",
            head(&near_identity, "far", &far_identity),
            session("far", &[address])
        ))
        .await;
        let ingress = near.ingress_address("r").unwrap();
        assert_eq!(
            ask(TcpStream::connect(ingress).await.unwrap(), b"one").await,
            b"one"
        );

        far.shutdown().await;
        until(|| near.report().sessions.is_empty()).await;
        let far = start(&far_text(&address.to_string())).await;
        near.connected("far").await;
        assert_eq!(
            ask(TcpStream::connect(ingress).await.unwrap(), b"two").await,
            b"two"
        );
        near.shutdown().await;
        far.shutdown().await;
    });
}

#[test]
fn a_peer_with_an_unknown_key_gets_no_session() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let stranger = Identity::generate();
        let far = start(&format!(
            "listen = \"127.0.0.1:0\"\n{}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let text = format!(
            "{}{}",
            head(&stranger, "far", &far_identity),
            session("far", &far.listen_addresses())
        );
        let near = start(&text).await;
        until(|| near.report().peers[0].failed_attempts > 0).await;
        assert!(near.report().peers[0].last_error.is_some());
        assert!(far.report().sessions.is_empty());
        near.shutdown().await;
        far.shutdown().await;
    });
}

#[test]
fn a_path_without_its_interface_says_so_while_the_other_one_serves() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let far = start(&format!(
            "listen = \"127.0.0.1:0\"\n{}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let near = start(&format!(
            "packet_bytes = 1452\n{}{}interface = \"nosuch0\"\n",
            head(&near_identity, "far", &far_identity),
            session("far", &[far.listen_addresses()[0]; 2])
        ))
        .await;
        near.connected("far").await;
        let paths = || near.report().sessions[0].paths.clone();
        until(|| paths().len() == 2 && paths()[1].last_error.is_some()).await;
        let paths = paths();
        assert_eq!(
            (paths[0].state.as_str(), &paths[0].last_error),
            ("up", &None)
        );
        let cause = paths[1].last_error.as_deref().unwrap_or_default();
        assert!(
            paths[1].state == "down" && cause.contains("\"nosuch0\""),
            "{paths:?}"
        );
        near.shutdown().await;
        far.shutdown().await;
    });
}

/// The place of the control socket may be mistyped; what lies there is not ours to remove.
#[test]
fn what_is_no_socket_of_a_dead_gateway_is_left_where_it_is() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let head = head(&near_identity, "far", &far_identity);
        let config = |place: &std::path::Path| {
            let text = head.replace("\"off\"", &format!("{place:?}"));
            let text = format!("listen = \"127.0.0.1:0\"\n{text}");
            starhaul_gateway::Config::parse(&text, std::path::Path::new("test.toml")).unwrap()
        };
        let file = directory.path().join("precious.txt");
        std::fs::write(&file, "precious").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for place in [&file, &link] {
            let started = starhaul_gateway::Gateway::start(config(place)).await;
            let error = started.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("no socket"), "{error}");
            assert_eq!(std::fs::read_to_string(place).unwrap(), "precious");
        }
        // Nor is what another program put there since the start.
        let place = directory.path().join("control.sock");
        let gateway = starhaul_gateway::Gateway::start(config(&place))
            .await
            .unwrap();
        std::fs::remove_file(&place).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&place).unwrap();
        gateway.shutdown().await;
        assert!(place.exists(), "the other's socket is gone");
        drop(other);
    });
}

#[test]
fn the_control_socket_tells_what_the_gateway_knows() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("deep").join("control.sock");
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let far = start(&format!(
            "listen = \"127.0.0.1:0\"\n{}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let head =
            head(&near_identity, "far", &far_identity).replace("\"off\"", &format!("{socket:?}"));
        let text = format!(
            "{head}{}[[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:9\"\n",
            session("far", &far.listen_addresses())
        );
        let near = start(&text).await;
        near.connected("far").await;

        let asked = ask_status(&socket).await.unwrap();
        assert_eq!(asked.public_key, near_identity.public_key().to_string());
        assert_eq!(asked.ingress[0].listen, near.ingress_address("t").unwrap());
        let path = &asked.sessions[0].paths[0];
        assert_eq!(
            (path.name.as_str(), path.state.as_str(), path.remote.clone()),
            ("path0", "up", far.listen_addresses()[0].to_string())
        );
        // The same object in JSON, and back.
        let json = near.status();
        assert_eq!(json["sessions"][0]["peer"], "far");
        assert_eq!(json["sessions"][0]["paths"][0]["controller"], "bbr");
        serde_json::from_value::<Status>(json).unwrap();

        // Only the owner may ask; a second gateway is told; what a killed one left is replaced.
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&socket).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let config =
            starhaul_gateway::Config::parse(&text, std::path::Path::new("second.toml")).unwrap();
        let error = starhaul_gateway::Gateway::start(config.clone())
            .await
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("listens there"), "{error}");
        near.shutdown().await;
        assert!(!socket.exists());
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let again = starhaul_gateway::Gateway::start(config).await.unwrap();
        assert!(ask_status(&socket).await.is_ok());
        again.shutdown().await;
        far.shutdown().await;
    });
}

/// As a peer does that was killed and begins anew: its former session is found to have ended a minute later only.
#[test]
fn a_client_that_goes_on_sending_is_carried_by_the_newest_session() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let echo = udp_echo().await;
        let rule = format!(
            "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{echo}\"\ndeadline = \"20s\"\n"
        );
        let far = start(&format!(
            "listen = \"127.0.0.1:0\"\n{}{rule}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let near = format!(
            "{}{}{ALLOW_LOOPBACK}",
            head(&near_identity, "far", &far_identity),
            session("far", &far.listen_addresses())
        );
        let former = start(&near).await;
        far.connected("near").await;
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client
            .connect(far.ingress_address("u").unwrap())
            .await
            .unwrap();
        let ask = async |message: &[u8]| {
            client.send(message).await.unwrap();
            let mut buffer = [0; 100];
            let length = client.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], message);
        };
        ask(b"over the former").await;
        let streams = |report: &starhaul_gateway::status::Status| {
            report
                .sessions
                .iter()
                .map(|session| session.streams.len())
                .sum::<usize>()
        };
        let before = streams(&former.report());
        let newest = start(&near).await;
        until(|| far.report().sessions.len() == 2).await;
        // What is sent while the flow moves may be lost.
        while streams(&newest.report()) == 0 {
            client.send(b"moves").await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(before > 0 && streams(&newest.report()) > 0);
        client.send(b"over the newest").await.unwrap();
        let mut buffer = [0; 100];
        // Behind answers to what was sent meanwhile.
        loop {
            let length = client.recv(&mut buffer).await.unwrap();
            if &buffer[..length] == b"over the newest" {
                break;
            }
        }
        tokio::join!(former.shutdown(), newest.shutdown(), far.shutdown());
    });
}

/// Passes datagrams of one client on to `to`, and what comes back, until it is cut.
async fn way(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let inside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    inside.connect(to).await.unwrap();
    let (address, is_cut) = (outside.local_addr().unwrap(), Arc::default());
    let cut: Arc<AtomicBool> = Arc::clone(&is_cut);
    tokio::spawn(async move {
        let (mut there, mut back) = (vec![0; 65_535], vec![0; 65_535]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((length, from)) = outside.recv_from(&mut there) => {
                    client = Some(from);
                    if !cut.load(Ordering::Relaxed) {
                        let _ = inside.send(&there[..length]).await;
                    }
                }
                Ok(length) = inside.recv(&mut back) => {
                    if let Some(client) = client.filter(|_| !cut.load(Ordering::Relaxed)) {
                        let _ = outside.send_to(&back[..length], client).await;
                    }
                }
                else => {}
            }
        }
    });
    (address, is_cut)
}

/// It takes 10 s until the path counts as down. As with a `[[session]]` on both sides, of which the one with the paths that died is newer.
#[test]
fn an_older_session_carries_new_flows_while_the_newest_has_no_path() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let echo = udp_echo().await;
        let rule = format!(
            "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{echo}\"\ndeadline = \"20s\"\n"
        );
        let far = start(&format!(
            "listen = \"127.0.0.1:0\"\n{}{rule}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let near = async |remote: SocketAddr| {
            let text = format!(
                "{}{}{ALLOW_LOOPBACK}",
                head(&near_identity, "far", &far_identity),
                session("far", &[remote])
            );
            start(&text).await
        };
        let listening = far.listen_addresses()[0];
        let older = near(listening).await;
        far.connected("near").await;
        let (through, is_cut) = way(listening).await;
        let newest = near(through).await;
        until(|| far.report().sessions.len() == 2).await;

        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let rule = far.ingress_address("u").unwrap();
        client.connect(rule).await.unwrap();
        let mut buffer = [0; 100];
        client.send(b"before").await.unwrap();
        assert_eq!(client.recv(&mut buffer).await.unwrap(), 6);
        is_cut.store(true, Ordering::Relaxed);
        let again = Duration::from_millis(100);
        loop {
            client.send(b"afterwards").await.unwrap();
            let answer = tokio::time::timeout(again, client.recv(&mut buffer)).await;
            if answer.is_ok_and(|length| length.unwrap() == 10) {
                break;
            }
        }
        let sessions = far.report().sessions.len();
        assert_eq!(sessions, 2, "only the end of the newest made room");
        is_cut.store(false, Ordering::Relaxed);
        tokio::join!(older.shutdown(), newest.shutdown(), far.shutdown());
    });
}
