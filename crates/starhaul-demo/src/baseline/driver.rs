//! Runs a [`MpQuicNode`] on a UDP socket in a thread of its own, with batches and exact timers.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use starhaul_net::{BindOptions, Poller, RecvBuffer, Transmit, UdpSocket, Waker, sharpen_timers};
use tokio::sync::{Notify, mpsc};

use super::{Batch, ConnectionId, MpQuicEvent, MpQuicNode, ReadOutcome, StreamId};
use crate::Error;

/// After so many receive calls the node may send and its timers may fire.
const RECEIVE_CALLS: usize = 4;
const READ_BYTES: usize = 64 << 10;

/// A node with its socket; the thread ends when this is dropped.
#[derive(Debug)]
pub struct Driver {
    handle: Handle,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

/// Access to a running node. Clones share it.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: Mutex<MpQuicNode>,
    waker: Waker,
    /// Told after every input: streams may be readable or writable.
    progress: Notify,
    stop: AtomicBool,
}

impl Driver {
    /// Binds a socket and starts the thread, in the network namespace and with the priority of the caller; events come over the
    /// channel.
    ///
    /// # Errors
    /// The address cannot be bound, or the system is out of resources.
    pub fn start(
        node: MpQuicNode,
        address: SocketAddr,
    ) -> Result<(Self, mpsc::UnboundedReceiver<MpQuicEvent>), Error> {
        let socket = UdpSocket::bind(&BindOptions::new(address))?;
        let poller = Poller::new()?;
        let shared = Arc::new(Shared {
            node: Mutex::new(node),
            waker: poller.waker(),
            progress: Notify::new(),
            stop: AtomicBool::new(false),
        });
        let (events, receiver) = mpsc::unbounded_channel();
        let address = socket.local_addr();
        let run = Run {
            shared: shared.clone(),
            socket,
            poller,
            events,
            unsent: None,
        };
        let thread = std::thread::Builder::new()
            .name("mpquic".into())
            .spawn(move || {
                if let Err(error) = run.run() {
                    tracing::error!(%error, "the baseline stopped");
                }
            })
            .map_err(Error::io("start a thread"))?;
        Ok((
            Self {
                handle: Handle(shared),
                address,
                thread: Some(thread),
            },
            receiver,
        ))
    }

    /// Access to the node.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether the thread has ended by itself; the reason is in the log.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Where its socket is bound.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.handle.0.stop.store(true, Ordering::Relaxed);
        self.handle.0.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It returns nothing; a panic in it has been printed already.
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// As [`MpQuicNode::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self, label: &str, paths: &[SocketAddr]) -> Result<ConnectionId, Error> {
        self.with(|node| node.connect(Instant::now(), label, paths))
    }

    /// Sends a block; returns as [`MpQuicNode::send_block`].
    pub fn send_block(&self, connection: ConnectionId, data: Bytes) -> bool {
        self.with(|node| node.send_block(connection, data))
    }

    pub(super) fn open_stream(&self, connection: ConnectionId) -> Option<StreamId> {
        self.with(|node| node.open_stream(connection))
    }

    /// Writes all of `data`; `false` when the stream has ended.
    pub(super) async fn write(
        &self,
        connection: ConnectionId,
        stream: StreamId,
        mut data: &[u8],
    ) -> bool {
        while !data.is_empty() {
            let progress = self.0.progress.notified();
            let written = self.0.node.lock().write(connection, stream, data);
            match written {
                // Waking the thread for nothing would have it tell us of progress again, and so on for ever.
                Some(0) => progress.await,
                Some(written) => {
                    self.0.waker.wake();
                    data = &data[written..];
                }
                None => return false,
            }
        }
        true
    }

    pub(super) fn finish(&self, connection: ConnectionId, stream: StreamId) {
        self.with(|node| node.finish(connection, stream));
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn read(&self, connection: ConnectionId, stream: StreamId) -> Option<Bytes> {
        loop {
            let progress = self.0.progress.notified();
            let outcome = self.0.node.lock().read(connection, stream, READ_BYTES);
            match outcome {
                ReadOutcome::Data(data) => {
                    self.0.waker.wake();
                    return Some(data);
                }
                ReadOutcome::Blocked => progress.await,
                ReadOutcome::End => return None,
            }
        }
    }

    fn with<T>(&self, call: impl FnOnce(&mut MpQuicNode) -> T) -> T {
        let result = call(&mut self.0.node.lock());
        self.0.waker.wake();
        result
    }
}

struct Run {
    shared: Arc<Shared>,
    socket: UdpSocket,
    poller: Poller,
    events: mpsc::UnboundedSender<MpQuicEvent>,
    /// A batch of which the socket took only a part.
    unsent: Option<Batch>,
}

impl Run {
    fn run(mut self) -> Result<(), Error> {
        sharpen_timers();
        let mut buffer = RecvBuffer::new();
        loop {
            let stop = self.shared.stop.load(Ordering::Relaxed);
            let deadline = self.drive(stop)?;
            if stop {
                return Ok(());
            }
            self.shared.progress.notify_waiters();
            self.poller
                .wait(&[(&self.socket, self.unsent.is_some())], deadline)?;
            for _ in 0..RECEIVE_CALLS {
                if !self.socket.try_recv(&mut buffer)? {
                    break;
                }
                let now = Instant::now();
                let mut node = self.shared.node.lock();
                for datagram in buffer.datagrams() {
                    node.handle_datagram(now, datagram.remote, BytesMut::from(datagram.payload));
                }
            }
        }
    }

    /// Lets timers fire, sends what may be sent and passes events on; returns when to come back.
    fn drive(&mut self, closing: bool) -> Result<Option<Instant>, Error> {
        self.shared.node.lock().handle_timeout(Instant::now());
        if closing {
            self.shared.node.lock().close(Instant::now());
        }
        loop {
            // Sending happens outside the lock, so that applications never wait for a system call.
            let Some(batch) = self
                .unsent
                .take()
                .or_else(|| self.shared.node.lock().poll_transmit(Instant::now()))
            else {
                break;
            };
            let transmit = Transmit {
                to: batch.remote,
                from: None,
                ecn: 0,
                contents: &batch.contents,
                segment_size: batch.segment_size,
            };
            let sent = self.socket.try_send(&transmit)?;
            if sent < batch.contents.len() {
                self.unsent = Some(Batch {
                    contents: batch.contents.slice(sent..),
                    ..batch
                });
                break;
            }
        }
        let mut node = self.shared.node.lock();
        while let Some(event) = node.poll_event() {
            // Refused when the carrier is gone, which ends this thread soon.
            let _ = self.events.send(event);
        }
        Ok(node.poll_timeout())
    }
}
