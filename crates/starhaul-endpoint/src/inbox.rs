//! The inputs of the driver that no socket of its own brings.

use std::sync::mpsc::{Receiver, Sender, channel};

use starhaul_net::{Waker, prober::ProberEvent};
use starhaul_quic::LocalId;

use crate::socket::{Impact, NewSocket};

/// A prober of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProberId(pub(crate) u32);

/// An input of the driver.
pub(crate) enum Input {
    /// Drive this socket.
    AddSocket(LocalId, Box<NewSocket>),
    /// Close this socket once the last frames have left.
    RemoveSocket(LocalId),
    /// The network under this socket changed.
    Network(LocalId, Impact),
    /// A prober found something.
    Prober(ProberId, ProberEvent),
    /// Give memory back that is kept for later.
    ReleaseMemory,
}

/// The sending end of the driver's inbox.
#[derive(Clone)]
pub(crate) struct Inbox {
    inputs: Sender<Input>,
    driver: Waker,
}

impl Inbox {
    /// Creates the inbox of the driver that `driver` wakes, and its receiving end.
    pub(crate) fn new(driver: Waker) -> (Self, Receiver<Input>) {
        let (inputs, received) = channel();
        (Self { inputs, driver }, received)
    }

    /// Passes an input and wakes the driver. One that has ended needs none.
    pub(crate) fn send(&self, input: Input) {
        if self.inputs.send(input).is_ok() {
            self.driver.wake();
        }
    }

    /// Wakes the driver: the state behind the lock has changed.
    pub(crate) fn wake(&self) {
        self.driver.wake();
    }
}
