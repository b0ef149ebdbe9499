//! Two endpoints in one process with real sockets, over plain loopback or emulated links.

#![expect(clippy::unwrap_used, reason = "test")]

use std::{
    io,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use starhaul_endpoint::{
    BlockOptions, ByteStream, ControllerConfig, Endpoint, EndpointConfig, Error, Identity,
    IncomingStream, Mode, Outcome, PathSpec, PathStatus, RateFeed, Reconfiguration,
    ReconfigurationSource, RecvStream, Session, StreamConfig,
};
use starhaul_replay::{Emulator, RelaySpec};
use starhaul_units::Bandwidth;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Pair {
    client: Endpoint,
    server: Endpoint,
    /// The session as seen by the client and by the server.
    ours: Session,
    theirs: Session,
}

async fn server(trusted: &Identity) -> (Endpoint, Identity) {
    let identity = Identity::generate();
    let config = EndpointConfig {
        trusted: vec![trusted.public_key()],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..EndpointConfig::new(identity.clone())
    };
    (Endpoint::bind(config).await.unwrap(), identity)
}

async fn pair() -> Pair {
    pair_over(|server| vec![PathSpec::new("loopback", server)]).await
}

async fn pair_over(paths: impl FnOnce(std::net::SocketAddr) -> Vec<PathSpec>) -> Pair {
    let identity = Identity::generate();
    let (server, server_identity) = server(&identity).await;
    let client = Endpoint::bind(EndpointConfig::new(identity.clone()))
        .await
        .unwrap();
    let paths = paths(server.listen_addresses()[0]);
    let ours = client
        .connect(server_identity.public_key(), paths)
        .await
        .unwrap();
    let theirs = server.accept().await.unwrap();
    assert_eq!(theirs.peer(), identity.public_key());
    Pair {
        client,
        server,
        ours,
        theirs,
    }
}

fn emulate(server: std::net::SocketAddr, links: &[&str]) -> Emulator {
    let specs = links.iter().map(|link| RelaySpec {
        target: server,
        forward: link.parse().unwrap(),
        reverse: link.parse().unwrap(),
        seed: 7,
    });
    Emulator::start(specs.collect()).unwrap()
}

async fn accept_bytes(session: &Session) -> ByteStream {
    match session.accept_stream().await {
        Some(IncomingStream::Bytes(stream)) => stream,
        other => panic!("expected a byte stream, got {other:?}"),
    }
}

async fn accept_blocks(session: &Session) -> RecvStream {
    match session.accept_stream().await {
        Some(IncomingStream::Blocks(stream)) => stream,
        other => panic!("expected a block stream, got {other:?}"),
    }
}

fn pattern(length: usize, seed: u8) -> Bytes {
    let bytes = (0..length).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap() ^ seed);
    bytes.collect()
}

#[tokio::test]
async fn blocks_arrive_byte_for_byte_with_an_outcome_each() {
    let pair = pair().await;
    let stream = pair
        .ours
        .open_stream(StreamConfig {
            deadline: Duration::from_secs(30),
            label: Bytes::from_static(b"label"),
            ..StreamConfig::default()
        })
        .await
        .unwrap();
    let sizes = [1, 17, 1_200, 1_201, 50_000, 300_000];
    let mut handles = Vec::new();
    for (seed, size) in (0u8..).zip(sizes) {
        let block = pattern(size, seed);
        handles.push(stream.send_block(block, BlockOptions::default()).unwrap());
    }
    stream.finish().unwrap();
    let mut received = accept_blocks(&pair.theirs).await;
    assert_eq!(received.config().label, "label");
    let mut blocks = Vec::new();
    while let Some(block) = received.recv_block().await {
        blocks.push(block);
    }
    blocks.sort_by_key(|block| block.id);
    assert_eq!(blocks.len(), sizes.len());
    for ((seed, size), block) in (0u8..).zip(sizes).zip(blocks) {
        assert_eq!(block.data, pattern(size, seed), "block of {size} bytes");
    }
    for handle in handles {
        let outcome = handle.outcome().await;
        assert!(
            matches!(outcome, Outcome::Delivered { on_time: true, .. }),
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_byte_stream_arrives_intact_and_half_closes() {
    let pair = pair().await;
    let mut ours = pair
        .ours
        .open_bytes(3, Bytes::from_static(b"sum"))
        .await
        .unwrap();
    let data = pattern(16 << 20, 9);
    let wanted = Sha256::digest(&data);
    let theirs = pair.theirs.clone();
    let server = tokio::spawn(async move {
        let mut stream = accept_bytes(&theirs).await;
        assert_eq!(stream.label(), "sum");
        let mut sum = Sha256::new();
        let mut buffer = vec![0; 100_000];
        loop {
            let read = stream.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            sum.update(&buffer[..read]);
        }
        // The other direction is still open after the peer has finished its own.
        stream.write_all(&sum.finalize()).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    ours.write_all(&data).await.unwrap();
    ours.shutdown().await.unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, wanted.as_slice());
    server.await.unwrap();
}

#[tokio::test]
async fn a_writer_waits_for_a_reader_that_does_not_read() {
    let pair = pair().await;
    let (_reader, mut writer) = pair
        .ours
        .open_bytes(3, Bytes::new())
        .await
        .unwrap()
        .into_split();
    let mut written = 0;
    let chunk = pattern(1 << 20, 1);
    let blocked = loop {
        match tokio::time::timeout(Duration::from_millis(300), writer.write(&chunk)).await {
            Ok(count) => written += count.unwrap(),
            Err(_) => break written,
        }
        assert!(written < 1 << 30, "nothing holds the writer back");
    };
    let (mut reader, _writer) = accept_bytes(&pair.theirs).await.into_split();
    let mut read = vec![0; blocked];
    reader.read_exact(&mut read).await.unwrap();
    writer.write_all(b"goes on").await.unwrap();
}

#[tokio::test]
async fn dropped_halves_reset_and_stop() {
    let pair = pair().await;
    let (_reader, mut writer) = pair
        .ours
        .open_bytes(3, Bytes::new())
        .await
        .unwrap()
        .into_split();
    writer.write_all(b"first").await.unwrap();
    let (mut their_reader, mut their_writer) = accept_bytes(&pair.theirs).await.into_split();
    let mut first = [0; 5];
    their_reader.read_exact(&mut first).await.unwrap();

    drop(writer);
    let error = their_reader.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    // The other direction is unharmed until its reader goes.
    their_writer.write_all(b"still here").await.unwrap();
    drop(_reader);
    assert_eq!(their_writer.stopped().await, Some(0));
    let error = their_writer.write_all(b"too late").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn keys_that_do_not_fit_are_typed_errors() {
    let (known, stranger) = (Identity::generate(), Identity::generate());
    let (server, server_identity) = server(&known).await;
    let path = || vec![PathSpec::new("loopback", server.listen_addresses()[0])];

    let client = Endpoint::bind(EndpointConfig::new(known)).await.unwrap();
    let error = client
        .connect(stranger.public_key(), path())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Transport(starhaul_quic::Error::WrongPeerKey)),
        "{error:?}"
    );

    let client = Endpoint::bind(EndpointConfig::new(stranger)).await.unwrap();
    let error = client
        .connect(server_identity.public_key(), path())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Transport(starhaul_quic::Error::NotTrusted)),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_is_unreachable() {
    let identity = Identity::generate();
    let client = Endpoint::bind(EndpointConfig::new(identity.clone()))
        .await
        .unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = PathSpec::new("nowhere", silent.local_addr().unwrap());
    let error = client
        .connect(identity.public_key(), vec![path])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(client.sessions().is_empty());
}

#[tokio::test]
async fn closing_an_endpoint_ends_the_sessions_of_its_peers() {
    let pair = pair().await;
    let mut theirs = pair.theirs.open_bytes(1, Bytes::new()).await.unwrap();
    theirs.write_u8(1).await.unwrap();
    let mut stream = accept_bytes(&pair.ours).await;
    stream.read_u8().await.unwrap();
    pair.server.close().await;
    assert_eq!(pair.ours.closed().await, None);
    assert!(pair.ours.accept_stream().await.is_none());
    assert!(pair.client.sessions().is_empty());
    let (mut reader, mut writer) = stream.into_split();
    let error = reader.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    assert!(writer.write_u8(0).await.is_err());
    assert_eq!(writer.stopped().await, None);
    assert!(pair.server.accept().await.is_none());
    let path = PathSpec::new("loopback", "127.0.0.1:9".parse().unwrap());
    let again = pair.server.connect(pair.ours.peer(), vec![path]).await;
    assert!(matches!(again, Err(Error::EndpointClosed)));
}

#[tokio::test]
async fn dropping_the_last_handle_of_an_endpoint_closes_its_sessions() {
    let pair = pair().await;
    let clone = pair.client.clone();
    drop(pair.client);
    assert_eq!(clone.sessions().len(), 1);
    drop(clone);
    assert_eq!(pair.theirs.closed().await, None);
}

#[tokio::test]
async fn blocks_that_nobody_fetches_make_room_for_newer_ones() {
    let pair = pair().await;
    let config = StreamConfig {
        deadline: Duration::from_secs(30),
        ..StreamConfig::default()
    };
    let stream = pair.ours.open_stream(config).await.unwrap();
    let mut last = None;
    for _ in 0..42 {
        let queue = || stream.send_block(Bytes::from_static(b"x"), BlockOptions::default());
        let handles: Vec<_> = (0..100).map(|_| queue().unwrap()).collect();
        last = handles.last().map(|handle| handle.id());
        for handle in handles {
            handle.outcome().await;
        }
    }
    stream.finish().unwrap();
    let mut received = accept_blocks(&pair.theirs).await;
    let (mut count, mut newest) = (0, None);
    while let Some(block) = received.recv_block().await {
        count += 1;
        newest = Some(block.id);
    }
    assert_eq!((count, received.dropped_blocks()), (4_096, 104));
    assert_eq!(pair.theirs.dropped_blocks(), 104, "of all its streams");
    assert_eq!(newest, last);
}

/// Blocks of four times the rate of the path.
#[tokio::test]
async fn an_application_that_asks_for_more_than_its_path_carries_is_told_both_rates() {
    let carried = Bandwidth::from_mbit(2);
    let pair = pair_over(|server| {
        vec![PathSpec {
            controller: ControllerConfig::Dedicated(RateFeed::new(carried)),
            ..PathSpec::new("narrow", server)
        }]
    })
    .await;
    let config = StreamConfig {
        deadline: Duration::from_millis(300),
        ..StreamConfig::default()
    };
    let stream = pair.ours.open_stream(config).await.unwrap();
    let (mut ours, mut theirs) = (pair.ours.overloads(), pair.theirs.overloads());
    let sending = async {
        for number in (0..=u8::MAX).cycle().take(400) {
            // What is refused asks for as much.
            let _ = stream.send_block(pattern(50_000, number), BlockOptions::default());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::select! {
        told = ours.next_overload() => told,
        () = sending => None,
    };
    let told = told.expect("an overload within 20 s");
    assert!(told.wanted > told.available, "{told:?}");
    assert!(
        told.available > Bandwidth::ZERO && told.available < carried.scaled(1.5),
        "{told:?}"
    );
    // The other side sends nothing, and hears only of the end; so does one that asks later.
    pair.client.close().await;
    assert_eq!(theirs.next_overload().await, None);
    while ours.next_overload().await.is_some() {}
    assert_eq!(pair.ours.overloads().next_overload().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_path_loses_no_byte_and_comes_back() {
    let mut emulator = None;
    let pair = pair_over(|server| {
        let links = ["rate=40mbit,delay=5ms", "rate=40mbit,delay=15ms"];
        let relays = emulator.insert(emulate(server, &links)).relays();
        let names = ["a", "b"].into_iter().zip(relays);
        names
            .map(|(name, relay)| PathSpec::new(name, relay.address()))
            .collect()
    })
    .await;
    let emulator = emulator.unwrap();
    let up = |name: &str| {
        pair.ours
            .path_status()
            .iter()
            .any(|p| p.name == name && p.up)
    };
    let until = async |what: &str, condition: &dyn Fn() -> bool| {
        let waiting = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        waited.unwrap_or_else(|_| panic!("never: {what}"));
    };
    until("both up", &|| up("a") && up("b")).await;

    let data = pattern(4 << 20, 3);
    let (sent, theirs) = (data.clone(), pair.theirs.clone());
    let server = tokio::spawn(async move {
        let mut all = Vec::new();
        accept_bytes(&theirs)
            .await
            .read_to_end(&mut all)
            .await
            .unwrap();
        all
    });
    let mut stream = pair.ours.open_bytes(3, Bytes::new()).await.unwrap();
    for (number, chunk) in sent.chunks(1 << 20).enumerate() {
        if number == 1 {
            emulator.relays()[0].set_down();
        }
        stream.write_all(chunk).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    assert!(server.await.unwrap() == data, "bytes differ");
    emulator.relays()[0].set_up();
    until("the cut path is up again", &|| up("a")).await;
}

#[tokio::test]
async fn paths_come_and_go_by_name() {
    let pair = pair().await;
    let server = pair.server.listen_addresses()[0];
    let error = pair
        .ours
        .add_path(PathSpec::new("loopback", server))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::DuplicatePath(name) if name == "loopback"));
    pair.ours
        .add_path(PathSpec::new("second", server))
        .await
        .unwrap();
    let second_up = || {
        let paths = pair.ours.path_status();
        paths.iter().any(|path| path.name == "second" && path.up)
    };
    while !second_up() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pair.ours.remove_path("loopback").await.unwrap();
    let error = pair.ours.remove_path("loopback").await.unwrap_err();
    assert!(matches!(error, Error::UnknownPath(name) if name == "loopback"));
    // What follows can only go over the second.
    let mut stream = pair.ours.open_bytes(3, Bytes::new()).await.unwrap();
    stream.write_all(b"over the second").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    accept_bytes(&pair.theirs)
        .await
        .read_to_end(&mut all)
        .await
        .unwrap();
    assert_eq!(all, b"over the second");
}

#[tokio::test]
async fn mistakes_in_paths_are_found_before_anything_is_sent() {
    let identity = Identity::generate();
    let client = Endpoint::bind(EndpointConfig::new(identity.clone()))
        .await
        .unwrap();
    let connect = |paths| client.connect(identity.public_key(), paths);
    assert!(matches!(connect(vec![]).await, Err(Error::NoPath)));
    let path = PathSpec::new("twice", "127.0.0.1:9".parse().unwrap());
    let twice = connect(vec![path.clone(), path.clone()]).await;
    assert!(matches!(twice, Err(Error::DuplicatePath(name)) if name == "twice"));
    let mixed = PathSpec {
        local: Some("[::1]:0".parse().unwrap()),
        ..path
    };
    assert!(matches!(
        connect(vec![mixed]).await,
        Err(Error::AddressFamily { .. })
    ));
}

/// A path of the session as one side sees it, once it satisfies `ready`.
async fn path_when(session: &Session, ready: impl Fn(&PathStatus) -> bool) -> PathStatus {
    let look = async {
        loop {
            let path = session.path_status().into_iter().find(&ready);
            match path {
                Some(path) => return path,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_reconfiguration_told_at_one_end_is_known_at_both() {
    let pair = pair_over(|server| {
        vec![PathSpec {
            interface: Some("lo".to_owned()),
            controller: "leocc2".parse().unwrap(),
            ..PathSpec::new("dish", server)
        }]
    })
    .await;
    let event = Reconfiguration {
        at: Instant::now(),
        outage: Duration::from_millis(68),
        source: ReconfigurationSource::Schedule,
        confidence: 0.6,
    };
    let unknown = pair.ours.report_reconfiguration("other", event);
    assert!(matches!(unknown, Err(Error::UnknownPath(name)) if name == "other"));
    assert_eq!(pair.client.report_reconfiguration("eth7", event), 0);
    assert_eq!(pair.ours.path_status()[0].reconfigurations.count, 0);

    assert_eq!(pair.client.report_reconfiguration("lo", event), 1);
    let ours = path_when(&pair.ours, |path| path.reconfigurations.count == 1).await;
    assert_eq!(ours.reconfigurations.last, Some(event));
    assert!(ours.model.is_some(), "{ours:?}");
    let theirs = path_when(&pair.theirs, |path| path.reconfigurations.count == 1).await;
    let heard = theirs.reconfigurations.last.unwrap();
    assert_eq!(heard.source, ReconfigurationSource::Peer);
    assert_eq!(heard.outage, event.outage);

    let rtt = Duration::from_millis(31);
    pair.theirs.report_segment_rtt("dish", rtt).unwrap();
    path_when(&pair.theirs, |path| path.segment_rtt == Some(rtt)).await;
    pair.ours.close("done").await;
    let ended = pair.ours.report_segment_rtt("dish", rtt);
    assert!(matches!(ended, Err(Error::SessionEnded { .. })));
}

/// At a rate that no processor keeps up with there is always more to send; what arrives must be read, and what is due must be done, all the
/// same. Who does either only when nothing is left to send does it when the flood is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_faster_than_its_processor_still_reads_its_socket_and_keeps_its_deadlines() {
    // The burst of one alone is over soon.
    const PATHS: usize = 16;
    const SENDING: Duration = Duration::from_millis(1500);
    const DEADLINE: Duration = Duration::from_millis(100);
    const INTERVAL: Duration = Duration::from_millis(10);
    /// Much longer than any turn, also on a busy computer, and much shorter than the flood.
    const SILENCE: Duration = Duration::from_millis(300);
    /// What is sent by then has ended long before the flood, also what is lost: it waits for its acknowledgement after its deadline.
    const EARLY: Duration = Duration::from_millis(500);
    let pair = pair_over(|server| {
        let path = |number: usize| {
            let mut path = PathSpec::new(format!("path {number}"), server);
            path.controller =
                ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(400_000)));
            path
        };
        (0..PATHS).map(path).collect()
    })
    .await;
    let config = |mode| StreamConfig {
        mode,
        deadline: Duration::from_secs(5),
        ..StreamConfig::default()
    };
    let flood = pair.ours.open_stream(config(Mode::None)).await.unwrap();
    let timed = StreamConfig {
        deadline: DEADLINE,
        ..config(Mode::None)
    };
    let timed = pair.ours.open_stream(timed).await.unwrap();
    let answers = pair.theirs.open_stream(config(Mode::Retransmit)).await;
    let answers = answers.unwrap();
    answers
        .queue_block(pattern(100, 1), BlockOptions::default())
        .unwrap();
    let mut received = accept_blocks(&pair.ours).await;
    let (began, block) = (Instant::now(), pattern(1 << 20, 2));
    let flooding = tokio::task::spawn_blocking(move || {
        let mut refused = 0;
        while began.elapsed() < SENDING {
            let queued = flood.queue_block(block.clone(), BlockOptions::default());
            if queued.is_err() {
                refused += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        refused
    });
    let answering = tokio::spawn(async move {
        while began.elapsed() < SENDING {
            let _ = answers.queue_block(pattern(100, 3), BlockOptions::default());
            tokio::time::sleep(INTERVAL).await;
        }
    });
    // Of these, what arrives is acknowledged, and what is lost on the way expires by a timer.
    let timing = tokio::spawn(async move {
        let mut outcomes = tokio::task::JoinSet::new();
        while began.elapsed() < EARLY {
            let sent = timed.send_block(pattern(100, 4), BlockOptions::default());
            // What finds no room has no outcome.
            if let Ok(block) = sent {
                outcomes.spawn(async move {
                    let outcome = block.outcome().await;
                    (matches!(outcome, Outcome::Expired(_)), began.elapsed())
                });
            }
            tokio::time::sleep(INTERVAL).await;
        }
        outcomes.join_all().await
    });
    let (mut heard, mut last, mut silence) = (0, began, Duration::ZERO);
    while let Ok(Some(_)) =
        tokio::time::timeout_at((began + SENDING).into(), received.recv_block()).await
    {
        heard += 1;
        silence = silence.max(last.elapsed());
        last = Instant::now();
    }
    silence = silence.max(last.elapsed());
    let refused = flooding.await.unwrap();
    answering.await.unwrap();
    let outcomes = timing.await.unwrap();
    let expired = outcomes.iter().filter(|(expired, _)| *expired).count();
    let latest = outcomes.iter().map(|(_, at)| *at).max();
    assert!(refused > 0, "there was not always more to send");
    println!(
        "{heard} blocks heard, {silence:?} without any; {} early blocks, {expired} expired, the last after {latest:?}",
        outcomes.len()
    );
    assert!(heard >= 10, "{heard} blocks in {SENDING:?}");
    assert!(silence < SILENCE, "no block was heard for {silence:?}");
    let latest = latest.expect("room for a block");
    assert!(latest < SENDING, "a block ended after {latest:?}");
}

/// A driver is woken only when it rests, and only if there is something to send. Where one is missed, an exchange stands still until some
/// timer of its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_exchanges_follow_each_other_without_standing_still() {
    const EXCHANGES: usize = 1000;
    let pair = pair().await;
    let theirs = pair.theirs.clone();
    let serving = tokio::spawn(async move {
        while let Some(IncomingStream::Bytes(mut stream)) = theirs.accept_stream().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.unwrap();
                assert_eq!(request.len(), 200);
                let answer = pattern(10_000, request[0]);
                stream.write_all(&answer).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    for clients in [1, 50] {
        let mut exchanges = tokio::task::JoinSet::new();
        for client in 0..clients {
            let ours = pair.ours.clone();
            exchanges.spawn(async move {
                for number in 0..EXCHANGES / clients {
                    let seed = u8::try_from((client + number) % 256).unwrap();
                    let mut stream = ours.open_bytes(3, Bytes::new()).await.unwrap();
                    stream.write_all(&[seed; 200]).await.unwrap();
                    stream.shutdown().await.unwrap();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await.unwrap();
                    assert!(answer == pattern(10_000, seed), "{} bytes", answer.len());
                }
            });
        }
        // A second for each that is missed.
        let all = tokio::time::timeout(Duration::from_secs(60), exchanges.join_all());
        let done = all.await.map(|done| done.len());
        assert_eq!(done, Ok(clients), "{EXCHANGES} exchanges stand still");
    }
    pair.ours.close("done").await;
    serving.await.unwrap();
}
