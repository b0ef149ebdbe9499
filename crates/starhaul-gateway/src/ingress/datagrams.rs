//! `[[udp]]` and `[[rtp]]`: each client address is a flow of its own, with replies.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_endpoint::RecvStream;
use tokio::{
    net::UdpSocket,
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
    task::JoinSet,
};

use super::{
    Counted, Rule,
    clients::{Client, Clients, Life},
    count,
};
use crate::{
    config::{ClientLimits, Delivery, Service},
    label::{Flow, Label},
    link::{Link, OpenFlow},
    policy::{BlockSender, Framing, stream_config},
};

/// How long a client's flow outlives its rule, for the replies that are on their way.
const REPLY_WAIT: Duration = Duration::from_secs(5);
/// The longest UDP datagram.
const MAX_DATAGRAM: usize = 65_535;
/// Datagrams taken at once, from a socket or for a stream.
const BURST: usize = 64;

/// What the rule's table says about datagrams.
struct Plan<'r> {
    delivery: &'r Delivery,
    limits: ClientLimits,
    framing: Framing,
}

/// Receives, and hands each datagram to the task of its client under the rule of this moment.
pub(super) async fn serve(mut current: watch::Receiver<Arc<Rule>>, socket: Arc<UdpSocket>) {
    let rule = current.borrow_and_update().clone();
    let Some(Plan { limits, .. }) = plan(&rule) else {
        return;
    };
    let mut ingress = Ingress {
        rule,
        limits,
        socket,
        clients: Clients::default(),
        tasks: JoinSet::new(),
    };
    let socket = ingress.socket.clone();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let first = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            Some(_) = ingress.tasks.join_next() => {
                while ingress.tasks.try_join_next().is_some() {}
                ingress.clients.forget_ended();
                continue;
            }
            Ok(()) = current.changed() => {
                let rule = current.borrow_and_update().clone();
                let Some(Plan { limits, .. }) = plan(&rule) else { return };
                (ingress.rule, ingress.limits) = (rule, limits);
                // What clients send from now on begins a flow under this rule; the tasks before wait for replies only.
                ingress.clients.clear();
                continue;
            }
        };
        // An error is an ICMP message about some earlier reply; it says nothing about the socket.
        let Ok((length, client)) = first else {
            continue;
        };
        ingress.take(client, buffer.get(..length).unwrap_or_default());
        // What else has arrived, without another look at rules and tasks.
        for _ in 1..BURST {
            let Ok((length, client)) = socket.try_recv_from(&mut buffer) else {
                break;
            };
            ingress.take(client, buffer.get(..length).unwrap_or_default());
        }
    }
}

/// A listening socket under its rule, and its clients.
struct Ingress {
    rule: Arc<Rule>,
    limits: ClientLimits,
    socket: Arc<UdpSocket>,
    clients: Clients,
    tasks: JoinSet<()>,
}

impl Ingress {
    /// A datagram of a client arrived.
    fn take(&mut self, client: SocketAddr, datagram: &[u8]) {
        let (rule, limits) = (&self.rule, self.limits);
        count(&rule.counters.datagrams_in);
        let datagram = Bytes::copy_from_slice(datagram);
        let now = Instant::now();
        let refused = match self.clients.get(client) {
            Some(known) => {
                known.life.asked(now);
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
        let Some(link) = rule.peer.link() else {
            count(&rule.counters.dropped_no_session);
            return;
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
        let life = Arc::new(Life::new(now));
        let serving = Serving {
            link,
            socket: self.socket.clone(),
            client,
            life: life.clone(),
        };
        self.clients.insert(client, Client { queue, life });
        self.tasks
            .spawn(serve_client(rule.clone(), serving, datagrams));
    }
}

/// What the task of a client needs besides its rule.
struct Serving {
    link: Arc<Link>,
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    life: Arc<Life>,
}

async fn serve_client(rule: Arc<Rule>, serving: Serving, datagrams: mpsc::Receiver<Bytes>) {
    let Serving {
        link,
        socket,
        client,
        life,
    } = serving;
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
            link.note(&error);
            if let Some(others) = rule.log.stream.is_due(Instant::now()) {
                tracing::warn!(rule = rule.config.name, %client, %error, others, "no stream for this client");
            }
            count(&rule.counters.dropped_refused);
            return;
        }
    };
    let mut sender = BlockSender::new(stream, framing);
    let mut replies = Replies::default();
    let mut burst = Vec::with_capacity(BURST);
    // Since when another rule, or another client, has its place: it only waits for replies.
    let mut replaced: Option<Instant> = None;
    let mut closed = std::pin::pin!(link.session.closed());
    loop {
        let ends = life.ends(&limits);
        let ends = replaced.map_or(ends, |since| ends.min(since + REPLY_WAIT));
        let unsent = |error| {
            link.note_unsent(&error);
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
            block = replies.next(&mut flow) => {
                for datagram in framing.datagrams(block).unwrap_or_default() {
                    count(&rule.counters.datagrams_out);
                    life.answered(Instant::now());
                    // The client may be gone; then nobody misses it.
                    let _ = socket.send_to(&datagram, client).await;
                }
                Ok(())
            }
            _ = &mut closed => return,
            () = tokio::time::sleep_until(ends.into()) => {
                let over = replaced.is_some() || life.ends(&limits) <= Instant::now();
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
