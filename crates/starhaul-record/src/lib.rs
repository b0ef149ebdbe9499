//! Measures a real path into a trace, in the manner of LeoReplayer (LeoCC §5.2 and Appendix B): a heavy flow above the
//! capacity measures the capacity, a light flow measures delay and loss.
//!
//! [`Client`] and [`Server`] are state machines: they take datagrams and instants and give datagrams, probes and
//! journal entries; the caller owns sockets and clocks. [`Recording::from_journal`] converts entries to a trace, also
//! those of an interrupted recording.
//!
//! ```
//! use std::time::Instant;
//! use starhaul_record::{Client, ClientConfig, Key, Server, ServerConfig};
//!
//! let (now, key) = (Instant::now(), Key::new(&[7; 32]));
//! let mut server = Server::new(ServerConfig::new(vec![key.clone()], [1; 32]), now);
//! let mut client = Client::new(ClientConfig::new(key, [2; 16]), now);
//! let from = "192.0.2.1:4000".parse()?;
//! // A greeting with the right key is answered with a challenge to the address that it came from.
//! let hello = client.poll_transmit(now).ok_or("nothing to send")?;
//! server.handle_datagram(now, now, from, &hello.contents);
//! let (to, challenge) = server.poll_transmit(now).ok_or("no answer")?;
//! assert!(to == from && challenge.contents.len() <= hello.contents.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bunches;
mod client;
mod clocks;
mod delay;
mod estimate;
mod journal;
mod key;
mod loss;
mod outages;
mod output;
mod receiver;
mod search;
mod sender;
mod server;
mod ways;
mod wire;

use std::str::FromStr;

pub use client::{Client, ClientConfig, Light, Progress};
pub use estimate::{DelaySource, Recording};
pub use journal::{Begin, Entry, Probe, parse_journal};
pub use key::{Key, KeyId, Mac, TAG_BYTES};
pub use loss::LossEstimate;
pub use output::Summary;
pub use server::{EchoRequest, Server, ServerConfig, ServerEvent};
pub use wire::{Interval, MAX_SECONDS, PACKET_BYTES, Refusal, Request, WireError};

/// Direction of the heavy flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    Up = 0,
    /// From the server to the client.
    Down = 1,
}

impl Direction {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl FromStr for Direction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "up" => Ok(Self::Up),
            "down" => Ok(Self::Down),
            _ => Err(format!("{text:?} is no direction: write up or down")),
        }
    }
}

/// Phase of the heavy flow.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No packets: the idle path gives the base delay and the clock offset.
    #[default]
    Idle = 0,
    /// The rate rises until the capacity is found.
    Search = 1,
    /// Half of the capacity, so that only random loss remains.
    Below = 2,
    /// Above the capacity: the recording itself.
    Saturated = 3,
    /// The heavy flow has ended.
    Done = 4,
}

impl Phase {
    pub(crate) fn from_wire(value: u8) -> Option<Self> {
        [
            Self::Idle,
            Self::Search,
            Self::Below,
            Self::Saturated,
            Self::Done,
        ]
        .into_iter()
        .find(|phase| *phase as u8 == value)
    }
}

/// UDP payloads for one address, to be sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// One or more payloads, one after the other.
    pub contents: Vec<u8>,
    /// Size of each payload in bytes.
    pub segment_bytes: usize,
}

impl Transmit {
    fn single(contents: Vec<u8>) -> Self {
        let segment_bytes = contents.len();
        Self {
            contents,
            segment_bytes,
        }
    }
}

/// The reasons for which a recording fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server answers, or one without this key.
    #[error(
        "the server does not answer: is it running at this address, does a firewall let UDP through, and does it have this key? \
         (a server does not answer a key that it does not know)"
    )]
    NoAnswer,
    /// The server has the key and refuses.
    #[error("the server refused the recording: {0}")]
    Refused(#[from] Refusal),
    /// The session was set up, and then no message arrived.
    #[error("the server fell silent; what was recorded until then is in the journal")]
    Silent,
    /// No packet of the heavy flow arrived.
    #[error(
        "no packet of the heavy flow arrived: does the path carry IP packets of {packet_bytes} bytes? (try a smaller --packet-bytes)"
    )]
    NothingArrived {
        /// Size of the packets in bytes.
        packet_bytes: u16,
    },
    /// A journal is damaged before its last line.
    #[error("{file}:{line}: {reason}")]
    Journal {
        /// Path of the file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// A journal holds too little for a trace.
    #[error("{file}: {reason}")]
    TooLittle {
        /// Path of the file.
        file: String,
        /// What the recording lacks, as text for people.
        reason: String,
    },
}
