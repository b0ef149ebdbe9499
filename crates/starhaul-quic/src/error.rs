//! The errors of this crate, and the application close codes that peers send (RFC 9000 §20.2).

use std::net::SocketAddr;

use noq_proto::{ConnectionError, TransportErrorCode, VarInt};
use starhaul_paths::PathId;

use crate::{LocalId, SessionHandle};

/// An error of this crate. Each message says whose fault it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is not a secret key.
    #[error(
        "this is not an Ed25519 secret key in PKCS#8 PEM form: {0}; make one with: starhaul keygen --out FILE"
    )]
    SecretKey(&'static str),
    /// A text is not a public key.
    #[error(
        "this is not a public key: write the 44 base64 characters that `starhaul keygen` prints"
    )]
    PublicKey,
    /// The local TLS settings were refused.
    #[error("the local TLS settings were refused: {0}")]
    Tls(String),
    /// Packets of this size cannot be sent.
    #[error(
        "packets of {0} bytes cannot be sent: choose {least} to {most} bytes",
        least = crate::LEAST_PACKET_BYTES,
        most = crate::MOST_PACKET_BYTES
    )]
    PacketBytes(u16),
    /// The socket was never registered.
    #[error("local socket {0:?} was not added to this node")]
    UnknownLocal(LocalId),
    /// The session does not exist or has ended.
    #[error("session {0:?} does not exist or has ended")]
    UnknownSession(SessionHandle),
    /// The session has no such path.
    #[error("the session has no path {0:?}")]
    UnknownPath(PathId),
    /// Only the side that opened a session may add paths to it.
    #[error("paths are added by the side that opened the session")]
    NotClient,
    /// A session needs a path.
    #[error("a session needs at least one path")]
    NoPaths,
    /// More paths than a session may have.
    #[error("a session has at most {} paths", crate::MAX_PATHS)]
    TooManyPaths,
    /// More sessions than this node may have.
    #[error("this node already has as many sessions as its configuration allows")]
    TooManySessions,
    /// The address is no destination.
    #[error("{0} is not an address that can be sent to")]
    InvalidRemote(SocketAddr),
    /// The cost of a path is negative or not finite.
    #[error("the cost of a path must be a finite number, zero or more")]
    InvalidCost,
    /// The name of a path is too long.
    #[error(
        "the name of a path must have at most {} bytes",
        crate::wire::MAX_NAME_BYTES
    )]
    InvalidName,
    /// The peer showed another key than the pinned one.
    #[error(
        "the peer's key is not the one pinned for it: check the configured public key and address"
    )]
    WrongPeerKey,
    /// The peer does not know our key.
    #[error("the peer does not trust our key: add our public key to its trusted keys")]
    NotTrusted,
    /// No protocol version in common.
    #[error("the peer speaks no version of the protocol that we speak: update the older side")]
    VersionMismatch,
    /// The peer refused the session or path.
    #[error("the peer refused: {0}")]
    Refused(CloseCode),
    /// The peer broke the protocol and was disconnected.
    #[error("the peer broke the protocol: {0}")]
    PeerViolation(String),
    /// The peer says that we broke the protocol, or closed with an unknown code.
    #[error("the peer closed the session with code {code}: {reason}")]
    ClosedByPeer {
        /// Its application close code.
        code: u64,
        /// The peer's reason.
        reason: String,
    },
    /// The peer did not answer.
    #[error("the network does not answer: {0}")]
    Network(String),
    /// No path was up for too long.
    #[error("no path to the peer for {} s", crate::NO_PATH_TIMEOUT.as_secs())]
    NoPath,
    /// The peer opened the session anew because our answer never reached it.
    #[error("the peer opened the session again from the start")]
    Superseded,
    /// The peer had the greatest number of sessions of one key and opened another one, while this one was silent.
    #[error("the session was silent, and its peer opened one more than a key may have")]
    Displaced,
}

/// The reason for which the application above QUIC closed a connection; the number is sent in CONNECTION_CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseCode {
    /// The session ended in order.
    SessionClosed = 0,
    /// This path was removed; the session lives on.
    PathRemoved = 1,
    /// A newer connection of the same path took over.
    PathReplaced = 2,
    /// The join handshake was violated; only this connection ends.
    JoinViolation = 3,
    /// The session protocol was violated; the session ends.
    SessionViolation = 4,
    /// The session was opened anew.
    Superseded = 5,
    /// No protocol version in common.
    Version = 16,
    /// As many sessions as the peer allows.
    TooManySessions = 17,
    /// The peer does not know the session (any more).
    UnknownSession = 18,
    /// The join token is not valid for this connection.
    BadToken = 19,
    /// As many paths as a session may have.
    TooManyPaths = 20,
    /// The connection did not join a session in time.
    JoinTimeout = 21,
    /// The peer's key is not trusted any more.
    NotTrusted = 22,
}

impl CloseCode {
    const ALL: [Self; 13] = [
        Self::SessionClosed,
        Self::PathRemoved,
        Self::PathReplaced,
        Self::JoinViolation,
        Self::SessionViolation,
        Self::Superseded,
        Self::Version,
        Self::TooManySessions,
        Self::UnknownSession,
        Self::BadToken,
        Self::TooManyPaths,
        Self::JoinTimeout,
        Self::NotTrusted,
    ];

    pub(crate) fn from_wire(code: VarInt) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.to_wire() == code)
    }

    pub(crate) fn to_wire(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

impl std::fmt::Display for CloseCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SessionClosed => "the session ended",
            Self::PathRemoved => "the path was removed",
            Self::PathReplaced => "a newer connection of the path took over",
            Self::JoinViolation => "the join handshake was violated",
            Self::SessionViolation => "the session protocol was violated",
            Self::Superseded => "the session was opened anew",
            Self::Version => "no protocol version in common",
            Self::TooManySessions => "it has as many sessions as it allows",
            Self::UnknownSession => "it does not know the session (was it restarted?)",
            Self::BadToken => "the join token is not valid",
            Self::TooManyPaths => "the session has as many paths as are allowed",
            Self::JoinTimeout => "the connection did not join a session in time",
            Self::NotTrusted => "it does not trust our key any more",
        })
    }
}

/// TLS alert `access_denied`, which rustls sends when an application's verifier refuses.
const ALERT_ACCESS_DENIED: u8 = 49;
/// TLS alert `no_application_protocol` (RFC 7301 §3.2).
const ALERT_NO_APPLICATION_PROTOCOL: u8 = 120;

/// The error that the loss of a connection amounts to.
pub(crate) fn from_connection_error(error: &ConnectionError) -> Error {
    let denied = TransportErrorCode::crypto(ALERT_ACCESS_DENIED);
    let no_protocol = TransportErrorCode::crypto(ALERT_NO_APPLICATION_PROTOCOL);
    match error {
        ConnectionError::VersionMismatch => Error::VersionMismatch,
        ConnectionError::TransportError(e) if e.code == no_protocol => Error::VersionMismatch,
        ConnectionError::ConnectionClosed(e) if e.error_code == no_protocol => {
            Error::VersionMismatch
        }
        ConnectionError::TransportError(e) if e.code == denied => Error::WrongPeerKey,
        ConnectionError::ConnectionClosed(e) if e.error_code == denied => Error::NotTrusted,
        ConnectionError::ApplicationClosed(close) => match CloseCode::from_wire(close.error_code) {
            Some(CloseCode::Version) => Error::VersionMismatch,
            Some(CloseCode::Superseded) => Error::Superseded,
            Some(CloseCode::NotTrusted) => Error::NotTrusted,
            Some(CloseCode::SessionViolation) | None => Error::ClosedByPeer {
                code: close.error_code.into_inner(),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            Some(code) => Error::Refused(code),
        },
        other => Error::Network(other.to_string()),
    }
}
