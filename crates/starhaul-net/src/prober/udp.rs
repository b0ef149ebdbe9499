//! The client side of UDP echo: keeps a valid cookie, and sends probes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::echo::{Cookie, EchoMessage};
use crate::{
    BindOptions, Error, Transmit, UdpSocket, WireMeter,
    icmp::{Via, number_behind_token},
    stamped::{StampedBuffer, stamp_arrivals, stamp_departures},
};

/// Interval of hellos without a cookie, or while it seems to be invalid.
const HELLO_INTERVAL: Duration = Duration::from_millis(250);
/// Renewal time of cookies, which are valid for five minutes at least.
const RENEWAL: Duration = Duration::from_secs(60);
/// Probes remain unanswered for this long in an outage, or because the responder was restarted and does not accept old
/// cookies.
const SILENCE: Duration = Duration::from_secs(1);
/// Kernel buffer; a probe is small.
const BUFFER_BYTES: usize = 256 << 10;
/// Greatest number of receives per turn.
const RECEIVES: usize = 16;

pub(super) struct EchoClient {
    socket: UdpSocket,
    remote: SocketAddr,
    token: [u8; 8],
    cookie: Option<Cookie>,
    next_hello: Instant,
    heard: Instant,
    buffer: StampedBuffer,
    meter: WireMeter,
}

impl EchoClient {
    pub(super) fn through(
        remote: SocketAddr,
        token: [u8; 8],
        via: &Via,
        now: Instant,
        meter: WireMeter,
    ) -> Result<Self, Error> {
        let any: IpAddr = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(&BindOptions {
            interface: via.interface.clone(),
            buffer_bytes: BUFFER_BYTES,
            ..BindOptions::new(SocketAddr::new(via.local.unwrap_or(any), 0))
        })?;
        stamp_arrivals(&socket)?;
        Ok(Self {
            socket,
            remote,
            token,
            cookie: None,
            next_hello: now,
            heard: now,
            buffer: StampedBuffer::new(),
            meter,
        })
    }

    pub(super) fn stamp_departures(&self) -> bool {
        stamp_departures(&self.socket)
    }

    /// Whether there is a cookie for probes.
    pub(super) fn is_welcome(&self) -> bool {
        self.cookie.is_some()
    }

    /// Sends a hello when it is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if now < self.next_hello {
            return Ok(());
        }
        let silent = now.saturating_duration_since(self.heard) > SILENCE;
        let wait = match self.is_welcome() && !silent {
            true => RENEWAL,
            false => HELLO_INTERVAL,
        };
        self.next_hello = now + wait;
        let token = self.token;
        self.transmit(EchoMessage::Hello { token }).map(|_| ())
    }

    /// Sends a probe.
    pub(super) fn try_send(&mut self, now: Instant, number: u32) -> io::Result<()> {
        let (Some(cookie), token) = (self.cookie, self.token) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if now.saturating_duration_since(self.heard) > SILENCE {
            self.next_hello = self.next_hello.min(now + HELLO_INTERVAL);
        }
        let question = EchoMessage::Question {
            token,
            cookie,
            number,
        };
        match self.transmit(question) {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::NetworkUnreachable.into()),
            Err(Error::SocketGone(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Receives available answers: arrival time and number.
    pub(super) fn recv(&mut self, mut each: impl FnMut(Instant, u32)) {
        for _ in 0..RECEIVES {
            if !self.buffer.recv(&self.socket) {
                return;
            }
            for datagram in self.buffer.datagrams() {
                let payload = datagram.payload.len();
                self.meter.count_udp(self.remote.ip(), 1, payload);
                if datagram.remote != Some(self.remote) {
                    continue;
                }
                match EchoMessage::decode(datagram.payload) {
                    Some(EchoMessage::Welcome { token, cookie }) if token == self.token => {
                        self.cookie = Some(cookie);
                        self.next_hello = self.next_hello.max(datagram.arrived + RENEWAL);
                        self.heard = self.heard.max(datagram.arrived);
                    }
                    Some(EchoMessage::Answer { token, number, .. }) if token == self.token => {
                        self.heard = self.heard.max(datagram.arrived);
                        each(datagram.arrived, number);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Departure times of probes, and their numbers.
    pub(super) fn departures(&mut self, mut each: impl FnMut(Instant, u32)) {
        for _ in 0..RECEIVES {
            if !self.buffer.recv_errors(&self.socket) {
                return;
            }
            for packet in self.buffer.datagrams() {
                if let Some(number) = number_behind_token(self.token, packet.payload) {
                    each(packet.arrived, number);
                }
            }
        }
    }

    pub(super) fn next_hello(&self) -> Instant {
        self.next_hello
    }

    /// Returns whether the datagram left.
    fn transmit(&self, message: EchoMessage) -> Result<bool, Error> {
        let contents = message.encode();
        let refused = self.socket.refused();
        let sent = self.socket.try_send(&Transmit {
            to: self.remote,
            from: None,
            ecn: 0,
            contents: &contents,
            segment_size: contents.len(),
        })?;
        let left = sent == contents.len() && self.socket.refused() == refused;
        if left {
            self.meter.count_udp(self.remote.ip(), 1, contents.len());
        }
        Ok(left)
    }
}

impl AsFd for EchoClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
