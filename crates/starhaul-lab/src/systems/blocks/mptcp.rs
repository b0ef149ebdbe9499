//! The kernel's multipath TCP: a connection for each stream, with a subflow over each path. A read is not a block, so each block is
//! preceded by its length, and counts when its last byte is read. The sender drops nothing.

use std::{
    ffi::OsString,
    fs, io,
    net::{Shutdown, SocketAddr, TcpStream},
    process::Command,
    sync::mpsc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use starhaul_net::run_as_others;
use starhaul_replay::{Host, Hosts};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer, OfferedBlock, address, at, program,
    socket_address, task::Task,
};
use crate::{Error, workload::blocks::payload};

const PORT: u16 = 5001;
/// More than a block of any experiment has.
const MOST_BLOCK_BYTES: usize = 1 << 20;
/// Subflows beside the first one, and addresses that a host may take from its peer.
const LIMIT: &str = "2";
/// How long the second subflow of every connection may take.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_millis(5);
/// Where the kernel counts subflows that joined, for the namespace of the thread that reads it.
const COUNTERS: &str = "/proc/thread-self/net/netstat";
const JOINED: &str = "MPJoinAckRx";
/// For the thread that asks, in its network namespace.
const SLOW_START_AFTER_IDLE: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";

/// The kernel's scheduler with one of its congestion controllers for both subflows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mptcp {
    name: &'static str,
    controller: &'static str,
}

impl Mptcp {
    pub(super) const ALL: [Self; 2] = [
        Self {
            name: "mptcp",
            controller: "cubic",
        },
        Self {
            name: "mptcp-bbr",
            controller: "bbr",
        },
    ];
}

impl BlockSystem for Mptcp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        if let Err(error) = socket() {
            return Some(format!(
                "skipped: {}, because this kernel makes no MPTCP sockets ({error}): it needs CONFIG_MPTCP and sysctl net.mptcp.enabled=1",
                self.name
            ));
        }
        let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let known = known.unwrap_or_default();
        let controller = self.controller;
        if !known.split_whitespace().any(|known| known == controller) {
            return Some(format!(
                "skipped: {}, because this kernel has no {controller}: modprobe tcp_{controller}",
                self.name
            ));
        }
        program::missing(self.name, "ip", "iproute2")
    }

    fn open<'h>(
        &self,
        hosts: &'h Hosts,
        offer: &Offer,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn BlockSender + 'h>, Error> {
        let server = socket_address(hosts, Host::Far, CHEAP, PORT)?;
        let client = socket_address(hosts, Host::Near, CHEAP, 0)?;
        let second = address(hosts, Host::Near, DEAR)?.to_string();
        let count = offer.streams.len();
        let listener = at(hosts, Host::Far, || {
            set_up()?;
            let listener = socket().map_err(Error::io("cannot make an MPTCP socket"))?;
            let listens = listener
                .bind(&server.into())
                .and_then(|()| listener.listen(i32::try_from(count).unwrap_or(i32::MAX)));
            listens.map_err(Error::io("cannot listen for MPTCP"))?;
            Ok(listener)
        })?;
        let sending = at(hosts, Host::Near, || {
            set_up()?;
            ip(&["endpoint", "add", &second, "subflow"])?;
            let connect = |_| {
                let connected = self.connect(client, server);
                connected.map_err(Error::io("cannot connect by MPTCP"))
            };
            (0..count).map(connect).collect::<Result<Vec<_>, _>>()
        })?;
        let mut connections = Vec::new();
        for sending in sending {
            let accepted = listener.accept();
            let (accepted, _) = accepted.map_err(Error::io("cannot accept by MPTCP"))?;
            connections.push(Connection::new(sending, accepted.into(), arrivals.clone())?);
        }
        // The second subflow joins once data have been acknowledged. Until the last segment of its handshake has come, it needs the
        // listener.
        let first = payload(u32::MAX, (offer.bytes_of)(u32::MAX));
        for connection in &connections {
            connection.send(first.clone())?;
        }
        at(hosts, Host::Far, || until_joined(count))?;
        drop(listener);
        Ok(Box::new(MptcpSender(connections)))
    }
}

impl Mptcp {
    fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket()?;
        socket.set_tcp_nodelay(true)?;
        // Of this socket, for a namespace may not choose every controller for all. Subflows have the same.
        socket.set_tcp_congestion(self.controller.as_bytes())?;
        socket.bind(&from.into())?;
        socket.connect(&to.into())?;
        Ok(socket.into())
    }
}

/// Sets MPTCP of this thread's host up.
fn set_up() -> Result<(), Error> {
    fs::write(SLOW_START_AFTER_IDLE, "0").map_err(Error::io(SLOW_START_AFTER_IDLE))?;
    let limits = [
        "limits",
        "set",
        "subflows",
        LIMIT,
        "add_addr_accepted",
        LIMIT,
    ];
    ip(&limits)
}

/// In the order of the streams.
struct MptcpSender(Vec<Connection>);

/// Threads that write and read, which end with the connection.
struct Connection {
    blocks: mpsc::Sender<Bytes>,
    streams: [TcpStream; 2],
    writer: Task,
    reader: Task,
}

impl Connection {
    fn new(sending: TcpStream, receiving: TcpStream, arrivals: Arrivals) -> Result<Self, Error> {
        let shared = |stream: &TcpStream| {
            stream
                .try_clone()
                .map_err(Error::io("cannot share a socket"))
        };
        let streams = [shared(&sending)?, shared(&receiving)?];
        let (blocks, queue) = mpsc::channel::<Bytes>();
        // What waits for room in the socket waits here.
        let writer = Task::start("mptcp-sender", move |_| {
            let mut to = sending;
            for block in queue {
                if write(&mut to, &block).is_err() {
                    return;
                }
            }
        })?;
        let reader = Task::start("mptcp-receiver", move |_| {
            let mut from = receiving;
            let mut block = Vec::new();
            while read(&mut from, &mut block).is_ok() {
                arrivals.arrived(Instant::now(), &block);
            }
        })?;
        Ok(Self {
            blocks,
            streams,
            writer,
            reader,
        })
    }

    fn send(&self, block: Bytes) -> Result<(), Error> {
        self.check()?;
        self.blocks.send(block).map_err(|_| ended())
    }

    fn check(&self) -> Result<(), Error> {
        match self.writer.has_ended() || self.reader.has_ended() {
            true => Err(ended()),
            false => Ok(()),
        }
    }
}

impl BlockSender for MptcpSender {
    fn offer(&mut self, block: OfferedBlock) -> Result<(), Error> {
        let missing = || Error::Failed(format!("there is no stream {}", block.stream));
        let connection = self.0.get(block.stream).ok_or_else(missing)?;
        connection.send(block.data)
    }

    fn check(&mut self) -> Result<(), Error> {
        self.0.iter().try_for_each(Connection::check)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without a sender the writer ends when its queue is empty, and on a closed socket at once.
        self.blocks = mpsc::channel().0;
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn ended() -> Error {
    Error::Flow("the MPTCP connection ended".to_owned())
}

fn write(to: &mut impl io::Write, block: &[u8]) -> io::Result<()> {
    let length = u32::try_from(block.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(block);
    to.write_all(&framed)
}

/// Reads a block in place of the last one.
fn read(from: &mut impl io::Read, block: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MOST_BLOCK_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    block.resize(length, 0);
    from.read_exact(block)
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))
}

/// Waits until the second subflow of so many connections has joined them at this thread's host.
fn until_joined(connections: usize) -> Result<(), Error> {
    let limit = Instant::now() + PATIENCE;
    loop {
        let counters = fs::read_to_string(COUNTERS).map_err(Error::io(COUNTERS))?;
        match counter(&counters, JOINED) {
            None => return Err(Error::Failed(format!("{COUNTERS} has no {JOINED}"))),
            Some(joined) if joined >= connections as u64 => return Ok(()),
            Some(_) if Instant::now() < limit => std::thread::sleep(ROUND),
            Some(joined) => {
                return Err(Error::Failed(format!(
                    "MPTCP made the second subflow of {joined} of {connections} connections within {PATIENCE:?}"
                )));
            }
        }
    }
}

/// A number of the kernel's table, in which each line of names is followed by one of numbers.
fn counter(table: &str, name: &str) -> Option<u64> {
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let of_pair = |pair: &[Vec<&str>]| {
        let [names, numbers] = pair else { return None };
        let place = names.iter().position(|known| *known == name)?;
        numbers.get(place)?.parse().ok()
    };
    lines.chunks(2).find_map(of_pair)
}

/// Runs `ip mptcp` at this thread's host.
fn ip(arguments: &[&str]) -> Result<(), Error> {
    let arguments: Vec<OsString> = ["mptcp"]
        .iter()
        .chain(arguments)
        .map(OsString::from)
        .collect();
    let output = std::thread::scope(|scope| {
        // A program has the priority of the thread that starts it.
        let run = || {
            let _ = run_as_others();
            Command::new("ip").args(&arguments).output()
        };
        let output = scope.spawn(run).join();
        output.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    });
    let output = output.map_err(Error::io("cannot run ip"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Failed(format!(
            "ip {}: {}",
            arguments.join(" ".as_ref()).to_string_lossy(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let table = "TcpExt: A B\nTcpExt: 1 2\nMPTcpExt: MPJoinSynRx MPJoinAckRx\nMPTcpExt: 0 7\n";
        assert_eq!(counter(table, JOINED), Some(7));
        assert_eq!(counter(table, "MPJoin"), None);
    }

    #[test]
    fn blocks_of_different_lengths_are_read_one_by_one() {
        let blocks = [200, 100_000, 2_500].map(|bytes| payload(7, bytes));
        let mut sent = Vec::new();
        for block in &blocks {
            write(&mut sent, block).unwrap();
        }
        let mut from = sent.as_slice();
        let mut block = Vec::new();
        for expected in &blocks {
            read(&mut from, &mut block).unwrap();
            assert_eq!(block, *expected);
        }
        assert!(read(&mut from, &mut block).is_err());
        let mut endless: &[u8] = &[255; 8];
        assert!(read(&mut endless, &mut block).is_err());
    }
}
