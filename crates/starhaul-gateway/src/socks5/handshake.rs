//! The messages before data flow: methods, login, request (RFC 1928 §3, §4; RFC 1929).

use std::net::{Ipv4Addr, SocketAddr};

use super::{Reply, SocksError, read_address};
use crate::{config::Credentials, target::Target};

pub(super) const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const USERNAME_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
/// The longest handshake has 257 + 513 + 262 bytes; what is more is data that an eager client sent behind it.
const MAX_BUFFER: usize = 4096;

/// The service that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A TCP connection.
    Connect,
    /// A relay for datagrams.
    UdpAssociate,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of service.
    pub command: Command,
    /// The destination; for [`Command::UdpAssociate`] the address from which the client will send, if it knows that.
    pub target: Target,
}

/// What the server does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read from the client and call [`Handshake::handle`].
    Read,
    /// Send this to the client.
    Send(Vec<u8>),
    /// The handshake is done; answer with [`Reply::message`].
    Request(Request),
    /// Send this to the client, then close.
    Refuse(Vec<u8>, SocksError),
}

/// The server's side of the handshake. After each input, take [`Handshake::poll`] until it says [`Step::Read`].
#[derive(Debug)]
pub struct Handshake {
    credentials: Option<Credentials>,
    state: State,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Methods,
    Login,
    Request,
    Done,
}

impl Handshake {
    /// A new client, which must log in when there are credentials.
    pub fn new(credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            state: State::Methods,
            buffer: Vec::new(),
        }
    }

    /// Takes bytes of the client.
    pub fn handle(&mut self, bytes: &[u8]) {
        // One byte too many is enough to be refused by `poll`.
        let room = (MAX_BUFFER + 1).saturating_sub(self.buffer.len());
        self.buffer.extend(bytes.iter().take(room));
    }

    /// Returns what to do next; [`Step::Read`] until more bytes have come.
    pub fn poll(&mut self) -> Step {
        if self.buffer.len() > MAX_BUFFER {
            return Step::Refuse(Vec::new(), SocksError::TooLong);
        }
        match self.state {
            State::Methods => self.methods(),
            State::Login => self.login(),
            State::Request => self.request(),
            State::Done => Step::Read,
        }
    }

    /// The bytes that the client sent after its request.
    pub fn into_rest(self) -> Vec<u8> {
        self.buffer
    }

    fn methods(&mut self) -> Step {
        if let Some(version) = self.buffer.first().filter(|version| **version != VERSION) {
            return Step::Refuse(Vec::new(), SocksError::Version(*version));
        }
        let Some(methods) = self
            .buffer
            .get(1)
            .and_then(|count| self.buffer.get(2..2 + usize::from(*count)))
        else {
            return Step::Read;
        };
        let (wanted, next) = match self.credentials {
            Some(_) => (USERNAME_PASSWORD, State::Login),
            None => (NO_LOGIN, State::Request),
        };
        if !methods.contains(&wanted) {
            return Step::Refuse(vec![VERSION, NO_METHOD], SocksError::NoMethod);
        }
        self.advance(2 + methods.len(), next);
        Step::Send(vec![VERSION, wanted])
    }

    fn login(&mut self) -> Step {
        if let Some(version) = self
            .buffer
            .first()
            .filter(|version| **version != LOGIN_VERSION)
        {
            return Step::Refuse(vec![LOGIN_VERSION, 1], SocksError::Version(*version));
        }
        let Some((username, behind)) = self.buffer.get(1..).and_then(counted) else {
            return Step::Read;
        };
        let Some((password, behind)) = counted(behind) else {
            return Step::Read;
        };
        let right = self.credentials.as_ref().is_some_and(|credentials| {
            // Both are always compared in full, so that the time taken does not tell which one was wrong or where.
            same(username, credentials.username.as_bytes())
                & same(password, credentials.password.as_bytes())
        });
        if !right {
            return Step::Refuse(vec![LOGIN_VERSION, 1], SocksError::Login);
        }
        self.advance(self.buffer.len() - behind.len(), State::Request);
        Step::Send(vec![LOGIN_VERSION, 0])
    }

    fn request(&mut self) -> Step {
        if let Some(version) = self.buffer.first().filter(|version| **version != VERSION) {
            return Step::Refuse(Vec::new(), SocksError::Version(*version));
        }
        let Some(([_, command, _], address)) = self.buffer.split_first_chunk::<3>() else {
            return Step::Read;
        };
        let command = match command {
            1 => Command::Connect,
            3 => Command::UdpAssociate,
            other => return refuse(Reply::CommandNotSupported, SocksError::Command(*other)),
        };
        match read_address(address) {
            Ok(None) => Step::Read,
            Ok(Some((target, rest))) => {
                self.advance(self.buffer.len() - rest.len(), State::Done);
                Step::Request(Request { command, target })
            }
            Err(error @ SocksError::AddressType(_)) => {
                refuse(Reply::AddressTypeNotSupported, error)
            }
            Err(error) => refuse(Reply::HostUnreachable, error),
        }
    }

    fn advance(&mut self, used: usize, next: State) {
        self.buffer.drain(..used.min(self.buffer.len()));
        self.state = next;
    }
}

fn refuse(reply: Reply, error: SocksError) -> Step {
    Step::Refuse(
        reply.message(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        error,
    )
}

/// Bytes behind their count in one byte, and what follows.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

fn same(given: &[u8], right: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != right.len());
    for (index, byte) in given.iter().enumerate() {
        difference |= byte ^ right.get(index).unwrap_or(&0);
    }
    difference == 0
}
