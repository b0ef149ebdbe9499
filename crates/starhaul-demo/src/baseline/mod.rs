//! The baseline: blocks over noq's own multipath QUIC, as MPDTP compares itself (§V), with each of its controllers.
//!
//! [`MpQuicNode`] is sans-IO over `noq-proto`, so the same baseline runs on sockets ([`Driver`]), beside the
//! gateways ([`Carrier`]), and in virtual time. One connection per class, one unidirectional stream per block, written in order of sending and
//! read when complete: no block waits for the bytes of another, and nothing is dropped. In noq 1.4 all PATH_ACKs ride
//! the lowest path that is available; the caller therefore gives the path of lowest delay first.

mod carrier;
mod driver;
mod node;

pub use carrier::Carrier;
pub use driver::{Driver, Handle};
pub use node::{Batch, ConnectionId, Controller, MpQuicEvent, MpQuicNode, ReadOutcome, StreamId};

/// What must be said wherever the baseline's figures are shown.
pub fn note(controller: Controller) -> String {
    let title = controller.title();
    format!(
        "mpquic is noq 1.4 multipath QUIC with {title}, one connection per class and one stream per block; \
         all its PATH_ACKs ride the lowest path, here LEO, which distorts the RTT that it sees on the other"
    )
}
