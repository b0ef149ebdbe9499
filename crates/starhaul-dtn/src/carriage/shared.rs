//! What applications' tasks and the driver's share: the machine, and who waits for what.

use std::{collections::HashMap, fmt, task::Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

use super::BundleStatus;
use crate::flows::{Event, FlowId, Machine};

/// Batches of datagrams that wait for a slow application.
const MOST_BATCHES: usize = 256;

/// The state, and how the driver learns of changes.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Told of each change by an application.
    pub(super) changed: Notify,
    has_ended: watch::Sender<bool>,
}

/// The machine, and who waits.
pub(super) struct State {
    pub(super) machine: Machine,
    pub(super) endpoint: Option<String>,
    pub(super) is_full: bool,
    pub(super) is_closing: bool,
    streams: HashMap<FlowId, Waiting>,
    flows: HashMap<FlowId, mpsc::Sender<Vec<Bytes>>>,
    incoming: mpsc::UnboundedSender<Incoming>,
}

/// Who waits for a stream.
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_broken: watch::Sender<bool>,
    halves: u8,
}

/// What a far gateway has begun, before somebody takes it. What nobody takes is let go.
pub(super) enum Incoming {
    Stream(FlowId, Bytes),
    Datagrams(FlowId, Bytes, mpsc::Receiver<Vec<Bytes>>),
}

impl Shared {
    pub(super) fn new(machine: Machine, incoming: mpsc::UnboundedSender<Incoming>) -> Self {
        Self {
            state: Mutex::new(State {
                machine,
                endpoint: None,
                is_full: false,
                is_closing: false,
                streams: HashMap::new(),
                flows: HashMap::new(),
                incoming,
            }),
            changed: Notify::new(),
            has_ended: watch::Sender::new(false),
        }
    }

    /// Changes the state for an application, tells whom it concerns, and the driver.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let done = self.drive(act);
        self.changed.notify_one();
        done
    }

    /// The same for the driver.
    pub(super) fn drive<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = act(&mut state);
        state.tell();
        done
    }

    pub(super) fn status(&self) -> BundleStatus {
        let state = self.state.lock();
        BundleStatus {
            endpoint: state.endpoint.clone(),
            is_full: state.is_full,
            counters: state.machine.counters(),
        }
    }

    /// The driver has ended.
    pub(super) fn end(&self) {
        self.has_ended.send_replace(true);
    }

    /// Waits for the end of the driver.
    pub(super) async fn ended(&self) {
        let mut has_ended = self.has_ended.subscribe();
        // The sender is here.
        let _ = has_ended.wait_for(|has_ended| *has_ended).await;
    }

    /// Resolves when a stream breaks off; never if it comes to its end.
    pub(super) fn broken(&self, id: FlowId) -> watch::Receiver<bool> {
        let state = self.state.lock();
        let known = state.streams.get(&id);
        let known = known.map(|waiting| waiting.is_broken.subscribe());
        known.unwrap_or_else(|| watch::Sender::new(true).subscribe())
    }

    /// A half is gone.
    pub(super) fn release(&self, id: FlowId) {
        self.with(|state| {
            let Some(waiting) = state.streams.get_mut(&id) else {
                return;
            };
            waiting.halves -= 1;
            if waiting.halves == 0 {
                state.streams.remove(&id);
                state.machine.release(id);
            }
        });
    }

    /// An application has let a flow of datagrams go.
    pub(super) fn close_flow(&self, id: FlowId) {
        self.with(|state| {
            state.flows.remove(&id);
            state.machine.close_flow(id);
        });
    }
}

impl State {
    /// A stream of which an application has both halves.
    pub(super) fn hold(&mut self, id: FlowId) {
        let waiting = Waiting {
            reader: None,
            writer: None,
            is_broken: watch::Sender::new(false),
            halves: 2,
        };
        self.streams.insert(id, waiting);
    }

    /// Where the datagrams of a flow come out.
    pub(super) fn receive(&mut self, id: FlowId) -> mpsc::Receiver<Vec<Bytes>> {
        let (sender, receiver) = mpsc::channel(MOST_BATCHES);
        self.flows.insert(id, sender);
        receiver
    }

    pub(super) fn wait_to_read(&mut self, id: FlowId, waker: &Waker) {
        if let Some(waiting) = self.streams.get_mut(&id) {
            waiting.reader = Some(waker.clone());
        }
    }

    pub(super) fn wait_to_write(&mut self, id: FlowId, waker: &Waker) {
        if let Some(waiting) = self.streams.get_mut(&id) {
            waiting.writer = Some(waker.clone());
        }
    }

    fn tell(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Accepted(id, header) => {
                    self.hold(id);
                    if self.incoming.send(Incoming::Stream(id, header)).is_err() {
                        self.streams.remove(&id);
                        self.machine.release(id);
                    }
                }
                Event::Readable(id) => {
                    let has_failed = self.machine.failure(id).is_some();
                    if let Some(waiting) = self.streams.get_mut(&id) {
                        waiting.reader.take().into_iter().for_each(Waker::wake);
                        if has_failed {
                            waiting.is_broken.send_replace(true);
                        }
                    }
                }
                Event::Writable(id) => {
                    if let Some(waiting) = self.streams.get_mut(&id) {
                        waiting.writer.take().into_iter().for_each(Waker::wake);
                    }
                }
                Event::FlowBegan(id, header) => {
                    let receiver = self.receive(id);
                    let incoming = Incoming::Datagrams(id, header, receiver);
                    if self.incoming.send(incoming).is_err() {
                        self.flows.remove(&id);
                        self.machine.close_flow(id);
                    }
                }
                Event::Datagrams(id, datagrams) => {
                    let number = datagrams.len();
                    let taken = self.flows.get(&id).map(|flow| flow.try_send(datagrams));
                    if !matches!(taken, Some(Ok(()))) {
                        self.machine.note_dropped(number);
                    }
                }
                Event::FlowEnded(id) => drop(self.flows.remove(&id)),
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
