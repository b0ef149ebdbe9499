//! LTP over UDP: one segment per datagram, as other engines do (port 1113 of IANA).

use std::{collections::BTreeMap, net::SocketAddr, time::Instant};

use starhaul_ltp::{Batch, Body, Engine, EngineId, Event, parse};

use crate::{
    BulkSocket, Error, IoMode, Poller, RecvBuffer, Waker,
    bulk::{MOST_BYTES, MOST_DATAGRAMS},
};

/// The port of LTP (`ltp-deepspace`).
pub const PORT: u16 = 1113;
/// Receive calls before the engine may send, and batches sent before it reads: reports must not wait for data.
const TURN: usize = 16;

/// An engine and its socket, for a thread of their own that calls [`LtpDriver::turn`] again and again.
#[derive(Debug)]
pub struct LtpDriver {
    engine: Engine,
    /// None after it was gone, until it is bound again.
    socket: Option<BulkSocket>,
    address: SocketAddr,
    mode: IoMode,
    poller: Poller,
    buffer: RecvBuffer,
    batch: Batch,
    /// Where the rest of a batch goes that the socket did not take, and how much of it is done.
    rest: Option<(SocketAddr, usize)>,
    addresses: BTreeMap<EngineId, SocketAddr>,
    engines: BTreeMap<SocketAddr, EngineId>,
    from_nobody: u64,
}

impl LtpDriver {
    /// An engine at this address.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::bind`].
    pub fn bind(address: SocketAddr, mode: IoMode, engine: Engine) -> Result<Self, Error> {
        let socket = BulkSocket::bind(address, mode)?;
        Ok(Self {
            engine,
            address: socket.local_addr(),
            socket: Some(socket),
            mode,
            poller: Poller::new()?,
            buffer: RecvBuffer::new(),
            batch: Batch::new(MOST_BYTES, MOST_DATAGRAMS),
            rest: None,
            addresses: BTreeMap::new(),
            engines: BTreeMap::new(),
            from_nobody: 0,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The engine, to send, to cancel and to read its counters.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Ends the wait of [`LtpDriver::turn`] from another thread.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Tells where a peer of the engine is. Segments of it from elsewhere are dropped from now on.
    pub fn set_address(&mut self, peer: EngineId, address: SocketAddr) {
        if let Some(previous) = self.addresses.insert(peer, address) {
            self.engines.remove(&previous);
        }
        self.engines.insert(address, peer);
    }

    /// Datagrams of addresses without a peer.
    pub fn from_nobody(&self) -> u64 {
        self.from_nobody
    }

    /// The next notice of the engine.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.engine.poll_event()?;
        if let Event::PeerForgotten { peer } = event
            && let Some(address) = self.addresses.remove(&peer)
        {
            self.engines.remove(&address);
        }
        Some(event)
    }

    /// Receives, handles timers and sends; when there was nothing to do, waits until there is, or until `deadline`. After
    /// [`Error::SocketGone`], the next call binds the same address again.
    ///
    /// # Errors
    /// [`Error::SocketGone`] and [`Error::System`]; those of [`LtpDriver::bind`] where it is bound again.
    pub fn turn(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => BulkSocket::bind(self.address, self.mode)?,
        };
        let turned = self.turn_with(&socket, deadline);
        // A socket that is gone has the address until it is closed.
        let is_gone = matches!(turned, Err(Error::SocketGone(_)));
        self.socket = Some(socket).filter(|_| !is_gone);
        turned
    }

    fn turn_with(&mut self, socket: &BulkSocket, deadline: Option<Instant>) -> Result<(), Error> {
        let received = self.receive(socket)?;
        let now = Instant::now();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        let sent = self.transmit(socket)?;
        if received || sent {
            return Ok(());
        }
        let timer = self.engine.poll_timeout();
        let until = [timer, deadline].into_iter().flatten().min();
        let is_blocked = self.rest.is_some();
        self.poller.wait(&[(socket.socket(), is_blocked)], until)?;
        Ok(())
    }

    fn receive(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for calls in 0..TURN {
            if !socket.try_recv(&mut self.buffer)? {
                return Ok(calls > 0);
            }
            let now = Instant::now();
            for message in self.buffer.messages() {
                let first = message
                    .contents
                    .chunks(message.stride)
                    .next()
                    .unwrap_or_default();
                let known = self.engines.get(&message.remote).copied();
                let Some(from) = known.or_else(|| self.introduced(first)) else {
                    self.from_nobody += 1;
                    continue;
                };
                self.engine
                    .handle_datagrams(now, from, message.contents, message.stride);
                if known.is_none() && self.engine.has_peer(from) {
                    self.addresses.insert(from, message.remote);
                    self.engines.insert(message.remote, from);
                }
            }
        }
        Ok(true)
    }

    /// The engine that a datagram of an unknown address comes from by its own words, unless that engine is elsewhere.
    fn introduced(&self, datagram: &[u8]) -> Option<EngineId> {
        let (segment, _) = parse(datagram).ok()?;
        let id = segment.session.originator;
        let is_data = matches!(segment.body, Body::Data(_));
        (is_data && !self.addresses.contains_key(&id)).then_some(id)
    }

    /// Returns whether anything was sent.
    fn transmit(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for batches in 0..TURN {
            if self.rest.is_none() {
                let Some(peer) = self.engine.poll_transmit(Instant::now(), &mut self.batch) else {
                    return Ok(batches > 0);
                };
                let Some(&address) = self.addresses.get(&peer) else {
                    // Nobody can be reached without an address: lost, as on a link that is down.
                    continue;
                };
                self.rest = Some((address, 0));
            }
            let Some((address, done)) = self.rest else {
                continue;
            };
            let contents = self.batch.contents().get(done..).unwrap_or_default();
            let sent = socket.try_send(address, contents, self.batch.segment_size())?;
            self.rest = (sent < contents.len()).then_some((address, done + sent));
            if self.rest.is_some() {
                return Ok(batches > 0);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use starhaul_ltp::{EngineConfig, Outgoing, PeerConfig};

    use super::*;

    fn driver(own: u64, peer: u64) -> LtpDriver {
        let mut engine = Engine::new(EngineConfig::new(EngineId(own), [7; 32]));
        engine.open_service(1);
        let peer_config = PeerConfig::new(Duration::ZERO, None);
        let now = Instant::now();
        engine.add_peer(now, EngineId(peer), peer_config).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        LtpDriver::bind(local, IoMode::default(), engine).unwrap()
    }

    #[test]
    fn a_socket_that_is_gone_is_bound_again_and_what_was_on_its_way_arrives() {
        let (mut one, mut two) = (driver(1, 2), driver(2, 1));
        let address = two.local_addr();
        one.set_address(EngineId(2), address);
        two.set_address(EngineId(1), one.local_addr());
        two.socket = None;
        let block: bytes::Bytes = vec![7; 100_000].into();
        let outgoing = Outgoing {
            to: EngineId(2),
            service: 1,
            red: block.len() as u64,
            block,
        };
        let session = one.engine().send(Instant::now(), outgoing).unwrap();
        // All of it is lost, as on a link that is down.
        one.turn(Some(Instant::now())).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < limit, "the block does not arrive");
            let soon = Some(Instant::now() + Duration::from_millis(1));
            one.turn(soon).unwrap();
            two.turn(soon).unwrap();
            assert_eq!(two.local_addr(), address);
            while two.poll_event().is_some() {}
            if matches!(one.poll_event(), Some(Event::Sent { session: sent }) if sent == session) {
                return;
            }
        }
    }
}
