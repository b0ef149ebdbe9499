use std::{
    sync::atomic::{AtomicU64, Ordering},
    task::{Wake, Waker},
    time::Duration,
};

use starhaul_session::{Mode, SessionConfig, Side, StreamConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::{Endpoint, EndpointConfig, Identity, IncomingStream, PathSpec};

/// Two endpoints, and the session as each of them sees it.
async fn pair() -> ([Endpoint; 2], [crate::Session; 2]) {
    let [ours, theirs] = [1, 2].map(|secret| Identity::from_secret([secret; 32]));
    let config = EndpointConfig {
        trusted: vec![ours.public_key()],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..EndpointConfig::new(theirs.clone())
    };
    let server = Endpoint::bind(config).await.unwrap();
    let client = Endpoint::bind(EndpointConfig::new(ours)).await.unwrap();
    let path = PathSpec::new("loopback", server.listen_addresses()[0]);
    let near = client.connect(theirs.public_key(), vec![path]);
    let near = near.await.unwrap();
    let far = server.accept().await.unwrap();
    ([client, server], [near, far])
}

async fn accept(session: &crate::Session) -> ByteStream {
    match session.accept_stream().await {
        Some(IncomingStream::Bytes(stream)) => stream,
        other => panic!("expected a byte stream, got {other:?}"),
    }
}

fn wakes(endpoint: &Endpoint) -> u64 {
    endpoint.shared().wakes.load(Ordering::Relaxed)
}

/// Each wake costs the driver a turn of system calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_what_has_come_does_not_wake_the_driver() {
    let ([_client, server], [near, far]) = pair().await;
    let mut writer = near.open_bytes(3, Bytes::new()).await.unwrap();
    writer.write_all(&[7; 40_000]).await.unwrap();
    let mut reader = accept(&far).await;
    while near.held_bytes().0 > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let before = wakes(&server);
    let mut part = [0; 1000];
    for _ in 0..40 {
        reader.read_exact(&mut part).await.unwrap();
    }
    assert_eq!(wakes(&server), before, "no credit is due for so little");
    // Of more than a megabyte some is.
    let writing = tokio::spawn(async move {
        writer.write_all(&vec![7; 3_000_000]).await.unwrap();
        writer
    });
    reader.read_exact(&mut vec![0; 3_000_000]).await.unwrap();
    drop(writing.await.unwrap());
    assert!(wakes(&server) > before, "nobody told the sender of room");
}

/// A writer with more than there is room for, by all ways of writing and reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_passed_without_copying_arrives_as_what_is_copied() {
    const TOTAL: usize = 6_000_000;
    let ([_client, _server], [near, far]) = pair().await;
    let data: Vec<u8> = (0..TOTAL).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let data = Bytes::from(data);
    let stream = near.open_bytes(3, Bytes::new()).await.unwrap();
    let (_unread, mut writer) = stream.into_split();
    let mut left = data.clone();
    let writing = tokio::spawn(async move {
        while !left.is_empty() {
            for length in [100_000, 3_000, 10] {
                let mut chunk = left.split_to(length.min(left.len()));
                while !chunk.is_empty() {
                    let before = chunk.len();
                    let written = writer.write_chunk(&mut chunk).await.unwrap();
                    assert!(written > 0 && chunk.len() == before - written);
                }
                let copied = left.split_to(length.min(left.len()));
                writer.write_all(&copied).await.unwrap();
            }
        }
        assert_eq!(writer.write_chunk(&mut Bytes::new()).await.unwrap(), 0);
        writer.shutdown().await.unwrap();
    });
    let mut reader = accept(&far).await.into_split().0;
    let mut read = Vec::<u8>::new();
    let mut part = vec![0; 50_000];
    loop {
        let chunks = reader.read_chunks_within(30_000).await.unwrap();
        if chunks.is_empty() {
            break;
        }
        let before = read.len();
        chunks
            .iter()
            .for_each(|chunk| read.extend_from_slice(chunk));
        assert!(read.len() - before <= 30_000);
        let count = reader.read(&mut part).await.unwrap();
        read.extend_from_slice(&part[..count]);
    }
    writing.await.unwrap();
    assert!(read == data, "{} of {TOTAL} bytes, or others", read.len());
    // What was written uncopied is let go once the peer has it.
    while near.held_bytes().0 > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Those that an application keeps are not used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_were_copied_are_kept_for_what_comes_until_that_is_over() {
    const HALF: usize = 6_000_000;
    let ([_client, server], [near, far]) = pair().await;
    let stream = near.open_bytes(3, Bytes::new()).await.unwrap();
    let (_unread, mut writer) = stream.into_split();
    let data: Vec<u8> = (0..2 * HALF)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0])
        .collect();
    let data = Bytes::from(data);
    let mut reader = None;
    let (mut kept, mut part) = (Vec::new(), vec![0; 100_000]);
    for half in [0, 1] {
        let sent = data.slice(half * HALF..(half + 1) * HALF);
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer
        });
        if reader.is_none() {
            reader = Some(accept(&far).await.into_split().0);
        }
        let reader = reader.as_mut().unwrap();
        let mut read = Vec::<u8>::new();
        while read.len() < HALF {
            let count = reader.read(&mut part).await.unwrap();
            read.extend_from_slice(&part[..count]);
            if kept.len() < 50 && read.len() < HALF {
                let chunks = reader.read_chunks_within(30_000).await.unwrap();
                for chunk in chunks {
                    read.extend_from_slice(&chunk);
                    kept.push((chunk.to_vec(), chunk));
                }
            }
        }
        writer = writing.await.unwrap();
        assert!(read == expected, "{} bytes, or others", read.len());
        assert!(far.held_bytes().1 > 0, "no page is kept for what comes");
        if half == 0 {
            server.release_memory();
            while far.held_bytes().1 > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
    writer.shutdown().await.unwrap();
    let mut reader = reader.unwrap();
    assert_eq!(reader.read(&mut part).await.unwrap(), 0);
    assert_eq!(far.held_bytes().1, 0, "the stream has ended");
    let is_as_it_was = |(copy, chunk): &(Vec<u8>, Bytes)| copy == chunk;
    assert!(kept.iter().all(is_as_it_was), "what was kept was written");
}

/// The session may have less room than a writer counts on: other streams have filled it, or its paths have become slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_counts_on_room_which_is_gone_waits_for_it() {
    let ([_client, _server], [near, far]) = pair().await;
    let data: Vec<u8> = (0..3_000_000_usize)
        .map(|at| (at % 251).to_le_bytes()[0])
        .collect();
    let stream = near.open_bytes(3, Bytes::new()).await.unwrap();
    let (_unread, mut writer) = stream.into_split();
    let sent = data.clone();
    let writing = tokio::spawn(async move {
        for part in sent.chunks(100_000) {
            writer.room = usize::MAX;
            writer.write_all(part).await.unwrap();
        }
        writer.shutdown().await.unwrap();
    });
    let mut reader = accept(&far).await.into_split().0;
    let mut read = Vec::new();
    reader.read_to_end(&mut read).await.unwrap();
    writing.await.unwrap();
    assert!(
        read == data,
        "{} of {} bytes, or others",
        read.len(),
        data.len()
    );
}

#[test]
fn of_a_copy_for_which_there_is_no_room_a_session_keeps_nothing() {
    let now = Instant::now();
    let config = SessionConfig {
        max_send_bytes: 10_000,
        ..SessionConfig::default()
    };
    let mut session = Session::new(config, Side::Client, now);
    let reliable = StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    };
    let stream = session.open_stream(now, reliable).unwrap();
    let mut write = |length: usize| {
        let memory = Bytes::from(vec![7; length]);
        let taken = write_copy(&mut session, now, stream, (&memory[..], memory.clone())).unwrap();
        (taken, memory)
    };
    let (taken, memory) = write(2_000);
    assert_eq!(taken, 2_000);
    assert!(!memory.is_unique(), "copied although there is room");
    let (taken, memory) = write(MAX_COPY);
    assert!((1..10_000).contains(&taken), "{taken}");
    assert!(memory.is_unique(), "{taken} bytes keep {MAX_COPY}");
    assert_eq!(write(MAX_COPY).0, 0);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many bytes can be read now, at most 10.
fn poll_read(reader: &mut ByteReader, waker: &Waker) -> Poll<usize> {
    let mut buffer = [0; 10];
    let mut buffer = ReadBuf::new(&mut buffer);
    let read = Pin::new(reader).poll_read(&mut Context::from_waker(waker), &mut buffer);
    read.map(|read| {
        read.unwrap();
        buffer.filled().len()
    })
}

/// Whether a reader waits while another thread has the lock for itself.
fn waits_while_locked(
    session: &crate::Session,
    mut reader: ByteReader,
    waker: &'static Waker,
) -> (bool, ByteReader) {
    let (told, polled) = std::sync::mpsc::channel();
    let driver = session.shared.lock();
    let asking = std::thread::spawn(move || {
        let waits = poll_read(&mut reader, waker).is_pending();
        told.send(waits).unwrap();
        reader
    });
    let waits = polled.recv_timeout(Duration::from_secs(20));
    drop(driver);
    (waits == Ok(true), asking.join().unwrap())
}

/// The task of a relay is polled for what its other half waits for, and the driver may have the lock for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_already_asks_nobody_and_misses_nothing() {
    let ([_client, _server], [near, far]) = pair().await;
    let mut writer = near.open_bytes(3, Bytes::new()).await.unwrap();
    let (mut reader, _answers) = accept(&far).await.into_split();
    let woken = Arc::new(Woken::default());
    let (first, second) = (Waker::noop(), Waker::from(woken.clone()));
    assert!(poll_read(&mut reader, first).is_pending());
    let (waits, mut reader) = waits_while_locked(&far, reader, first);
    assert!(waits, "it wanted the lock");
    for turn in 1..=20 {
        // Another task takes over, and is the one that is woken; then the first has its turn again.
        assert!(poll_read(&mut reader, &second).is_pending());
        assert!(poll_read(&mut reader, &second).is_pending());
        writer.write_all(b"abc").await.unwrap();
        while woken.0.load(Ordering::Relaxed) < turn {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(poll_read(&mut reader, first), Poll::Ready(3));
        let (waits, back) = waits_while_locked(&far, reader, first);
        assert!(waits, "it has read all, and wanted the lock");
        reader = back;
    }
    writer.shutdown().await.unwrap();
    let mut byte = [0];
    let end = tokio::time::timeout(Duration::from_secs(20), reader.read(&mut byte));
    assert_eq!(end.await.expect("its end is missed").unwrap(), 0);
}

/// A half that has used up what there was asks for no more before it is told: an end must be told, too, also to a half that does not wait
/// yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_that_have_used_up_what_there_was_hear_of_every_end() {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};

    const LENGTH: usize = 8 << 20;
    for end in ["dropped", "closed here", "closed there"] {
        let ([client, server], [near, far]) = pair().await;
        let opened = near.open_bytes(3, Bytes::new()).await.unwrap();
        let (mut reader, mut writer) = opened.into_split();
        writer.write_all(b"?").await.unwrap();
        let (their_reader, mut their_writer) = accept(&far).await.into_split();
        their_writer.write_all(b"abc").await.unwrap();
        assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 3);
        let mut data = Bytes::from(vec![7; LENGTH]);
        let written = writer.write_chunk(&mut data).await.unwrap();
        assert!(written < LENGTH, "there was room for all");
        let expected = match end {
            "dropped" => {
                drop((their_reader, their_writer));
                [ConnectionReset, BrokenPipe]
            }
            "closed here" => {
                client.close().await;
                [ConnectionAborted; 2]
            }
            _ => {
                server.close().await;
                [ConnectionAborted; 2]
            }
        };
        let ends = async {
            let read = reader.read(&mut [0; 10]).await.unwrap_err();
            let write = loop {
                if let Err(error) = writer.write_chunk(&mut data).await {
                    break error;
                }
            };
            [read.kind(), write.kind()]
        };
        let ends = tokio::time::timeout(Duration::from_secs(20), ends).await;
        assert_eq!(ends.expect("an end is missed"), expected, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_connection_wakes_each_driver_for_what_it_sends() {
    let (ends, [near, far]) = pair().await;
    let before = ends.each_ref().map(wakes);
    let serving = tokio::spawn(async move {
        let mut stream = accept(&far).await;
        let mut request = [0; 200];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(&[8; 10_000]).await.unwrap();
        let end = stream.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(end, 0);
        stream.shutdown().await.unwrap();
        far
    });
    let mut stream = near.open_bytes(3, Bytes::new()).await.unwrap();
    stream.write_all(&[7; 200]).await.unwrap();
    let mut answer = [0; 10_000];
    stream.read_exact(&mut answer).await.unwrap();
    stream.shutdown().await.unwrap();
    let end = stream.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(end, 0);
    drop(stream);
    let far = serving.await.unwrap();
    let after = ends.each_ref().map(wakes);
    let [ours, theirs] = [0, 1].map(|end| after[end] - before[end]);
    assert!(ours <= 3, "{ours}: it opens, asks and ends");
    assert!(theirs <= 2, "{theirs}: it answers and ends");
    for session in [near, far] {
        let state = session.shared.lock();
        let entries = state.sessions.values();
        let held: usize = entries.map(|entry| entry.bytes.len()).sum();
        assert_eq!(held, 0, "both halves are gone");
    }
}
