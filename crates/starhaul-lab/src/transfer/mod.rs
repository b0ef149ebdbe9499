//! A saturating flow over our own stack and real sockets: one session, one path, one reliable stream kept full for a
//! time, and what of it arrived in each second. What `iperf3` is for TCP.

mod bulk;
mod client;
mod request;
mod server;
mod tally;

pub use client::{Client, Transferred};
pub use request::{MAX_SECONDS, Toward};
pub use server::Server;
pub use tally::Tally;

use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
pub use starhaul_endpoint::Detection;
use starhaul_endpoint::Identity;

use crate::Error;

/// UDP port of a server that names none.
pub const PORT: u16 = 5202;
/// The UDP payload that makes a packet of 1500 bytes to or at this address, which fills one delivery opportunity of a trace.
pub const fn full_packet_bytes(address: SocketAddr) -> u16 {
    match address {
        SocketAddr::V4(_) => 1472,
        SocketAddr::V6(_) => 1452,
    }
}

/// A shorter secret could be guessed by anyone who reaches the server.
const LEAST_SECRET_CHARACTERS: usize = 16;

/// What both ends of a transfer know; their keys are made of it.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret written so.
    ///
    /// # Errors
    /// [`Error::Settings`] for fewer than 16 characters.
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.chars().count() < LEAST_SECRET_CHARACTERS {
            return Err(Error::Settings(format!(
                "the secret is too short: take at least {LEAST_SECRET_CHARACTERS} characters, the same at both ends"
            )));
        }
        Ok(Self(Sha256::digest(text.as_bytes()).into()))
    }

    /// A new one, as text.
    pub fn generate() -> String {
        let random = Identity::generate().derive_key(b"transfer secret");
        random[..16]
            .iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    fn client(&self) -> Identity {
        self.identity(b"transfer client")
    }

    fn server(&self) -> Identity {
        self.identity(b"transfer server")
    }

    fn identity(&self, purpose: &[u8]) -> Identity {
        Identity::from_secret(Identity::from_secret(self.0).derive_key(purpose))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
