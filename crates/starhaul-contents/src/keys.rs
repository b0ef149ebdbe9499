//! Keys out of files, random seeds, and nodes ready for sockets.

use std::{
    fs,
    net::{SocketAddr, ToSocketAddrs as _},
    path::Path,
    time::{Duration, Instant},
};

use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use starhaul_leotp::{ContentSecret, NeighbourKey, Node, NodeConfig};

use crate::{Error, file_error};

/// The fewest bytes of a key.
const LEAST_BYTES: usize = 16;
/// Data may leave this much early, so that a system call carries several datagrams at high rates.
const BURST: Duration = Duration::from_micros(500);
/// Hosts wake programs some packets late, and a hop with less behind it runs dry meanwhile (the published number).
const BACKLOG_SEGMENTS: f64 = 5.0;

/// The key of a file that two neighbours share: any text or bytes, without white space around.
///
/// # Errors
/// [`Error::File`] and [`Error::Key`].
pub fn neighbour_key(file: &Path) -> Result<NeighbourKey, Error> {
    Ok(NeighbourKey::new(&read(file)?))
}

/// The secret of a file that a server shares with those who fetch from it.
///
/// # Errors
/// [`Error::File`] and [`Error::Key`].
pub fn secret(file: &Path) -> Result<ContentSecret, Error> {
    Ok(ContentSecret::new(&read(file)?))
}

fn read(file: &Path) -> Result<[u8; 32], Error> {
    let bytes = fs::read(file).map_err(file_error(file))?;
    let key = bytes.trim_ascii();
    match key.len() < LEAST_BYTES {
        true => Err(Error::Key(file.to_owned())),
        false => Ok(Sha256::digest(key).into()),
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| Error::Randomness)
}

/// A node that begins to live now.
pub(crate) fn node(cache_bytes: usize) -> Result<Node, Error> {
    let config = NodeConfig {
        cache_bytes,
        burst: BURST,
        backlog_segments: BACKLOG_SEGMENTS,
        ..NodeConfig::default()
    };
    Ok(Node::new(Instant::now(), config, random()?)?)
}

/// The address of `host:port` that a socket at `local` reaches.
pub(crate) fn resolve(text: &str, local: SocketAddr) -> Result<SocketAddr, Error> {
    let error = |reason: String| Error::Address {
        address: text.to_owned(),
        reason,
    };
    let found = text.to_socket_addrs();
    let mut found = found.map_err(|why| error(why.to_string()))?;
    let found = found.find(|address| address.is_ipv4() == local.is_ipv4());
    found.ok_or_else(|| error(format!("it has no address of the IP version of {local}")))
}
