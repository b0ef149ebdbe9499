//! Paths whose remote is a name.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use starhaul_gateway::{Gateway, Resolver, status::Path};
use starhaul_needs::Sleeper;
use starhaul_quic::Identity;
use tokio::net::TcpStream;

use super::gateways::{
    ALLOW_LOOPBACK, ask, head, run, session, start, start_with, tcp_echo_after_end, until,
};

/// After which a lookup is given up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

fn path(gateway: &Gateway, name: &str) -> Option<Path> {
    let sessions = gateway.report().sessions;
    let mut paths = sessions.into_iter().flat_map(|session| session.paths);
    paths.find(|path| path.name == name)
}

fn named_path(port: u16) -> String {
    format!("[[session.path]]\nname = \"named\"\nremote = \"far.test:{port}\"\n")
}

/// A gateway that accepts, and the configuration of one that opens a session to it over `paths`.
async fn far_and_near(paths: impl FnOnce(&[SocketAddr]) -> String) -> (Gateway, String) {
    let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
    let far = start(&format!(
        "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n{}{ALLOW_LOOPBACK}",
        head(&far_identity, "near", &near_identity)
    ))
    .await;
    let near = format!(
        "{}{}",
        head(&near_identity, "far", &far_identity),
        paths(&far.listen_addresses())
    );
    (far, near)
}

#[test]
fn a_silent_resolver_holds_up_nothing_and_its_path_is_told_and_comes_later() {
    run(async {
        let (answer, silence) = mpsc::channel::<SocketAddr>();
        let silence = Mutex::new(silence);
        let resolver = Resolver::new(move |_, _| {
            let silence = silence.lock().unwrap();
            silence
                .recv()
                .map(|found| vec![found])
                .map_err(std::io::Error::other)
        });
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let mut second = None;
        let (far, text) = far_and_near(|far| {
            second = Some(far[1]);
            format!("{}{}", session("far", &far[..1]), named_path(far[1].port()))
        })
        .await;
        let text = format!(
            "{text}[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{server}\"\n"
        );
        let (began, sleeper) = (Instant::now(), Sleeper::start());
        let near = start_with(&text, resolver).await;
        // The resolver says nothing until the end of the test's first half, however long that takes.
        near.connected("far").await;
        let waited = began.elapsed();
        if waited >= LOOKUP_TIMEOUT / 2 {
            sleeper.fail(format!("held up for {waited:?}"));
        }
        let tcp = TcpStream::connect(near.ingress_address("r").unwrap()).await;
        assert_eq!(ask(tcp.unwrap(), b"carried").await, b"carried");
        let named = path(&near, "named").expect("the path is in the status");
        assert_eq!(named.state, "down");
        assert_eq!(named.remote, format!("far.test:{}", second.unwrap().port()));
        let cause = named.last_error.unwrap();
        assert!(cause.starts_with("name does not resolve: "), "{cause}");

        answer.send(second.unwrap()).unwrap();
        until(|| path(&near, "named").is_some_and(|path| path.state == "up")).await;
        let named = path(&near, "named").unwrap();
        assert_eq!(
            (named.remote, named.last_error),
            (second.unwrap().to_string(), None)
        );
        near.shutdown().await;
        far.shutdown().await;
    });
}

#[test]
fn without_any_address_there_is_no_session_and_the_reason_is_told_for_each_path() {
    run(async {
        let resolver = Resolver::new(|_, _| Err(std::io::Error::other("no such name")));
        let (far, text) =
            far_and_near(|far| format!("[[session]]\n{}", named_path(far[0].port()))).await;
        let near = start_with(&text, resolver).await;
        until(|| near.report().peers[0].failed_attempts > 1).await;
        let told = near.report().peers[0].last_error.clone().unwrap();
        assert_eq!(told, "path \"named\": name does not resolve: no such name");
        near.shutdown().await;
        far.shutdown().await;
    });
}

/// An address that was good once is better than none.
#[test]
fn the_last_address_serves_while_the_resolver_fails() {
    run(async {
        let answers = Arc::new(Mutex::new(None));
        let resolver = Resolver::new({
            let answers = answers.clone();
            move |_, _| {
                let found = *answers.lock().unwrap();
                found
                    .map(|found: SocketAddr| vec![found])
                    .ok_or_else(|| std::io::Error::other("no server reached"))
            }
        });
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let head_far = head(&far_identity, "near", &near_identity);
        let far_at =
            async |listen: &str| start(&format!("listen = \"{listen}\"\n{head_far}")).await;
        // An address that no other socket has while it is not bound.
        let address = starhaul_needs::free();
        let far = far_at(&address.to_string()).await;
        *answers.lock().unwrap() = Some(address);
        let near = format!(
            "{}[[session]]\n{}",
            head(&near_identity, "far", &far_identity),
            named_path(address.port())
        );
        let near = start_with(&near, resolver).await;
        near.connected("far").await;
        *answers.lock().unwrap() = None;
        far.shutdown().await;
        until(|| near.report().sessions.is_empty()).await;
        let far = far_at(&address.to_string()).await;
        near.connected("far").await;
        assert_eq!(path(&near, "named").unwrap().state, "up");
        near.shutdown().await;
        far.shutdown().await;
    });
}
