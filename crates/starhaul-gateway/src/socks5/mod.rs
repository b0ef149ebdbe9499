//! SOCKS5 as a server speaks it, without sockets: RFC 1928, with user name and password of RFC 1929.

mod address;
mod handshake;
#[cfg(test)]
mod tests;

pub use address::{read_address, read_datagram, write_address, write_datagram};
pub use handshake::{Command, Handshake, Request, Step};

use std::net::SocketAddr;

/// The REP field of RFC 1928 §6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// The request succeeded.
    Succeeded = 0,
    /// For reasons that no other reply names.
    GeneralFailure = 1,
    /// The far side's `[egress]` does not allow it.
    NotAllowed = 2,
    /// No route, or no session to the far side.
    NetworkUnreachable = 3,
    /// The host does not answer or its name cannot be resolved.
    HostUnreachable = 4,
    /// The host refused the connection.
    ConnectionRefused = 5,
    /// Never sent by us.
    TtlExpired = 6,
    /// For BIND and unknown commands.
    CommandNotSupported = 7,
    /// The address is no IPv4 or IPv6 address and no name.
    AddressTypeNotSupported = 8,
}

/// A client does not speak SOCKS5 as RFC 1928 and 1929 want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// The client speaks another protocol.
    #[error("the client speaks version {0}, not SOCKS5")]
    Version(u8),
    /// It offers neither what is configured nor something weaker that is allowed.
    #[error("the client offers no acceptable way to log in")]
    NoMethod,
    /// Wrong user name or password.
    #[error("the client gave a wrong user name or password")]
    Login,
    /// BIND or something unknown.
    #[error("the client asks for command {0}, which is not offered")]
    Command(u8),
    /// Neither IPv4, IPv6 nor name.
    #[error("the client sent an address of unknown type {0}")]
    AddressType(u8),
    /// A name that cannot be one.
    #[error("the client sent a host name that is none")]
    Name,
    /// RFC 1928 §7 lets a server drop fragments.
    #[error("the client sent a fragment, which is not supported")]
    Fragment,
    /// A datagram shorter than its header.
    #[error("the client sent a datagram shorter than its header")]
    Truncated,
    /// More bytes than the handshake can have.
    #[error("the client sent too much before its request was answered")]
    TooLong,
}

impl Reply {
    /// From the wire; what is unknown is a general failure.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Succeeded,
            2 => Self::NotAllowed,
            3 => Self::NetworkUnreachable,
            4 => Self::HostUnreachable,
            5 => Self::ConnectionRefused,
            6 => Self::TtlExpired,
            7 => Self::CommandNotSupported,
            8 => Self::AddressTypeNotSupported,
            _ => Self::GeneralFailure,
        }
    }

    /// The code on the wire.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The reply message with the address to which the server is bound.
    pub fn message(self, bound: SocketAddr) -> Vec<u8> {
        let mut message = vec![handshake::VERSION, self.code(), 0];
        write_address(&bound.into(), &mut message);
        message
    }
}
