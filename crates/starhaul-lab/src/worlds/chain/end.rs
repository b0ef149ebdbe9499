//! An end of a rival's flow, or a relay between two of its connections, as a node of the simulator.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::Instant,
};

use starhaul_cc::{Controller, PathSignal, Reconfiguration};
use starhaul_flow::{
    ACK_BYTES, Ack, AckPolicy, DataPacket, PACKET_BYTES, Receiver, Sender, Source,
};
use starhaul_link::Delays;
use starhaul_sim::{Delivery, Load, Node, Packet};

/// What a relay holds of a connection at most: Linux's greatest default send buffer (`net.ipv4.tcp_wmem`), in which waits what the next
/// hop has not acknowledged.
const BUFFER_BYTES: u64 = 4 << 20;
const BUFFER: u64 = BUFFER_BYTES / PACKET_BYTES;
/// A sender hears at once of so much more room: more at a time would come as a burst.
const NEWS: u64 = 2;

/// A packet of a flow.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// Data, with the time at which its chunk left the source first.
    Data(DataPacket, Instant),
    Ack(Ack, Room),
    /// There is more room, and nothing to acknowledge.
    News(Room),
}

/// What a receiving end has, and may be sent, in chunks from the first one on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    in_order: u64,
    until: u64,
}

impl Load for Message {
    fn bytes(&self) -> usize {
        match self {
            Self::Data(..) => usize::try_from(PACKET_BYTES).unwrap_or(usize::MAX),
            Self::Ack(..) | Self::News(_) => ACK_BYTES,
        }
    }
}

/// It receives, and a relay sends on what it received.
pub(super) struct End {
    receiver: Receiver,
    from: SocketAddr,
    pub(super) out: Option<Out>,
    /// Whether it holds a bounded part of what was not passed on, as a relay, or takes all, as who reads from a flow of its own.
    is_bounded: bool,
    /// The last chunk that it told its sender to send.
    told: u64,
    /// Chunks that arrived in order, and those out of order, with the time at which they left the source.
    pub(super) in_order: u64,
    early: BTreeMap<u64, Instant>,
    furthest: u64,
    pub(super) delays: Delays,
    pub(super) late_delays: Delays,
    answers: VecDeque<Packet<Message>>,
}

/// The sending side of an end.
pub(super) struct Out {
    pub(super) sender: Sender,
    to: SocketAddr,
    /// When chunks left the source, those of unknown ones leave it here.
    left: Vec<Instant>,
    /// Chunks that are there to be sent.
    offered: u64,
    room: Room,
    /// Changes of the path that the controller will hear of, in order of time.
    signals: VecDeque<(Instant, Reconfiguration)>,
    /// How many it has heard of.
    pub(super) heard: u64,
}

impl Out {
    /// Sends so many chunks at first.
    fn new(
        start: Instant,
        offered: u64,
        until: u64,
        controller: Box<dyn Controller>,
        to: SocketAddr,
    ) -> Self {
        let source = Source::Given(offered.min(until));
        Self {
            sender: Sender::new(start, source, AckPolicy::default(), controller),
            to,
            left: Vec::new(),
            offered,
            room: Room { in_order: 0, until },
            signals: VecDeque::new(),
            heard: 0,
        }
    }

    fn offer(&mut self, now: Instant, chunks: u64) {
        self.offered = self.offered.max(chunks);
        self.sender.offer(now, self.offered.min(self.room.until));
    }

    fn hear(&mut self, now: Instant, room: Room) {
        self.room.in_order = self.room.in_order.max(room.in_order);
        self.room.until = self.room.until.max(room.until);
        self.offer(now, 0);
    }
}

impl End {
    /// Sends so many chunks to who takes all, and tells its controller of changes of the path.
    pub(super) fn source(
        start: Instant,
        chunks: u64,
        controller: Box<dyn Controller>,
        to: SocketAddr,
        signals: VecDeque<(Instant, Reconfiguration)>,
    ) -> Self {
        let out = Out::new(start, chunks, u64::MAX, controller, to);
        Self {
            out: Some(Out { signals, ..out }),
            ..Self::sink(to)
        }
    }

    /// Sends so many chunks to a relay.
    pub(super) fn first(
        start: Instant,
        chunks: u64,
        controller: Box<dyn Controller>,
        to: SocketAddr,
    ) -> Self {
        Self {
            out: Some(Out::new(start, chunks, BUFFER, controller, to)),
            ..Self::sink(to)
        }
    }

    /// Passes on what comes.
    pub(super) fn relay(
        start: Instant,
        from: SocketAddr,
        controller: Box<dyn Controller>,
        to: SocketAddr,
    ) -> Self {
        Self {
            is_bounded: true,
            ..Self {
                from,
                ..Self::first(start, 0, controller, to)
            }
        }
    }

    /// Receives what a relay sends.
    pub(super) fn last(from: SocketAddr) -> Self {
        Self {
            is_bounded: true,
            ..Self::sink(from)
        }
    }

    /// Receives, and takes all.
    pub(super) fn sink(from: SocketAddr) -> Self {
        Self {
            receiver: Receiver::new(AckPolicy::default()),
            from,
            out: None,
            is_bounded: false,
            told: BUFFER,
            in_order: 0,
            early: BTreeMap::new(),
            furthest: 0,
            delays: Delays::default(),
            late_delays: Delays::default(),
            answers: VecDeque::new(),
        }
    }

    fn take_data(&mut self, now: Instant, packet: DataPacket, left: Instant) {
        if self.receiver.handle_data(now, packet) {
            let delay = now.saturating_duration_since(left);
            self.delays.add(delay);
            if packet.chunk < self.furthest {
                self.late_delays.add(delay);
            }
            self.furthest = self.furthest.max(packet.chunk);
            self.early.insert(packet.chunk, left);
            while let Some(left) = self.early.remove(&self.in_order) {
                self.in_order += 1;
                if let Some(out) = &mut self.out {
                    out.left.push(left);
                    out.offer(now, self.in_order);
                }
            }
        }
        self.acknowledge(now);
    }

    /// A relay holds what its next neighbour has not in order.
    fn room(&self) -> Room {
        let passed_on = self
            .out
            .as_ref()
            .map_or(self.in_order, |out| out.room.in_order);
        let until = if self.is_bounded {
            passed_on + BUFFER
        } else {
            u64::MAX
        };
        Room {
            in_order: self.in_order,
            until,
        }
    }

    fn acknowledge(&mut self, now: Instant) {
        if let Some(ack) = self.receiver.poll_transmit(now) {
            self.answer(|room| Message::Ack(ack, room));
        }
    }

    fn answer(&mut self, message: impl FnOnce(Room) -> Message) {
        let room = self.room();
        self.told = self.told.max(room.until);
        self.answers.push_back(Packet {
            local: 0,
            to: self.from,
            load: message(room),
        });
    }

    /// The next neighbour has more, and takes more.
    fn take_room(&mut self, now: Instant, room: Room) {
        if let Some(out) = &mut self.out {
            out.hear(now, room);
        }
        if self.is_bounded && self.room().until >= self.told + NEWS {
            self.answer(Message::News);
        }
    }
}

impl Node for End {
    type Load = Message;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Message>) {
        match packet.load {
            Message::Data(data, left) => self.take_data(now, data, left),
            Message::Ack(ack, room) => {
                if let Some(out) = &mut self.out {
                    out.sender.handle_ack(now, &ack);
                }
                self.take_room(now, room);
            }
            Message::News(room) => self.take_room(now, room),
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Packet<Message>>) {
        out.append(&mut self.answers);
        if let Some(Out {
            sender, to, left, ..
        }) = &mut self.out
            && let Some(packet) = sender.poll_transmit(now)
        {
            let chunk = usize::try_from(packet.chunk).unwrap_or(usize::MAX);
            if left.len() <= chunk {
                left.resize(chunk + 1, now);
            }
            let load = Message::Data(packet, left[chunk]);
            out.push_back(Packet {
                local: 0,
                to: *to,
                load,
            });
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let out = self.out.as_ref();
        let sender = out.and_then(|out| out.sender.poll_timeout());
        let signal = out.and_then(|out| out.signals.front());
        [
            sender,
            signal.map(|(at, _)| *at),
            self.receiver.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.acknowledge(now);
        if let Some(out) = &mut self.out {
            while let Some((_, signal)) = out.signals.pop_front_if(|(at, _)| *at <= now) {
                out.heard += 1;
                let signal = PathSignal::Reconfiguration(signal);
                out.sender.path().on_signal(now, signal);
            }
            out.sender.handle_timeout(now);
        }
    }
}

/// Seconds that a relay's buffer takes over a link of so many Mbit/s.
#[cfg(test)]
pub(super) fn buffer_seconds(mbit: f64) -> f64 {
    BUFFER_BYTES as f64 * 8e-6 / mbit
}
