//! A path with a host name that the resolver does not answer.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use starhaul_needs::Sleeper;

use super::{
    PATIENCE,
    gateway::{PORT, Pair},
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

/// The name servers of the system's resolver.
fn name_servers() -> Vec<IpAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok())?
    });
    let servers: Vec<_> = servers.collect();
    match servers.is_empty() {
        true => vec![Ipv4Addr::LOCALHOST.into()],
        false => servers,
    }
}

/// The system's name servers, inside the field: they receive queries, and answer once they are allowed to.
pub(super) struct NameServers {
    questions: Arc<AtomicUsize>,
    answer: Arc<AtomicBool>,
}

impl NameServers {
    /// Each answers with this address.
    pub(super) fn start(network: &Network, address: Ipv4Addr) -> Self {
        let (questions, answer) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        for server in name_servers() {
            if !server.is_loopback() {
                network.ip(Side::Field, &format!("address add {server} dev lo"));
            }
            let listen = SocketAddr::new(server, 53);
            let socket = network.field.inside(|| UdpSocket::bind(listen)).unwrap();
            let (questions, answer) = (questions.clone(), answer.clone());
            thread::spawn(move || {
                let mut buffer = [0; 1500];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    questions.fetch_add(1, Ordering::Relaxed);
                    if answer.load(Ordering::Relaxed) {
                        let said = answer_to(&buffer[..length], address);
                        let _ = socket.send_to(&said, from);
                    }
                }
            });
        }
        Self { questions, answer }
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }
}

/// An answer of RFC 1035 §4: one address for queries of type A, none for others.
fn answer_to(question: &[u8], address: Ipv4Addr) -> Vec<u8> {
    let name = question[12..].iter().position(|byte| *byte == 0).unwrap();
    let end = 12 + name + 5;
    let is_a = question[end - 4..end - 2] == [0, 1];
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    if is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

/// A path to an address, which is up, and one to a name that the name servers do not answer yet.
fn start(network: &Network) -> (NameServers, Pair) {
    let there: Ipv4Addr = Network::address(Side::Ground, 1).parse().unwrap();
    let servers = NameServers::start(network, there);
    let literal = Network::address(Side::Ground, 0);
    let paths = format!(
        "[[session.path]]\nname = \"literal\"\nremote = \"{literal}:{PORT}\"\n\
         [[session.path]]\nname = \"named\"\nremote = \"ground.example.org:{PORT}\"\n"
    );
    let (began, sleeper) = (Instant::now(), Sleeper::start());
    let pair = Pair::start_with(network, &paths, "", "");
    pair.wait_until_up(&["literal"]);
    let took = began.elapsed();
    if took >= AT_ONCE {
        sleeper.fail(format!("the lookup was waited for: {took:?}"));
    }
    (servers, pair)
}

/// Longer than a start and a handshake take, and half as long as a lookup of the system's resolver.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Less than the first attempt of a lookup takes.
const ENDED: Duration = Duration::from_secs(4);

/// SIGTERM ends the field in order, and at once, whatever it still asks for.
fn end(pair: &mut Pair) {
    let (began, sleeper) = (Instant::now(), Sleeper::start());
    pair.field.signal("TERM");
    let ended = pair.field.wait(PATIENCE);
    assert!(ended.expect("it does not end").success());
    let took = began.elapsed();
    if took >= ENDED {
        sleeper.fail(format!("SIGTERM ends it after {took:?}"));
    }
}

/// A neighbour of a chain by name, beside a path to an address, and a folder with their keys.
fn start_with_neighbour(network: &Network) -> (NameServers, Pair, tempfile::TempDir) {
    let there: Ipv4Addr = Network::address(Side::Ground, 0).parse().unwrap();
    let servers = NameServers::start(network, there);
    let keys = tempfile::tempdir().unwrap();
    for name in ["chain", "hop"] {
        std::fs::write(keys.path().join(name), "sixteen bytes or more").unwrap();
    }
    let keys_at = keys.path().display();
    let chain = format!(
        "[leotp]\nlisten = \"0.0.0.0:4511\"\nsecret = \"{keys_at}/chain\"\n[[leotp.neighbour]]\nname = \"orbiter\"\n\
         address = \"orbiter.example.org:4511\"\nkey = \"{keys_at}/hop\"\n"
    );
    let path = format!("[[session.path]]\nname = \"literal\"\nremote = \"{there}:{PORT}\"\n");
    let pair = Pair::start_with(network, &path, &chain, "");
    (servers, pair, keys)
}

#[test]
fn a_signal_ends_a_start_whose_neighbour_has_no_answer() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let (_servers, mut pair, _keys) = start_with_neighbour(&network);
    // The control socket is there, and perhaps nothing else.
    end(&mut pair);
}

#[test]
fn a_silent_resolver_holds_up_neither_the_session_nor_its_end() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (servers, mut pair) = start(&network);
    let named = pair.field.path("named");
    let cause = named["last_error"].as_str().unwrap_or_default();
    assert!(cause.starts_with("name does not resolve: "), "{named}");
    assert_eq!(named["state"], "down");
    let download = Transfer::download(&network);
    download.wait_for_progress(1 << 20);
    wait_for("the name is told in the log", || {
        pair.field.log().contains("does not resolve").then_some(())
    });

    // A pending query keeps the system's resolver busy for at least five seconds.
    let asked = servers.questions();
    wait_for("another question", || {
        (servers.questions() > asked).then_some(())
    });
    download.wait_for_progress(1 << 20);
    download.finish();
    let asked = servers.questions();
    wait_for("a lookup is under way", || {
        (servers.questions() > asked).then_some(())
    });
    end(&mut pair);
}

#[test]
fn a_path_joins_once_its_name_is_told_and_the_download_goes_on() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (servers, pair) = start(&network);
    let download = Transfer::download(&network);
    download.wait_for_progress(1 << 20);
    servers.answer.store(true, Ordering::Relaxed);
    pair.wait_until_up(&["literal", "named"]);
    network.cut(0);
    pair.wait_for_state(&["literal"], "suspect");
    download.wait_for_progress(1 << 20);
    download.finish();
}
