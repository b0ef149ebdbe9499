//! Emulated links in real time over loopback UDP (in the manner of LeoReplayer, without a kernel module or privileges).

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use bytes::Bytes;
use parking_lot::Mutex;
use starhaul_link::{Band, Histogram, Link, LinkSpec, LinkStats, Loss, Outcome, link_seed};
use starhaul_net::{
    BindOptions, Datagram, Poller, RecvBuffer, Transmit, UdpSocket, Waker, run_first,
    sharpen_timers,
};

use crate::{Error, Second, conveyor::Conveyor, error::system};

/// Size of IPv4 and UDP headers, which use the link's capacity.
const HEADER_BYTES: usize = 28;

/// Clients of one relay; a further one takes the place of the one that was silent for longest.
const MAX_CLIENTS: usize = 16;

/// Two emulated links, one in each direction, between the clients of a relay and one target. The target sees each client at an
/// address of its own, as behind a NAT: a path and the prober beside it are two clients.
#[derive(Clone, Debug)]
pub struct RelaySpec {
    /// Destination of forwarded packets.
    pub target: SocketAddr,
    /// The link toward the target.
    pub forward: LinkSpec,
    /// The link back from the target.
    pub reverse: LinkSpec,
    /// Seed of all random choices: relay `n` of an emulator has the links 2 × `n` and 2 × `n` + 1 ([`link_seed`]).
    pub seed: u64,
}

/// Runs relays on a thread of its own until it is dropped. Traces begin when it starts.
#[derive(Debug)]
pub struct Emulator {
    relays: Vec<Relay>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// One relay of an [`Emulator`]. Clones share it.
#[derive(Clone, Debug)]
pub struct Relay {
    address: SocketAddr,
    links: Arc<Mutex<Links>>,
    waker: Waker,
}

/// The statistics of a relay.
#[derive(Clone, Debug)]
pub struct RelayStats {
    /// The direction toward the target.
    pub forward: DirectionStats,
    /// The direction back from the target.
    pub reverse: DirectionStats,
    /// Delays between due and actual departures. Above 1 ms at the 99th percentile a run is invalid.
    pub lateness: Histogram,
}

/// The statistics of one direction.
#[derive(Clone, Debug)]
pub struct DirectionStats {
    /// The link's own counters; bytes with IP and UDP headers.
    pub link: LinkStats,
    /// Figures of each second since the start, for the last day at most; the last one is incomplete.
    pub seconds: Vec<Second>,
}

/// The sums of a relay: what [`RelayStats`] tells of all seconds together, at a cost that does not grow with their number.
#[derive(Clone, Copy, Debug)]
pub struct RelayTotals {
    /// The direction toward the target.
    pub forward: DirectionTotals,
    /// The direction back from the target.
    pub reverse: DirectionTotals,
}

/// The sums of one direction.
#[derive(Clone, Copy, Debug)]
pub struct DirectionTotals {
    /// The link's own counters; bytes with IP and UDP headers.
    pub link: LinkStats,
    /// Bytes that the link could have carried since the start.
    pub capacity_bytes: u64,
}

impl Emulator {
    /// Binds a loopback address for each relay and starts the thread.
    ///
    /// # Errors
    /// [`Error`] if no socket or thread is available.
    pub fn start(specs: Vec<RelaySpec>) -> Result<Self, Error> {
        let poller = Poller::new()?;
        let (mut relays, mut ports) = (Vec::new(), Vec::new());
        let start = Instant::now();
        for (number, spec) in specs.into_iter().enumerate() {
            let port = Port {
                front: loopback()?,
                target: spec.target,
                clients: Vec::new(),
                clients_before: 0,
                refuses: false,
                links: Arc::new(Mutex::new(Links::new(&spec, number, start))),
            };
            relays.push(Relay {
                address: port.front.local_addr(),
                links: port.links.clone(),
                waker: poller.waker(),
            });
            ports.push(port);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (waker, stopped) = (poller.waker(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("starhaul-emulator".into())
            .spawn(move || run(ports, poller, &stopped))
            .map_err(system)?;
        Ok(Self {
            relays,
            stop,
            waker,
            thread: Some(thread),
        })
    }

    /// The relays, in the order of their descriptions.
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// Whether the thread has ended by itself, so that no relay carries anything any more; the reason is in the log.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It has no result, and a panic in it has been printed already.
            let _ = thread.join();
        }
    }
}

impl Relay {
    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes both directions down: queued and arriving packets are lost.
    pub fn set_down(&self) {
        self.change(Link::set_down);
    }

    /// Ends a [`Relay::set_down`].
    pub fn set_up(&self) {
        self.change(Link::set_up);
    }

    /// Sets the random loss of both directions.
    pub fn set_loss(&self, loss: Loss) {
        self.change(|link, now| link.set_loss(now, loss));
    }

    /// The statistics so far.
    pub fn stats(&self) -> RelayStats {
        let links = self.links.lock();
        let now = Instant::now();
        let stats = |direction: &Conveyor<Packet>| DirectionStats {
            link: direction.stats(),
            seconds: direction.seconds(now),
        };
        let mut lateness = links.forward.lateness().clone();
        lateness.merge(links.reverse.lateness());
        RelayStats {
            forward: stats(&links.forward),
            reverse: stats(&links.reverse),
            lateness,
        }
    }

    /// The sums so far. A caller that asks again and again keeps no packet waiting.
    pub fn totals(&self) -> RelayTotals {
        let links = self.links.lock();
        let now = Instant::now();
        let totals = |direction: &Conveyor<Packet>| DirectionTotals {
            link: direction.stats(),
            capacity_bytes: direction.capacity_bytes(now),
        };
        RelayTotals {
            forward: totals(&links.forward),
            reverse: totals(&links.reverse),
        }
    }

    /// Delays between due and actual departures so far.
    pub fn lateness(&self) -> Histogram {
        let links = self.links.lock();
        let mut lateness = links.forward.lateness().clone();
        lateness.merge(links.reverse.lateness());
        lateness
    }

    fn change(&self, change: impl Fn(&mut Link<Packet>, Instant)) {
        let now = Instant::now();
        {
            let mut links = self.links.lock();
            change(links.forward.link(), now);
            change(links.reverse.link(), now);
        }
        self.waker.wake();
    }
}

#[derive(Clone, Debug)]
struct Packet {
    /// The number of the client that it is from, or for.
    client: u64,
    payload: Bytes,
    ecn: u8,
}

/// The state that the thread and the [`Relay`]s share.
#[derive(Debug)]
struct Links {
    forward: Conveyor<Packet>,
    reverse: Conveyor<Packet>,
}

/// The thread's state of a relay.
struct Port {
    front: UdpSocket,
    target: SocketAddr,
    /// The client heard last is the last.
    clients: Vec<Client>,
    clients_before: u64,
    /// The last new client was refused, and that was logged.
    refuses: bool,
    links: Arc<Mutex<Links>>,
}

/// A client of a relay and the socket by which the target knows it.
struct Client {
    number: u64,
    address: SocketAddr,
    back: UdpSocket,
}

fn loopback() -> Result<UdpSocket, Error> {
    Ok(UdpSocket::bind(&BindOptions::new(
        (Ipv4Addr::LOCALHOST, 0).into(),
    ))?)
}

fn run(mut ports: Vec<Port>, mut poller: Poller, stop: &AtomicBool) {
    sharpen_timers();
    if !run_first() {
        tracing::info!(
            "no permission for SCHED_FIFO: emulated links may be late when the host is busy"
        );
    }
    let mut buffer = RecvBuffer::new();
    while !stop.load(Ordering::SeqCst) {
        let next = ports.iter().filter_map(Port::deliver).min();
        let sockets: Vec<_> = ports.iter().flat_map(Port::sockets).collect();
        let ready = match poller.wait(&sockets, next) {
            Ok(ready) => ready,
            Err(error) => {
                tracing::error!(%error, "the emulator cannot go on");
                return;
            }
        };
        let mut ready = ready.iter().map(|socket| socket.readable);
        for port in &mut ports {
            let front = ready.next().unwrap_or(false);
            let backs: Vec<bool> = ready.by_ref().take(port.clients.len()).collect();
            port.receive_backs(&backs, &mut buffer);
            if front {
                port.receive_front(&mut buffer);
            }
        }
    }
}

impl Port {
    /// The sockets to wait for: the front one first.
    fn sockets(&self) -> impl Iterator<Item = (&UdpSocket, bool)> {
        let backs = self.clients.iter().map(|client| (&client.back, false));
        std::iter::once((&self.front, false)).chain(backs)
    }

    /// Sends packets that have arrived at the far ends; returns when to call again.
    fn deliver(&self) -> Option<Instant> {
        let mut links = self.links.lock();
        let client = |number| self.clients.iter().find(|client| client.number == number);
        let forward = deliver(&mut links.forward, |number| {
            Some((&client(number)?.back, self.target))
        });
        let reverse = deliver(&mut links.reverse, |number| {
            Some((&self.front, client(number)?.address))
        });
        forward.into_iter().chain(reverse).min()
    }

    fn receive_front(&mut self, buffer: &mut RecvBuffer) {
        // An error concerns one datagram: loopback sockets do not go away.
        while self.front.try_recv(buffer).unwrap_or(false) {
            let now = Instant::now();
            for datagram in buffer.datagrams() {
                if let Some(client) = self.client_at(datagram.remote) {
                    enqueue(&mut self.links.lock().forward, now, client, &datagram);
                }
            }
        }
    }

    /// The number of the client that sends from `address`, perhaps a new one. `None` where no socket is left.
    fn client_at(&mut self, address: SocketAddr) -> Option<u64> {
        let known = { self.clients.iter() }.position(|client| client.address == address);
        let client = match known {
            Some(known) => self.clients.remove(known),
            None => {
                let back = self.new_back(loopback())?;
                if self.clients.len() == MAX_CLIENTS {
                    self.clients.remove(0);
                }
                self.clients_before += 1;
                Client {
                    number: self.clients_before,
                    address,
                    back,
                }
            }
        };
        let number = client.number;
        self.clients.push(client);
        Some(number)
    }

    /// The socket of a new client; a client that is refused sends on, and is logged once.
    fn new_back(&mut self, bound: Result<UdpSocket, Error>) -> Option<UdpSocket> {
        let refused_before = std::mem::replace(&mut self.refuses, bound.is_err());
        bound
            .inspect_err(|error| {
                if !refused_before {
                    tracing::warn!(%error, "a relay refuses a client");
                }
            })
            .ok()
    }

    /// Takes what came back for the clients whose sockets are said to be readable.
    fn receive_backs(&mut self, readable: &[bool], buffer: &mut RecvBuffer) {
        let readable = { self.clients.iter().zip(readable) }.filter(|(_, readable)| **readable);
        for (client, _) in readable {
            while client.back.try_recv(buffer).unwrap_or(false) {
                let (now, mut links) = (Instant::now(), self.links.lock());
                for datagram in buffer.datagrams() {
                    if datagram.remote == self.target {
                        enqueue(&mut links.reverse, now, client.number, &datagram);
                    }
                }
            }
        }
    }
}

impl Links {
    fn new(spec: &RelaySpec, number: usize, start: Instant) -> Self {
        let direction = |link, way| {
            let seed = link_seed(spec.seed, 2 * number + way);
            Conveyor::new(link, seed, start)
        };
        Self {
            forward: direction(&spec.forward, 0),
            reverse: direction(&spec.reverse, 1),
        }
    }
}

fn enqueue(direction: &mut Conveyor<Packet>, now: Instant, client: u64, datagram: &Datagram<'_>) {
    let packet = Packet {
        client,
        payload: Bytes::copy_from_slice(datagram.payload),
        ecn: datagram.ecn,
    };
    let bytes = datagram.payload.len() + HEADER_BYTES;
    direction.enqueue(Band::Data, now, bytes, packet);
}

/// Sends packets that have arrived, each by the socket and to the address that its client has; returns when to call again.
fn deliver<'a>(
    direction: &mut Conveyor<Packet>,
    way: impl Fn(u64) -> Option<(&'a UdpSocket, SocketAddr)>,
) -> Option<Instant> {
    while let Some(outcome) = direction.poll(Instant::now()) {
        let Outcome::Arrived(arrival) = outcome else {
            continue;
        };
        let Packet {
            client,
            payload,
            ecn,
        } = arrival.packet;
        // What is left of a client that is gone is lost.
        let Some((socket, to)) = way(client) else {
            continue;
        };
        // A full socket loses the packet as a router would; loopback has room for a thousand.
        let _ = socket.try_send(&Transmit {
            to,
            from: None,
            ecn,
            contents: &payload,
            segment_size: payload.len(),
        });
    }
    direction.next_arrival()
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, time::Duration};

    use super::*;

    fn socket() -> UdpSocket {
        loopback().unwrap()
    }

    fn send(from: &UdpSocket, to: SocketAddr, contents: &[u8]) {
        let transmit = Transmit {
            to,
            from: None,
            ecn: 0b01,
            contents,
            segment_size: contents.len(),
        };
        assert_eq!(from.try_send(&transmit).unwrap(), contents.len());
    }

    /// The next `count` datagrams with their arrival times.
    fn receive(socket: &UdpSocket, count: usize) -> Vec<(Instant, Vec<u8>, u8, SocketAddr)> {
        let (mut poller, mut buffer, mut all) = (Poller::new().unwrap(), RecvBuffer::new(), vec![]);
        while all.len() < count {
            poller.wait(&[(socket, false)], None).unwrap();
            let now = Instant::now();
            while socket.try_recv(&mut buffer).unwrap() {
                all.extend(
                    buffer
                        .datagrams()
                        .map(|d| (now, d.payload.to_vec(), d.ecn, d.remote)),
                );
            }
        }
        all
    }

    fn relay(target: SocketAddr, forward: &str, reverse: &str) -> Emulator {
        let spec = RelaySpec {
            target,
            forward: forward.parse().unwrap(),
            reverse: reverse.parse().unwrap(),
            seed: 1,
        };
        Emulator::start(vec![spec]).unwrap()
    }

    #[test]
    fn a_packet_and_its_answer_take_the_delay_of_their_directions() {
        let (client, target) = (socket(), socket());
        let emulator = relay(target.local_addr(), "delay=30ms", "delay=50ms");
        let sent = Instant::now();
        send(&client, emulator.relays()[0].address(), b"question");
        let (arrived, payload, ecn, from) = receive(&target, 1).remove(0);
        assert_eq!((payload.as_slice(), ecn), (&b"question"[..], 0b01));
        assert!(arrived - sent >= Duration::from_millis(30));
        let answered = Instant::now();
        send(&target, from, b"answer");
        let (arrived, payload, ..) = receive(&client, 1).remove(0);
        assert_eq!(payload, b"answer");
        assert!(arrived - answered >= Duration::from_millis(50));
    }

    #[test]
    fn a_burst_leaves_at_the_rate_of_the_link_and_shows_in_its_figures() {
        let (client, target) = (socket(), socket());
        // 100 packets of 1000 bytes with headers: 1 ms each
        let emulator = relay(target.local_addr(), "rate=8mbit,queue=1000p", "delay=0ms");
        let start = Instant::now();
        for number in 0..100u8 {
            send(&client, emulator.relays()[0].address(), &[number; 972]);
        }
        let received = receive(&target, 100);
        let order: Vec<u8> = received.iter().map(|(_, payload, ..)| payload[0]).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
        assert!(received[99].0 - start >= Duration::from_millis(100));
        let stats = emulator.relays()[0].stats();
        assert_eq!(stats.forward.link.delivered_bytes, 100_000);
        let delivered: u64 = stats
            .forward
            .seconds
            .iter()
            .map(|s| s.delivered_bytes)
            .sum();
        assert_eq!((delivered, stats.lateness.count()), (100_000, 100));
        assert!(stats.forward.seconds[0].capacity_bytes >= 99_000);
        let totals = emulator.relays()[0].totals();
        assert_eq!(totals.forward.link, stats.forward.link);
        let capacity: u64 = stats.forward.seconds.iter().map(|s| s.capacity_bytes).sum();
        // They were asked a moment later.
        let more = totals.forward.capacity_bytes - capacity;
        assert!(more < 100_000, "{more} bytes more");
        assert_eq!(emulator.relays()[0].lateness().count(), 100);
    }

    #[test]
    fn a_relay_that_is_down_loses_everything_until_it_is_up() {
        let (client, target) = (socket(), socket());
        let emulator = relay(target.local_addr(), "delay=0ms", "delay=0ms");
        let relay = &emulator.relays()[0];
        relay.set_down();
        send(&client, relay.address(), b"lost");
        while relay.stats().forward.link.dropped_outage == 0 {
            std::thread::yield_now();
        }
        relay.set_up();
        send(&client, relay.address(), b"kept");
        assert_eq!(receive(&target, 1)[0].1, b"kept");
    }

    #[test]
    fn each_client_has_an_address_of_its_own_at_the_target() {
        let (path, prober, target) = (socket(), socket(), socket());
        let emulator = relay(target.local_addr(), "delay=0ms", "delay=0ms");
        let relay = &emulator.relays()[0];
        let known_as = |client: &UdpSocket| {
            send(client, relay.address(), b"question");
            receive(&target, 1)[0].3
        };
        let (first, second) = (known_as(&path), known_as(&prober));
        assert_ne!(first, second);
        assert_eq!(known_as(&path), first);
        for round in 0..3u8 {
            send(&target, first, &[round, 1]);
            send(&target, second, &[round, 2]);
            assert_eq!(receive(&path, 1)[0].1, [round, 1]);
            assert_eq!(receive(&prober, 1)[0].1, [round, 2]);
        }
    }

    /// Counts all lines of the log.
    struct Lines(Arc<AtomicUsize>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// It asks again with each of its packets, of which there are thousands a second.
    #[test]
    fn a_client_without_a_socket_is_one_line_of_the_log() {
        let spec = RelaySpec {
            target: socket().local_addr(),
            forward: "delay=0ms".parse().unwrap(),
            reverse: "delay=0ms".parse().unwrap(),
            seed: 1,
        };
        let mut port = Port {
            front: socket(),
            target: spec.target,
            clients: Vec::new(),
            clients_before: 0,
            refuses: false,
            links: Arc::new(Mutex::new(Links::new(&spec, 0, Instant::now()))),
        };
        let lines = Arc::<AtomicUsize>::default();
        tracing::subscriber::with_default(Lines(lines.clone()), || {
            let mut lines_of = |refused: usize| {
                for _ in 0..refused {
                    let none = std::io::Error::from_raw_os_error(libc::EMFILE);
                    assert!(port.new_back(Err(system(none))).is_none());
                }
                lines.swap(0, Ordering::SeqCst)
            };
            assert_eq!(lines_of(1000), 1);
            assert_eq!(lines_of(1000), 0, "the same");
        });
        assert!(port.new_back(loopback()).is_some());
        assert!(!port.refuses, "the next one is news");
    }

    #[test]
    fn clients_beyond_the_limit_replace_the_one_that_was_silent_for_longest() {
        let (path, target) = (socket(), socket());
        let emulator = relay(target.local_addr(), "delay=0ms", "delay=0ms");
        let relay = &emulator.relays()[0];
        let known_as = |client: &UdpSocket| {
            send(client, relay.address(), b"question");
            receive(&target, 1)[0].3
        };
        let first = known_as(&path);
        for _ in 0..MAX_CLIENTS * 2 {
            let other = socket();
            let address = known_as(&other);
            send(&target, address, b"answer");
            assert_eq!(receive(&other, 1)[0].1, b"answer");
            assert_eq!(
                known_as(&path),
                first,
                "a client that sends keeps its place"
            );
        }
    }
}
