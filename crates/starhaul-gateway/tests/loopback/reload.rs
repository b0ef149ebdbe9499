//! A running gateway takes a changed configuration.

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use starhaul_gateway::{Config, Error, Gateway, PathChange, Reload};
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::oneshot,
};

use super::gateways::{
    ALLOW_LOOPBACK, Pair, ask, head, run, session, start, tcp_echo_after_end, udp_echo, until,
};

async fn reload(gateway: &mut Gateway, text: &str) -> Result<Reload, Error> {
    let config = Config::parse(text, Path::new("test.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    gateway.reload(config).await
}

fn tcp_rule(name: &str, listen: &str, target: impl std::fmt::Display) -> String {
    format!("[[tcp]]\nname = \"{name}\"\nlisten = \"{listen}\"\ntarget = \"{target}\"\n")
}

/// `None` when the connection is refused or reset. A reset may come before `connect` has returned.
async fn asked(gateway: &Gateway, rule: &str) -> Option<Vec<u8>> {
    asked_at(gateway.ingress_address(rule).unwrap()).await
}

async fn asked_at(address: SocketAddr) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    let said = async {
        let mut tcp = TcpStream::connect(address).await?;
        tcp.write_all(b"hello").await?;
        tcp.shutdown().await?;
        tcp.read_to_end(&mut answer).await
    };
    said.await.ok().map(|_| answer)
}

/// Rules come, change and go, and the egress policy opens, while a connection of an unchanged rule lives on.
#[test]
fn rules_and_egress_change_and_what_is_the_same_goes_on() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let far_head = format!(
            "listen = \"127.0.0.1:0\"\n{}",
            head(&far_identity, "near", &near_identity)
        );
        let allow = format!("[egress]\nallow = [\"{server}\"]\n");
        let mut far = start(&format!("{far_head}{allow}")).await;
        let near_head = format!(
            "{}{}",
            head(&near_identity, "far", &far_identity),
            session("far", &far.listen_addresses())
        );
        let kept = tcp_rule("kept", "127.0.0.1:0", server);
        let moved = tcp_rule("moved", "127.0.0.1:0", server);
        let mut near = start(&format!("{near_head}{kept}{moved}")).await;
        near.connected("far").await;
        let mut alive = TcpStream::connect(near.ingress_address("kept").unwrap())
            .await
            .unwrap();
        alive.write_all(b"before").await.unwrap();

        // The same port for a changed rule, a new rule, and a policy that forbids all.
        let old = near.ingress_address("moved").unwrap();
        let moved = tcp_rule("moved", &old.to_string(), server);
        let new = tcp_rule("new", "127.0.0.1:0", server);
        let done = reload(&mut near, &format!("{near_head}{kept}{moved}{new}"))
            .await
            .unwrap();
        assert!(
            done.failed.is_empty() && done.needs_restart.is_empty(),
            "{done:?}"
        );
        assert_eq!(near.ingress_address("moved"), Some(old));
        for rule in ["kept", "moved", "new"] {
            assert_eq!(
                asked(&near, rule).await.as_deref(),
                Some(&b"hello"[..]),
                "{rule}"
            );
        }
        reload(&mut far, &far_head).await.unwrap();
        assert_eq!(asked(&near, "new").await, None, "the policy is closed");
        reload(&mut far, &format!("{far_head}{ALLOW_LOOPBACK}"))
            .await
            .unwrap();
        assert!(asked(&near, "new").await.is_some(), "the policy is open");

        assert_eq!(ask(alive, b" and after").await, b"before and after");
        let done = reload(&mut near, &near_head).await.unwrap();
        assert_eq!(done.changes.len(), 3, "{done:?}");
        assert!(near.report().ingress.is_empty());
        assert!(
            TcpStream::connect(old).await.is_err(),
            "nobody listens any more"
        );
        assert!(
            reload(&mut near, &near_head)
                .await
                .unwrap()
                .changes
                .is_empty()
        );
        near.shutdown().await;
        far.shutdown().await;
    });
}

/// Two gateways whose near one has one rule, and reads it again and again with changing priority while `client` runs.
async fn while_a_rule_changes<T>(rule: &str, client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
    let far = start(&format!(
        "listen = \"127.0.0.1:0\"\n{}{ALLOW_LOOPBACK}",
        head(&far_identity, "near", &near_identity)
    ))
    .await;
    let near_head = format!(
        "{}{}",
        head(&near_identity, "far", &far_identity),
        session("far", &far.listen_addresses())
    );
    let mut near = start(&format!("{near_head}{rule}")).await;
    near.connected("far").await;
    let address = near.ingress_address("r").unwrap();
    let rule = rule.replace("127.0.0.1:0", &address.to_string());
    let with_priority = |priority: usize| format!("{near_head}{rule}priority = {}\n", priority % 2);

    let (end, mut ended) = oneshot::channel::<()>();
    let change = async {
        for priority in 1.. {
            if ended.try_recv() != Err(oneshot::error::TryRecvError::Empty) {
                break;
            }
            let done = reload(&mut near, &with_priority(priority)).await.unwrap();
            assert!(done.failed.is_empty(), "{done:?}");
            assert_eq!(near.ingress_address("r"), Some(address));
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let client = async {
        let result = client(address).await;
        let _ = end.send(());
        result
    };
    let (result, ()) = tokio::join!(client, change);
    Pair { near, far }.end().await;
    result
}

#[test]
fn a_changed_rule_takes_over_its_address_and_no_connection_is_lost() {
    run(async {
        let rule = tcp_rule("r", "127.0.0.1:0", tcp_echo_after_end("127.0.0.1:0").await);
        while_a_rule_changes(&rule, async |address| {
            let mut alive = TcpStream::connect(address).await.unwrap();
            alive.write_all(b"begun").await.unwrap();
            for connection in 0..200 {
                let answer = asked_at(address).await;
                assert_eq!(answer.as_deref(), Some(&b"hello"[..]), "{connection}");
            }
            assert_eq!(ask(alive, b" and ended").await, b"begun and ended");
        })
        .await;
    });
}

#[test]
fn a_changed_rule_takes_over_its_address_and_no_datagram_is_lost() {
    run(async {
        let rule = format!(
            "[[udp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{}\"\ndeadline = \"20s\"\n",
            udp_echo().await
        );
        while_a_rule_changes(&rule, async |address| {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.connect(address).await.unwrap();
            let send = async {
                for number in 0..300_u16 {
                    socket.send(&number.to_be_bytes()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let receive = async {
                let mut missing: HashSet<[u8; 2]> = (0..300_u16).map(u16::to_be_bytes).collect();
                let mut heard = Instant::now();
                let wait = Duration::from_secs(60);
                while !missing.is_empty() && heard.elapsed() < wait {
                    let mut datagram = [0; 2];
                    if tokio::time::timeout(wait, socket.recv(&mut datagram))
                        .await
                        .is_ok()
                    {
                        missing.remove(&datagram);
                        heard = Instant::now();
                    }
                }
                missing.len()
            };
            let ((), missing) = tokio::join!(send, receive);
            assert_eq!(missing, 0, "datagrams without their reply");
        })
        .await;
    });
}

#[test]
fn peers_come_and_go_while_the_others_stay() {
    run(async {
        let (hub_identity, first, second) = (
            Identity::generate(),
            Identity::generate(),
            Identity::generate(),
        );
        let top = "listen = \"127.0.0.1:0\"\n";
        let one = format!("{top}{}", head(&hub_identity, "first", &first));
        let other = format!("{top}{}", head(&hub_identity, "second", &second));
        let both = format!(
            "{one}[[peer]]\nname = \"second\"\npublic_key = \"{}\"\n",
            second.public_key()
        );
        let mut hub = start(&one).await;
        let client = async |identity: &Identity| {
            let session = session("hub", &hub.listen_addresses());
            start(&format!(
                "{}{session}",
                head(identity, "hub", &hub_identity)
            ))
            .await
        };
        let (a, b) = (client(&first).await, client(&second).await);
        a.connected("hub").await;
        until(|| b.report().peers[0].failed_attempts > 0).await;

        reload(&mut hub, &both).await.unwrap();
        hub.connected("second").await;
        b.connected("hub").await;
        let age = |hub: &Gateway, peer: &str| {
            let sessions = hub.report().sessions;
            sessions
                .into_iter()
                .find(|session| session.peer == peer)
                .map(|session| session.age_s)
        };
        assert!(
            age(&hub, "first") > age(&hub, "second"),
            "the first one was not disturbed"
        );

        reload(&mut hub, &other).await.unwrap();
        until(|| a.report().sessions.is_empty() && age(&hub, "first").is_none()).await;
        until(|| a.report().peers[0].failed_attempts > 0).await;
        assert!(age(&hub, "second").is_some());
        for gateway in [a, b, hub] {
            gateway.shutdown().await;
        }
    });
}

/// The quotas of these paths go over, too.
#[test]
fn orders_go_over_to_a_peer_with_another_key() {
    run(async {
        let ours = Identity::generate();
        let nowhere = ["127.0.0.1:9", "127.0.0.1:10"].map(|address| address.parse().unwrap());
        let text = |theirs: &Identity| {
            format!("{}{}", head(&ours, "far", theirs), session("far", &nowhere))
        };
        let mut near = start(&text(&Identity::generate())).await;
        near.order_path(&PathChange {
            path: "path0".to_owned(),
            down: Some(true),
            limit: Some("2mbit".to_owned()),
            ..PathChange::default()
        })
        .unwrap();
        let before = near.report().peers.remove(0);
        assert_eq!(before.orders.len(), 1, "{before:?}");
        let done = reload(&mut near, &text(&Identity::generate()))
            .await
            .unwrap();
        assert!(done.failed.is_empty(), "{done:?}");
        let after = near.report().peers.remove(0);
        assert_ne!(after.public_key, before.public_key);
        assert_eq!(after.orders, before.orders);
        assert_eq!(after.configured_paths, ["path1"]);
        near.shutdown().await;
    });
}

#[test]
fn what_cannot_be_taken_changes_nothing_and_what_needs_a_restart_is_said() {
    run(async {
        let (ours, theirs) = (Identity::generate(), Identity::generate());
        let head = head(&ours, "them", &theirs);
        let text = |top: &str, rules: &str| format!("listen = \"127.0.0.1:0\"\n{top}{head}{rules}");
        let rule = tcp_rule("old", "127.0.0.1:0", "127.0.0.1:9");
        let mut gateway = start(&text("", &rule)).await;
        let address = gateway.ingress_address("old").unwrap();

        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let in_use = taken.local_addr().unwrap().to_string();
        let error = reload(
            &mut gateway,
            &text("", &tcp_rule("new", &in_use, "127.0.0.1:9")),
        )
        .await
        .map(|_| ())
        .unwrap_err();
        assert!(error.to_string().contains(&in_use), "{error}");
        assert_eq!(gateway.ingress_address("old"), Some(address));
        assert!(
            TcpStream::connect(address).await.is_ok(),
            "the old rule is served"
        );

        let accept = format!("{rule}[accept]\nmax_sessions = 3\n");
        let done = reload(&mut gateway, &text("packet_bytes = 1300\n", &accept))
            .await
            .unwrap();
        assert_eq!(done.needs_restart, ["accept", "packet_bytes"]);
        assert!(done.changes.is_empty(), "{done:?}");
        gateway.shutdown().await;
    });
}

/// Rules that are to go over bundles stay as they were where there was no far gateway at the start, and new ones are not served.
#[test]
fn a_rule_over_bundles_waits_for_a_restart_where_there_was_no_far_gateway() {
    run(async {
        let (ours, theirs) = (Identity::generate(), Identity::generate());
        let head = head(&ours, "them", &theirs);
        let text = |rules: &str| format!("listen = \"127.0.0.1:0\"\n{head}{rules}");
        let rule = |kind: &str, name: &str, rest: &str| {
            format!(
                "[[{kind}]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:9\"\n{rest}"
            )
        };
        let before = [
            rule("tcp", "t", ""),
            rule("udp", "u", "deadline = \"300ms\"\n"),
        ];
        let mut gateway = start(&text(&before.concat())).await;
        let addresses = ["t", "u"].map(|name| gateway.ingress_address(name).unwrap());

        let over_bundles = "service = \"bundle\"\n";
        let after = [
            rule("tcp", "t", over_bundles),
            rule("tcp", "new", over_bundles),
            rule("udp", "u", over_bundles),
            "[bundle]\n[[bundle.peer]]\nname = \"base\"\nendpoint = \"ipn:2.0\"\n".to_owned(),
        ];
        let done = reload(&mut gateway, &text(&after.concat())).await.unwrap();
        assert_eq!(done.needs_restart, ["bundle"]);
        let failed: Vec<String> = done.failed.iter().map(ToString::to_string).collect();
        for name in ["t", "new", "u"] {
            let told = format!("rule \"{name}\" needs a restart");
            let is_told = failed.iter().any(|line| line.contains(&told));
            assert!(is_told, "{name}: {failed:?}");
        }
        assert_eq!(failed.len(), 3, "{failed:?}");
        let kept = ["t", "u"].map(|name| gateway.ingress_address(name).unwrap());
        assert_eq!(kept, addresses);
        assert_eq!(gateway.ingress_address("new"), None);
        gateway.shutdown().await;
    });
}

#[test]
fn a_raised_limit_lets_those_in_that_wait() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let far = start(&format!(
            "listen = [\"127.0.0.1:0\"]\n{}{ALLOW_LOOPBACK}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let text = |most: usize| {
            format!(
                "{}{}{}max_connections = {most}\n",
                head(&near_identity, "far", &far_identity),
                session("far", &far.listen_addresses()),
                tcp_rule("r", "127.0.0.1:0", server)
            )
        };
        let mut near = start(&text(1)).await;
        near.connected("far").await;
        let address = near.ingress_address("r").unwrap();
        let _held = TcpStream::connect(address).await.unwrap();
        until(|| near.report().ingress[0].clients == 1).await;
        // The kernel takes it; the gateway does not.
        let waiting = TcpStream::connect(address).await.unwrap();
        let config = Config::parse(&text(2), Path::new("test.toml")).unwrap();
        let asked = tokio::join!(ask(waiting, b"x"), near.reload(config)).0;
        assert_eq!(asked, b"x");
        tokio::join!(near.shutdown(), far.shutdown());
    });
}
