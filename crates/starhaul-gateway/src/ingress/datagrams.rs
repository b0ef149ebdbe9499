//! `[[udp]]` and `[[rtp]]`: each client address is a flow of its own, with replies.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_endpoint::{Block, RecvStream};
use tokio::{
    net::UdpSocket,
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
    task::{JoinSet, yield_now},
};

use super::{
    CountedClient, DatagramWay, Rule, Service, bundles,
    clients::{Client, Clients, Ends, Life},
    count, count_all, enlarge_buffers,
};
use crate::{
    batch_socket::BatchSocket,
    config::{DatagramService, Framing},
    label::{Flow, Label},
    peer::{OpenFlow, PeerSession, PeerState},
    policy::{BlockSender, stream_config},
    status,
};

/// Time for which a client's flow outlives its rule, for the replies that are on their way.
const REPLY_WAIT: Duration = Duration::from_secs(5);
/// Greatest number of datagrams passed to a stream, and of blocks taken from one, at once.
const BURST: usize = 64;

impl Service for DatagramService {
    type Socket = BatchSocket;
    type Way = DatagramWay;

    async fn bind(&self, address: SocketAddr) -> io::Result<(BatchSocket, SocketAddr)> {
        let socket = UdpSocket::bind(address).await?;
        enlarge_buffers(&socket);
        let address = socket.local_addr()?;
        Ok((BatchSocket::new(socket)?, address))
    }

    /// Receives, and hands each datagram to the task of its client.
    async fn serve(socket: BatchSocket, mut current: watch::Receiver<Arc<Rule<Self>>>) {
        let mut ingress = Ingress {
            rule: current.borrow_and_update().clone(),
            socket: Arc::new(socket),
            clients: Clients::default(),
            tasks: JoinSet::new(),
        };
        let socket = ingress.socket.clone();
        loop {
            tokio::select! {
                () = socket.readable() => {
                    let now = Instant::now();
                    // A batch that is not full clears the readiness that the loop waits for.
                    let goes_on = socket.try_recv(|client, local, datagram| {
                        ingress.take(now, Ends { client, local }, datagram);
                    });
                    if goes_on {
                        // The clients' tasks take what is queued for them: they wait for this thread, and this task would fill their queues
                        // beyond their bounds first, as after a moment without a processor.
                        yield_now().await;
                    }
                }
                Some(_) = ingress.tasks.join_next() => {
                    while ingress.tasks.try_join_next().is_some() {}
                    ingress.clients.forget_ended();
                }
                Ok(()) = current.changed() => {
                    ingress.rule = current.borrow_and_update().clone();
                    // What clients send from now on begins a flow under this rule; the tasks before wait for replies only.
                    ingress.clients.clear();
                }
            }
        }
    }

    fn limits(rule: &Rule<Self>) -> Vec<status::LimitStatus> {
        let (limits, name) = (&rule.limits, Some(rule.config.name.as_str()));
        let clients = &rule.config.service.clients;
        vec![
            limits.clients.snapshot(name, clients.max_clients),
            limits.queued.snapshot(name, clients.max_queued),
        ]
    }
}

/// A listening socket under its rule, and its clients.
struct Ingress {
    rule: Arc<Rule<DatagramService>>,
    socket: Arc<BatchSocket>,
    clients: Clients,
    tasks: JoinSet<()>,
}

impl Ingress {
    /// Passes a datagram of a client to its task.
    fn take(&mut self, now: Instant, ends: Ends, datagram: &[u8]) {
        let (rule, limits) = (&self.rule, self.rule.config.service.clients);
        count(&rule.counters.datagrams_in);
        let datagram = Bytes::copy_from_slice(datagram);
        let refused = match self.clients.get(ends) {
            Some(known) => {
                known.life.sent(now);
                known.queue.try_send(datagram)
            }
            None => Err(TrySendError::Closed(datagram)),
        };
        let datagram = match refused {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => {
                count(&rule.counters.dropped_refused);
                let queued = &rule.limits.queued;
                queued.reach(&rule.config.name, limits.max_queued);
                return;
            }
            // A new client, or one whose task has just ended with its session or by its timeout.
            Err(TrySendError::Closed(datagram)) => datagram,
        };
        let session = match &rule.way {
            DatagramWay::Bundle(_) => None,
            DatagramWay::Peer(peer) => match peer.session() {
                Some(session) => Some((peer.clone(), session)),
                None => return count(&rule.counters.dropped_no_session),
            },
        };
        match self.clients.make_room(now, limits.max_clients) {
            Some(false) => {}
            Some(true) => count(&rule.counters.displaced_clients),
            None => {
                count(&rule.counters.dropped_too_many_clients);
                let bound = &rule.limits.clients;
                bound.reach(&rule.config.name, limits.max_clients);
                return;
            }
        }
        let (queue, datagrams) = mpsc::channel(limits.max_queued);
        // There is room: the queue is new.
        let _ = queue.try_send(datagram);
        let (rule, life) = (rule.clone(), Arc::new(Life::new(now)));
        let socket = self.socket.clone();
        let known = Client {
            queue,
            life: life.clone(),
        };
        if let Some((peer, session)) = session {
            let serving = Serving {
                peer,
                session,
                socket,
                ends,
                life,
            };
            self.tasks.spawn(serve_client(rule, serving, datagrams));
        } else if let DatagramWay::Bundle(way) = rule.way.clone() {
            let client = bundles::Client { socket, ends, life };
            let task = bundles::serve_client(rule, way, client, datagrams);
            self.tasks.spawn(task);
        }
        self.clients.insert(ends, known);
    }
}

/// The task of a client: its peer and session, socket and address.
struct Serving {
    peer: Arc<PeerState>,
    session: Arc<PeerSession>,
    socket: Arc<BatchSocket>,
    ends: Ends,
    life: Arc<Life>,
}

async fn serve_client(
    rule: Arc<Rule<DatagramService>>,
    serving: Serving,
    datagrams: mpsc::Receiver<Bytes>,
) {
    let Serving {
        peer,
        session,
        socket,
        ends: Ends { client, local },
        life,
    } = serving;
    let _counted = CountedClient::new(&rule.counters);
    // Dropped before the count, so that a place is free once the count says so.
    let mut datagrams = datagrams;
    let DatagramService {
        delivery,
        clients: limits,
        framing,
        ..
    } = &rule.config.service;
    let mut flow = session.open_flow();
    let label = label(&rule, flow.id);
    let config = stream_config(delivery, rule.config.priority, &label);
    let stream = match session.inner.open_stream(config).await {
        Ok(stream) => stream,
        Err(error) => {
            session.note(&error);
            if let Some(others) = rule.log.stream.is_due(Instant::now()) {
                tracing::warn!(rule = rule.config.name, %client, %error, others, "no stream for this client");
            }
            count(&rule.counters.dropped_refused);
            return;
        }
    };
    let mut sender = BlockSender::new(stream, *framing);
    let mut replies = Replies::default();
    let mut burst = Vec::with_capacity(BURST);
    // When another rule or client took its place: since then it only waits for replies.
    let mut replaced: Option<Instant> = None;
    let mut closed = std::pin::pin!(session.inner.closed());
    let mut other = std::pin::pin!(peer.wait_for_other(&session));
    loop {
        let ends = life.ends(limits);
        let ends = replaced.map_or(ends, |since| ends.min(since + REPLY_WAIT));
        let unsent = |error| {
            session.note_unsent(&error);
            count(&rule.counters.dropped_refused);
        };
        let sent = tokio::select! {
            received = datagrams.recv_many(&mut burst, BURST), if replaced.is_none() => {
                if received == 0 && life.is_answered() {
                    return;
                }
                replaced = (received == 0).then(Instant::now);
                sender.send_all(burst.drain(..), unsent);
                Ok(())
            }
            () = sender.wait() => sender.send_due(),
            blocks = replies.next(&mut flow) => {
                let mut datagrams = Vec::with_capacity(blocks.len());
                for block in blocks {
                    // A block that is no frame is dropped.
                    let _ = framing.unpack(block.data, &mut datagrams);
                }
                count_all(&rule.counters.datagrams_out, datagrams.len());
                life.answered(Instant::now(), datagrams.len());
                socket.send(client, local, &datagrams).await;
                Ok(())
            }
            _ = &mut closed => return,
            // The peer began anew, and this side may notice the end of the session before a minute later: what the client sends from
            // now on begins a flow in the new one.
            () = &mut other, if !datagrams.is_closed() => {
                datagrams.close();
                Ok(())
            }
            () = tokio::time::sleep_until(ends.into()) => {
                let over = replaced.is_some() || life.ends(limits) <= Instant::now();
                if over && datagrams.is_empty() {
                    return;
                }
                Ok(())
            }
        };
        sent.unwrap_or_else(unsent);
    }
}

/// The reply stream of a flow, once the peer has opened one.
#[derive(Debug, Default)]
pub(super) struct Replies(Option<RecvStream>);

impl Replies {
    /// The next blocks; waits for ever if there are none. Cancelling loses nothing.
    pub(super) async fn next(&mut self, flow: &mut OpenFlow) -> Vec<Block> {
        loop {
            match &mut self.0 {
                Some(stream) => match stream.recv_blocks(BURST).await {
                    Some(blocks) => return blocks,
                    None => self.0 = None,
                },
                None => match flow.replies.recv().await {
                    Some(stream) => self.0 = Some(stream),
                    // The sender lives as long as the flow.
                    None => std::future::pending().await,
                },
            }
        }
    }
}

fn label(rule: &Rule<DatagramService>, id: u64) -> Label {
    let service = &rule.config.service;
    let target = service.target.clone();
    let flow = match service.framing {
        Framing::Datagrams => Flow::Udp { id, target },
        Framing::Rtp {
            codec,
            frame_timeout,
        } => Flow::Rtp {
            id,
            target,
            codec,
            frame_timeout_ms: u32::try_from(frame_timeout.as_millis()).unwrap_or(u32::MAX),
        },
    };
    Label::new(&rule.config.name, flow)
}
