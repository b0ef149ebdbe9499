//! What LTP makes of a contact: how full its link is, and how long blocks take at each light time and loss, with and
//! without repair segments.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_ltp::{
    Batch, Coding, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig, SessionId,
};
use starhaul_plot::Column;
use starhaul_sim::{Datagram, Delivery, Node, Simulation, Udp};
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{Part, Study},
};

const RATE: Bandwidth = Bandwidth::from_mbit(20);
const BLOCK_BYTES: usize = 1_000_000;
/// How long new blocks are offered: the first minute of a contact.
const CONTACT: Duration = Duration::from_secs(60);
/// No run takes longer in virtual time.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
const LIGHT_SECONDS: [u64; 4] = [0, 1, 4, 600];
const LOSSES: [f64; 4] = [0.0, 0.01, 0.05, 0.1];
const SENDER: EngineId = EngineId(1);
const RECEIVER: EngineId = EngineId(2);
const SERVICE: u64 = 1;

/// `starhaul lab ltp`.
pub fn study() -> Study {
    Study::new(
        "ltp",
        "",
        "LTP over links with seconds and minutes of light time, with losses, with and without repair segments",
        "LTP over long links",
        "Blocks of 1 MB, offered without end for the first minute of a contact at 20 Mbit/s, in virtual time with computed defaults: how \
         full the link is, and how long after its light time a block is there. The speed of a host is another matter: starhaul ltp bench.",
    )
    .part(Part::new("contact", "", "link use and delivery by light time, loss and coding", columns, setups, |setup: &Setup| {
        Ok(vec![setup.run()?])
    }))
}

/// A contact.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    light: Duration,
    loss: f64,
    is_coded: bool,
    seed: u64,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    setup: Setup,
    /// Share of the link's rate in the first minute.
    used: f64,
    blocks: usize,
    delivered: usize,
    /// From the end of a block's transmission to its delivery, less the light time, ascending.
    waits: Vec<Duration>,
    /// Share of data segments that were sent again, and repair segments per data segment.
    resent: f64,
    repairs: f64,
    /// Most memory that the receiver held.
    memory: usize,
}

fn setups(quick: bool, seed: u64) -> Vec<Setup> {
    let mut setups = Vec::new();
    for light in LIGHT_SECONDS {
        for loss in LOSSES {
            for is_coded in [false, true] {
                // Coding for no loss is none.
                if is_coded && loss == 0.0 || quick && ![4].contains(&light) {
                    continue;
                }
                let light = Duration::from_secs(light);
                setups.push(Setup {
                    light,
                    loss,
                    is_coded,
                    seed,
                });
            }
        }
    }
    setups
}

fn columns() -> Vec<Column<Outcome>> {
    vec![
        Column::number("light_s", "light", "s", 0, |row: &Outcome| {
            row.setup.light.as_secs_f64().into()
        }),
        Column::number("loss", "loss", "%", 0, |row: &Outcome| {
            (row.setup.loss * 100.0).into()
        }),
        Column::name("coding", "repair", |row: &Outcome| {
            (if row.setup.is_coded { "yes" } else { "no" }).into()
        }),
        Column::count("seed", "seed", |row: &Outcome| row.setup.seed.into()).dropped(),
        Column::number("used", "link used", "%", 1, |row: &Outcome| {
            (row.used * 100.0).into()
        })
        .median(),
        Column::number("delivered", "delivered", "%", 2, |row: &Outcome| {
            #[expect(clippy::cast_precision_loss, reason = "a display value")]
            (row.delivered as f64 * 100.0 / row.blocks.max(1) as f64).into()
        })
        .median(),
        Column::number("wait_p50_s", "waited p50", "s", 2, |row: &Outcome| {
            percentile(&row.waits, 0.5).into()
        })
        .median(),
        Column::number("wait_p99_s", "p99", "s", 2, |row: &Outcome| {
            percentile(&row.waits, 0.99).into()
        })
        .median(),
        Column::number("resent", "sent again", "%", 1, |row: &Outcome| {
            (row.resent * 100.0).into()
        })
        .median(),
        Column::number("repairs", "repairs", "%", 1, |row: &Outcome| {
            (row.repairs * 100.0).into()
        })
        .median(),
        Column::number("memory_mb", "receiver", "MB", 0, |row: &Outcome| {
            #[expect(clippy::cast_precision_loss, reason = "a display value")]
            (row.memory as f64 / 1e6).into()
        })
        .median(),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index from a share"
)]
fn percentile(sorted: &[Duration], share: f64) -> Option<f64> {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).map(Duration::as_secs_f64)
}

impl Setup {
    fn run(&self) -> Result<Outcome, Error> {
        let start = Instant::now();
        let mut sim = Simulation::new(self.seed, start);
        let addresses: [SocketAddr; 2] =
            [([10, 0, 0, 1], 1113).into(), ([10, 0, 0, 2], 1113).into()];
        let mut config = PeerConfig::new(self.light, Some(RATE));
        config.coding = self.is_coded.then(|| Coding::new(self.loss));
        for (i, (id, peer)) in [(SENDER, RECEIVER), (RECEIVER, SENDER)]
            .into_iter()
            .enumerate()
        {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(self.seed ^ id.0 << 32).to_le_bytes());
            let mut engine = Engine::new(EngineConfig::new(id, key));
            let added = engine.add_peer(start, peer, config.clone());
            added.map_err(|error| Error::Failed(error.to_string()))?;
            engine.open_service(SERVICE);
            let node = sim.add_node(End::new(engine, peer, addresses[1 - i]));
            sim.network.bind(node, 0, addresses[i]);
        }
        let (light, loss) = (self.light.as_secs(), self.loss * 100.0);
        let spec = |rate: &str| format!("{rate}delay={light}s,loss={loss}%,queue=100p").parse();
        let links = [spec("rate=20mbit,"), spec("")].map(|link| {
            link.map_err(|error: starhaul_link::Error| Error::Failed(error.to_string()))
        });
        let [forward, backward] = links;
        let path = sim
            .network
            .connect(addresses[0], addresses[1], &forward?, &backward?);
        let block = Bytes::from(vec![7; BLOCK_BYTES]);
        let mut offered = 0;
        sim.run_until(start + CONTACT, |sim| {
            let now = sim.now();
            offered += sim.nodes[0].offer(now, &block, offered);
            Some(now + Duration::from_millis(100))
        });
        let sent_bytes = sim.network[path.forward].stats().enqueued_bytes;
        if !sim.run_until_idle(start + LONGEST) {
            return Err(Error::Failed("a session of LTP never ended".into()));
        }
        let used = Bandwidth::from_bytes_over(sent_bytes, CONTACT).mbit() / RATE.mbit();
        Ok(self.outcome(&sim.nodes[0], &sim.nodes[1], used))
    }

    fn outcome(&self, sender: &End, receiver: &End, used: f64) -> Outcome {
        let transmitted: BTreeMap<SessionId, Instant> = sender.noted.iter().copied().collect();
        let waits = receiver.noted.iter().filter_map(|(session, at)| {
            let arrival = *transmitted.get(session)? + self.light;
            Some(at.saturating_duration_since(arrival))
        });
        let mut waits: Vec<Duration> = waits.collect();
        waits.sort_unstable();
        let stats = sender.engine.stats();
        #[expect(clippy::cast_precision_loss, reason = "a display value")]
        let per_segment = |count: u64| count as f64 / stats.data_segments_sent.max(1) as f64;
        Outcome {
            setup: *self,
            used,
            blocks: transmitted.len(),
            delivered: waits.len(),
            waits,
            resent: per_segment(stats.data_segments_resent),
            repairs: per_segment(stats.repair_segments_sent),
            memory: receiver.memory,
        }
    }
}

/// An engine as a node.
struct End {
    engine: Engine,
    peer: EngineId,
    to: SocketAddr,
    batch: Batch,
    /// When blocks had left for the first time, or were delivered.
    noted: Vec<(SessionId, Instant)>,
    memory: usize,
}

impl End {
    fn new(engine: Engine, peer: EngineId, to: SocketAddr) -> Self {
        Self {
            engine,
            peer,
            to,
            batch: Batch::new(65_507, 64),
            noted: Vec::new(),
            memory: 0,
        }
    }

    /// Sends blocks until two wait behind those that have left, of `offered` so far; returns how many.
    fn offer(&mut self, now: Instant, block: &Bytes, offered: usize) -> usize {
        let wanted = (self.noted.len() + 2).saturating_sub(offered);
        let (to, service, red) = (self.peer, SERVICE, block.len() as u64);
        let send = |_: &usize| {
            let outgoing = Outgoing {
                to,
                service,
                block: block.clone(),
                red,
            };
            self.engine.send(now, outgoing).is_ok()
        };
        (0..wanted).take_while(send).count()
    }

    fn drain(&mut self, now: Instant) {
        self.memory = self.memory.max(self.engine.receive_memory());
        while let Some(event) = self.engine.poll_event() {
            if let Event::Transmitted { session } | Event::RedPart { session, .. } = event {
                self.noted.push((session, now));
            }
        }
    }
}

impl Node for End {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let payload = &packet.load.payload;
        self.engine
            .handle_datagrams(now, self.peer, payload, payload.len());
        self.drain(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        if self.engine.poll_transmit(now, &mut self.batch).is_some() {
            let segments = self.batch.contents().chunks(self.batch.segment_size());
            out.extend(
                segments
                    .map(|segment| Datagram::udp(0, self.to, 0, Bytes::copy_from_slice(segment))),
            );
        }
        self.drain(now);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
        self.drain(now);
    }
}
