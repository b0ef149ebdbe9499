//! UDP sockets on the side of the applications that receive and send whole batches of datagrams; and one datagram of any socket.

use std::{
    cell::RefCell,
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use socket2::SockRef;
use starhaul_net::{Batches, RecvBuffer};
use tokio::{io::Interest, net::UdpSocket, task::coop::consume_budget};

/// Greatest number of bytes of a batch: the largest UDP payload, less some.
const MOST_BYTES: usize = 65_000;

/// The longest UDP datagram.
const LONGEST: usize = 65_535;

/// Receive calls before other tasks get a turn, and datagrams: the kernel joins up to 64 to one message, of which a call takes several.
const RECEIVE_TURNS: usize = 8;
const MANY_DATAGRAMS: usize = 64;

thread_local! {
    /// All are used only between two points of suspension, so that one of each is enough for a thread.
    static RECEIVED: RefCell<RecvBuffer> = RefCell::default();
    static BATCH: RefCell<Vec<u8>> = RefCell::default();
    static ONE: RefCell<Vec<u8>> = RefCell::default();
}

/// Receives a datagram, and passes it to `take` with its sender. Who waits for one holds no memory for it. Cancelling loses nothing.
///
/// # Errors
/// An ICMP message about an earlier datagram; it says nothing about the socket.
pub(crate) async fn receive_one<T>(
    socket: &UdpSocket,
    mut take: impl FnMut(&[u8], SocketAddr) -> T,
) -> io::Result<T> {
    loop {
        // Waiting for readiness costs no budget: a busy socket would keep other tasks from running.
        consume_budget().await;
        socket.readable().await?;
        let received = ONE.with_borrow_mut(|buffer| -> io::Result<T> {
            buffer.resize(LONGEST, 0);
            let (length, sender) = socket.try_recv_from(buffer)?;
            Ok(take(buffer.get(..length).unwrap_or_default(), sender))
        });
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

/// A UDP socket to which applications, or targets of applications, are connected.
#[derive(Debug)]
pub(crate) struct BatchSocket {
    socket: UdpSocket,
    batches: Batches,
    /// Whether it has all addresses of this host.
    is_wildcard: bool,
    /// Datagrams of this length or more go one by one: the kernel refuses several in one call, and takes each alone.
    too_large: AtomicUsize,
}

impl BatchSocket {
    /// Takes over a socket that is bound, and perhaps connected.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let batches = Batches::new(&socket)?;
        let is_wildcard = socket.local_addr()?.ip().is_unspecified();
        Ok(Self {
            socket,
            is_wildcard,
            batches,
            too_large: AtomicUsize::new(usize::MAX),
        })
    }

    /// Resolves when [`BatchSocket::try_recv`] may receive something.
    pub(crate) async fn readable(&self) {
        // Waiting for readiness costs no budget: a busy socket would keep other tasks from running.
        consume_budget().await;
        // Fails only when the runtime ends, and with it the task that waits here.
        let _ = self.socket.readable().await;
    }

    /// Receives what has arrived, up to a few hundred datagrams, and calls `take` for each with its sender and the address of
    /// this host that it was sent to, if the socket has several. If no more has, it clears the readiness for which
    /// [`BatchSocket::readable`] waits, and otherwise returns `true`: the tasks that `take` passes datagrams to must have a turn first.
    pub(crate) fn try_recv(&self, mut take: impl FnMut(SocketAddr, Option<IpAddr>, &[u8])) -> bool {
        RECEIVED.with_borrow_mut(|buffer| {
            let mut taken = 0;
            // An error is an ICMP message about an earlier datagram; it says nothing about the socket.
            for _ in 0..RECEIVE_TURNS {
                let mut has_received = false;
                let receive = || -> io::Result<()> {
                    self.batches.recv(&self.socket, buffer)?;
                    has_received = true;
                    // Fewer than were asked for: the socket is empty, and one more call would say so. What comes, or fails, from the
                    // beginning of this one on makes it ready again.
                    match buffer.is_full() {
                        true => Ok(()),
                        false => Err(io::ErrorKind::WouldBlock.into()),
                    }
                };
                let is_ready = self.socket.try_io(Interest::READABLE, receive).is_ok();
                // Otherwise the buffer has what another socket received.
                let messages = has_received.then(|| buffer.messages());
                for message in messages.into_iter().flatten() {
                    let local = message.local.filter(|_| self.is_wildcard);
                    if message.contents.is_empty() {
                        take(message.remote, local, &[]);
                    }
                    let datagrams = message.contents.chunks(message.stride);
                    taken += datagrams.len();
                    datagrams.for_each(|datagram| take(message.remote, local, datagram));
                }
                if !is_ready || taken >= MANY_DATAGRAMS {
                    return is_ready;
                }
            }
            true
        })
    }

    /// Sends datagrams, equally long ones in one call, from an address of this host if one is given; waits while the socket is full.
    /// What the kernel refuses is dropped: the receiver may be gone, and come back.
    pub(crate) async fn send(&self, to: SocketAddr, from: Option<IpAddr>, datagrams: &[Bytes]) {
        let mut rest = datagrams;
        // How many of the rest are sent one by one.
        let mut singly = 0_usize;
        // The length of datagrams that were refused together, until it is known whether they are when alone.
        let mut refused = None;
        while let Some(length) = rest.first().map(Bytes::len) {
            let most = match singly {
                0 => self.most_at_once(length),
                _ => 1,
            };
            let batch = first_batch(rest, most);
            let sent = self
                .socket
                .async_io(Interest::WRITABLE, || self.try_send(to, from, batch));
            let sent = sent.await;
            if let Err(error) = &sent
                && batch.len() > 1
            {
                // There is no segmentation offload here, or they need fragments, which it cannot make.
                refused = Batches::may_be_due_to_batch(error).then_some(length);
                singly = batch.len();
                continue;
            }
            if let Some(length) = refused.take()
                && sent.is_ok()
            {
                self.too_large.fetch_min(length, Ordering::Relaxed);
            }
            singly = singly.saturating_sub(1);
            rest = rest.get(batch.len()..).unwrap_or_default();
        }
    }

    /// How many datagrams of this length go in one call.
    fn most_at_once(&self, length: usize) -> usize {
        if length < self.too_large.load(Ordering::Relaxed) {
            self.batches.most_at_once()
        } else {
            1
        }
    }

    fn try_send(&self, to: SocketAddr, from: Option<IpAddr>, batch: &[Bytes]) -> io::Result<()> {
        // Otherwise the report of an earlier datagram that did not arrive (ICMP) would take the place of this call.
        let _ = self.socket.take_error();
        match batch {
            [] => Ok(()),
            [single] if single.is_empty() => {
                let socket = SockRef::from(&self.socket);
                socket.send_to(&[], &to.into()).map(|_| ())
            }
            [single] => {
                let length = single.len();
                let sent = self.batches.send(&self.socket, (from, to), single, length);
                match sent {
                    // What was sent to all hosts of a network cannot be answered from that address.
                    Err(error) if from.is_some() && error.kind() != io::ErrorKind::WouldBlock => {
                        self.batches.send(&self.socket, (None, to), single, length)
                    }
                    sent => sent,
                }
            }
            [first, ..] => BATCH.with_borrow_mut(|contents| {
                contents.clear();
                batch
                    .iter()
                    .for_each(|datagram| contents.extend_from_slice(datagram));
                self.batches
                    .send(&self.socket, (from, to), contents, first.len())
            }),
        }
    }
}

/// The datagrams that one call can send: the first, those behind it of its length, and then a shorter one.
fn first_batch(datagrams: &[Bytes], most: usize) -> &[Bytes] {
    let length = datagrams.first().map_or(0, Bytes::len);
    let most = most.min(MOST_BYTES / length.max(1)).max(1);
    let mut end = 1;
    while end < most && length > 0 {
        match datagrams.get(end).map_or(0, Bytes::len) {
            same if same == length => end += 1,
            0 => break,
            shorter if shorter < length => {
                end += 1;
                break;
            }
            _ => break,
        }
    }
    datagrams.get(..end).unwrap_or(datagrams)
}

#[cfg(test)]
mod tests {
    use std::{process::Command, time::Duration};

    use starhaul_replay::NetworkNamespace;

    use super::*;

    const HANG: Duration = Duration::from_secs(60);

    async fn bind() -> (BatchSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        (BatchSocket::new(socket).unwrap(), address)
    }

    #[tokio::test]
    async fn datagrams_of_any_lengths_arrive_as_they_were_sent() {
        let ((sender, from), (receiver, to)) = (bind().await, bind().await);
        let lengths = [
            vec![1200; 111],
            vec![700, 700, 0, 0, 9, 20_000, 20_000, 20_000, 20_000],
            vec![65_000, 1],
        ];
        let datagrams: Vec<Bytes> = lengths
            .concat()
            .into_iter()
            .enumerate()
            .map(|(number, length)| vec![u8::try_from(number).unwrap(); length].into())
            .collect();
        // Few at once, which the kernel's buffer holds.
        for sent in datagrams.chunks(40) {
            sender.send(to, None, sent).await;
            let mut received: Vec<Bytes> = Vec::new();
            while received.len() < sent.len() {
                let readable = tokio::time::timeout(HANG, receiver.readable()).await;
                readable.expect("a datagram is missing");
                receiver.try_recv(|remote, _, payload| {
                    assert_eq!(remote, from);
                    received.push(Bytes::copy_from_slice(payload));
                });
            }
            assert_eq!(received, sent);
        }
    }

    #[tokio::test]
    async fn one_datagram_of_any_length_is_received_whole_by_whoever_still_waits() {
        let [sender, receiver] =
            [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        receiver.set_nonblocking(true).unwrap();
        let (from, to) = (sender.local_addr().unwrap(), receiver.local_addr().unwrap());
        let receiver = UdpSocket::from_std(receiver).unwrap();
        let next = || receive_one(&receiver, |datagram, sender| (datagram.to_vec(), sender));
        for length in [0, 1, 65_507] {
            // One who gives up before it comes takes nothing away.
            tokio::select! {
                biased;
                received = next() => panic!("nothing was sent: {received:?}"),
                () = std::future::ready(()) => {}
            }
            let datagram = vec![7; length];
            sender.send_to(&datagram, to).unwrap();
            let received = tokio::time::timeout(HANG, next()).await;
            let received = received.expect("a datagram is missing").unwrap();
            assert_eq!(received, (datagram, from));
        }
    }

    /// The kernel tells once of what comes, and a call that takes less than it asked for is the last before the next wait.
    #[tokio::test]
    async fn what_comes_behind_a_call_that_was_not_full_is_told_again() {
        let ((sender, _), (receiver, to)) = (bind().await, bind().await);
        // Of lengths that the kernel does not join: less than one call takes, and more than several do.
        for count in [1, 3, 8, 9, 50, 2] {
            let lengths = (1..=count).map(|length| Bytes::from(vec![7; length]));
            let sent: Vec<_> = lengths.collect();
            sender.send(to, None, &sent).await;
            let mut received = Vec::new();
            while received.len() < count {
                let readable = tokio::time::timeout(HANG, receiver.readable()).await;
                readable.expect("a datagram is missing");
                receiver.try_recv(|_, _, payload| received.push(payload.len()));
            }
            assert_eq!(received, (1..=count).collect::<Vec<_>>());
            // One who asks again, and one for another socket, get nothing that was received before.
            let other = bind().await.0;
            for socket in [&receiver, &other] {
                socket.try_recv(|_, _, _| panic!("received twice"));
            }
        }
    }

    /// Whoever queues them for other tasks has room for some only.
    #[tokio::test]
    async fn of_many_that_wait_only_some_are_passed_on_at_once() {
        let ((sender, _), (receiver, to)) = (bind().await, bind().await);
        // As many as the kernel's buffer holds, of which it joins those of one length.
        let alike = match sender.most_at_once(100) {
            1 => 130,
            _ => 1000,
        };
        for lengths in [vec![100; alike], (1..=130).collect()] {
            let sent = lengths.iter().map(|length| Bytes::from(vec![7; *length]));
            let sent: Vec<_> = sent.collect();
            sender.send(to, None, &sent).await;
            let (mut received, mut calls) = (Vec::new(), 0);
            while received.len() < sent.len() {
                let readable = tokio::time::timeout(HANG, receiver.readable()).await;
                readable.expect("a datagram is missing");
                let before = received.len();
                let goes_on = receiver.try_recv(|_, _, payload| received.push(payload.len()));
                let taken = received.len() - before;
                // Eight messages of one system call are passed on together.
                assert!(taken < MANY_DATAGRAMS + 8 * 64, "{taken}");
                assert!(!goes_on || taken >= MANY_DATAGRAMS, "{taken}");
                calls += 1;
            }
            assert!(calls > 1, "all at once");
            assert_eq!(received, lengths);
        }
    }

    /// Segmentation offload makes no fragments.
    #[test]
    fn datagrams_larger_than_a_packet_arrive_too() {
        let sockets = NetworkNamespace::create().and_then(|namespace| {
            namespace.inside(|| {
                let mut ip = Command::new("ip");
                ip.args(["link", "set", "lo", "mtu", "1500", "up"]);
                assert!(ip.status()?.success());
                Ok([(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()))
            })
        });
        let [sender, receiver] = match sockets {
            Ok(sockets) => sockets,
            Err(why) => return starhaul_needs::skip(starhaul_needs::Need::Netns, why),
        };
        sender.set_nonblocking(true).unwrap();
        let to = receiver.local_addr().unwrap();
        let datagrams: Vec<Bytes> = (1..=3).map(|byte| vec![byte; 4000].into()).collect();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let sender = BatchSocket::new(UdpSocket::from_std(sender).unwrap()).unwrap();
            sender.send(to, None, &datagrams).await;
            let [small, large] = [1000, 4000].map(|length| sender.most_at_once(length));
            assert!(small > 1, "offload is given up");
            assert_eq!(large, 1, "each batch is refused again");
        });
        receiver.set_read_timeout(Some(HANG)).unwrap();
        for datagram in &datagrams {
            let mut buffer = vec![0; 5000];
            let length = receiver.recv(&mut buffer).expect("a datagram is missing");
            assert_eq!(buffer[..length], datagram[..]);
        }
    }

    #[tokio::test]
    async fn batches_go_on_after_an_error_of_one_destination() {
        let (sender, from) = bind().await;
        let most = sender.batches.most_at_once();
        let datagrams = [
            Bytes::from_static(b"nowhere"),
            Bytes::from_static(b"nowhere"),
        ];
        sender
            .send(SocketAddr::new(from.ip(), 0), None, &datagrams)
            .await;
        assert_eq!(sender.batches.most_at_once(), most);
    }

    /// The kernel reports a closed port with the next call, which must not lose a datagram for that.
    #[tokio::test]
    async fn a_target_that_comes_back_misses_nothing_that_is_sent_then() {
        // At an address of its own, where no other test takes the port meanwhile.
        let gone = UdpSocket::bind("127.77.0.1:0").await.unwrap();
        let to = gone.local_addr().unwrap();
        drop(gone);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(to).await.unwrap();
        let sender = BatchSocket::new(socket).unwrap();
        sender.send(to, None, &[Bytes::from_static(b"lost")]).await;
        // A process that another test starts has the former socket, too, until it runs its own program.
        let bound = async {
            loop {
                match UdpSocket::bind(to).await {
                    Ok(target) => break target,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let target = tokio::time::timeout(HANG, bound).await;
        let target = target.expect("the port is not free");
        sender.send(to, None, &[Bytes::from_static(b"here")]).await;
        let mut buffer = [0; 9];
        let received = tokio::time::timeout(HANG, target.recv(&mut buffer)).await;
        assert_eq!(received.expect("nothing arrives").unwrap(), 4);
        assert_eq!(&buffer[..4], b"here");
    }
}
