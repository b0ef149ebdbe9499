//! SRT by `srt-live-transmit`: blocks as packets over one path, with or without packet filter FEC.

use std::time::Duration;

use starhaul_replay::{Host, Hosts};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer, packets,
    packets::{INPUT, OUTPUT, PacketSender},
    program::{command, missing},
    socket_address,
};
use crate::Error;

const PROGRAM: &str = "srt-live-transmit";
const PACKAGE: &str = "srt-tools";
const PORT: u16 = 9000;
/// Of the deadline, for sending a block and for what the programs take: each waits for its input in steps of up to 10 ms. With less,
/// blocks without a loss are late; with more, nothing asked for again is in time.
const MARGIN: Duration = Duration::from_millis(14);
/// Both ends read one clock: what the receiver takes for its drift, the jitter of handshake and repeats, makes all blocks later by some ms.
const ONE_CLOCK: &str = "&drifttracer=0";
/// Packets that the program takes at once: more than a block has.
const BUFFERING: &str = "-buffering:50";
/// A packet beside each ten; lost ones are asked for again at once.
const FEC: &str = "&packetfilter=fec,cols:10,rows:1,arq:always";

/// Over one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Srt {
    name: &'static str,
    link: usize,
    with_fec: bool,
}

impl Srt {
    pub(super) const ALL: [Self; 3] = [
        Self::new("srt", CHEAP, false),
        Self::new("srt-fec", CHEAP, true),
        Self::new("srt-dear", DEAR, false),
    ];

    const fn new(name: &'static str, link: usize, with_fec: bool) -> Self {
        Self {
            name,
            link,
            with_fec,
        }
    }
}

impl BlockSystem for Srt {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        missing(self.name, PROGRAM, PACKAGE)
    }

    fn carries_several(&self) -> bool {
        false
    }

    fn open<'h>(
        &self,
        hosts: &'h Hosts,
        offer: &Offer,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn BlockSender + 'h>, Error> {
        let far = socket_address(hosts, Host::Far, self.link, PORT)?;
        let one_way = offer.links[self.link].one_way;
        let latency = offer.deadline().saturating_sub(one_way + MARGIN);
        let srt = |mode: &str| {
            format!(
                "srt://{far}?mode={mode}&latency={}&payloadsize={}{ONE_CLOCK}{}",
                latency.as_millis(),
                packets::PACKET_BYTES,
                if self.with_fec { FEC } else { "" }
            )
        };
        let transmit = |from: &str, to: &str| {
            let chunk = format!("-chunk:{}", packets::PACKET_BYTES);
            command(
                PROGRAM,
                &["-q", "-loglevel:error", BUFFERING, &chunk, from, to],
            )
        };
        let programs = [
            (
                Host::Far,
                transmit(&srt("listener"), &format!("udp://{OUTPUT}")),
            ),
            (
                Host::Near,
                transmit(&format!("udp://:{}", INPUT.port()), &srt("caller")),
            ),
        ];
        let sender = PacketSender::open(hosts, arrivals, &programs)?;
        Ok(Box::new(sender))
    }
}
