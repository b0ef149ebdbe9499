//! The thread that moves datagrams between the sockets and the protocol stack.
//!
//! A thread of its own, because deadlines and pacing need timers finer than an async runtime's 1 ms, and because
//! acknowledgements must not wait behind the application's tasks. The stack is locked for a few hundred microseconds at most.

use std::{collections::BTreeMap, os::fd::AsFd as _, sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use starhaul_net::{
    Message, Poller, RecvBuffer,
    prober::{EchoMessage, EchoResponder},
    sharpen_timers,
};
use starhaul_quic::{LocalId, Node, Transmit};

use crate::{
    Error,
    events::dispatch,
    local::{Impact, LINGER, Local},
    network::NetworkWatch,
    state::{Shared, SocketCommand},
};

/// Datagrams handled while the stack is locked.
const INPUT_BATCH: usize = 64;
/// Transmits (of up to 64 datagrams each) collected while the stack is locked.
const OUTPUT_BATCH: usize = 8;
/// Times that the stack is asked for transmits before the sockets get a turn, however much there is to send.
const OUTPUT_TURNS: usize = 8;
/// Receive calls per socket before the timers get a turn.
const RECEIVE_TURNS: usize = 4;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    poller: Poller,
    sockets: BTreeMap<LocalId, Local>,
    network: NetworkWatch,
    /// What changed for the paths of some sockets and their connections do not know yet.
    impacts: Vec<(LocalId, Impact)>,
    outbox: Vec<Transmit>,
    /// Answers the probes of peers that may not use ICMP.
    echo: EchoResponder,
    /// Set when closing: the driver ends then at the latest.
    ends_at: Option<Instant>,
}

impl Driver {
    pub(crate) fn start(
        shared: Arc<Shared>,
        poller: Poller,
        echo_secret: [u8; 32],
    ) -> Result<(), Error> {
        let driver = Self {
            shared,
            poller,
            sockets: BTreeMap::new(),
            network: NetworkWatch::start(),
            impacts: Vec::new(),
            outbox: Vec::with_capacity(OUTPUT_BATCH),
            echo: EchoResponder::new(echo_secret, Instant::now()),
            ends_at: None,
        };
        std::thread::Builder::new()
            .name("starhaul-driver".into())
            .spawn(move || {
                // Outlives the driver: who waits for the end may bind its addresses again.
                let _end = TellEnd(driver.shared.clone());
                driver.run();
            })
            .map_err(|error| Error::Socket(starhaul_net::Error::System(error)))?;
        Ok(())
    }

    fn run(mut self) {
        sharpen_timers();
        let mut buffer = RecvBuffer::new();
        while let Some(timeout) = self.drive(|_, _| ()) {
            let ready = match self.wait(timeout) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(%error, "the driver cannot go on");
                    return;
                }
            };
            for local in ready {
                self.receive(local, &mut buffer);
            }
            self.follow_news();
        }
    }

    /// Looks after the sockets when the network changed, and tells their connections.
    fn follow_news(&mut self) {
        let now = Instant::now();
        if let Some(news) = self.network.poll_news(now) {
            for (id, local) in &mut self.sockets {
                let impact = local.follow(now, &news);
                self.impacts.extend(impact.map(|impact| (*id, impact)));
            }
        }
        let impacts = std::mem::take(&mut self.impacts);
        if impacts.is_empty() {
            return;
        }
        self.drive(|node, now| {
            for (local, impact) in impacts {
                match impact {
                    Impact::Changed => node.on_local_change(now, local),
                    Impact::Better => node.retry_paths(now, local),
                }
            }
        });
    }

    /// Gives the stack an input, then the time, and does all that follows from it.
    /// Returns when to come back at the latest, at once where more waits to be sent, or `None` when the endpoint has ended.
    fn drive(&mut self, input: impl FnOnce(&mut Node, Instant)) -> Option<Option<Instant>> {
        let mut input = Some(input);
        let mut turns = 0;
        loop {
            let shared = self.shared.clone();
            let mut state = shared.lock();
            let now = Instant::now();
            for command in std::mem::take(&mut state.socket_commands) {
                self.obey(command, now);
            }
            if let Some(input) = input.take() {
                input(&mut state.node, now);
            }
            if state
                .node
                .poll_timeout()
                .is_some_and(|timeout| timeout <= now)
            {
                state.node.handle_timeout(now);
            }
            while self.outbox.len() < OUTPUT_BATCH
                && let Some(transmit) = state.node.poll_transmit(now)
            {
                self.outbox.push(transmit);
            }
            dispatch(&shared, &mut state, now);
            let more = self.outbox.len() == OUTPUT_BATCH || !state.socket_commands.is_empty();
            let flushed = match more {
                true => Vec::new(),
                false => std::mem::take(&mut state.flush_waiters),
            };
            let timeout = state.node.poll_timeout();
            let woken = std::mem::take(&mut state.woken);
            if state.closing && self.ends_at.is_none() {
                self.ends_at = Some(now + LINGER);
            }
            drop(state);
            woken.into_iter().for_each(std::task::Waker::wake);
            self.send_outbox();
            for waiter in flushed {
                let _ = waiter.send(());
            }
            if !more {
                let ended = self
                    .ends_at
                    .is_some_and(|end| end <= now || timeout.is_none());
                return (!ended).then_some(timeout);
            }
            turns += 1;
            if turns == OUTPUT_TURNS {
                return Some(Some(now));
            }
        }
    }

    /// Waits for a datagram, room to send, an application's call, or the time; returns the sockets to read.
    fn wait(&mut self, timeout: Option<Instant>) -> Result<Vec<LocalId>, starhaul_net::Error> {
        let now = Instant::now();
        self.forget_removed(now);
        for (id, local) in &mut self.sockets {
            if local.rebind_when_due(now) {
                self.impacts.push((*id, Impact::Changed));
            }
        }
        let deadlines = self.sockets.values().filter_map(Local::deadline);
        let told = (!self.impacts.is_empty()).then_some(now);
        let deadline = deadlines
            .chain(timeout)
            .chain(self.ends_at)
            .chain(self.network.deadline())
            .chain(told)
            .min();
        let (locals, mut polled): (Vec<_>, Vec<_>) = self
            .sockets
            .iter()
            .filter_map(|(id, local)| {
                let socket = local.socket()?;
                Some((*id, (socket.as_fd(), local.is_blocked())))
            })
            .unzip();
        polled.extend(self.network.monitor().map(|monitor| (monitor, false)));
        let readiness = self.poller.wait_fds(&polled, deadline)?.to_vec();
        drop(polled);
        if readiness
            .get(locals.len())
            .is_some_and(|news| news.readable)
        {
            self.network.read();
        }
        let mut readable = Vec::new();
        for (id, ready) in locals.into_iter().zip(readiness) {
            if ready.readable {
                readable.push(id);
            }
            if ready.writable
                && let Some(local) = self.sockets.get_mut(&id)
            {
                local.send_backlog();
            }
        }
        Ok(readable)
    }

    /// Closes the sockets of paths that were removed, and lets the stack forget them.
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
            if !local.receive(buffer) {
                return;
            }
            self.answer_echoes(id, buffer);
            let mut messages = buffer.messages().peekable();
            while messages.peek().is_some() {
                self.drive(|node, now| {
                    let mut handled = 0;
                    while handled < INPUT_BATCH
                        && let Some(message) = messages.next()
                    {
                        handled += message.contents.len().div_ceil(message.stride);
                        let payloads =
                            split(&message).filter(|payload| !EchoMessage::is_echo(payload));
                        node.handle_datagrams(now, id, message.remote, message.ecn, payloads);
                    }
                });
            }
        }
    }

    /// Straight away: nobody but the prober on the other side cares.
    fn answer_echoes(&mut self, id: LocalId, buffer: &RecvBuffer) {
        let now = Instant::now();
        for datagram in buffer.datagrams() {
            let echo = EchoMessage::is_echo(datagram.payload).then_some(&mut self.echo);
            let from = datagram.remote.ip();
            let answer = echo.and_then(|echo| echo.answer(now, from, datagram.payload));
            if let Some((answer, local)) = answer.zip(self.sockets.get_mut(&id)) {
                local.send(Transmit {
                    local: id,
                    remote: datagram.remote,
                    ecn: 0,
                    segment_size: answer.len(),
                    contents: Bytes::copy_from_slice(&answer),
                });
            }
        }
    }

    fn send_outbox(&mut self) {
        for transmit in self.outbox.drain(..) {
            // A socket that is gone already loses what is sent on it, as any dead link does.
            if let Some(local) = self.sockets.get_mut(&transmit.local) {
                local.send(transmit);
            }
        }
    }

    fn obey(&mut self, command: SocketCommand, now: Instant) {
        match command {
            SocketCommand::Add(id, socket) => _ = self.sockets.insert(id, Local::new(*socket, now)),
            SocketCommand::Remove(id) => {
                if let Some(local) = self.sockets.get_mut(&id) {
                    local.remove(now);
                }
            }
        }
    }
}

/// The datagrams of a message, each in a buffer of its own: a byte that is kept of one must not keep all of them.
fn split(message: &Message<'_>) -> impl Iterator<Item = BytesMut> {
    message.contents.chunks(message.stride).map(BytesMut::from)
}

/// However the driver ends, nobody is left waiting for it.
struct TellEnd(Arc<Shared>);

impl Drop for TellEnd {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closing = true;
        state.ended = true;
        let handles: Vec<_> = state.sessions.keys().copied().collect();
        for handle in handles {
            state.end_session(handle, Some(Error::EndpointClosed), &self.0);
        }
        state.flush_waiters.clear();
        let waiters = std::mem::take(&mut state.end_waiters);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        self.0.incoming.close();
        woken.into_iter().for_each(std::task::Waker::wake);
        for waiter in waiters {
            let _ = waiter.send(());
        }
    }
}
