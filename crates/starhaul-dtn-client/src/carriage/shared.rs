//! What applications' tasks and the driver's share: the machine, and who waits for what.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

use super::BundleStatus;
use crate::flows::{Event, FlowId, Machine, bytes_of};

/// Batches of datagrams that wait for a slow application.
const MOST_BATCHES: usize = 256;
/// Their bytes, with what their places need: twice what may wait for a missing batch, and is released at once.
const MOST_BYTES: usize = 8 << 20;

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
    flows: HashMap<FlowId, Outlet>,
    /// Flows of datagrams since the start.
    flows_total: u64,
    incoming: mpsc::UnboundedSender<Incoming>,
}

/// Who waits for a stream.
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_broken: watch::Sender<bool>,
    halves: u8,
}

/// Where the datagrams of a flow go in.
struct Outlet {
    of: u64,
    sender: mpsc::Sender<Vec<Bytes>>,
    held: Arc<AtomicUsize>,
}

/// Where the datagrams of a flow come out.
#[derive(Debug)]
pub(super) struct Inlet {
    /// Its number: a flow that ended may be followed by another of the same name.
    pub(super) of: u64,
    receiver: mpsc::Receiver<Vec<Bytes>>,
    held: Arc<AtomicUsize>,
}

/// What a far gateway has begun, before an application accepts it. What none accepts is let go.
pub(super) enum Incoming {
    Stream(FlowId, Bytes),
    Datagrams(FlowId, Bytes, Inlet),
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
                flows_total: 0,
                incoming,
            }),
            changed: Notify::new(),
            has_ended: watch::Sender::new(false),
        }
    }

    /// Changes the state for an application, and wakes the readers and writers that it concerns, and the driver.
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
    pub(super) fn close_flow(&self, id: FlowId, of: u64) {
        self.with(|state| {
            if state.is_open(id, of) {
                state.flows.remove(&id);
                state.machine.close_flow(id);
            }
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
    pub(super) fn receive(&mut self, id: FlowId) -> Inlet {
        let (sender, receiver) = mpsc::channel(MOST_BATCHES);
        let held = Arc::new(AtomicUsize::new(0));
        let of = self.flows_total;
        self.flows_total += 1;
        let outlet = Outlet {
            of,
            sender,
            held: held.clone(),
        };
        self.flows.insert(id, outlet);
        Inlet { of, receiver, held }
    }

    /// Whether the flow of this name is still the one of this number.
    pub(super) fn is_open(&self, id: FlowId, of: u64) -> bool {
        self.flows.get(&id).is_some_and(|outlet| outlet.of == of)
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
                    let outlet = self.flows.get(&id);
                    if !outlet.is_some_and(|outlet| outlet.push(datagrams)) {
                        self.machine.note_dropped(number);
                    }
                }
                Event::FlowEnded(id) => drop(self.flows.remove(&id)),
            }
        }
    }
}

impl Outlet {
    /// Takes datagrams; `false` if too many wait, or the flow has no reader.
    fn push(&self, datagrams: Vec<Bytes>) -> bool {
        let bytes = bytes_of(&datagrams);
        if self.held.load(Ordering::Relaxed) + bytes > MOST_BYTES {
            return false;
        }
        // Counted first: the application may take them at once.
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let is_taken = self.sender.try_send(datagrams).is_ok();
        if !is_taken {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }
}

impl Inlet {
    /// The next datagrams; `None` at the end. Cancelling loses nothing.
    pub(super) async fn recv(&mut self) -> Option<Vec<Bytes>> {
        let datagrams = self.receiver.recv().await?;
        self.held.fetch_sub(bytes_of(&datagrams), Ordering::Relaxed);
        Some(datagrams)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::flows::Limits;

    fn shared() -> Shared {
        let machine = Machine::new(1, Limits::default());
        Shared::new(machine, mpsc::unbounded_channel().0)
    }

    fn open(state: &mut State) -> FlowId {
        let lifetime = Duration::from_secs(600);
        let machine = &mut state.machine;
        let opened = machine.open_flow(Instant::now(), 0, Bytes::new(), lifetime, false);
        opened.expect("there is room")
    }

    #[test]
    fn the_end_of_a_former_flow_leaves_the_one_of_the_same_name() {
        let shared = shared();
        let (id, former, present) = shared.with(|state| {
            let id = open(state);
            (id, state.receive(id), state.receive(id))
        });
        shared.close_flow(id, former.of);
        assert!(shared.with(|state| state.is_open(id, present.of)));
        assert_eq!(shared.status().counters.flows, 1);
        shared.close_flow(id, present.of);
        assert_eq!(shared.status().counters.flows, 0);
    }

    #[tokio::test]
    async fn what_waits_for_an_application_is_bounded_in_bytes() {
        let shared = shared();
        let batch = || vec![Bytes::from(vec![0; 60_000]); 40];
        let (id, mut inlet) = shared.with(|state| {
            let id = open(state);
            (id, state.receive(id))
        });
        let push = || shared.with(|state| state.flows[&id].push(batch()));
        let taken = (0..100).take_while(|_| push()).count();
        assert_eq!(taken, 3);
        assert_eq!(inlet.recv().await, Some(batch()));
        assert!(push(), "there is room again");
    }
}
