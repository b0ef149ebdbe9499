//! SRT by `srt-live-transmit`: blocks as packets, a connection over one path for each stream, with or without packet filter FEC.

use std::net::SocketAddr;

use starhaul_replay::{Host, Hosts};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer,
    packets::{Ends, PACKET_BYTES, PacketSender, holding_time, input, output, port_of},
    program::{command, missing},
    socket_address,
};
use crate::Error;

const PROGRAM: &str = "srt-live-transmit";
const PACKAGE: &str = "srt-tools";
/// Of the first stream.
const PORT: u16 = 9000;
/// Both ends read one clock: what the receiver takes for its drift, the jitter of handshake and repeats, makes all blocks later by some ms.
const ONE_CLOCK: &str = "&drifttracer=0";
/// Packets that the program takes at once.
const BUFFERING: &str = "-buffering:50";
/// A packet beside each ten; lost ones are asked for again at once.
const FEC: &str = "&packetfilter=fec,cols:10,rows:1,arq:always";

/// By the paths of its streams, and its redundancy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Srt {
    name: &'static str,
    route: Route,
    with_fec: bool,
}

/// The path of each stream. Debian builds the library without bonding, so that a connection has one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// All over this one.
    Over(usize),
    /// The stream that can wait longest over the dear path, the others over the cheap one.
    Apart,
}

impl Srt {
    pub(super) const ALL: [Self; 5] = [
        Self::new("srt", Route::Over(CHEAP), false),
        Self::new("srt-fec", Route::Over(CHEAP), true),
        Self::new("srt-dear", Route::Over(DEAR), false),
        Self::new("srt-apart", Route::Apart, false),
        Self::new("srt-apart-fec", Route::Apart, true),
    ];

    const fn new(name: &'static str, route: Route, with_fec: bool) -> Self {
        Self {
            name,
            route,
            with_fec,
        }
    }

    fn link_of(&self, offer: &Offer, stream: usize) -> usize {
        match self.route {
            Route::Over(link) => link,
            Route::Apart if offer.most_patient() == Some(stream) => DEAR,
            Route::Apart => CHEAP,
        }
    }

    /// How fast the connection of a stream may send: what more important ones leave of its link. Without it, a frame that is greater than
    /// the link's queue would leave at once and be lost, with what the others had there. A stream alone needs none.
    fn pace(&self, offer: &Offer, stream: usize) -> Option<u64> {
        let priority = |place: usize| offer.streams.get(place).map(|stream| stream.priority);
        let link = self.link_of(offer, stream);
        let streams = 0..offer.streams.len();
        let before = streams.filter(|other| {
            priority(*other) < priority(stream) && self.link_of(offer, *other) == link
        });
        (offer.streams.len() > 1).then(|| offer.left_of(link, before))
    }

    fn url(&self, offer: &Offer, stream: usize, far: SocketAddr, mode: &str) -> String {
        let one_way = offer.links[self.link_of(offer, stream)].one_way;
        let latency = holding_time(offer.streams[stream].deadline, one_way).as_millis();
        let fec = if self.with_fec { FEC } else { "" };
        let pace = self.pace(offer, stream);
        let pace = pace.map_or_else(String::new, |pace| format!("&maxbw={pace}"));
        format!(
            "srt://{far}?mode={mode}&latency={latency}&payloadsize={PACKET_BYTES}{ONE_CLOCK}{pace}{fec}"
        )
    }

    fn ends(&self, hosts: &Hosts, offer: &Offer, stream: usize) -> Result<Ends, Error> {
        let link = self.link_of(offer, stream);
        let far = socket_address(hosts, Host::Far, link, port_of(PORT, stream))?;
        let transmit = |from: &str, to: &str| {
            let chunk = format!("-chunk:{PACKET_BYTES}");
            command(
                PROGRAM,
                &["-q", "-loglevel:error", BUFFERING, &chunk, from, to],
            )
        };
        let srt = |mode| self.url(offer, stream, far, mode);
        Ok(Ends {
            far: transmit(&srt("listener"), &format!("udp://{}", output(stream))),
            near: transmit(&format!("udp://:{}", input(stream).port()), &srt("caller")),
        })
    }
}

impl BlockSystem for Srt {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        missing(self.name, PROGRAM, PACKAGE)
    }

    fn divides_streams(&self) -> bool {
        self.route == Route::Apart
    }

    fn open<'h>(
        &self,
        hosts: &'h Hosts,
        offer: &Offer,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn BlockSender + 'h>, Error> {
        let streams = 0..offer.streams.len();
        let ends = streams.map(|stream| self.ends(hosts, offer, stream));
        let ends = ends.collect::<Result<Vec<_>, _>>()?;
        let sender = PacketSender::open(hosts, arrivals, &ends)?;
        Ok(Box::new(sender))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::blocks::tests::{alike, media};

    fn url(place: usize, offer: &Offer, stream: usize) -> String {
        let far = SocketAddr::from(([10, 0, 0, 2], PORT));
        Srt::ALL[place].url(offer, stream, far, "caller")
    }

    #[test]
    fn a_stream_alone_has_its_latency_and_no_pace() {
        let same = "srt://10.0.0.2:9000?mode=caller&latency=126&payloadsize=1316&drifttracer=0";
        for (place, with) in [(0, ""), (1, FEC), (2, "")] {
            assert_eq!(url(place, &alike(), 0), format!("{same}{with}"));
        }
    }

    #[test]
    fn each_stream_has_the_latency_of_its_path_and_what_others_leave_of_it() {
        let offer = media(1_000_000);
        let [srt, apart] = [0, 3].map(|place| [0, 1, 2].map(|stream| url(place, &offer, stream)));
        let has = |url: &str, latency: u64, pace: u64| {
            let wanted = [format!("latency={latency}&"), format!("maxbw={pace}")];
            assert!(wanted.iter().all(|part| url.contains(part)), "{url}");
        };
        has(&srt[0], 730, 1_000_000);
        has(&srt[1], 925, 995_000);
        has(&srt[2], 2_875, 848_125);
        assert_eq!(apart[..2], srt[..2]);
        has(&apart[2], 2_625, 1_000_000);
    }
}
