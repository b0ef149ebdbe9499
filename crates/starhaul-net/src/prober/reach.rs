//! Whether a gateway can be reached over UDP, and what that tells: its clock, and whether a NAT on the way forgets an idle flow. Asks
//! its UDP echo, from a socket bound as a path's.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant, SystemTime},
};

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::echo::{Cookie, ECHO_BYTES, EchoMessage, Sight};
use crate::{
    BindOptions, Error,
    icmp::{Pinger, Via},
    socket::use_interface,
};

/// How long an answer is waited for: several RTTs of a geostationary path.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval of repetitions.
const AGAIN: Duration = Duration::from_millis(250);
/// Interval at which the socket is checked for an answer to a ping.
const LOOK: Duration = Duration::from_millis(10);

/// A gateway that answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// The least round trip.
    pub rtt: Duration,
    /// Its calendar time less ours in seconds, give or take half the round trip; `None` if it does not tell it.
    pub clock_ahead_s: Option<f64>,
    /// Whether the flow kept its port.
    pub mapping: Mapping,
}

/// What became of the port of an idle flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// It was the same after this time without packets.
    Kept(Duration),
    /// A NAT on the way gave it another one within this time.
    Forgotten(Duration),
    /// The gateway does not tell it.
    Unknown,
}

/// Why a gateway does not answer.
#[derive(Debug)]
pub enum Unreached {
    /// Its host says that nothing listens on this UDP port.
    Refused,
    /// This host does not let the datagrams out.
    Forbidden(io::Error),
    /// There is no way: no route, or a router says so.
    NoWay(io::Error),
    /// Nothing came back.
    Silent,
    /// No socket could be made.
    Socket(Error),
}

/// Asks the gateway at `remote`, then again after `idle` without packets. Blocks for that long, and for three seconds more for each
/// answer that does not come.
///
/// # Errors
/// The first answer does not come.
pub fn reach(
    remote: SocketAddr,
    options: &BindOptions,
    idle: Duration,
) -> Result<Reached, Unreached> {
    let mut asker = Asker::new(remote, options)?;
    let token = asker.token;
    let cookie = asker.ask(
        |_| EchoMessage::Hello { token },
        |message| match message {
            EchoMessage::Welcome { cookie, .. } => Some(cookie),
            _ => None,
        },
    )?;
    let first = asker.sight(cookie)?;
    std::thread::sleep(idle);
    let mapping = match asker.sight(cookie) {
        Ok(again) if first.sight.port == 0 || again.sight.port == 0 => Mapping::Unknown,
        Ok(again) if again.sight.port == first.sight.port => Mapping::Kept(idle),
        Ok(_) => Mapping::Forgotten(idle),
        Err(_) => Mapping::Unknown,
    };
    Ok(Reached {
        rtt: first.rtt,
        clock_ahead_s: first.clock_ahead_s(),
        mapping,
    })
}

/// Whether the host answers ICMP echo; `None` if this user may not ask.
pub fn answers_ping(host: IpAddr, via: &Via, patience: Duration) -> Option<bool> {
    let mut pinger = Pinger::through(host, token()?, via).ok()?;
    let until = Instant::now() + patience;
    let mut next = Instant::now();
    let mut number = 0;
    while Instant::now() < until {
        if Instant::now() >= next {
            number += 1;
            pinger.send(number);
            next += AGAIN;
        }
        let mut answered = false;
        pinger.recv(|_, _| answered = true);
        if answered {
            return Some(true);
        }
        std::thread::sleep(LOOK);
    }
    Some(false)
}

fn token() -> Option<[u8; 8]> {
    let mut token = [0; 8];
    SystemRandom::new().fill(&mut token).ok()?;
    Some(token)
}

/// A socket connected to the gateway, so that ICMP errors reach it.
struct Asker {
    socket: UdpSocket,
    token: [u8; 8],
    number: u32,
}

/// What an answer shows of the path.
struct Told {
    sight: Sight,
    rtt: Duration,
    /// Our clock when it arrived.
    at: SystemTime,
}

impl Told {
    fn clock_ahead_s(&self) -> Option<f64> {
        let ours = self.at - self.rtt / 2;
        let ours = ours.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let theirs = Duration::from_micros(self.sight.clock_us);
        (!theirs.is_zero()).then_some(theirs.as_secs_f64() - ours.as_secs_f64())
    }
}

impl Asker {
    fn new(remote: SocketAddr, options: &BindOptions) -> Result<Self, Unreached> {
        let token = token().ok_or_else(|| {
            Unreached::Socket(Error::System(io::Error::other("no random numbers")))
        })?;
        let system = |error| Unreached::Socket(Error::System(error));
        let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, None).map_err(system)?;
        use_interface(&socket, options.interface.as_deref()).map_err(Unreached::Socket)?;
        // The path has its port itself.
        let mut from = options.address;
        from.set_port(0);
        socket.bind(&from.into()).map_err(system)?;
        socket.connect(&remote.into()).map_err(refused_by_system)?;
        Ok(Self {
            socket: socket.into(),
            token,
            number: 0,
        })
    }

    fn sight(&mut self, cookie: Cookie) -> Result<Told, Unreached> {
        let (token, first) = (self.token, self.number + 1);
        let mut sent = Vec::new();
        let (sight, rtt) = self
            .ask(
                |number| {
                    sent.push(Instant::now());
                    EchoMessage::Question {
                        token,
                        cookie,
                        number,
                    }
                },
                |message| match message {
                    // Not an answer to an earlier probe, which came late or twice.
                    EchoMessage::Answer { number, sight, .. } if number >= first => {
                        Some((number, sight))
                    }
                    _ => None,
                },
            )
            .and_then(|(number, sight)| {
                let nth = number
                    .checked_sub(first)
                    .and_then(|nth| usize::try_from(nth).ok());
                let sent = nth.and_then(|nth| sent.get(nth)).ok_or(Unreached::Silent)?;
                Ok((sight, sent.elapsed()))
            })?;
        Ok(Told {
            sight,
            rtt,
            at: SystemTime::now(),
        })
    }

    /// Sends a message again and again until an answer is taken.
    fn ask<T>(
        &mut self,
        mut message: impl FnMut(u32) -> EchoMessage,
        take: impl Fn(EchoMessage) -> Option<T>,
    ) -> Result<T, Unreached> {
        let until = Instant::now() + PATIENCE;
        let mut buffer = [0; 2 * ECHO_BYTES];
        while Instant::now() < until {
            self.number += 1;
            let datagram = message(self.number).encode();
            self.socket.send(&datagram).map_err(refused_by_system)?;
            let next = Instant::now() + AGAIN;
            loop {
                let wait = next.saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    break;
                }
                // Fails for a wait of zero alone.
                let _ = self.socket.set_read_timeout(Some(wait));
                let length = match self.socket.recv(&mut buffer) {
                    Ok(length) => length,
                    Err(error) if is_timeout(&error) => break,
                    Err(error) => return Err(refused_by_system(error)),
                };
                let answer = buffer.get(..length).and_then(EchoMessage::decode);
                let ours = answer.filter(|answer| answer.token() == self.token);
                if let Some(taken) = ours.and_then(&take) {
                    return Ok(taken);
                }
            }
        }
        Err(Unreached::Silent)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::WouldBlock
        || kind == io::ErrorKind::TimedOut
        || kind == io::ErrorKind::Interrupted
}

/// What a failed call says of the way.
fn refused_by_system(error: io::Error) -> Unreached {
    match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => Unreached::Refused,
        Some(Errno::PERM | Errno::ACCESS) => Unreached::Forbidden(error),
        _ => Unreached::NoWay(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::prober::EchoServer;

    fn local() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    #[test]
    fn a_gateway_tells_its_clock_and_that_no_nat_is_between() {
        let server = EchoServer::start(local()).unwrap();
        let idle = Duration::from_millis(10);
        let reached = reach(server.local_addr(), &BindOptions::new(local()), idle).unwrap();
        assert_eq!(reached.mapping, Mapping::Kept(idle));
        let ahead = reached.clock_ahead_s.unwrap();
        assert!(ahead.abs() < PATIENCE.as_secs_f64(), "{reached:?}");
    }

    #[test]
    fn a_host_without_a_gateway_refuses() {
        // At an address of its own, where no other test takes the port meanwhile.
        let own = SocketAddr::from((Ipv4Addr::new(127, 77, 0, 2), 0));
        let nobody = UdpSocket::bind(own).unwrap().local_addr().unwrap();
        let unreached = reach(nobody, &BindOptions::new(local()), Duration::ZERO);
        assert!(
            matches!(unreached, Err(Unreached::Refused)),
            "{unreached:?}"
        );
    }
}
