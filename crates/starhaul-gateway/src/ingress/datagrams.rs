//! `[[udp]]` and `[[rtp]]`: each client address is a flow of its own, with replies.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use starhaul_endpoint::RecvStream;
use tokio::{
    net::UdpSocket,
    sync::mpsc::{self, error::TrySendError},
    task::JoinSet,
    time::Instant,
};

use super::{Counted, Rule, count};
use crate::{
    config::{ClientLimits, Delivery, Service},
    label::{Flow, Label},
    link::{Link, OpenFlow},
    policy::{BlockSender, Framing, stream_config},
};

/// Datagrams of one client that may wait for its task; several video frames.
const QUEUE: usize = 1024;
/// The longest UDP datagram.
const MAX_DATAGRAM: usize = 65_535;

/// What the rule's table says about datagrams.
struct Plan<'r> {
    delivery: &'r Delivery,
    limits: ClientLimits,
    framing: Framing,
}

/// Serves a rule: receives, and hands each datagram to the task of its client.
pub(super) async fn serve(rule: Arc<Rule>, socket: Arc<UdpSocket>) {
    let Some(Plan { limits, .. }) = plan(&rule) else {
        return;
    };
    let mut clients: HashMap<SocketAddr, mpsc::Sender<Bytes>> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let (length, client) = tokio::select! {
            received = socket.recv_from(&mut buffer) => match received {
                Ok(received) => received,
                // An ICMP error about some earlier reply; it says nothing about the socket.
                Err(_) => continue,
            },
            Some(_) = tasks.join_next() => {
                clients.retain(|_, queue| !queue.is_closed());
                continue;
            }
        };
        count(&rule.counters.datagrams_in);
        let datagram = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
        let refused = match clients.get(&client) {
            Some(queue) => queue.try_send(datagram),
            None => Err(TrySendError::Closed(datagram)),
        };
        let datagram = match refused {
            Ok(()) => continue,
            Err(TrySendError::Full(_)) => {
                count(&rule.counters.dropped_refused);
                continue;
            }
            // A new client, or one whose task has just ended with its session or by its timeout.
            Err(TrySendError::Closed(datagram)) => datagram,
        };
        clients.retain(|_, queue| !queue.is_closed());
        if clients.len() >= limits.max_clients {
            count(&rule.counters.dropped_too_many_clients);
            continue;
        }
        let Some(link) = rule.peer.link() else {
            count(&rule.counters.dropped_no_session);
            continue;
        };
        let (queue, datagrams) = mpsc::channel(QUEUE);
        // There is room: the queue is new.
        let _ = queue.try_send(datagram);
        clients.insert(client, queue);
        tasks.spawn(serve_client(
            rule.clone(),
            link,
            socket.clone(),
            client,
            datagrams,
        ));
    }
}

async fn serve_client(
    rule: Arc<Rule>,
    link: Arc<Link>,
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    datagrams: mpsc::Receiver<Bytes>,
) {
    let _counted = Counted::new(&rule);
    // Dropped before the count, so that whoever sees the client gone can be the next.
    let mut datagrams = datagrams;
    let Some(Plan {
        delivery,
        limits,
        framing,
    }) = plan(&rule)
    else {
        return;
    };
    let mut flow = link.open_flow();
    let Some(label) = label(&rule, flow.id) else {
        return;
    };
    let config = stream_config(delivery, rule.config.priority, &label);
    let stream = match link.session.open_stream(config).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(rule = rule.config.name, %client, %error, "no stream for this client");
            count(&rule.counters.dropped_refused);
            return;
        }
    };
    let mut sender = BlockSender::new(stream, framing);
    let mut replies = Replies::default();
    let mut idle_since = Instant::now();
    let mut closed = std::pin::pin!(link.session.closed());
    loop {
        let sent = tokio::select! {
            datagram = datagrams.recv() => match datagram {
                Some(datagram) => {
                    idle_since = Instant::now();
                    sender.send(datagram)
                }
                None => return,
            },
            () = sender.wait() => sender.send_due(),
            block = replies.next(&mut flow) => {
                idle_since = Instant::now();
                for datagram in framing.datagrams(block).unwrap_or_default() {
                    count(&rule.counters.datagrams_out);
                    // The client may be gone; then nobody misses it.
                    let _ = socket.send_to(&datagram, client).await;
                }
                Ok(())
            }
            _ = &mut closed => return,
            () = tokio::time::sleep_until(idle_since + limits.idle_timeout) => return,
        };
        if sent.is_err() {
            count(&rule.counters.dropped_refused);
        }
    }
}

/// The reply stream of a flow, once the peer has opened one.
#[derive(Debug, Default)]
pub(super) struct Replies(Option<RecvStream>);

impl Replies {
    /// The next block; waits for ever when there is none. Cancelling loses nothing.
    pub(super) async fn next(&mut self, flow: &mut OpenFlow) -> Bytes {
        loop {
            match &mut self.0 {
                Some(stream) => match stream.recv_block().await {
                    Some(block) => return block.data,
                    None => self.0 = None,
                },
                None => match flow.replies.recv().await {
                    Some(stream) => self.0 = Some(stream),
                    // The sender lives as long as the flow; should that change, there are no replies.
                    None => std::future::pending().await,
                },
            }
        }
    }
}

/// `None` for rules that do not listen for datagrams.
fn plan(rule: &Rule) -> Option<Plan<'_>> {
    match &rule.config.service {
        Service::Udp {
            delivery, clients, ..
        } => Some(Plan {
            delivery,
            limits: *clients,
            framing: Framing::Datagrams,
        }),
        Service::Rtp {
            delivery,
            clients,
            codec,
            frame_timeout,
            ..
        } => Some(Plan {
            delivery,
            limits: *clients,
            framing: Framing::Rtp {
                codec: *codec,
                frame_timeout: *frame_timeout,
            },
        }),
        Service::Tcp { .. } | Service::Socks5 { .. } => None,
    }
}

fn label(rule: &Rule, id: u64) -> Option<Label> {
    let flow = match &rule.config.service {
        Service::Udp { target, .. } => Flow::Udp {
            id,
            target: target.clone(),
        },
        Service::Rtp {
            target,
            codec,
            frame_timeout,
            ..
        } => Flow::Rtp {
            id,
            target: target.clone(),
            codec: *codec,
            frame_timeout_ms: millis(*frame_timeout),
        },
        Service::Tcp { .. } | Service::Socks5 { .. } => return None,
    };
    Some(Label::new(&rule.config.name, flow))
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
