//! The thread that moves datagrams between the sockets and the protocol stack.
//!
//! A thread of its own, because deadlines and pacing need timers finer than an async runtime's 1 ms, and because
//! acknowledgements must not wait behind the application's tasks. The stack is locked for a few hundred microseconds at most.

use std::{
    collections::BTreeMap,
    os::fd::AsFd as _,
    sync::{Arc, mpsc::Receiver},
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use starhaul_net::{
    Lent, Poller, RecvBuffer,
    prober::{EchoMessage, EchoResponder},
    release_memory, sharpen_timers,
};
use starhaul_quic::{LocalId, Node, Transmit};

use crate::{
    Error,
    events::dispatch,
    inbox::Input,
    network::NetworkWatch,
    payloads::Payloads,
    socket::{DrivenSocket, Impact, LINGER},
    state::{Shared, State},
};

/// Greatest number of datagrams handled while the stack is locked.
const INPUT_BATCH: usize = 64;
/// Transmits (of up to 64 datagrams each) collected while the stack is locked.
const OUTPUT_BATCH: usize = 8;
/// Greatest number of batches of transmits before the sockets get a turn. A smaller batch leaves less for the next, and counts as four.
const OUTPUT_TURNS: usize = 8;
const SMALL_BATCH_TURNS: usize = 4;
/// Number of datagrams that may leave in answer to those received in one turn of all sockets: as many as before that turn. What more there is
/// leaves after it, so that many readable sockets do not make a turn as many times longer.
const ANSWERS: usize = OUTPUT_BATCH * OUTPUT_TURNS * 64;
/// Greatest number of receive calls per socket before the timers get a turn.
const RECEIVE_TURNS: usize = 4;
/// Fewer datagrams than this are handled before others come: the next wait, which there is in any case, tells whether any did.
const MANY_DATAGRAMS: usize = 16;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    poller: Poller,
    inputs: Receiver<Input>,
    sockets: BTreeMap<LocalId, DrivenSocket>,
    network: NetworkWatch,
    outbox: Vec<Transmit>,
    /// Datagrams that may still leave before the sockets have had their turn.
    answers: usize,
    /// Contents of batches that were sent, for the stack to use again.
    spent: Vec<Bytes>,
    /// Memory is to be given back to the system.
    is_to_release: bool,
    /// Answers the probes of peers that may not use ICMP.
    echo: EchoResponder,
    /// The latest time at which the driver ends; set when closing.
    ends_at: Option<Instant>,
}

impl Driver {
    pub(crate) fn start(
        shared: Arc<Shared>,
        poller: Poller,
        inputs: Receiver<Input>,
        echo_secret: [u8; 32],
    ) -> Result<(), Error> {
        let driver = Self {
            shared,
            poller,
            inputs,
            sockets: BTreeMap::new(),
            network: NetworkWatch::start(),
            outbox: Vec::with_capacity(OUTPUT_BATCH),
            answers: 0,
            spent: Vec::new(),
            is_to_release: false,
            echo: EchoResponder::new(echo_secret, Instant::now()),
            ends_at: None,
        };
        std::thread::Builder::new()
            .name("starhaul-driver".into())
            .spawn(move || {
                // Dropped after the driver: a task that waits for the end may bind its addresses again.
                let _end = TellEnd(driver.shared.clone());
                driver.run();
            })
            .map_err(|error| Error::Socket(starhaul_net::Error::System(error)))?;
        Ok(())
    }

    fn run(mut self) {
        sharpen_timers();
        let mut buffer = RecvBuffer::new();
        let mut readable = Vec::new();
        while let Some(timeout) = self.drive_until_idle() {
            if std::mem::take(&mut self.is_to_release) {
                self.spent = Vec::new();
                release_memory();
            }
            if let Err(error) = self.wait(timeout, &mut readable) {
                tracing::error!(%error, "the driver cannot go on");
                return;
            }
            self.answers = ANSWERS;
            for local in readable.drain(..) {
                self.receive(local, &mut buffer);
            }
            self.check_network();
        }
    }

    /// Checks each socket after a change of the network.
    fn check_network(&mut self) {
        let now = Instant::now();
        if let Some(news) = self.network.poll_news(now) {
            for (id, local) in &mut self.sockets {
                if let Some(impact) = local.follow(now, &news) {
                    self.shared.inbox().send(Input::Network(*id, impact));
                }
            }
        }
    }

    /// Gives the stack received datagrams, and sends what follows while the turn allows it. `datagrams` says whether more of those follow that
    /// were received together.
    fn drive(&mut self, datagrams: impl FnOnce(&mut Node, Instant) -> bool) {
        let mut round = self.round(false, datagrams);
        for _ in 1..OUTPUT_TURNS {
            if !round.has_more() {
                return;
            }
            round = self.round(false, |_, _| false);
        }
    }

    /// Sends until there is nothing to send, also of what applications have done meanwhile: they need not wake this thread then. Returns the
    /// time of the next call at the latest, at once if the sockets must get a turn before, or `None` when the endpoint has ended.
    fn drive_until_idle(&mut self) -> Option<Option<Instant>> {
        let mut turns = 0;
        while turns < OUTPUT_TURNS {
            let round = self.round(true, |_, _| false);
            if round.has_more() {
                turns += 1;
                continue;
            }
            let is_over = |end: Instant| end <= round.now || round.timeout.is_none();
            if self.ends_at.is_some_and(is_over) {
                return None;
            }
            if round.sent == 0 {
                return Some(round.timeout);
            }
            turns += SMALL_BATCH_TURNS;
        }
        Some(Some(Instant::now()))
    }

    /// Gives the stack the inputs of the inbox, then received datagrams, then the time; sends some of what follows and passes on events.
    /// Where nothing follows and this thread may rest, which is between the turns of the sockets, it says that it does. Readers of
    /// byte streams are woken unless `datagrams` says that more datagrams follow: another round comes after those before this thread waits.
    fn round(
        &mut self,
        may_rest: bool,
        datagrams: impl FnOnce(&mut Node, Instant) -> bool,
    ) -> Round {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let now = Instant::now();
        while let Ok(input) = self.inputs.try_recv() {
            self.handle_input(&mut state, input, now);
        }
        for contents in self.spent.drain(..) {
            state.node.recycle(contents);
        }
        let more_follow = datagrams(&mut state.node, now);
        if state
            .node
            .poll_timeout()
            .is_some_and(|timeout| timeout <= now)
        {
            state.node.handle_timeout(now);
        }
        let is_held = self.collect(&mut state.node, now, may_rest);
        dispatch(&mut state, now);
        let mut round = Round {
            now,
            sent: self.outbox.len(),
            timeout: None,
        };
        let flushed = match is_held || round.has_more() {
            true => Vec::new(),
            false => std::mem::take(&mut state.flush_waiters),
        };
        round.timeout = state.node.poll_timeout();
        let woken = state.woken.take(more_follow);
        let filled = std::mem::take(&mut state.filled);
        if state.closing && self.ends_at.is_none() {
            self.ends_at = Some(now + LINGER);
        }
        if may_rest && round.sent == 0 {
            shared.rest(&state);
        }
        drop(state);
        woken.into_iter().for_each(std::task::Waker::wake);
        filled.iter().for_each(|filled| filled.blocks.announce());
        self.send_outbox();
        for waiter in flushed {
            let _ = waiter.send(());
        }
        round
    }

    /// Fills the outbox; returns whether the turn of the sockets kept back what it might have taken.
    fn collect(&mut self, node: &mut Node, now: Instant, between_turns: bool) -> bool {
        while self.outbox.len() < OUTPUT_BATCH {
            if !between_turns && self.answers == 0 {
                return true;
            }
            let Some(transmit) = node.poll_transmit(now) else {
                break;
            };
            let size = transmit.segment_size.max(1);
            let datagrams = transmit.contents.len().div_ceil(size);
            self.answers = self.answers.saturating_sub(datagrams);
            self.outbox.push(transmit);
        }
        false
    }

    /// Waits for a datagram, room to send, an application's call, or the time; `readable` becomes the sockets to read.
    fn wait(
        &mut self,
        timeout: Option<Instant>,
        readable: &mut Vec<LocalId>,
    ) -> Result<(), starhaul_net::Error> {
        let now = Instant::now();
        self.forget_removed(now);
        for (id, local) in &mut self.sockets {
            if local.rebind_when_due(now) {
                let changed = Input::Network(*id, local.changed());
                self.shared.inbox().send(changed);
            }
        }
        let deadlines = self.sockets.values().filter_map(DrivenSocket::deadline);
        let deadline = deadlines
            .chain(timeout)
            .chain(self.ends_at)
            .chain(self.network.deadline())
            .min();
        let sockets = self.sockets.values();
        let mut polled: Vec<_> = sockets
            .filter_map(|local| Some((local.socket()?.as_fd(), local.is_blocked())))
            .collect();
        let monitor_at = polled.len();
        polled.extend(self.network.monitor().map(|monitor| (monitor, false)));
        let readiness = self.poller.wait_fds(&polled, deadline)?;
        self.shared.rise();
        if readiness.get(monitor_at).is_some_and(|news| news.readable) {
            self.network.read();
        }
        readable.clear();
        let sockets = self.sockets.iter_mut();
        let open = sockets.filter(|(_, local)| local.socket().is_some());
        for ((id, local), ready) in open.zip(readiness) {
            if ready.readable {
                readable.push(*id);
            }
            if ready.writable {
                local.send_backlog(&mut self.spent);
            }
        }
        Ok(())
    }

    /// Closes the sockets of removed paths, also in the stack.
    fn forget_removed(&mut self, now: Instant) {
        let over: Vec<LocalId> = self
            .sockets
            .iter()
            .filter(|(_, local)| local.is_over(now))
            .map(|(id, _)| *id)
            .collect();
        if over.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        for id in over {
            self.sockets.remove(&id);
            state.node.remove_local(id);
        }
    }

    fn receive(&mut self, id: LocalId, buffer: &mut RecvBuffer) {
        for _ in 0..RECEIVE_TURNS {
            let Some(local) = self.sockets.get_mut(&id) else {
                return;
            };
            let received = local.receive(buffer);
            if received == 0 {
                return;
            }
            let answers_as_asked = local.answers_as_asked();
            self.answer_echoes(id, buffer);
            self.pass_on(id, answers_as_asked, buffer);
            if !buffer.is_full() && received < MANY_DATAGRAMS {
                return;
            }
        }
    }

    /// Gives the stack what was received on a socket, in the memory of the buffer.
    fn pass_on(&mut self, id: LocalId, answers_as_asked: bool, buffer: &mut RecvBuffer) {
        // A flood of echoes costs no turn of the stack.
        let messages = buffer.take_messages();
        let messages = messages.filter(|message| !is_only_echoes(message));
        let mut messages = messages.peekable();
        while messages.peek().is_some() {
            self.drive(|node, now| {
                let mut handled = 0;
                while handled < INPUT_BATCH
                    && let Some(message) = messages.next()
                {
                    handled += message.contents().len().div_ceil(message.stride);
                    let to = message.local.filter(|_| answers_as_asked);
                    let (between, ecn) = ((message.remote, to), message.ecn);
                    let payloads = Payloads::of(message);
                    let payloads = payloads.filter(|payload| !EchoMessage::is_echo(payload));
                    node.handle_datagrams(now, id, between, ecn, payloads);
                }
                messages.peek().is_some()
            });
        }
    }

    /// Answers the peers' probes at once, without the stack.
    fn answer_echoes(&mut self, id: LocalId, buffer: &RecvBuffer) {
        let now = Instant::now();
        for datagram in buffer.datagrams() {
            let echo = EchoMessage::is_echo(datagram.payload).then_some(&mut self.echo);
            let answer = echo.and_then(|echo| {
                echo.answer(now, SystemTime::now(), datagram.remote, datagram.payload)
            });
            if let Some((answer, local)) = answer.zip(self.sockets.get_mut(&id)) {
                let answer = Transmit {
                    local: id,
                    remote: datagram.remote,
                    source: datagram.local.filter(|_| local.answers_as_asked()),
                    ecn: 0,
                    segment_size: answer.len(),
                    contents: Bytes::copy_from_slice(&answer),
                };
                local.send(answer, &mut self.spent);
            }
        }
    }

    fn send_outbox(&mut self) {
        for transmit in self.outbox.drain(..) {
            // What is sent on a closed socket is lost, as on any dead link.
            if let Some(local) = self.sockets.get_mut(&transmit.local) {
                local.send(transmit, &mut self.spent);
            }
        }
    }

    fn handle_input(&mut self, state: &mut State, input: Input, now: Instant) {
        let State {
            node,
            probers,
            sessions,
            ..
        } = state;
        match input {
            Input::AddSocket(id, socket) => {
                self.sockets.insert(id, DrivenSocket::new(*socket, now));
            }
            Input::RemoveSocket(id) => {
                if let Some(local) = self.sockets.get_mut(&id) {
                    local.remove(now);
                }
            }
            Input::Network(id, Impact::Changed) => node.on_local_change(now, id, false),
            Input::Network(id, Impact::Moved) => node.on_local_change(now, id, true),
            Input::Network(id, Impact::Better) => node.retry_paths(now, id),
            Input::Prober(id, event) => probers.on_event(now, id, event, node),
            Input::ReleaseMemory => {
                node.release_memory();
                let streams = sessions.values().flat_map(|entry| entry.bytes.values());
                streams.for_each(|bytes| bytes.reader.release_memory());
                self.is_to_release = true;
            }
        }
    }
}

/// The outcome of one round of work on the stack.
struct Round {
    now: Instant,
    /// Transmits that left.
    sent: usize,
    /// When the stack wants the time next.
    timeout: Option<Instant>,
}

impl Round {
    /// Whether more waits to be sent.
    const fn has_more(&self) -> bool {
        self.sent == OUTPUT_BATCH
    }
}

fn is_only_echoes(message: &Lent<'_>) -> bool {
    let mut payloads = message.contents().chunks(message.stride);
    payloads.all(EchoMessage::is_echo)
}

/// Ends everything that waits for the driver, however it ends.
struct TellEnd(Arc<Shared>);

impl Drop for TellEnd {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closing = true;
        state.ended = true;
        let handles: Vec<_> = state.sessions.keys().copied().collect();
        for handle in handles {
            state.end_session(handle, Some(Error::EndpointClosed));
        }
        state.flush_waiters.clear();
        let waiters = std::mem::take(&mut state.end_waiters);
        let woken = state.woken.take(false);
        drop(state);
        self.0.incoming.close();
        woken.into_iter().for_each(std::task::Waker::wake);
        for waiter in waiters {
            let _ = waiter.send(());
        }
    }
}
