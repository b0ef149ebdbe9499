//! The server sends only to clients with the key, at their own address, and while they respond.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use starhaul_record::{
    Client, ClientConfig, Direction, EchoRequest, Key, Server, ServerConfig, ServerEvent, Transmit,
};
use starhaul_units::Bandwidth;

const MS: Duration = Duration::from_millis(1);

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 4000))
}

/// A server, and a client that requests 8 Mbit/s downward.
fn pair(now: Instant) -> (Server, Client) {
    pair_for(now, Direction::Down, 20)
}

fn pair_for(now: Instant, direction: Direction, seconds: u32) -> (Server, Client) {
    pair_at(now, direction, seconds, Bandwidth::from_mbit(8))
}

fn pair_at(
    now: Instant,
    direction: Direction,
    seconds: u32,
    max_rate: Bandwidth,
) -> (Server, Client) {
    let key = Key::new(&[7; 32]);
    let mut config = ClientConfig::new(key.clone(), [2; 16]);
    config.request.direction = direction;
    config.request.seconds = seconds;
    config.request.max_rate = max_rate;
    let server = Server::new(ServerConfig::new(vec![key], [1; 32]), now);
    (server, Client::new(config, now))
}

/// Gives the server a datagram from this host; returns its answers with their receivers.
fn ask(
    server: &mut Server,
    now: Instant,
    from: u8,
    datagram: &[u8],
) -> Vec<(SocketAddr, Transmit)> {
    server.handle_datagram(now, now, address(from), datagram);
    std::iter::from_fn(|| server.poll_transmit(now)).collect()
}

/// The client's hello, and its request, which answers the server's challenge.
fn handshake(server: &mut Server, client: &mut Client, now: Instant) -> (Vec<u8>, Vec<u8>) {
    let hello = client.poll_transmit(now).unwrap().contents;
    let answers = ask(server, now, 1, &hello);
    let [(to, challenge)] = &answers[..] else {
        panic!("one challenge, not {answers:?}");
    };
    assert_eq!(*to, address(1));
    client.handle_datagram(now, now, &challenge.contents);
    (hello, client.poll_transmit(now).unwrap().contents)
}

fn began(server: &mut Server) -> usize {
    std::iter::from_fn(|| server.poll_event())
        .filter(|event| matches!(event, ServerEvent::Began { .. }))
        .count()
}

/// Runs both for `time`, 1 ms at a time; the client's datagrams arrive only if `heard`. Returns the bytes that the
/// server sent in each tenth of a second.
fn run(
    server: &mut Server,
    client: &mut Client,
    now: &mut Instant,
    time: Duration,
    heard: bool,
) -> Vec<usize> {
    let mut tenths = Vec::new();
    for step in 0..time.as_millis() {
        if step % 100 == 0 {
            tenths.push(0);
        }
        *now += MS;
        while let Some(transmit) = client.poll_transmit(*now) {
            for datagram in transmit.contents.chunks(transmit.segment_bytes) {
                if heard {
                    server.handle_datagram(*now, *now, address(1), datagram);
                }
            }
        }
        while let Some((_, transmit)) = server.poll_transmit(*now) {
            *tenths.last_mut().unwrap() += transmit.contents.len();
            for datagram in transmit.contents.chunks(transmit.segment_bytes) {
                client.handle_datagram(*now, *now, datagram);
            }
        }
    }
    tenths
}

/// A client that sends and receives, but whose acknowledgements are lost, cannot make the server keep feedbacks without
/// bound.
#[test]
fn who_acknowledges_nothing_is_left_after_forty_seconds() {
    /// The kind byte of acknowledgements, after the magic number.
    const ACK: u8 = 8;
    for (acknowledges, expected) in [(true, None), (false, Some(false))] {
        let mut now = Instant::now();
        let start = now;
        let (mut server, mut client) = pair_for(now, Direction::Up, 60);
        let mut ended = None;
        while ended.is_none() && now < start + MS * 55_000 {
            now += MS;
            while let Some(transmit) = client.poll_transmit(now) {
                for datagram in transmit.contents.chunks(transmit.segment_bytes) {
                    if acknowledges || datagram[4] != ACK {
                        server.handle_datagram(now, now, address(1), datagram);
                    }
                }
            }
            while let Some((_, transmit)) = server.poll_transmit(now) {
                client.handle_datagram(now, now, &transmit.contents);
            }
            ended = std::iter::from_fn(|| server.poll_event()).find_map(|event| match event {
                ServerEvent::Ended { complete, .. } => Some(complete),
                _ => None,
            });
        }
        assert_eq!(ended, expected, "after {:?}", now - start);
    }
}

#[test]
fn the_heavy_flow_stops_when_its_receiver_is_not_heard_any_more() {
    let mut now = Instant::now();
    let (mut server, mut client) = pair(now);
    let flowing = run(&mut server, &mut client, &mut now, MS * 4_000, true);
    assert!(flowing[39] > 20_000, "{flowing:?}");
    let silent = run(&mut server, &mut client, &mut now, MS * 3_000, false);
    assert!(silent[5] > 0, "it waits for a while: {silent:?}");
    assert_eq!(silent[11..].iter().sum::<usize>(), 0, "{silent:?}");
    assert!(
        server.poll_timeout().unwrap() > now,
        "the caller would ask again at once, until something is heard"
    );
    // When messages arrive again it continues; after lasting silence the session ends.
    let again = run(&mut server, &mut client, &mut now, MS * 1_000, true);
    assert!(again.iter().sum::<usize>() > 50_000, "{again:?}");
    run(&mut server, &mut client, &mut now, MS * 31_000, false);
    let ended = |event| {
        matches!(
            event,
            ServerEvent::Ended {
                complete: false,
                ..
            }
        )
    };
    assert!(std::iter::from_fn(|| server.poll_event()).any(ended));
}

#[test]
fn a_rate_of_few_packets_in_a_second_is_kept_however_often_the_sender_is_asked() {
    let mut now = Instant::now();
    let max_rate = Bandwidth::from_kbit(400);
    let (mut server, mut client) = pair_at(now, Direction::Down, 20, max_rate);
    run(&mut server, &mut client, &mut now, MS * 2_000, true);
    let tenths = run(&mut server, &mut client, &mut now, MS * 2_000, true);
    let sent = tenths.iter().sum::<usize>();
    assert!((80_000..110_000).contains(&sent), "{sent} bytes");
}

#[test]
fn a_challenge_is_good_for_five_seconds() {
    for (age, accepted) in [(MS * 4_900, 1), (MS * 5_100, 0)] {
        let now = Instant::now();
        let (mut server, mut client) = pair(now);
        let (_, start) = handshake(&mut server, &mut client, now);
        let answers = ask(&mut server, now + age, 1, &start);
        assert_eq!(began(&mut server), accepted, "after {age:?}");
        assert_eq!(answers.is_empty(), accepted == 0, "after {age:?}");
    }
}

/// The server starts later than the client, or the path is out at first.
#[test]
fn a_client_whose_first_answer_comes_late_is_accepted() {
    let mut now = Instant::now();
    let (mut server, mut client) = pair(now);
    let deaf_until = now + MS * 4_500;
    let mut answers = VecDeque::new();
    while now < deaf_until + MS * 1_500 && client.progress(now).is_none() {
        now += MS;
        while let Some(sent) = client.poll_transmit(now) {
            if now >= deaf_until {
                let of_this = ask(&mut server, now, 1, &sent.contents).into_iter();
                answers.extend(of_this.map(|(_, answer)| (now + MS * 40, answer)));
            }
        }
        while let Some((_, answer)) = answers.pop_front_if(|(at, _)| *at <= now) {
            client.handle_datagram(now, now, &answer.contents);
        }
    }
    assert!(client.progress(now).is_some(), "{:?}", client.result());
}

#[test]
fn a_request_that_is_sent_again_begins_nothing() {
    let mut now = Instant::now();
    let (mut server, mut client) = pair(now);
    let (_, start) = handshake(&mut server, &mut client, now);
    ask(&mut server, now, 1, &start);
    assert_eq!(began(&mut server), 1);
    // A duplicate is answered, since the answer may be lost, but it is the same session.
    ask(&mut server, now, 1, &start);
    assert_eq!(began(&mut server), 0);
    run(&mut server, &mut client, &mut now, MS * 500, true);
    let farewell = client.leave().unwrap();
    ask(&mut server, now, 1, &farewell.contents);
    // The session has ended; its challenge is still valid.
    for from in [1, 9] {
        let answers = ask(&mut server, now + MS * 100, from, &start);
        assert!(answers.is_empty(), "from {from}: {answers:?}");
    }
    assert_eq!(began(&mut server), 0);
}

#[test]
fn nobody_else_can_be_flooded() {
    let now = Instant::now();
    let (mut server, mut client) = pair(now);
    let (hello, start) = handshake(&mut server, &mut client, now);
    // A client with the key sends from a forged address: any number of hellos, and a challenge that it got itself.
    let (mut asked, mut sent) = (0, 0);
    for datagram in [&hello, &start].into_iter().cycle().take(2_000) {
        asked += datagram.len();
        let answers = ask(&mut server, now, 66, datagram);
        sent += answers
            .iter()
            .map(|(_, answer)| answer.contents.len())
            .sum::<usize>();
    }
    assert!(sent <= asked, "{sent} bytes for {asked}");
    assert_eq!(began(&mut server), 0);
    let later = std::iter::from_fn(|| server.poll_transmit(now + MS * 60_000)).count();
    assert_eq!(later, 0);
}

#[test]
fn echo_requests_of_strangers_cause_nothing() {
    let mut now = Instant::now();
    let (mut server, mut client) = pair(now);
    let echo = |from: u8, token| EchoRequest {
        from: address(from).ip(),
        token,
        number: 1,
        ip_bytes: 40,
    };
    server.handle_echo_request(now, now, &echo(1, [2; 8]));
    assert!(server.poll_transmit(now).is_none(), "before any session");
    let (_, start) = handshake(&mut server, &mut client, now);
    ask(&mut server, now, 1, &start);
    let told = |server: &mut Server, now: &mut Instant, request: &EchoRequest| {
        *now += MS * 60;
        server.handle_echo_request(*now, *now, request);
        std::iter::from_fn(|| server.poll_transmit(*now)).count()
    };
    // Another address, another token.
    assert_eq!(told(&mut server, &mut now, &echo(66, [2; 8])), 0);
    assert_eq!(told(&mut server, &mut now, &echo(1, [3; 8])), 0);
    assert_eq!(told(&mut server, &mut now, &echo(1, [2; 8])), 1);
    // A flood of requests gets fewer bytes than it sends.
    let mut flood = 0;
    for _ in 0..1_000 {
        now += Duration::from_micros(100);
        server.handle_echo_request(now, now, &echo(1, [2; 8]));
        let answers = std::iter::from_fn(|| server.poll_transmit(now));
        flood += answers
            .map(|(_, told)| told.contents.len() + 28)
            .sum::<usize>();
    }
    assert!(flood < 1_000 * 40 / 2, "{flood} bytes for 40000");
}
