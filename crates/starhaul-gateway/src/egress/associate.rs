//! The far side of UDP ASSOCIATE: every block names its target; replies come only from targets that were sent to.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_endpoint::RecvStream;
use tokio::{net::UdpSocket, task::JoinSet};

use super::datagrams::{MAX_DATAGRAM, ReplySender, bind_like};
use crate::{
    egress_policy::EgressPolicy,
    resolve,
    socks5::{read_address, write_address},
    target::Target,
};

/// Targets remembered, and from which replies are taken; at more, all are forgotten.
const MAX_TARGETS: usize = 1024;
/// Lookups at once; the datagrams of more are dropped.
const MAX_LOOKUPS: usize = 64;
/// How long a lookup is believed.
const LOOKUP_TTL: Duration = Duration::from_secs(60);

struct Association {
    policy: Arc<EgressPolicy>,
    ipv4: Option<UdpSocket>,
    ipv6: Option<UdpSocket>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// What a target was resolved to; `None` for one that cannot be reached or must not be.
    resolved: HashMap<Target, (Instant, Option<SocketAddr>)>,
    sent_to: HashSet<SocketAddr>,
}

/// Serves an association until the peer ends it.
pub(super) async fn serve(policy: Arc<EgressPolicy>, stream: RecvStream, replies: ReplySender) {
    let association = Arc::new(Association {
        policy,
        ipv4: bind_like(SocketAddr::from(([0, 0, 0, 0], 0))).await.ok(),
        ipv6: bind_like(SocketAddr::from(([0; 8], 0))).await.ok(),
        table: Mutex::default(),
    });
    tokio::select! {
        () = forward(&association, stream) => {}
        () = backward(&association, replies) => {}
    }
}

async fn forward(association: &Arc<Association>, mut stream: RecvStream) {
    let mut lookups = JoinSet::new();
    while let Some(block) = stream.recv_block().await {
        let Ok(Some((target, data))) = read_address(&block.data) else {
            continue;
        };
        let data = block.data.slice_ref(data);
        match association.known(&target) {
            Some(Some(address)) => association.send(address, &data).await,
            Some(None) => {}
            None => {
                while lookups.try_join_next().is_some() {}
                if lookups.len() < MAX_LOOKUPS {
                    lookups.spawn(look_up_and_send(association.clone(), target, data));
                }
            }
        }
    }
}

async fn look_up_and_send(association: Arc<Association>, target: Target, data: Bytes) {
    let found = resolve::permitted(&association.policy, &target).await;
    let address = found.ok().and_then(|found| {
        // The first of a family that this host has.
        found
            .into_iter()
            .find(|address| association.socket(*address).is_some())
    });
    association.remember(target, address);
    if let Some(address) = address {
        association.send(address, &data).await;
    }
}

async fn backward(association: &Association, mut replies: ReplySender) {
    let mut buffer4 = vec![0; MAX_DATAGRAM];
    let mut buffer6 = vec![0; MAX_DATAGRAM];
    loop {
        let (datagram, source) = tokio::select! {
            Some((length, source)) = receive(association.ipv4.as_ref(), &mut buffer4) => {
                (buffer4.get(..length).unwrap_or_default(), source)
            }
            Some((length, source)) = receive(association.ipv6.as_ref(), &mut buffer6) => {
                (buffer6.get(..length).unwrap_or_default(), source)
            }
            else => return,
        };
        if !association.was_sent_to(source) {
            continue;
        }
        let mut block = Vec::with_capacity(datagram.len() + 19);
        write_address(&source.into(), &mut block);
        block.extend(datagram);
        replies.send(block.into()).await;
    }
}

/// The next datagram; `None` without a socket.
async fn receive(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    let socket = socket?;
    loop {
        // Errors are those of datagrams that nobody took (ICMP), and say nothing about the socket.
        if let Ok(received) = socket.recv_from(buffer).await {
            return Some(received);
        }
    }
}

impl Association {
    /// The address of a target, if that is known; the inner `None` when it is known to be out of reach.
    fn known(&self, target: &Target) -> Option<Option<SocketAddr>> {
        let table = self.lock();
        let (when, address) = table.resolved.get(target)?;
        (when.elapsed() < LOOKUP_TTL).then_some(*address)
    }

    fn remember(&self, target: Target, address: Option<SocketAddr>) {
        let mut table = self.lock();
        if table.resolved.len() >= MAX_TARGETS {
            table.resolved.clear();
        }
        table.resolved.insert(target, (Instant::now(), address));
    }

    async fn send(&self, address: SocketAddr, data: &[u8]) {
        {
            let mut table = self.lock();
            if table.sent_to.len() >= MAX_TARGETS && !table.sent_to.contains(&address) {
                table.sent_to.clear();
            }
            table.sent_to.insert(address);
        }
        if let Some(socket) = self.socket(address) {
            let _ = socket.send_to(data, address).await;
        }
    }

    fn was_sent_to(&self, source: SocketAddr) -> bool {
        self.lock().sent_to.contains(&source)
    }

    fn socket(&self, address: SocketAddr) -> Option<&UdpSocket> {
        match address.ip() {
            IpAddr::V4(_) => self.ipv4.as_ref(),
            IpAddr::V6(_) => self.ipv6.as_ref(),
        }
    }

    /// The table is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
