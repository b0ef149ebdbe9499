//! Many streams and transfers over a slow or a long link, in virtual time: what waits stays little, others are answered, and nothing that
//! comes is dropped.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, NeighbourConfig, NeighbourId, NeighbourKey, Node,
    NodeConfig, Outcome, StreamConfig, StreamEvent, StreamId, StreamRead,
};
use starhaul_link::LinkSpec;
use starhaul_sim::Simulation;

use crate::acting::{acts, address};

/// The header of a stream that is to bring data.
const BULK: &[u8] = b"bulk";
const HALF_OPEN: usize = 256;

/// A node that answers each stream, and sends without end on it if it is asked to; or one that opens streams and reads.
struct End {
    node: Node,
    answered: BTreeSet<StreamId>,
    /// It resets streams when they are answered.
    resets: bool,
    closed: Vec<Outcome>,
    got: usize,
}

acts!(End);

impl End {
    fn act(&mut self, now: Instant) {
        while let Some(event) = self.node.poll_event() {
            let event = match event {
                Event::Stream(event) => event,
                Event::Readable(id) => {
                    while let Some(data) = self.node.read(now, id) {
                        self.got += data.len();
                    }
                    continue;
                }
                _ => continue,
            };
            match event {
                StreamEvent::Accepted(id) => {
                    let is_bulk = self.node.stream_header(id).unwrap() == BULK;
                    self.node.answer_stream(now, id, b"");
                    if is_bulk {
                        self.send(now, id);
                    }
                }
                StreamEvent::Writable(id) => self.send(now, id),
                StreamEvent::Answered(id) => {
                    self.answered.insert(id);
                    if self.resets {
                        self.node.reset_stream(now, id, 1);
                    }
                }
                StreamEvent::Readable(_) => {}
                StreamEvent::Closed(_, why) => self.closed.push(why),
            }
            let id = event.stream();
            while let Some(StreamRead::Data(data)) = self.node.read_stream(now, id) {
                self.got += data.len();
            }
        }
    }

    fn send(&mut self, now: Instant, id: StreamId) {
        while self.node.write_stream(now, id, &[5; 10_000]) == 10_000 {}
    }
}

/// Nodes in a row with these links between them: the first accepts, the last opens.
fn row(links: &[&str]) -> Simulation<End> {
    let start = Instant::now();
    let mut sim = Simulation::new(1, start);
    let last = u32::try_from(links.len()).unwrap() + 1;
    for number in 1..=last {
        let seed = [number.to_le_bytes()[0]; 32];
        let mut node = Node::new(start, NodeConfig::default(), seed).unwrap();
        let mut streams = StreamConfig::new(ContentSecret::new(&[8; 32]));
        streams.accepts = number == 1;
        streams.most_half_open = HALF_OPEN;
        if [1, last].contains(&number) {
            node.enable_streams(streams);
        }
        let id = sim.add_node(End {
            node,
            answered: BTreeSet::new(),
            resets: false,
            closed: Vec::new(),
            got: 0,
        });
        sim.network.bind(id, 0, address(number));
    }
    for (up, link) in (1..).zip(links) {
        let spec: LinkSpec = link.parse().unwrap();
        sim.network
            .connect(address(up), address(up + 1), &spec, &spec);
        for (at, other) in [(up, up + 1), (up + 1, up)] {
            let key = NeighbourKey::new(&[up.to_le_bytes()[0]; 32]);
            let node = &mut sim.nodes[usize::try_from(at).unwrap() - 1].node;
            node.add_neighbour(start, NeighbourId(other), NeighbourConfig { key })
                .unwrap();
            if other < at {
                node.set_upstream(start, Some(NeighbourId(other)));
            }
        }
    }
    sim.run_for(Duration::from_secs(2));
    sim
}

fn open(sim: &mut Simulation<End>, header: &[u8]) -> StreamId {
    let now = sim.now();
    let opener = sim.nodes.last_mut().unwrap();
    opener.node.open_stream(now, header).unwrap()
}

/// How long it takes until a stream is answered that is opened now; no longer than this.
fn answered_after(sim: &mut Simulation<End>, most: Duration) -> Duration {
    let (begun, id) = (sim.now(), open(sim, b""));
    while !sim.nodes.last().unwrap().answered.contains(&id) {
        sim.run_for(Duration::from_millis(10));
        let waited = sim.now() - begun;
        assert!(waited <= most, "{waited:?}");
    }
    sim.now() - begun
}

/// Each stream was sent at 350 kbit/s at least, whatever the relay said: its queue was full in a minute, and nothing passed any more.
#[test]
fn many_streams_over_a_slow_link_wait_at_their_sender() {
    const KBIT: usize = 2000;
    let mut sim = row(&[
        "rate=1gbit,delay=1ms,queue=1000p",
        "rate=2mbit,delay=10ms,queue=100p",
    ]);
    for _ in 0..30 {
        open(&mut sim, BULK);
    }
    // What comes before the first rate is known.
    sim.run_for(Duration::from_secs(5));
    let mut most = 0;
    for _ in 0..45 {
        sim.run_for(Duration::from_secs(1));
        most = most.max(sim.nodes[1].node.memory().1);
    }
    let waited = answered_after(&mut sim, Duration::from_secs(2));
    let before = sim.nodes[2].got;
    sim.run_for(Duration::from_secs(10));
    let kbit = (sim.nodes[2].got - before) * 8 / 10_000;
    println!("{most} bytes at the relay, answered after {waited:?}, {kbit} kbit/s");
    assert!(most < 1 << 19, "{most} bytes wait at the relay");
    assert_eq!(sim.nodes[1].node.stats().queue_drops, 0);
    assert!(kbit > KBIT * 8 / 10, "{kbit} kbit/s");
    assert_eq!(sim.nodes[2].closed, []);
}

/// A packet a second left at least, which is more than such a link carries: its queue was always full.
#[test]
fn a_very_slow_link_answers_others() {
    let mut sim = row(&["rate=10kbit,delay=50ms,queue=100p"]);
    open(&mut sim, BULK);
    sim.run_for(Duration::from_secs(120));
    let before = sim.nodes[1].got;
    let waited = answered_after(&mut sim, Duration::from_secs(30));
    sim.run_for(Duration::from_secs(60) - waited);
    let bits = (sim.nodes[1].got - before) * 8 / 60;
    println!("answered after {waited:?}, {bits} bit/s");
    assert!(bits > 7000, "{bits} bit/s");
    assert_eq!(sim.nodes[1].closed, []);
}

/// Of streams that began at once those went first that were next to be heard: beyond as many as may be half open in a round trip none was answered.
#[test]
fn streams_that_begin_at_once_over_a_satellite_leave_each_other_room() {
    const A_SECOND: u32 = 500;
    let mut sim = row(&["rate=100mbit,delay=300ms,queue=1000p"]);
    for _ in 0..HALF_OPEN {
        open(&mut sim, b"");
    }
    sim.run_for(Duration::from_secs(5));
    assert_eq!(sim.nodes[1].answered.len(), HALF_OPEN);

    let mut sim = row(&["rate=100mbit,delay=300ms,queue=1000p"]);
    sim.nodes[1].resets = true;
    for _ in 0..5 * A_SECOND {
        open(&mut sim, b"");
        sim.run_for(Duration::from_secs(1) / A_SECOND);
    }
    sim.run_for(Duration::from_secs(5));
    let [answered, refused] = [sim.nodes[1].answered.len(), sim.nodes[1].closed.len()];
    println!("{answered} answered, {refused} refused");
    assert!(answered > 1500, "{answered}");
    assert_eq!(answered + refused, 2500, "each is told at once");
    let without_room = sim.nodes[0].node.stats().refused.overflow;
    assert_eq!(without_room, refused as u64);
}

/// What was asked for more than ten seconds ago was forgotten although it was on its way, and dropped when it came: a transfer over a slow link,
/// or many over one, wasted most of it.
#[test]
fn what_comes_slowly_is_not_forgotten() {
    let transfers = [
        (1, 15, 300_000, 0.75),
        (10, 190, 400_000, 0.8),
        (20, 1000, 1_000_000, 0.9),
    ];
    for (count, kbit, bytes, least) in transfers {
        let link = format!("rate={kbit}kbit,delay=50ms,queue=100p");
        let mut sim = row(&[&link]);
        let (secret, begun) = (ContentSecret::new(&[3; 32]), sim.now());
        for number in 0..count {
            let content = ContentId([number; 16]);
            let source = bytes::Bytes::from(vec![5; bytes]);
            let server = &mut sim.nodes[0].node;
            server.serve(content, &secret, Box::new(source));
            let config = FetchConfig::new(content, secret.clone());
            sim.nodes[1].node.fetch(begun, config);
        }
        let all = bytes * usize::from(count);
        while sim.nodes[1].got < all && sim.now() < begun + Duration::from_secs(1000) {
            sim.run_for(Duration::from_secs(1));
        }
        let ideal = Duration::from_millis(all as u64 * 8 / kbit);
        let share = ideal.div_duration_f64(sim.now() - begun);
        let stats = sim.nodes[1].node.stats();
        let (came, again) = (stats.data_received, stats.duplicates);
        println!("{count} over {kbit} kbit/s: {share:.3} of the rate, {again} of {came} again");
        assert!(share > least, "{count} over {kbit} kbit/s: {share}");
        assert!(
            again <= came / 6,
            "{count} over {kbit} kbit/s: {again} of {came}"
        );
    }
}
