//! Flows between gateways over bundles: byte streams and datagrams that survive outages of minutes.
//!
//! [`Machine`] numbers what it sends, brings what comes into order, drops what came before, gives up what has expired, and keeps what a
//! former life of either gateway sent out of new flows. It has no sockets and no clock. Bundles are delivered or expire, so nothing
//! is retransmitted. The format is described in `docs/wire.md`.

mod datagrams;
mod inbox;
mod interface;
mod machine;
mod order;
mod seen;
mod stream;
mod wire;

pub(crate) use self::order::bytes_of;
pub use self::{
    interface::{Counters, Event, FlowId, Limits, Transmit},
    machine::Machine,
    stream::{
        CODE_CLOSED, CODE_DROPPED, CODE_FULL, CODE_LOST, CODE_REFUSED, CODE_SILENT, CODE_UNKNOWN,
        CODE_VIOLATION, Read,
    },
    wire::{Batch, Body, MOST_HEADER, Message, NoMessage, Part},
};
