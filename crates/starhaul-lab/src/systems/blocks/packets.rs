//! Blocks as UDP payloads, for programs that carry datagrams: each has a header that names its block and its place in it.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use starhaul_replay::{Host, Hosts, Program};

use super::{Arrivals, BlockSender, OfferedBlock, at, task::Task};
use crate::Error;

/// Seven packets of an MPEG transport stream, which all these programs are made for.
pub(super) const PACKET_BYTES: usize = 1316;
/// Number of the block, place and number of packets, 4 + 2 + 2 bytes.
const HEADER_BYTES: usize = 8;
const DATA_BYTES: usize = PACKET_BYTES - HEADER_BYTES;
/// Where a program takes packets at the near host, and gives them at the far one.
pub(super) const INPUT: SocketAddr = local(6000);
pub(super) const OUTPUT: SocketAddr = local(7000);
/// Blocks that may be incomplete at once; the oldest goes.
const MOST_INCOMPLETE: usize = 1000;
/// Interval at which a reader checks whether it must end.
const ROUND: Duration = Duration::from_millis(50);

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Gives blocks to the program at the near host, and takes them from the one at the far host.
pub(super) struct PacketSender<P = Program> {
    socket: UdpSocket,
    input: SocketAddr,
    sent: u32,
    /// With their names.
    programs: Vec<(String, P)>,
    _reader: Task,
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
    /// Starts the programs, the far ones first, after the socket that takes what they give.
    pub(super) fn open(
        hosts: &Hosts,
        arrivals: &Arrivals,
        programs: &[(Host, Vec<std::ffi::OsString>)],
    ) -> Result<Self, Error> {
        let bind = |host, address| {
            at(hosts, host, || {
                UdpSocket::bind(address).map_err(Error::io("cannot open a socket"))
            })
        };
        let output = bind(Host::Far, OUTPUT)?;
        let set = output.set_read_timeout(Some(ROUND));
        set.map_err(Error::io("cannot set a socket up"))?;
        let reader = Task::start("packets", {
            let mut incomplete = Incomplete::new(arrivals.bytes_of);
            let arrivals = arrivals.clone();
            move |over| {
                let mut buffer = [0; 2048];
                while !over.is_over() {
                    let Ok(length) = output.recv(&mut buffer) else {
                        continue;
                    };
                    let packet = buffer.get(..length).unwrap_or_default();
                    if let Some(block) = incomplete.add(packet) {
                        arrivals.arrived(Instant::now(), &block);
                    }
                }
            }
        })?;
        let started = programs.iter().map(|(host, command)| {
            let name = command.first().map(|name| name.to_string_lossy());
            let program = hosts.start(*host, command)?;
            Ok::<_, Error>((name.unwrap_or_default().into_owned(), program))
        });
        Ok(Self {
            programs: started.collect::<Result<_, _>>()?,
            input: INPUT,
            socket: bind(Host::Near, local(0))?,
            sent: 0,
            _reader: reader,
        })
    }
}

impl<P: Ending> BlockSender for PacketSender<P> {
    fn offer(&mut self, block: OfferedBlock) -> Result<(), Error> {
        self.check()?;
        for packet in packets(self.sent, &block.data) {
            match self.socket.send_to(&packet, self.input) {
                // The program does not listen yet.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(Error::io("cannot send to a program")(error)),
            }
        }
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    fn check(&mut self) -> Result<(), Error> {
        let over = self.programs.iter().find(|(_, program)| program.is_over());
        over.map_or(Ok(()), |(name, _)| {
            Err(Error::Flow(format!(
                "{name} ended; what it said stands above"
            )))
        })
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
    use crate::workload::blocks::{number_of, payload};

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

    #[test]
    fn a_program_that_ends_takes_no_more_blocks_and_is_named() {
        let input = UdpSocket::bind(local(0)).unwrap();
        let is_over = Rc::new(Cell::new(false));
        let mut sender = PacketSender {
            socket: UdpSocket::bind(local(0)).unwrap(),
            input: input.local_addr().unwrap(),
            sent: 0,
            programs: vec![("rival".to_owned(), Fake(is_over.clone()))],
            _reader: Task::start("nothing", |_| {}).unwrap(),
        };
        let block = |number| OfferedBlock::alone(payload(number, 24_000));
        sender.offer(block(0)).unwrap();
        sender.check().unwrap();
        is_over.set(true);
        for error in [sender.offer(block(1)), sender.check()] {
            let error = error.unwrap_err();
            assert!(
                matches!(&error, Error::Flow(why) if why.contains("rival")),
                "{error}"
            );
        }
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
