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
    /// A silence ended with another cookie, without which there could be no answer.
    was_unknown: bool,
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
            was_unknown: false,
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

    /// Whether the responder did not know this prober for a while, as after a restart or where a NAT gave it another address: it answered no
    /// probe then, whatever the path did. Asked once for each time.
    pub(super) fn take_unknown(&mut self) -> bool {
        std::mem::take(&mut self.was_unknown)
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
                        let silence = datagram.arrived.saturating_duration_since(self.heard);
                        let before = self.cookie.replace(cookie);
                        self.was_unknown |=
                            silence > SILENCE && before.is_some_and(|before| before != cookie);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::EchoServer;

    const TOKEN: [u8; 8] = *b"a token!";
    /// Longer than any step here takes, however busy the computer.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Sends hellos, and probes where there is a cookie, until `is_done`.
    fn exchange(client: &mut EchoClient, is_done: impl Fn(&EchoClient, u32) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut answers = 0;
        while !is_done(client, answers) {
            let now = Instant::now();
            assert!(now < until, "no answer");
            client.handle_timeout(now).unwrap();
            if client.is_welcome() {
                let _ = client.try_send(now, answers);
            }
            std::thread::sleep(Duration::from_millis(5));
            client.recv(|_, _| answers += 1);
        }
    }

    /// The responder has another secret after its restart; one that is only out of reach for as long knows the prober still.
    #[test]
    fn a_responder_that_began_anew_is_told_from_a_path_that_was_silent() {
        for restarted in [true, false] {
            // At an address of its own, where no other test takes the port while it is free.
            let own = SocketAddr::from((Ipv4Addr::new(127, 77, 0, 3), 0));
            let server = EchoServer::start(own).unwrap();
            let remote = server.local_addr();
            let (via, meter) = (Via::default(), WireMeter::default());
            let now = Instant::now();
            let mut client = EchoClient::through(remote, TOKEN, &via, now, meter).unwrap();
            exchange(&mut client, |_, answers| answers > 0);
            assert!(!client.take_unknown(), "the first cookie");
            let server = match restarted {
                true => {
                    drop(server);
                    EchoServer::start(remote).unwrap()
                }
                false => server,
            };
            // What the former one still answered; then as if the silence were that long.
            client.recv(|_, _| ());
            client.heard = now.checked_sub(SILENCE * 2).unwrap_or(now);
            client.next_hello = now;
            let cookie = client.cookie;
            exchange(&mut client, |client, answers| {
                answers > 0 && (client.cookie != cookie) == restarted
            });
            assert_eq!(client.take_unknown(), restarted);
            assert!(!client.take_unknown(), "told once");
            drop(server);
        }
    }
}
