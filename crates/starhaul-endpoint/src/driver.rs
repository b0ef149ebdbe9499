//! The thread that moves datagrams between the sockets and the protocol stack.
//!
//! A thread of its own, because deadlines and pacing need timers finer than an async runtime's 1 ms, and because
//! acknowledgements must not wait behind the application's tasks. The stack is locked for a few hundred microseconds at most.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use starhaul_net::{
    BindOptions, Poller, RecvBuffer, UdpSocket,
    prober::{EchoMessage, EchoResponder},
    sharpen_timers,
};
use starhaul_quic::{LocalId, Node, Transmit};

use crate::{
    Error,
    events::dispatch,
    state::{Shared, SocketCommand, SocketProblem},
};

/// Datagrams handled while the stack is locked.
const INPUT_BATCH: usize = 64;
/// Transmits (of up to 64 datagrams each) collected while the stack is locked.
const OUTPUT_BATCH: usize = 8;
/// Receive calls per socket before the timers get a turn.
const RECEIVE_TURNS: usize = 4;
/// Transmits that wait for a full socket; more are lost, as on any congested link.
const MAX_BACKLOG: usize = 256;
/// How long a removed path's socket stays, for the path's last frames.
const LINGER: Duration = Duration::from_secs(1);
/// Time between attempts to bind a socket whose address or interface is gone.
const REBIND_INTERVAL: Duration = Duration::from_secs(1);
/// Peers whose way in is remembered for the way out.
const MAX_ANSWERS: usize = 4096;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    poller: Poller,
    sockets: BTreeMap<LocalId, Local>,
    outbox: Vec<Transmit>,
    /// Answers the probes of peers that may not use ICMP.
    echo: EchoResponder,
    /// Set when closing: the driver ends then at the latest.
    ends_at: Option<Instant>,
}

/// A socket and what waits for it.
struct Local {
    socket: Option<UdpSocket>,
    options: BindOptions,
    problem: SocketProblem,
    backlog: VecDeque<Transmit>,
    /// On which of our addresses each peer knows us, for sockets bound to a wildcard.
    answers: HashMap<SocketAddr, IpAddr>,
    removed_at: Option<Instant>,
    rebind_at: Option<Instant>,
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
        }
    }

    /// Gives the stack an input, then the time, and does all that follows from it.
    /// Returns when to come back at the latest, or `None` when the endpoint has ended.
    fn drive(&mut self, input: impl FnOnce(&mut Node, Instant)) -> Option<Option<Instant>> {
        let mut input = Some(input);
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
        }
    }

    /// Waits for a datagram, room to send, an application's call, or the time; returns the sockets to read.
    fn wait(&mut self, timeout: Option<Instant>) -> Result<Vec<LocalId>, starhaul_net::Error> {
        let now = Instant::now();
        self.sockets.retain(|_, local| {
            local
                .removed_at
                .is_none_or(|removed| now < removed + LINGER)
        });
        for local in self.sockets.values_mut() {
            local.rebind_when_due(now);
        }

        let deadlines = self.sockets.values().filter_map(Local::deadline);
        let deadline = deadlines.chain(timeout).chain(self.ends_at).min();
        let (locals, polled): (Vec<_>, Vec<_>) = self
            .sockets
            .iter()
            .filter_map(|(id, local)| {
                let socket = local.socket.as_ref()?;
                Some((*id, (socket, !local.backlog.is_empty())))
            })
            .unzip();
        let readiness = self.poller.wait(&polled, deadline)?.to_vec();
        drop(polled);
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

    fn receive(&mut self, id: LocalId, buffer: &mut RecvBuffer) {
        for _ in 0..RECEIVE_TURNS {
            let Some(local) = self.sockets.get_mut(&id) else {
                return;
            };
            if !local.receive(buffer) {
                return;
            }
            self.answer_echoes(id, buffer);
            let datagrams = buffer.datagrams();
            let mut datagrams = datagrams
                .filter(|datagram| !EchoMessage::is_echo(datagram.payload))
                .peekable();
            while datagrams.peek().is_some() {
                self.drive(|node, now| {
                    for datagram in datagrams.by_ref().take(INPUT_BATCH) {
                        let payload = BytesMut::from(datagram.payload);
                        node.handle_datagram(now, id, datagram.remote, datagram.ecn, payload);
                    }
                });
            }
        }
    }

    /// Straight away: nobody but the prober on the other side cares.
    fn answer_echoes(&mut self, id: LocalId, buffer: &RecvBuffer) {
        for datagram in buffer.datagrams() {
            let echo = EchoMessage::is_echo(datagram.payload).then_some(&mut self.echo);
            let from = datagram.remote.ip();
            let answer = echo.and_then(|echo| echo.answer(Instant::now(), from, datagram.payload));
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
            SocketCommand::Add(id, socket, options, problem) => {
                let rebind_at = socket.is_none().then_some(now + REBIND_INTERVAL);
                let local = Local {
                    socket,
                    options,
                    problem,
                    backlog: VecDeque::new(),
                    answers: HashMap::new(),
                    removed_at: None,
                    rebind_at,
                };
                self.sockets.insert(id, local);
            }
            SocketCommand::Remove(id) => {
                if let Some(local) = self.sockets.get_mut(&id) {
                    local.removed_at = Some(now);
                }
            }
        }
    }
}

impl Local {
    fn send(&mut self, transmit: Transmit) {
        if self.backlog.len() >= MAX_BACKLOG {
            return;
        }
        self.backlog.push_back(transmit);
        if self.backlog.len() == 1 {
            self.send_backlog();
        }
    }

    /// Sends until the socket is full.
    fn send_backlog(&mut self) {
        let Some(socket) = &self.socket else {
            self.backlog.clear();
            return;
        };
        while let Some(transmit) = self.backlog.front_mut() {
            let sent = socket.try_send(&starhaul_net::Transmit {
                to: transmit.remote,
                from: self.answers.get(&transmit.remote).copied(),
                ecn: transmit.ecn,
                contents: &transmit.contents,
                segment_size: transmit.segment_size,
            });
            match sent {
                Ok(sent) if sent < transmit.contents.len() => {
                    transmit.contents.advance(sent);
                    return;
                }
                Ok(_) => _ = self.backlog.pop_front(),
                Err(error) => return self.lose_socket(&error),
            }
        }
    }

    /// Receives into `buffer`; `false` when there is nothing.
    fn receive(&mut self, buffer: &mut RecvBuffer) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        match socket.try_recv(buffer) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                self.lose_socket(&error);
                return false;
            }
        }
        if self.options.address.ip().is_unspecified() {
            for datagram in buffer.datagrams() {
                let Some(local) = datagram.local else {
                    continue;
                };
                // Anyone can fill the table by forging addresses; those who are real are soon in it again.
                if self.answers.len() >= MAX_ANSWERS && !self.answers.contains_key(&datagram.remote)
                {
                    self.answers.clear();
                }
                self.answers.insert(datagram.remote, local);
            }
        }
        true
    }

    fn lose_socket(&mut self, error: &starhaul_net::Error) {
        tracing::warn!(local = %self.options.address, %error, "socket lost, binding a new one");
        self.problem.set(Some(error));
        self.socket = None;
        self.backlog.clear();
        self.answers.clear();
        self.rebind_at = Some(Instant::now());
    }

    fn rebind_when_due(&mut self, now: Instant) {
        if self.rebind_at.is_none_or(|due| now < due) {
            return;
        }
        self.rebind_at = match UdpSocket::bind(&self.options) {
            Ok(socket) => {
                tracing::info!(local = %socket.local_addr(), "socket bound again");
                self.problem.set(None);
                self.socket = Some(socket);
                None
            }
            Err(error) => {
                tracing::debug!(local = %self.options.address, %error, "socket still cannot be bound");
                self.problem.set(Some(&error));
                Some(now + REBIND_INTERVAL)
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        let removed = self.removed_at.map(|removed| removed + LINGER);
        removed.into_iter().chain(self.rebind_at).min()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_lost_is_bound_again_once_its_address_is_free() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut now = Instant::now();
        let mut local = Local {
            socket: None,
            options: BindOptions::new(address),
            problem: SocketProblem::default(),
            backlog: VecDeque::new(),
            answers: HashMap::new(),
            removed_at: None,
            rebind_at: Some(now),
        };
        local.rebind_when_due(now);
        assert!(local.socket.is_none());
        assert_eq!(local.deadline(), Some(now + REBIND_INTERVAL));
        drop(taken);
        local.rebind_when_due(now);
        assert!(local.socket.is_none(), "tried again too soon");
        now += REBIND_INTERVAL;
        local.rebind_when_due(now);
        assert_eq!(
            local.socket.map(|socket| socket.local_addr()),
            Some(address)
        );
    }
}
