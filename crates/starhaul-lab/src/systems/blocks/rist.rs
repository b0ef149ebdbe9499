//! RIST by `ristsender` and `ristreceiver`: blocks as packets, for each stream one sender whose peers are the paths.

use std::{iter, time::Duration};

use starhaul_replay::{Host, Hosts};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer,
    packets::{Ends, PacketSender, holding_time, input, output, port_of},
    program::{command, missing},
    socket_address,
};
use crate::Error;

const PROGRAMS: [&str; 2] = ["ristsender", "ristreceiver"];
const PACKAGE: &str = "rist-tools";
/// Of the first stream. Even, as RTP wants it.
const PORT: u16 = 8000;
/// By so much may packets overtake each other on one path. What comes over a longer one is later by the difference, and would be asked for
/// again each time.
const REORDERED: Duration = Duration::from_millis(5);
/// Of all weights together, by which packets are divided.
const WEIGHTS: u32 = 10;

/// By how packets are divided over the paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rist {
    name: &'static str,
    division: Division,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// The same number over each path.
    Even,
    /// Each packet over both.
    Twice,
    /// The stream that can wait longest over both, by what the others leave of each; those over the cheap path alone.
    Apart,
}

/// A path of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    link: usize,
    /// Of the packets; without weights each packet goes over all.
    weight: u32,
}

impl Rist {
    pub(super) const ALL: [Self; 3] = [
        Self::new("rist", Division::Even),
        Self::new("rist-twice", Division::Twice),
        Self::new("rist-apart", Division::Apart),
    ];

    const fn new(name: &'static str, division: Division) -> Self {
        Self { name, division }
    }

    fn peers(&self, offer: &Offer, stream: usize) -> Vec<Peer> {
        let by = |[cheap, dear]: [u32; 2]| {
            let peers = [(CHEAP, cheap), (DEAR, dear)];
            Vec::from(peers.map(|(link, weight)| Peer { link, weight }))
        };
        match self.division {
            Division::Even => by([WEIGHTS / 2; 2]),
            Division::Twice => by([0; 2]),
            Division::Apart if offer.most_patient() == Some(stream) => {
                let others = (0..offer.streams.len()).filter(|other| *other != stream);
                let cheap = part(
                    offer.left_of(CHEAP, others),
                    offer.left_of(DEAR, iter::empty()),
                );
                by([cheap, WEIGHTS - cheap])
            }
            Division::Apart => vec![Peer {
                link: CHEAP,
                weight: WEIGHTS,
            }],
        }
    }

    fn ends(&self, hosts: &Hosts, offer: &Offer, stream: usize) -> Result<Ends, Error> {
        let peers = self.peers(offer, stream);
        let options = options(offer, stream, &peers);
        // Of each stream the next even one.
        let port = port_of(PORT, 2 * stream);
        let urls = |at: &str| {
            let urls = peers.iter().map(|Peer { link, weight }| {
                let far = socket_address(hosts, Host::Far, *link, port)?;
                Ok::<_, Error>(format!("rist://{at}{far}?{options}&weight={weight}"))
            });
            let urls = urls.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, Error>(urls.join(","))
        };
        let [sender, receiver] = PROGRAMS;
        let run = |program: &str, from: &str, to: &str| {
            command(program, &["-v", "3", "-i", from, "-o", to])
        };
        Ok(Ends {
            far: run(receiver, &urls("@")?, &format!("udp://{}", output(stream))),
            near: run(sender, &format!("udp://@{}", input(stream)), &urls("")?),
        })
    }
}

/// How many of [`WEIGHTS`] a path has that can carry so much, beside another one; neither has none, which would mean all.
fn part(bytes: u64, beside: u64) -> u32 {
    let all = (bytes + beside).max(1);
    let part = (u64::from(WEIGHTS) * bytes + all / 2) / all;
    u32::try_from(part).unwrap_or(WEIGHTS).clamp(1, WEIGHTS - 1)
}

/// What both ends are told of a stream. The receiver counts from the first packet of the stream, by whichever path that came, and holds
/// all packets for the same time: the least of what any path leaves. It asks for lost packets over the path of the shortest round trip.
fn options(offer: &Offer, stream: usize, peers: &[Peer]) -> String {
    let delays = peers.iter().map(|peer| offer.links[peer.link].one_way);
    let longest = delays.clone().max().unwrap_or_default();
    let shortest = delays.min().unwrap_or_default();
    let buffer = holding_time(offer.streams[stream].deadline, longest).as_millis();
    let rtt = 2 * shortest.as_millis();
    let reordered = (REORDERED + longest.saturating_sub(shortest)).as_millis();
    format!("buffer={buffer}&rtt-min={rtt}&rtt-max={buffer}&reorder-buffer={reordered}")
}

impl BlockSystem for Rist {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        let mut missing = PROGRAMS.map(|program| missing(self.name, program, PACKAGE));
        missing.iter_mut().find_map(Option::take)
    }

    fn divides_streams(&self) -> bool {
        self.division == Division::Apart
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

    /// Of a system's stream: its options, and the weights of its paths by their places.
    fn told(place: usize, offer: &Offer, stream: usize) -> (String, Vec<(usize, u32)>) {
        let peers = Rist::ALL[place].peers(offer, stream);
        let weights = peers.iter().map(|peer| (peer.link, peer.weight)).collect();
        (options(offer, stream, &peers), weights)
    }

    #[test]
    fn alike_paths_carry_a_stream_evenly_or_twice() {
        let same = "buffer=126&rtt-min=120&rtt-max=126&reorder-buffer=5".to_owned();
        for (place, weight) in [(0, 5), (1, 0)] {
            let weights = vec![(CHEAP, weight), (DEAR, weight)];
            assert_eq!(told(place, &alike(), 0), (same.clone(), weights));
        }
    }

    #[test]
    fn what_a_longer_path_carries_is_awaited_and_in_time() {
        let offer = media(1_000_000);
        let (options, _) = told(0, &offer, 0);
        let wanted = "buffer=480&rtt-min=100&rtt-max=480&reorder-buffer=255";
        assert_eq!(options, wanted);
        let (options, weights) = told(2, &offer, 0);
        let wanted = "buffer=730&rtt-min=100&rtt-max=730&reorder-buffer=5";
        assert_eq!((options.as_str(), weights), (wanted, vec![(CHEAP, 10)]));
    }

    #[test]
    fn the_stream_that_can_wait_has_what_the_others_leave_of_each_path() {
        for (bytes, cheap) in [(170_000, 1), (340_000, 4), (1_700_000, 5)] {
            let (_, weights) = told(2, &media(bytes), 2);
            assert_eq!(weights, [(CHEAP, cheap), (DEAR, 10 - cheap)], "{bytes}");
        }
    }
}
