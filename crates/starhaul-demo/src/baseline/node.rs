//! One end of the baseline as a state machine over `noq_proto::{Endpoint, Connection}`: drain
//! [`MpQuicNode::poll_transmit`] and [`MpQuicNode::poll_event`] after every input, come back at
//! [`MpQuicNode::poll_timeout`].

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
pub use noq_proto::StreamId;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, FourTuple, PathEvent, PathId, PathStatus, ReadError, StreamEvent, Transmit,
    TransportConfig, VarInt,
    congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig},
    crypto::rustls::HandshakeData,
};
use starhaul_quic::{Identity, tls::pinned_configs};

use crate::Error;

/// Application protocol of both ends.
const ALPN: &[&[u8]] = &[b"starhaul-lab-mpquic"];

/// Above this a single stream could meet noq's limit of 1024 holes and end its connection, as a download over LEO and GEO without loss.
const STREAM_WINDOW: u32 = 2 << 20;
const MAX_PATHS: u32 = 8;
const MAX_STREAMS: u32 = 100_000;
/// noq's own async driver sends at most ten segments at once.
const MAX_SEGMENTS: NonZeroUsize = NonZeroUsize::new(10).expect("ten is not zero");
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const PATH_RETRY: Duration = Duration::from_secs(1);
const MAX_BLOCK: usize = 16 << 20;
/// Bytes of blocks that wait on a connection: the demo's video takes six minutes for so many.
const MAX_BACKLOG: usize = 256 << 20;

/// A connection of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(usize);

/// UDP payloads to send: `contents` in segments of `segment_size` bytes, of which the last may be shorter.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The address to send to.
    pub remote: SocketAddr,
    /// Bytes of one payload.
    pub segment_size: usize,
    /// One or more payloads.
    pub contents: Bytes,
}

/// What a node tells its driver.
#[derive(Clone, Debug)]
pub enum MpQuicEvent {
    /// A connection is up.
    Connected {
        /// Number of the connection.
        connection: ConnectionId,
        /// The name that the client gave it.
        label: String,
    },
    /// A whole block arrived.
    BlockReceived {
        /// Connection that it came over.
        connection: ConnectionId,
        /// Bytes of the block.
        data: Bytes,
    },
    /// The peer opened a byte stream.
    StreamOpened {
        /// Connection of the stream.
        connection: ConnectionId,
        /// Number of the stream.
        stream: StreamId,
    },
    /// The connection ended.
    Lost {
        /// Number of the connection.
        connection: ConnectionId,
        /// Why it ended, as text for people.
        reason: String,
    },
}

/// What reading a byte stream gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The next bytes in order.
    Data(Bytes),
    /// There is nothing to read yet.
    Blocked,
    /// The stream is over, in order or not.
    End,
}

/// One end of the baseline.
#[derive(Debug)]
pub struct MpQuicNode {
    endpoint: Endpoint,
    client: ClientConfig,
    connections: BTreeMap<usize, PeerConnection>,
    cursor: usize,
    /// Answers that belong to no connection.
    answers: VecDeque<Batch>,
    events: VecDeque<MpQuicEvent>,
    buffer: Vec<u8>,
}

/// A connection with what the baseline keeps beside it.
#[derive(Debug)]
struct PeerConnection {
    quic: Connection,
    label: Option<String>,
    connected: bool,
    /// Addresses after the first, which the client opens as further paths.
    paths: Vec<ExtraPath>,
    backlog: VecDeque<PendingBlock>,
    /// Bytes of these.
    waiting: usize,
    partial: HashMap<StreamId, BytesMut>,
}

#[derive(Debug)]
struct ExtraPath {
    remote: SocketAddr,
    id: Option<PathId>,
    retry_at: Option<Instant>,
}

/// The baseline's congestion control: all that noq has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// NewReno, as in MPDTP's paper.
    NewReno,
    /// What noq takes by itself.
    #[default]
    Cubic,
    /// BBR version 3.
    Bbr,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NewReno, Self::Cubic, Self::Bbr];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// Its name in texts.
    pub const fn title(self) -> &'static str {
        match self {
            Self::NewReno => "New Reno",
            Self::Cubic => "Cubic",
            Self::Bbr => "BBRv3",
        }
    }

    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::NewReno => Arc::new(NewRenoConfig::default()),
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(Bbr3Config::default()),
        }
    }
}

/// The server's key. It comes from the experiment's seed, so that a run can be repeated; it protects nothing of value.
fn identity(seed: u64) -> Identity {
    let mut secret = [0; 32];
    for part in secret.chunks_exact_mut(8) {
        part.copy_from_slice(&seed.to_be_bytes());
    }
    Identity::from_secret(secret)
}

#[derive(Debug)]
struct PendingBlock {
    stream: Option<StreamId>,
    data: Bytes,
}

impl MpQuicNode {
    /// A node that may connect and, when `server`, accepts connections. Both ends need the same `key_seed`; `rng_seed`
    /// makes its random choices repeatable.
    pub fn new(
        server: bool,
        controller: Controller,
        key_seed: u64,
        rng_seed: u64,
    ) -> Result<Self, Error> {
        let transport = Arc::new(transport_config(controller));
        let (client, server_config) = pinned_configs(&identity(key_seed), ALPN, &transport)
            .map_err(|error| Error::Baseline(error.to_string()))?;
        let server_config = server.then(|| Arc::new(server_config));
        let mut config = EndpointConfig::default();
        let mut seed = [0; 32];
        for (to, from) in seed.iter_mut().zip(rng_seed.to_be_bytes().iter().cycle()) {
            *to = *from;
        }
        config.rng_seed(Some(seed));
        Ok(Self {
            endpoint: Endpoint::new(Arc::new(config), server_config, true),
            client,
            connections: BTreeMap::new(),
            cursor: 0,
            answers: VecDeque::new(),
            events: VecDeque::new(),
            buffer: Vec::new(),
        })
    }

    /// Opens a connection over all `paths` at the peer; the first is the lowest path. The peer learns `label`, a DNS name.
    pub fn connect(
        &mut self,
        now: Instant,
        label: &str,
        paths: &[SocketAddr],
    ) -> Result<ConnectionId, Error> {
        let (first, rest) = paths
            .split_first()
            .ok_or_else(|| Error::Settings("a connection needs at least one path".into()))?;
        let (handle, quic) = self
            .endpoint
            .connect(now, self.client.clone(), *first, label)
            .map_err(|error| Error::Baseline(error.to_string()))?;
        let paths = rest
            .iter()
            .map(|&remote| ExtraPath {
                remote,
                id: None,
                retry_at: None,
            })
            .collect();
        self.connections.insert(
            handle.0,
            PeerConnection::new(quic, Some(label.to_owned()), paths),
        );
        Ok(ConnectionId(handle.0))
    }

    /// A UDP payload arrived from `remote`.
    pub fn handle_datagram(&mut self, now: Instant, remote: SocketAddr, payload: BytesMut) {
        self.buffer.clear();
        let event = self.endpoint.handle(
            now,
            FourTuple::from_remote(remote),
            None,
            payload,
            &mut self.buffer,
        );
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(link) = self.connections.get_mut(&handle.0) {
                    link.quic.handle_event(event);
                }
                self.drive(now, handle.0);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.endpoint.accept(incoming, now, &mut self.buffer, None) {
                    Ok((handle, quic)) => {
                        self.connections
                            .insert(handle.0, PeerConnection::new(quic, None, Vec::new()));
                        self.drive(now, handle.0);
                    }
                    Err(error) => {
                        if let Some(transmit) = error.response {
                            self.answers.push_back(self.batch(&transmit));
                        }
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.answers.push_back(self.batch(&transmit))
            }
            None => {}
        }
    }

    /// The time at which to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.connections
            .values()
            .filter_map(PeerConnection::next_timeout)
            .min()
    }

    /// Lets due timers fire.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, link)| link.next_timeout().is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            if let Some(link) = self.connections.get_mut(&id) {
                link.quic.handle_timeout(now);
            }
            self.drive(now, id);
        }
    }

    /// What to send next. Connections take turns.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Batch> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        let order: Vec<_> = self
            .connections
            .range(self.cursor..)
            .chain(self.connections.range(..self.cursor))
            .map(|(id, _)| *id)
            .collect();
        for id in order {
            self.buffer.clear();
            let link = self.connections.get_mut(&id)?;
            if let Some(transmit) = link.quic.poll_transmit(now, MAX_SEGMENTS, &mut self.buffer) {
                self.cursor = id + 1;
                return Some(self.batch(&transmit));
            }
        }
        None
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<MpQuicEvent> {
        self.events.pop_front()
    }

    /// Sends a block on its own stream as soon as the connection allows; blocks leave in the order of these calls.
    /// `false` for a block that is not taken: the connection has ended, or 256 MiB of blocks wait on it.
    pub fn send_block(&mut self, connection: ConnectionId, data: Bytes) -> bool {
        let Some(link) = self.connections.get_mut(&connection.0) else {
            return false;
        };
        if link.waiting.saturating_add(data.len()) > MAX_BACKLOG {
            return false;
        }
        link.waiting += data.len();
        link.backlog.push_back(PendingBlock { stream: None, data });
        link.flush();
        true
    }

    /// Opens a byte stream in both directions; `None` while the connection is not up or has ended.
    pub fn open_stream(&mut self, connection: ConnectionId) -> Option<StreamId> {
        self.connections
            .get_mut(&connection.0)?
            .quic
            .streams()
            .open(Dir::Bi)
    }

    /// Writes to a byte stream and says how many bytes were taken; 0 means try again after the next input.
    /// `None` when the stream has ended.
    pub fn write(
        &mut self,
        connection: ConnectionId,
        stream: StreamId,
        data: &[u8],
    ) -> Option<usize> {
        match self
            .connections
            .get_mut(&connection.0)?
            .quic
            .send_stream(stream)
            .write(data)
        {
            Ok(written) => Some(written),
            Err(noq_proto::WriteError::Blocked) => Some(0),
            Err(_) => None,
        }
    }

    /// Ends our direction of a byte stream.
    pub fn finish(&mut self, connection: ConnectionId, stream: StreamId) {
        if let Some(link) = self.connections.get_mut(&connection.0) {
            // Fails only when the peer stopped the stream, which ends it as well.
            let _ = link.quic.send_stream(stream).finish();
        }
    }

    /// Reads at most `max` bytes of a byte stream.
    pub fn read(&mut self, connection: ConnectionId, stream: StreamId, max: usize) -> ReadOutcome {
        let Some(link) = self.connections.get_mut(&connection.0) else {
            return ReadOutcome::End;
        };
        let mut stream = link.quic.recv_stream(stream);
        let Ok(mut chunks) = stream.read(true) else {
            return ReadOutcome::End;
        };
        match chunks.next(max) {
            Ok(Some(chunk)) => ReadOutcome::Data(chunk.bytes),
            Err(ReadError::Blocked) => ReadOutcome::Blocked,
            Ok(None) | Err(ReadError::Reset(_)) => ReadOutcome::End,
        }
    }

    /// Ends all connections.
    pub fn close(&mut self, now: Instant) {
        for link in self.connections.values_mut() {
            link.quic.close(now, VarInt::from_u32(0), Bytes::new());
        }
    }

    fn batch(&self, transmit: &Transmit) -> Batch {
        Batch {
            remote: transmit.destination,
            segment_size: transmit.segment_size.unwrap_or(transmit.size),
            contents: Bytes::copy_from_slice(&self.buffer[..transmit.size.min(self.buffer.len())]),
        }
    }

    fn drive(&mut self, now: Instant, id: usize) {
        let Some(link) = self.connections.get_mut(&id) else {
            return;
        };
        while let Some(event) = link.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(id), event) {
                link.quic.handle_event(event);
            }
        }
        while let Some(event) = link.quic.poll() {
            link.on_event(now, ConnectionId(id), event, &mut self.events);
        }
        link.open_paths(now);
        link.flush();
        if link.quic.is_drained() {
            self.connections.remove(&id);
        }
    }
}

impl PeerConnection {
    fn new(quic: Connection, label: Option<String>, paths: Vec<ExtraPath>) -> Self {
        Self {
            quic,
            label,
            connected: false,
            paths,
            backlog: VecDeque::new(),
            waiting: 0,
            partial: HashMap::new(),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.paths
            .iter()
            .filter_map(|path| path.retry_at)
            .chain(self.quic.poll_timeout())
            .min()
    }

    fn on_event(
        &mut self,
        now: Instant,
        id: ConnectionId,
        event: Event,
        events: &mut VecDeque<MpQuicEvent>,
    ) {
        match event {
            Event::Connected => {
                self.connected = true;
                let label = self
                    .label
                    .clone()
                    .or_else(|| self.server_name())
                    .unwrap_or_default();
                events.push_back(MpQuicEvent::Connected {
                    connection: id,
                    label,
                });
            }
            Event::ConnectionLost { reason } => {
                self.paths.clear();
                events.push_back(MpQuicEvent::Lost {
                    connection: id,
                    reason: reason.to_string(),
                });
            }
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(stream) = self.quic.streams().accept(dir) {
                    match dir {
                        Dir::Uni => self.read_block(id, stream, events),
                        Dir::Bi => events.push_back(MpQuicEvent::StreamOpened {
                            connection: id,
                            stream,
                        }),
                    }
                }
            }
            Event::Stream(StreamEvent::Readable { id: stream }) if stream.dir() == Dir::Uni => {
                self.read_block(id, stream, events)
            }
            Event::Path(PathEvent::Abandoned { id: path, .. }) => {
                for extra in self.paths.iter_mut().filter(|extra| extra.id == Some(path)) {
                    extra.id = None;
                    extra.retry_at = Some(now + PATH_RETRY);
                }
            }
            _ => {}
        }
    }

    fn server_name(&self) -> Option<String> {
        self.quic
            .crypto_session()
            .handshake_data()?
            .downcast::<HandshakeData>()
            .ok()?
            .server_name
    }

    /// Opens the further paths; refused until the peer's connection ids for them have come.
    fn open_paths(&mut self, now: Instant) {
        if !self.connected || self.quic.is_closed() {
            return;
        }
        for path in &mut self.paths {
            if path.id.is_none() && path.retry_at.is_none_or(|at| at <= now) {
                path.id = self
                    .quic
                    .open_path(
                        FourTuple::from_remote(path.remote),
                        PathStatus::Available,
                        now,
                    )
                    .ok();
                path.retry_at = path.id.is_none().then(|| now + PATH_RETRY / 20);
            }
        }
    }

    fn flush(&mut self) {
        while let Some(block) = self.backlog.front_mut() {
            let Some(stream) = block.stream.or_else(|| self.quic.streams().open(Dir::Uni)) else {
                return;
            };
            block.stream = Some(stream);
            let mut out = self.quic.send_stream(stream);
            while !block.data.is_empty() {
                match out.write(&block.data) {
                    Ok(written) => {
                        block.data.advance(written);
                        self.waiting = self.waiting.saturating_sub(written);
                    }
                    Err(noq_proto::WriteError::Blocked) => return,
                    Err(_) => break,
                }
            }
            // Fails only when the peer stopped the stream, which ends it as well.
            let _ = out.finish();
            // Nothing of it is left, unless the peer stopped the stream.
            self.waiting = self.waiting.saturating_sub(block.data.len());
            self.backlog.pop_front();
        }
    }

    fn read_block(
        &mut self,
        connection: ConnectionId,
        id: StreamId,
        events: &mut VecDeque<MpQuicEvent>,
    ) {
        let mut stream = self.quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else {
            return;
        };
        let partial = self.partial.entry(id).or_default();
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) if partial.len() + chunk.bytes.len() <= MAX_BLOCK => {
                    partial.extend_from_slice(&chunk.bytes)
                }
                Ok(None) => break,
                Err(ReadError::Blocked) => return,
                Ok(Some(_)) | Err(ReadError::Reset(_)) => {
                    self.partial.remove(&id);
                    return;
                }
            }
        }
        if let Some(data) = self.partial.remove(&id) {
            events.push_back(MpQuicEvent::BlockReceived {
                connection,
                data: data.freeze(),
            });
        }
    }
}

fn transport_config(controller: Controller) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_multipath_paths(MAX_PATHS)
        .congestion_controller_factory(controller.factory())
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        // Blocks of one class share one deadline: in order of sending is the best order for them.
        .send_fairness(false)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .default_path_keep_alive_interval(Some(KEEP_ALIVE));
    config
}

#[cfg(test)]
mod tests;
