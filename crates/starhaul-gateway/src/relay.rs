//! A TCP connection on one side, a byte stream of the session on the other: bytes, half closes and resets pass through.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use starhaul_endpoint::{ByteReader, ByteWriter};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::socks5::Reply;

/// Bytes copied at once in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// Tells the far side that our TCP connection was reset.
const CODE_RESET: u32 = 1;
const ANSWER_VERSION: u8 = 1;
/// Version, reply, address as IPv6, port.
const ANSWER_BYTES: usize = 20;

/// What the far side says before any data: whether it is connected, and from which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) bound: SocketAddr,
}

impl Answer {
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
    pub(crate) async fn read(reader: &mut ByteReader) -> io::Result<Self> {
        let mut bytes = [0; ANSWER_BYTES];
        reader.read_exact(&mut bytes).await?;
        Self::decode(bytes)
    }
}

/// Makes a connection that is dropped end by RST (`SO_LINGER` 0), until [`settle`]: an application must never take
/// data that broke off for data that ended.
pub(crate) fn unsettle(tcp: &TcpStream) {
    // Fails only for what is no socket.
    let _ = socket2::SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    let _ = tcp.set_nodelay(true);
}

/// Both directions ended well.
pub(crate) fn settle(tcp: &TcpStream) {
    let _ = socket2::SockRef::from(tcp).set_linger(None);
}

/// Carries both directions to their ends. `early` goes out before what the application sends; with `expect_answer` the
/// far side's answer is taken from the stream first, while data already flows to it.
///
/// # Errors
/// One side was reset or the session ended. Then the TCP connection is reset, and the far side is told to do the same.
pub(crate) async fn relay(
    mut tcp: TcpStream,
    mut reader: ByteReader,
    mut writer: ByteWriter,
    early: &[u8],
    expect_answer: bool,
) -> io::Result<()> {
    unsettle(&tcp);
    let (mut from_application, mut to_application) = tcp.split();
    let outward = async {
        writer.write_all(early).await?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            // A far side that reads no more has been reset; waiting for our application would hide that from it.
            let read = tokio::select! {
                read = from_application.read(&mut buffer) => read?,
                _ = writer.stopped() => return Err(io::ErrorKind::ConnectionReset.into()),
            };
            let Some(data) = buffer.get(..read).filter(|data| !data.is_empty()) else {
                return writer.shutdown().await;
            };
            writer.write_all(data).await?;
        }
    };
    let inward = async {
        if expect_answer {
            let answer = Answer::read(&mut reader).await?;
            if answer.reply != Reply::Succeeded {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = reader.read(&mut buffer).await?;
            let Some(data) = buffer.get(..read).filter(|data| !data.is_empty()) else {
                return to_application.shutdown().await;
            };
            to_application.write_all(data).await?;
        }
    };
    let result = tokio::try_join!(outward, inward);
    match result {
        Ok(_) => settle(&tcp),
        Err(_) => {
            writer.reset(CODE_RESET);
            reader.stop(CODE_RESET);
        }
    }
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let answer = Answer {
                reply,
                bound: bound.parse().unwrap(),
            };
            assert_eq!(&answer.encode(), bytes);
            assert_eq!(Answer::decode(*bytes).unwrap(), answer);
        }
        assert!(Answer::decode([2; ANSWER_BYTES]).is_err());
    }
}
