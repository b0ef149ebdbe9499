//! RIST by `ristsender` and `ristreceiver`: blocks as packets over both paths as two peers of one sender.

use std::time::Duration;

use starhaul_replay::{Host, Hosts};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer,
    packets::{INPUT, OUTPUT, PacketSender},
    program::{command, missing},
    socket_address,
};
use crate::Error;

const PROGRAMS: [&str; 2] = ["ristsender", "ristreceiver"];
const PACKAGE: &str = "rist-tools";
/// Even, as RTP wants it.
const PORT: u16 = 8000;
/// Of the deadline, for sending a block and for what the programs take.
const MARGIN: Duration = Duration::from_millis(14);

/// How packets are divided over the paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rist {
    name: &'static str,
    /// Weight of each path; without weights each packet goes over both.
    weight: u32,
}

impl Rist {
    pub(super) const ALL: [Self; 2] = [
        Self {
            name: "rist",
            weight: 5,
        },
        Self {
            name: "rist-twice",
            weight: 0,
        },
    ];
}

impl BlockSystem for Rist {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        let mut missing = PROGRAMS.map(|program| missing(self.name, program, PACKAGE));
        missing.iter_mut().find_map(Option::take)
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
        let one_way = offer.links.iter().map(|link| link.one_way);
        let one_way = one_way.max().unwrap_or_default();
        let buffer = offer.deadline().saturating_sub(one_way + MARGIN);
        let buffer = buffer.as_millis();
        let rtt = 2 * one_way.as_millis();
        let options = format!(
            "buffer={buffer}&rtt-min={rtt}&rtt-max={buffer}&reorder-buffer=5&weight={}",
            self.weight
        );
        let [cheap, dear] = [CHEAP, DEAR].map(|link| socket_address(hosts, Host::Far, link, PORT));
        let (cheap, dear) = (cheap?, dear?);
        let [sender, receiver] = PROGRAMS;
        let listen = format!("rist://@{cheap}?{options},rist://@{dear}?{options}");
        let send = format!("rist://{cheap}?{options},rist://{dear}?{options}");
        let programs = [
            (
                Host::Far,
                command(
                    receiver,
                    &["-v", "3", "-i", &listen, "-o", &format!("udp://{OUTPUT}")],
                ),
            ),
            (
                Host::Near,
                command(
                    sender,
                    &["-v", "3", "-i", &format!("udp://@{INPUT}"), "-o", &send],
                ),
            ),
        ];
        let sender = PacketSender::open(hosts, arrivals, &programs)?;
        Ok(Box::new(sender))
    }
}
