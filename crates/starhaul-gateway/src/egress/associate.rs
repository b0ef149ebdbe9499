//! The far side of UDP ASSOCIATE: every block names its target; replies come only from targets that were sent to.

use std::{
    collections::HashMap,
    hash::Hash,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use starhaul_endpoint::RecvStream;
use tokio::{net::UdpSocket, task::JoinSet};

use super::{
    outlet::Permit,
    replies::{ReplySender, bind_like},
};
use crate::{
    batch_socket::receive_one,
    peer::PeerLog,
    socks5::{Reply, read_address, write_address},
    target::Target,
};

/// Greatest number of datagrams that wait for the lookup of one target; further ones are dropped.
const MAX_WAITING: usize = 32;
/// Time for which the result of a lookup is used.
const LOOKUP_TTL: Duration = Duration::from_secs(60);
/// The same for a lookup with a temporary failure, as when too many are under way.
const FAILURE_TTL: Duration = Duration::from_secs(1);

pub(super) struct Association {
    permit: Permit,
    log: Arc<PeerLog>,
    peer: String,
    ipv4: Option<UdpSocket>,
    ipv6: Option<UdpSocket>,
    table: Mutex<Table>,
}

/// What is known of targets; each table drops its oldest entry when it is full.
#[derive(Default)]
struct Table {
    /// The address of a target and when it expires; `None` for one that cannot or must not be reached.
    resolved: HashMap<Target, (Instant, Option<SocketAddr>)>,
    /// The addresses from which replies are taken, with the time of the last datagram sent there.
    sent_to: HashMap<SocketAddr, Instant>,
    /// Datagrams whose target is being looked up.
    waiting: HashMap<Target, Vec<Bytes>>,
}

async fn forward(association: &Arc<Association>, mut stream: RecvStream) {
    let mut lookups = JoinSet::new();
    while let Some(block) = stream.recv_block().await {
        let Ok(Some((target, data))) = read_address(&block.data) else {
            continue;
        };
        let data = block.data.slice_ref(data);
        while lookups.try_join_next().is_some() {}
        match association.known(&target) {
            Known::Reached(address) => association.send(address, &data).await,
            Known::Unreached => {}
            // It goes on where it was while its name is looked up again.
            Known::Old(address) => {
                association.send(address, &data).await;
                if association.look_up_again(&target) {
                    lookups.spawn(look_up_and_send(association.clone(), target));
                }
            }
            Known::Nothing => {
                if association.wait_for(&target, data) {
                    lookups.spawn(look_up_and_send(association.clone(), target));
                }
            }
        }
    }
}

/// What is known of a target.
#[derive(Clone, Copy)]
enum Known {
    Reached(SocketAddr),
    /// The same, and too long ago to be believed.
    Old(SocketAddr),
    Unreached,
    Nothing,
}

async fn look_up_and_send(association: Arc<Association>, target: Target) {
    let Association {
        permit, log, peer, ..
    } = &*association;
    let found = permit.addresses(peer, &target).await;
    let (address, believed) = match found {
        // The first address of a family that this host has.
        Ok(found) => {
            let has_socket = |address: &SocketAddr| association.socket(*address).is_some();
            (found.into_iter().find(has_socket), LOOKUP_TTL)
        }
        Err(Reply::NotAllowed) => {
            if let Some(others) = log.forbidden.is_due(Instant::now()) {
                tracing::warn!(peer, to = %target, others, "the peer asked for a target that [egress] does not allow");
            }
            (None, LOOKUP_TTL)
        }
        // A resolver that fails for a moment takes no address away.
        Err(_) => (association.former_address(&target), FAILURE_TTL),
    };
    let waiting = association.remember(target, address, believed);
    if let Some(address) = address {
        for data in waiting {
            association.send(address, &data).await;
        }
    }
}

async fn backward(association: &Association, mut replies: ReplySender) {
    loop {
        let (source, block) = tokio::select! {
            Some(received) = receive(association.ipv4.as_ref()) => received,
            Some(received) = receive(association.ipv6.as_ref()) => received,
            else => return,
        };
        if association.was_sent_to(source) {
            replies.send_all(std::iter::once(block)).await;
        }
    }
}

/// The next datagram as a block, behind its source; `None` without a socket.
async fn receive(socket: Option<&UdpSocket>) -> Option<(SocketAddr, Bytes)> {
    let socket = socket?;
    let block = |datagram: &[u8], source: SocketAddr| {
        let mut block = Vec::with_capacity(datagram.len() + 19);
        write_address(&source.into(), &mut block);
        block.extend(datagram);
        (source, Bytes::from(block))
    };
    loop {
        // An error is an ICMP message about an earlier datagram; it says nothing about the socket.
        if let Ok(received) = receive_one(socket, block).await {
            return Some(received);
        }
    }
}

impl Association {
    /// Binds a socket of each address family that this host has.
    ///
    /// # Errors
    /// It has neither family.
    pub(super) async fn bind(permit: Permit, log: Arc<PeerLog>, peer: &str) -> io::Result<Self> {
        let bind = async |address: SocketAddr| {
            let socket = bind_like(address).await;
            socket.inspect_err(|error| permit.limits().note_io(peer, error))
        };
        let ipv4 = bind(SocketAddr::from(([0, 0, 0, 0], 0))).await;
        let ipv6 = bind(SocketAddr::from(([0; 8], 0))).await;
        let (ipv4, ipv6) = match (ipv4, ipv6) {
            (Err(error), Err(_)) => return Err(error),
            (ipv4, ipv6) => (ipv4.ok(), ipv6.ok()),
        };
        Ok(Self {
            permit,
            log,
            peer: peer.to_owned(),
            ipv4,
            ipv6,
            table: Mutex::default(),
        })
    }

    /// Relays both directions until the peer ends the flow.
    pub(super) async fn serve(self: Arc<Self>, stream: RecvStream, replies: ReplySender) {
        tokio::select! {
            () = forward(&self, stream) => {}
            () = backward(&self, replies) => {}
        }
    }

    fn known(&self, target: &Target) -> Known {
        let table = self.table.lock();
        let Some((until, address)) = table.resolved.get(target) else {
            return Known::Nothing;
        };
        match (address, Instant::now() < *until) {
            (Some(address), true) => Known::Reached(*address),
            (Some(address), false) => Known::Old(*address),
            (None, true) => Known::Unreached,
            (None, false) => Known::Nothing,
        }
    }

    fn former_address(&self, target: &Target) -> Option<SocketAddr> {
        self.table.lock().resolved.get(target)?.1
    }

    /// `true` if the caller is to look the target up, which no other task does now.
    fn look_up_again(&self, target: &Target) -> bool {
        let mut table = self.table.lock();
        let most = self.permit.policy.limits.max_lookups;
        if table.waiting.contains_key(target) || table.waiting.len() >= most {
            return false;
        }
        table.waiting.insert(target.clone(), Vec::new());
        true
    }

    /// Keeps a datagram until its target is known; `true` if the caller is to look the target up.
    fn wait_for(&self, target: &Target, data: Bytes) -> bool {
        let most = self.permit.policy.limits.max_lookups;
        let mut table = self.table.lock();
        if let Some(waiting) = table.waiting.get_mut(target) {
            if waiting.len() < MAX_WAITING {
                // A copy, which does not keep the whole block in memory.
                waiting.push(Bytes::copy_from_slice(&data));
            }
            return false;
        }
        if table.waiting.len() >= most {
            self.permit.limits().lookups.reach(&self.peer, most);
            return false;
        }
        let waiting = vec![Bytes::copy_from_slice(&data)];
        table.waiting.insert(target.clone(), waiting);
        true
    }

    /// Stores the result of a lookup for `believed`; returns the datagrams that waited for it.
    fn remember(
        &self,
        target: Target,
        address: Option<SocketAddr>,
        believed: Duration,
    ) -> Vec<Bytes> {
        let mut table = self.table.lock();
        let waiting = table.waiting.remove(&target).unwrap_or_default();
        self.make_room(&mut table.resolved, &target, |(until, _)| *until);
        let until = Instant::now() + believed;
        table.resolved.insert(target, (until, address));
        waiting
    }

    /// Drops the oldest entry if `key` would be one entry too many.
    fn make_room<K: Clone + Eq + Hash, V>(
        &self,
        table: &mut HashMap<K, V>,
        key: &K,
        age: impl Fn(&V) -> Instant,
    ) {
        let most = self.permit.policy.limits.max_targets;
        if table.len() < most || table.contains_key(key) {
            return;
        }
        self.permit.limits().targets.reach(&self.peer, most);
        let oldest = table.iter().min_by_key(|(_, value)| age(value));
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            table.remove(&oldest);
        }
    }

    async fn send(&self, address: SocketAddr, data: &[u8]) {
        {
            let mut table = self.table.lock();
            self.make_room(&mut table.sent_to, &address, |when| *when);
            table.sent_to.insert(address, Instant::now());
        }
        if let Some(socket) = self.socket(address) {
            let _ = socket.send_to(data, address).await;
        }
    }

    fn was_sent_to(&self, source: SocketAddr) -> bool {
        self.table.lock().sent_to.contains_key(&source)
    }

    fn socket(&self, address: SocketAddr) -> Option<&UdpSocket> {
        match address.ip() {
            IpAddr::V4(_) => self.ipv4.as_ref(),
            IpAddr::V6(_) => self.ipv6.as_ref(),
        }
    }
}
