//! Blocks as UDP payloads, for programs that carry datagrams: each has a header that names its block and its place in it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_replay::{Host, Hosts, Program};

use super::{
    Arrivals, BlockSender, OfferedBlock, at,
    task::{Over, Task},
};
use crate::{Error, workload::blocks::number_of};

/// Seven packets of an MPEG transport stream, which all these programs are made for.
pub(super) const PACKET_BYTES: usize = 1316;
/// Number of the block, place and number of packets, 4 + 2 + 2 bytes.
const HEADER_BYTES: usize = 8;
const DATA_BYTES: usize = PACKET_BYTES - HEADER_BYTES;
/// Where the programs of the first stream take packets at the near host, and give them at the far one.
const INPUT: u16 = 6000;
const OUTPUT: u16 = 7000;
/// Blocks of a stream that may be incomplete at once; the oldest goes.
const MOST_INCOMPLETE: usize = 1000;
/// Interval at which a reader checks whether it must end.
const ROUND: Duration = Duration::from_millis(50);
/// Sent until one has come out: its header names no packets, as that of no block does.
const PROBE: [u8; PACKET_BYTES] = [0; PACKET_BYTES];
/// How long the first one may take through each stream's programs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of a deadline, for sending a block and for what the programs take: each waits for its input in steps of up to 10 ms. With less,
/// blocks without a loss are late; with more, less that is asked for again is in time. Of a long deadline it is a part.
const MARGIN: Duration = Duration::from_millis(14);
const MARGIN_PART: u32 = 40;

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The port of a stream, of which the first one has `first`.
pub(super) fn port_of(first: u16, stream: usize) -> u16 {
    first.saturating_add(u16::try_from(stream).unwrap_or(u16::MAX))
}

/// Where the program of a stream takes packets at the near host.
pub(super) fn input(stream: usize) -> SocketAddr {
    local(port_of(INPUT, stream))
}

/// Where the program of a stream gives packets at the far host.
pub(super) fn output(stream: usize) -> SocketAddr {
    local(port_of(OUTPUT, stream))
}

/// For how long a program may hold what came over a path of this delay, so that a block is in time.
pub(super) fn holding_time(deadline: Duration, one_way: Duration) -> Duration {
    deadline.saturating_sub(one_way + MARGIN.max(deadline / MARGIN_PART))
}

/// The commands that carry a stream, from [`input`] to [`output`].
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) far: Vec<OsString>,
    pub(super) near: Vec<OsString>,
}

/// Gives blocks to the programs at the near host, and takes them from those at the far host.
pub(super) struct PacketSender<P = Program> {
    socket: UdpSocket,
    /// Bytes of a block by its number.
    bytes_of: fn(u32) -> usize,
    /// Where the program of each stream takes packets.
    inputs: Vec<SocketAddr>,
    /// With their names.
    programs: Vec<(String, P)>,
    _readers: Vec<Task>,
}

/// A connection that may end.
pub(super) trait Ending {
    fn is_over(&self) -> bool;
}

impl Ending for Program {
    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}

impl PacketSender {
    /// Starts the programs of each stream, the far ones first, after the sockets that take what they give; they carry packets then.
    ///
    /// # Errors
    /// A socket or a program that does not come up, and one that carries nothing.
    pub(super) fn open(hosts: &Hosts, arrivals: &Arrivals, ends: &[Ends]) -> Result<Self, Error> {
        let bind = |host, address| {
            at(hosts, host, || {
                UdpSocket::bind(address).map_err(Error::io("cannot open a socket"))
            })
        };
        let mut readers = Vec::new();
        let mut heard = Vec::new();
        for stream in 0..ends.len() {
            let output = bind(Host::Far, output(stream))?;
            let set = output.set_read_timeout(Some(ROUND));
            set.map_err(Error::io("cannot set a socket up"))?;
            let is_heard = Arc::new(AtomicBool::new(false));
            heard.push(is_heard.clone());
            let arrivals = arrivals.clone();
            let read = move |over: &Over| read(&output, over, &arrivals, &is_heard);
            readers.push(Task::start("packets", read)?);
        }
        let far = ends.iter().map(|ends| (Host::Far, &ends.far));
        let near = ends.iter().map(|ends| (Host::Near, &ends.near));
        let started = far.chain(near).map(|(host, command)| {
            let name = command.first().map(|name| name.to_string_lossy());
            let program = hosts.start(host, command)?;
            Ok::<_, Error>((name.unwrap_or_default().into_owned(), program))
        });
        let sender = Self {
            programs: started.collect::<Result<_, _>>()?,
            bytes_of: arrivals.bytes_of,
            inputs: (0..ends.len()).map(input).collect(),
            socket: bind(Host::Near, local(0))?,
            _readers: readers,
        };
        sender.until_heard(&heard)?;
        Ok(sender)
    }
}

impl<P: Ending> PacketSender<P> {
    /// Sends probes through all streams until one has come out of each: programs that wait for what never comes would begin anew.
    fn until_heard(&self, heard: &[Arc<AtomicBool>]) -> Result<(), Error> {
        let limit = Instant::now() + PATIENCE;
        while !heard.iter().all(|heard| heard.load(Ordering::Relaxed)) {
            self.all_go_on()?;
            if Instant::now() > limit {
                let (name, _) = self.programs.first().ok_or_else(no_stream)?;
                return Err(Error::Flow(format!(
                    "{name} carried no packet within {PATIENCE:?}"
                )));
            }
            for input in &self.inputs {
                self.send(&PROBE, *input)?;
            }
            std::thread::sleep(ROUND);
        }
        Ok(())
    }

    fn send(&self, packet: &[u8], input: SocketAddr) -> Result<(), Error> {
        match self.socket.send_to(packet, input) {
            Ok(_) => Ok(()),
            // The program does not listen yet.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(Error::io("cannot send to a program")(error)),
        }
    }

    fn all_go_on(&self) -> Result<(), Error> {
        let over = self.programs.iter().find(|(_, program)| program.is_over());
        over.map_or(Ok(()), |(name, _)| {
            Err(Error::Flow(format!(
                "{name} ended; what it said stands above"
            )))
        })
    }
}

impl<P: Ending> BlockSender for PacketSender<P> {
    fn offer(&mut self, block: OfferedBlock) -> Result<(), Error> {
        self.all_go_on()?;
        let input = *self.inputs.get(block.stream).ok_or_else(no_stream)?;
        let nameless = || Error::Failed("a block tells no number".to_owned());
        let number = number_of(&block.data, self.bytes_of).ok_or_else(nameless)?;
        for packet in packets(number, &block.data) {
            self.send(&packet, input)?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Error> {
        self.all_go_on()
    }
}

fn no_stream() -> Error {
    Error::Failed("there is no such stream".to_owned())
}

/// Takes what a program gives until it must end: tells of blocks that are whole, and that a probe came.
fn read(output: &UdpSocket, over: &Over, arrivals: &Arrivals, is_heard: &AtomicBool) {
    let mut incomplete = Incomplete::new(arrivals.bytes_of);
    let mut buffer = [0; 2048];
    while !over.is_over() {
        let Ok(length) = output.recv(&mut buffer) else {
            continue;
        };
        let packet = buffer.get(..length).unwrap_or_default();
        if *packet == PROBE {
            is_heard.store(true, Ordering::Relaxed);
        } else if let Some(block) = incomplete.add(packet) {
            arrivals.arrived(Instant::now(), &block);
        }
    }
}

/// The packets of a block.
fn packets(number: u32, block: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let parts = block.chunks(DATA_BYTES);
    let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
    (0u16..).zip(parts).map(move |(place, part)| {
        let mut packet = Vec::with_capacity(PACKET_BYTES);
        packet.extend(number.to_be_bytes());
        packet.extend(place.to_be_bytes());
        packet.extend(count.to_be_bytes());
        packet.extend(part);
        packet
    })
}

/// Blocks of which packets are missing.
struct Incomplete {
    /// The length of a block by its number.
    bytes_of: fn(u32) -> usize,
    blocks: BTreeMap<u32, BTreeMap<u16, Vec<u8>>>,
}

impl Incomplete {
    fn new(bytes_of: fn(u32) -> usize) -> Self {
        Self {
            bytes_of,
            blocks: BTreeMap::new(),
        }
    }

    /// Takes a packet; returns the block that it completes.
    fn add(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let (header, part) = packet.split_first_chunk::<HEADER_BYTES>()?;
        let [a, b, c, d, e, f, g, h] = *header;
        let number = u32::from_be_bytes([a, b, c, d]);
        let [place, count] = [[e, f], [g, h]].map(u16::from_be_bytes);
        if usize::from(count) != (self.bytes_of)(number).div_ceil(DATA_BYTES) {
            return None;
        }
        let parts = self.blocks.entry(number).or_default();
        parts.insert(place, part.to_vec());
        if parts.len() == usize::from(count) {
            let parts = self.blocks.remove(&number)?;
            return Some(parts.into_values().flatten().collect());
        }
        if self.blocks.len() > MOST_INCOMPLETE {
            self.blocks.pop_first();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;
    use crate::workload::blocks::payload;

    #[test]
    fn a_block_is_whole_with_its_last_packet_in_any_order_and_once() {
        let mut incomplete = Incomplete::new(|_| 24_000);
        let block = payload(3, 24_000);
        let mut all: Vec<_> = packets(3, &block).collect();
        assert!(all.len() == 19 && all.iter().all(|packet| packet.len() <= PACKET_BYTES));
        all.reverse();
        let last = all.pop().unwrap();
        for packet in all.iter().chain(&all) {
            assert_eq!(incomplete.add(packet), None);
        }
        let whole = incomplete.add(&last).unwrap();
        assert_eq!(number_of(&whole, |_| 24_000), Some(3));
        assert_eq!(incomplete.add(&last), None);
        for wrong in [&b""[..], b"short", &[0; 8], &[255; 2048]] {
            assert_eq!(incomplete.add(wrong), None);
        }
    }

    struct Fake(Rc<Cell<bool>>);

    impl Ending for Fake {
        fn is_over(&self) -> bool {
            self.0.get()
        }
    }

    fn sender(inputs: Vec<SocketAddr>, is_over: &Rc<Cell<bool>>) -> PacketSender<Fake> {
        PacketSender {
            socket: UdpSocket::bind(local(0)).unwrap(),
            bytes_of: |number| if number % 2 == 0 { 24_000 } else { 200 },
            inputs,
            programs: vec![("rival".to_owned(), Fake(is_over.clone()))],
            _readers: Vec::new(),
        }
    }

    fn block(stream: usize, number: u32, bytes: usize) -> OfferedBlock {
        OfferedBlock {
            stream,
            ..OfferedBlock::alone(payload(number, bytes))
        }
    }

    #[test]
    fn a_program_that_ends_takes_no_more_blocks_and_is_named() {
        let input = UdpSocket::bind(local(0)).unwrap();
        let is_over = Rc::new(Cell::new(false));
        let mut sender = sender(vec![input.local_addr().unwrap()], &is_over);
        sender.offer(block(0, 0, 24_000)).unwrap();
        sender.check().unwrap();
        is_over.set(true);
        for error in [sender.offer(block(0, 2, 24_000)), sender.check()] {
            let error = error.unwrap_err();
            assert!(
                matches!(&error, Error::Flow(why) if why.contains("rival")),
                "{error}"
            );
        }
    }

    #[test]
    fn each_stream_has_its_program_and_packets_bear_the_number_of_their_block() {
        let inputs = [0; 2].map(|_| UdpSocket::bind(local(0)).unwrap());
        let addresses = inputs.iter().map(|input| input.local_addr().unwrap());
        let mut sender = sender(addresses.collect(), &Rc::default());
        sender.offer(block(1, 7, 200)).unwrap();
        sender.offer(block(0, 8, 24_000)).unwrap();
        for (input, number) in inputs.iter().zip([8, 7]) {
            let mut incomplete = Incomplete::new(sender.bytes_of);
            let mut buffer = [0; PACKET_BYTES];
            let whole = loop {
                let length = input.recv(&mut buffer).unwrap();
                if let Some(block) = incomplete.add(&buffer[..length]) {
                    break block;
                }
            };
            assert_eq!(number_of(&whole, sender.bytes_of), Some(number));
        }
        // What has no number cannot be told from others at the far end.
        let nameless = OfferedBlock::alone(b"nameless".to_vec().into());
        for refused in [block(2, 7, 200), block(0, 7, 24_000), nameless] {
            assert!(matches!(sender.offer(refused), Err(Error::Failed(_))));
        }
    }

    #[test]
    fn a_probe_is_no_part_of_a_block() {
        assert_eq!(Incomplete::new(|_| 24_000).add(&PROBE), None);
        let block = payload(0, 24_000);
        assert!(packets(0, &block).all(|packet| packet != PROBE));
    }

    #[test]
    fn programs_hold_packets_for_what_the_deadline_leaves() {
        let ms = Duration::from_millis;
        assert_eq!(holding_time(ms(200), ms(60)), ms(126));
        assert_eq!(holding_time(ms(3_000), ms(300)), ms(2_625));
        assert_eq!(holding_time(ms(50), ms(60)), Duration::ZERO);
    }

    #[test]
    fn what_never_becomes_whole_does_not_stay_for_ever() {
        let mut incomplete = Incomplete::new(|_| 24_000);
        for number in 0..5_000 {
            let block = payload(number, 24_000);
            assert_eq!(
                incomplete.add(&packets(number, &block).next().unwrap()),
                None
            );
        }
        assert!(incomplete.blocks.len() <= MOST_INCOMPLETE);
    }
}
