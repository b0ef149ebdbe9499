//! A TCP connection on one side, a byte stream to the far gateway on the other: bytes, half closes and resets pass through.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use socket2::TcpKeepalive;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::coop::consume_budget,
};

use crate::{
    byte_stream::{Reader, Writer},
    memory::CountedEnd,
    room::Room,
    socks5::Reply,
};

/// Bytes read at once from a TCP connection.
const BUFFER_BYTES: usize = 64 << 10;
/// Fewer bytes than this are copied out of the buffer that they were read into: a reference to them keeps all of its memory.
const FEW_BYTES: usize = BUFFER_BYTES / 4 * 3;
/// Code for the far side: our TCP connection was reset.
const CODE_RESET: u32 = 1;
/// TCP keepalive: a vanished end is detected within two minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// What still comes for an application that sent its end and then closed its connection is thrown away, up to so much: more is a stream
/// without a reader.
const MOST_DISCARDED: usize = 1 << 20;
/// Code for the far side: our TCP connection was idle for too long.
const CODE_IDLE: u32 = 2;
const ANSWER_VERSION: u8 = 1;
/// Length of an answer: version, reply, address as IPv6, port.
const ANSWER_BYTES: usize = 20;

/// The first bytes from the far side: whether it is connected to the target, and from which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectAnswer {
    pub(crate) reply: Reply,
    pub(crate) bound: SocketAddr,
}

impl ConnectAnswer {
    pub(crate) fn encode(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let ip = match self.bound.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[0] = ANSWER_VERSION;
        bytes[1] = self.reply.code();
        bytes[2..18].copy_from_slice(&ip.octets());
        bytes[18..].copy_from_slice(&self.bound.port().to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; ANSWER_BYTES]) -> io::Result<Self> {
        let [version, reply, ip @ .., high, low] = bytes;
        if version != ANSWER_VERSION {
            let problem = format!("the peer answers in version {version}; update the older side");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let ip = IpAddr::V6(Ipv6Addr::from(ip)).to_canonical();
        Ok(Self {
            reply: Reply::from_code(reply),
            bound: SocketAddr::new(ip, u16::from_be_bytes([high, low])),
        })
    }

    /// Reads the answer of the far side.
    pub(crate) async fn read(reader: &mut Reader) -> io::Result<Self> {
        let mut bytes = [0; ANSWER_BYTES];
        reader.read_exact(&mut bytes).await?;
        Self::decode(bytes)
    }
}

/// The far side did not connect to the target.
#[derive(Debug, thiserror::Error)]
#[error("the far side does not connect to the target: {0:?}")]
pub(crate) struct NotConnected(pub(crate) Reply);

impl From<NotConnected> for io::Error {
    fn from(error: NotConnected) -> Self {
        Self::new(io::ErrorKind::ConnectionRefused, error)
    }
}

/// Makes a connection that is dropped end by RST (`SO_LINGER` 0), until [`settle`]: an application must never take
/// data that broke off for data that ended. TCP keepalive detects an end that vanished.
pub(crate) fn unsettle(tcp: &TcpStream) {
    let socket = socket2::SockRef::from(tcp);
    // These fail only for what is no socket.
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = tcp.set_nodelay(true);
    // Otherwise the kernel takes the byte of an urgent message out of the stream.
    let _ = socket.set_out_of_band_inline(true);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

/// Lets a connection whose directions both ended in order be closed by FIN.
pub(crate) fn settle(tcp: &TcpStream) {
    let _ = socket2::SockRef::from(tcp).set_linger(None);
}

/// Carries both directions of a connection after [`unsettle`] to their ends. An application that sent its end may close its connection:
/// what it sent goes on. `early` goes out before what the application sends; with `expect_answer` the far side's answer is taken from
/// the stream first, while data already flows to it. Where nothing was carried for `idle`, it ends.
///
/// # Errors
/// One side was reset, was idle, or the session ended. Then the TCP connection is reset, and the far side is told to do the same.
pub(crate) async fn relay(
    mut tcp: TcpStream,
    mut reader: Reader,
    mut writer: Writer,
    early: &[u8],
    expect_answer: bool,
    idle: Option<Duration>,
) -> io::Result<()> {
    let _counted = CountedEnd;
    let activity = Activity::new();
    let (from_application, mut to_application) = tcp.split();
    // Whether the far side has answered, and whether all that it sent was passed on.
    let (answered, is_answered) = watch::channel(!expect_answer);
    let (ended, is_ended) = watch::channel(false);
    // The far side stops reading just after it has answered that it does not connect: the answer says why.
    let refused = async |error: io::Error| {
        _ = is_answered.clone().wait_for(|answered| *answered).await;
        error
    };
    let outward = async {
        if let Err(error) = writer.write_all(early).await {
            return Err(refused(error).await);
        }
        let mut is_gone = false;
        loop {
            // Reading what is there costs no budget: a busy connection would keep other tasks from running.
            consume_budget().await;
            match read_now(&from_application) {
                Ok(data) if data.is_empty() => break,
                Ok(data) => {
                    // The far side may take it in an hour only.
                    let sent = tokio::select! {
                        biased;
                        sent = send(&mut writer, data, &activity) => sent,
                        error = torn(from_application.as_ref(), &mut is_gone, &is_ended) => return Err(error),
                    };
                    if let Err(error) = sent {
                        return Err(refused(error).await);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // A far side that reads no more has been reset; our application is told at once, not when it next sends.
                    tokio::select! {
                        readable = from_application.readable() => readable?,
                        () = writer.stopped() => return Err(refused(io::ErrorKind::ConnectionReset.into()).await),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        writer.shutdown().await?;
        let mut is_ended = is_ended.clone();
        // Nothing else notices an application that vanishes while the far side is silent.
        if !is_gone {
            tokio::select! {
                // First: behind both ends a reset is `ECONNRESET`, and breaks nothing off.
                biased;
                _ = is_ended.wait_for(|ended| *ended) => return Ok(()),
                error = broken(from_application.as_ref()) => match closed_behind_its_end(&error) {
                    true => {}
                    false => return Err(error),
                },
            }
        }
        let ended = is_ended.wait_for(|ended| *ended);
        match tokio::time::timeout(writer.longest_on_its_way(), ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    };
    let inward = async {
        if expect_answer {
            let answer = ConnectAnswer::read(&mut reader).await?;
            if answer.reply != Reply::Succeeded {
                return Err(NotConnected(answer.reply).into());
            }
            answered.send_replace(true);
        }
        let mut room = Room::default();
        loop {
            // What an application does not read stays where it is counted and bounded.
            let fits = room.wait(to_application.as_ref()).await?;
            let chunks = reader.read_fitting(fits).await?;
            let passed = match chunks.is_empty() {
                true => to_application.shutdown().await,
                false => write_all(&mut to_application, &chunks, &mut room, &activity).await,
            };
            match passed {
                Ok(()) if chunks.is_empty() => break,
                Ok(()) => {}
                Err(error) if closed_behind_its_end(&error) => {
                    discard(&mut reader).await?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        ended.send_replace(true);
        Ok(())
    };
    let both = async { tokio::try_join!(outward, inward) };
    let result = tokio::select! {
        result = both => result,
        () = activity.idle_for(idle) => Err(io::ErrorKind::TimedOut.into()),
    };
    match &result {
        Ok(_) => settle(&tcp),
        Err(error) => {
            let code = match error.kind() {
                io::ErrorKind::TimedOut => CODE_IDLE,
                _ => CODE_RESET,
            };
            writer.reset(code);
            reader.stop(code);
        }
    }
    result.map(|_| ())
}

/// Waits until a connection breaks: a reset, or keepalive probes without an answer. Its end in order is no error.
pub(crate) async fn broken(tcp: &TcpStream) -> io::Error {
    loop {
        match tcp.ready(Interest::ERROR).await {
            Err(error) => return error,
            Ok(_) => {
                if let Some(error) = error_of(tcp) {
                    return error;
                }
            }
        }
    }
}

/// The error of a connection that was ready for one; if it has none, that is forgotten, so that the next wait is one.
fn error_of(tcp: &TcpStream) -> Option<io::Error> {
    match tcp.take_error() {
        Ok(None) => {
            let none = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            _ = tcp.try_io(Interest::ERROR, none);
            None
        }
        Ok(Some(error)) | Err(error) => Some(error),
    }
}

/// As [`broken`], but of a connection that was closed behind its end only `is_gone` tells: what came before goes on. Once the application
/// was sent the other direction's end, a reset looks the same before and behind its own end: then only reading tells what it was.
async fn torn(tcp: &TcpStream, is_gone: &mut bool, is_ended: &watch::Receiver<bool>) -> io::Error {
    while !*is_gone && !*is_ended.borrow() {
        match tcp.ready(Interest::ERROR).await {
            Err(error) => return error,
            // Asked for, an error is forgotten, and reading would take it for the end.
            Ok(_) if *is_ended.borrow() => {}
            Ok(_) => match error_of(tcp) {
                None => {}
                Some(error) if closed_behind_its_end(&error) => *is_gone = true,
                Some(error) => return error,
            },
        }
    }
    std::future::pending().await
}

/// The application sent its end before it closed its connection, or the system forgot it after that: a reset in any other state is
/// `ECONNRESET`, and one that vanished `ETIMEDOUT`.
fn closed_behind_its_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected
    )
}

/// Reads a stream to its end, and throws its bytes away.
async fn discard(reader: &mut Reader) -> io::Result<()> {
    let mut discarded = 0;
    loop {
        let chunks = reader.read_chunks().await?;
        if chunks.is_empty() {
            return Ok(());
        }
        discarded += chunks.iter().map(Bytes::len).sum::<usize>();
        if discarded > MOST_DISCARDED {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
}

thread_local! {
    /// Is used only between two points of suspension, so that one is enough for a thread: a connection that waits holds none.
    static READ: RefCell<BytesMut> = RefCell::default();
}

/// What can be read now; none at the end.
///
/// # Errors
/// There is nothing to read (`WouldBlock`), or the connection broke.
fn read_now(tcp: &ReadHalf<'_>) -> io::Result<Bytes> {
    READ.with_borrow_mut(|buffer| {
        buffer.reserve(BUFFER_BYTES);
        let read = tcp.try_read_buf(buffer)?;
        if read >= FEW_BYTES {
            return Ok(buffer.split().freeze());
        }
        let data = Bytes::copy_from_slice(buffer);
        buffer.clear();
        Ok(data)
    })
}

/// Writes to the far side.
async fn send(writer: &mut Writer, mut data: Bytes, activity: &Activity) -> io::Result<()> {
    while !data.is_empty() {
        if writer.write_chunk(&mut data).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        activity.touch();
    }
    Ok(())
}

/// Writes chunks, as many at once as the system takes.
async fn write_all(
    tcp: &mut WriteHalf<'_>,
    chunks: &[Bytes],
    room: &mut Room,
    activity: &Activity,
) -> io::Result<()> {
    let mut slices: Vec<_> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let written = tcp.write_vectored(rest).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
        room.on_written(written);
        activity.touch();
    }
    Ok(())
}

/// The time of the last data in either direction.
struct Activity {
    began: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn touch(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(since, Ordering::Relaxed);
    }

    /// Waits until no data was carried for `idle`; for ever if that is `None`.
    async fn idle_for(&self, idle: Option<Duration>) {
        let Some(idle) = idle else {
            return std::future::pending().await;
        };
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let due = self.began + last + idle;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due.into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_is_asked_to_find_out_when_an_end_has_vanished() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let tcp = accepted.unwrap().0;
        unsettle(&tcp);
        let socket = socket2::SockRef::from(&tcp);
        assert!(socket.keepalive().unwrap());
        let longest = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(longest, Duration::from_secs(120));
    }

    #[test]
    fn answers_keep_their_form_on_the_wire() {
        for (reply, bound, bytes) in [
            (
                Reply::Succeeded,
                "192.0.2.1:80",
                b"\x01\x00\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\x00\x50",
            ),
            (
                Reply::ConnectionRefused,
                "[::1]:258",
                b"\x01\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\x02",
            ),
        ] {
            let answer = ConnectAnswer {
                reply,
                bound: bound.parse().unwrap(),
            };
            assert_eq!(&answer.encode(), bytes);
            assert_eq!(ConnectAnswer::decode(*bytes).unwrap(), answer);
        }
        assert!(ConnectAnswer::decode([2; ANSWER_BYTES]).is_err());
    }
}
