//! Carries the bytes of a connection over TCPCLv4 between the peer and the library.

use std::{io, pin::pin, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::timeout,
};

use super::{
    places::Place,
    splice::{Fault, Splice},
};

/// Bytes that are read at a time in each direction: a segment as the library takes them.
const CHUNK: usize = 16 << 10;
/// How long the peer may go on after the library has ended its side: what it has not read yet is lost if the connection is reset.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// Why a connection ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// The peer breaks the protocol, or exceeds a limit.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The connection broke, or cannot be made.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It had to end for others.
    #[error("others need its place, or the memory that it holds")]
    Lost,
    /// There was no session in time.
    #[error("no session began in time")]
    Silent,
    /// The connection ended before there was a session.
    #[error("the connection ended before a session began")]
    Early,
    /// The library cannot be reached.
    #[error("the loopback interface: {0}")]
    Loopback(io::Error),
    /// The library got no session from the peer, or cannot be reached.
    #[error("no session began: {0}")]
    Library(String),
}

/// Carries a connection to its end, or until it loses its place; `held` is told how many bytes of unfinished transfers there are. `first`
/// has come from the peer
/// before: its contact header, if it has made the connection. The library, which takes itself for the side that connects, gets it with
/// what follows: so its SESS_INIT leaves after that of the peer has come, as that of a side that was connected to.
pub(super) async fn carry(
    mut peer: TcpStream,
    mut node: TcpStream,
    first: &[u8],
    mut splice: Splice,
    held: impl Fn(u64) + Sync,
    place: &Place,
) -> Result<(), End> {
    let mut begun = Vec::new();
    splice.take_from_peer(first, &mut begun)?;
    let ended = tokio::select! {
        ended = pass(&mut peer, &mut node, begun, splice, held, place) => ended,
        () = place.lost() => Err(End::Lost),
    };
    drop(peer);
    // What the library has taken it keeps until it has closed, if there is no room in the store for as long: so does the place.
    let _ = node.shutdown().await;
    let mut rest = vec![0; CHUNK];
    while node.read(&mut rest).await.is_ok_and(|length| length > 0) {}
    ended
}

/// Passes on both directions until the connection ends.
async fn pass(
    peer: &mut TcpStream,
    node: &mut TcpStream,
    begun: Vec<u8>,
    splice: Splice,
    held: impl Fn(u64) + Sync,
    place: &Place,
) -> Result<(), End> {
    let splice = Mutex::new(splice);
    let (peer_in, peer_out) = peer.split();
    let (node_in, node_out) = node.split();
    let coming = pump(
        peer_in,
        node_out,
        begun,
        &splice,
        Splice::take_from_peer,
        &held,
        Some(place),
    );
    let leaving = pump(
        node_in,
        peer_out,
        Vec::new(),
        &splice,
        Splice::take_from_node,
        &held,
        None,
    );
    let mut coming = pin!(coming);
    let mut leaving = pin!(leaving);
    let is_node = tokio::select! {
        ended = &mut coming => {
            ended?;
            false
        }
        ended = &mut leaving => {
            ended?;
            true
        }
    };
    if is_node {
        // A peer that keeps its side open would keep the connection.
        return timeout(LINGER, coming).await.unwrap_or(Ok(()));
    }
    // What the peer has sent before its end may wait for room in the store.
    leaving.await
}

/// What a splice does with the bytes of one direction.
type Take = fn(&mut Splice, &[u8], &mut Vec<u8>) -> Result<(), Fault>;

/// Passes on one direction until its end, which is passed on, too. `out` leaves with what comes first. What comes to be held waits for room
/// with `place`; all else passes, since what others hold may wait for the acknowledgements that come here.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut out: Vec<u8>,
    splice: &Mutex<Splice>,
    take: Take,
    held: &(impl Fn(u64) + Sync),
    place: Option<&Place>,
) -> Result<(), End> {
    let mut input = vec![0; CHUNK];
    loop {
        let length = from.read(&mut input).await?;
        let Some(came) = input.get(..length).filter(|came| !came.is_empty()) else {
            to.shutdown().await?;
            return Ok(());
        };
        let (before, bytes) = {
            let mut splice = splice.lock();
            let before = splice.held();
            take(&mut splice, came, &mut out)?;
            (before, splice.held())
        };
        held(bytes);
        if let Some(place) = place.filter(|_| bytes > before) {
            place.room().await;
        }
        to.write_all(&out).await?;
        out.clear();
    }
}
