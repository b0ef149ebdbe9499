//! The packets of one class on their way to the session.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::{io::AsyncWriteExt as _, sync::Notify};

use super::{Tunnel, count, queue::PacketQueue};
use crate::{
    config::{Carriage, Delivery, PacketClass},
    label::{Flow, Label},
    peer::PeerSession,
    policy::stream_config,
};

/// Pause after a stream was refused.
const STREAM_PAUSE: Duration = Duration::from_secs(1);
/// Bytes given to a reliable stream at once: what waits in our queue can still be dropped.
const FRAMES_BYTES: usize = 32 << 10;
/// How often the paths are asked for their round-trip time.
const ROUND_TRIP_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the length before each packet on a reliable stream.
const LENGTH_BYTES: usize = 2;

/// The packets of one class.
#[derive(Debug)]
pub(super) struct Lane {
    class: PacketClass,
    queue: Mutex<PacketQueue>,
    news: Notify,
}

impl Lane {
    pub(super) fn new(class: &PacketClass) -> Arc<Self> {
        Arc::new(Self {
            class: class.clone(),
            queue: Mutex::new(PacketQueue::new()),
            news: Notify::new(),
        })
    }

    /// Appends a packet; [`Lane::wake`] must follow.
    pub(super) fn push(&self, now: Instant, packet: &[u8]) {
        // A packet of its own: the buffer in which it came holds many.
        self.queue.lock().push(now, BytesMut::from(packet));
    }

    /// Wakes the task that carries the packets, if there are any.
    pub(super) fn wake(&self) {
        if !self.queue.lock().is_empty() {
            self.news.notify_one();
        }
    }

    /// Sends the packets on a stream of the peer's chosen session, and on one of the next when that has ended.
    pub(super) async fn carry(self: Arc<Self>, tunnel: Arc<Tunnel>) {
        loop {
            tunnel.peer.wait_for_session().await;
            *tunnel.alone_since.lock() = None;
            let Some(session) = tunnel.peer.session() else {
                continue;
            };
            let carried = async {
                match &self.class.carriage {
                    Carriage::Deadline(delivery) => {
                        self.carry_blocks(&tunnel, &session, delivery).await
                    }
                    Carriage::Reliable => self.carry_frames(&tunnel, &session).await,
                }
            };
            tokio::select! {
                () = carried => {}
                // Also when the peer began anew and this side has not yet noticed the end of the one before.
                () = tunnel.peer.wait_for_other(&session) => {}
            }
            // What waited for that stream comes too late for the next one.
            let lost = self.queue.lock().pop_all().count();
            let is_there = tunnel.peer.session().is_some();
            let counters = &tunnel.counters;
            let cause = if is_there {
                &counters.refused
            } else {
                &counters.no_session
            };
            count(cause, lost);
            tokio::time::sleep(STREAM_PAUSE / 10).await;
        }
    }

    fn label(&self, tunnel: &Tunnel) -> Label {
        let class = self.class.name.clone();
        Label::new(&tunnel.rule.name, Flow::Packets { class })
    }

    /// Each packet as a block, until the stream is refused.
    async fn carry_blocks(&self, tunnel: &Tunnel, session: &PeerSession, delivery: &Delivery) {
        let config = stream_config(delivery, self.class.priority, &self.label(tunnel));
        let stream = match session.inner.open_stream(config).await {
            Ok(stream) => stream,
            Err(error) => return self.refused(tunnel, session, &error).await,
        };
        loop {
            self.news.notified().await;
            let packets: Vec<Bytes> = {
                let mut queue = self.queue.lock();
                self.settle(tunnel, &mut queue);
                queue.pop_all().map(BytesMut::freeze).collect()
            };
            stream.queue_blocks(packets, |error| {
                session.note(&error);
                count(&tunnel.counters.refused, 1);
            });
        }
    }

    /// The packets on a reliable stream, each behind its length, until the stream ends.
    async fn carry_frames(&self, tunnel: &Tunnel, session: &PeerSession) {
        let label = self.label(tunnel).encode();
        let stream = match session.inner.open_bytes(self.class.priority, label).await {
            Ok(stream) => stream,
            Err(error) => return self.refused(tunnel, session, &error).await,
        };
        let (_reader, mut writer) = stream.into_split();
        let mut frames = BytesMut::new();
        let mut asked: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if asked.is_none_or(|asked| now.saturating_duration_since(asked) > ROUND_TRIP_PAUSE) {
                asked = Some(now);
                self.queue.lock().set_round_trip(round_trip(session));
            }
            let mut packets = 0;
            {
                let mut queue = self.queue.lock();
                queue.pop_held_short(now, FRAMES_BYTES, |packet| {
                    packets += 1;
                    // The kernel's packets are shorter than 64 KiB.
                    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
                    frames.extend_from_slice(&length.to_be_bytes());
                    frames.extend_from_slice(&packet);
                });
                self.settle(tunnel, &mut queue);
            }
            if frames.is_empty() {
                self.news.notified().await;
                continue;
            }
            let written = writer.write_all(&frames).await;
            if written.is_err() {
                count(&tunnel.counters.refused, packets);
                return;
            }
            frames.clear();
        }
    }

    async fn refused(
        &self,
        tunnel: &Tunnel,
        session: &PeerSession,
        error: &starhaul_endpoint::Error,
    ) {
        session.note(error);
        if let Some(others) = tunnel.log.is_due(Instant::now()) {
            let (rule, class) = (&tunnel.rule.name, &self.class.name);
            tracing::warn!(rule, class, %error, others, "no stream for this class of packets");
        }
        tokio::time::sleep(STREAM_PAUSE).await;
    }

    /// Counts what the queue dropped and marked.
    fn settle(&self, tunnel: &Tunnel, queue: &mut PacketQueue) {
        let harmed = queue.take_harmed();
        let counters = &tunnel.counters;
        count(
            &counters.queue,
            usize::try_from(harmed.dropped).unwrap_or(usize::MAX),
        );
        count(
            &counters.marked,
            usize::try_from(harmed.marked).unwrap_or(usize::MAX),
        );
    }
}

/// The longest round-trip time of the session's paths: a flow over all of them has about this one.
fn round_trip(session: &PeerSession) -> Duration {
    let paths = session.inner.path_status().into_iter();
    let known = paths.filter_map(|path| Some(path.stats?.smoothed_rtt));
    known.max().unwrap_or_default()
}

/// Takes packets out of a reliable stream.
#[derive(Debug, Default)]
pub struct Frames {
    rest: BytesMut,
}

impl Frames {
    /// Passes the packets that are whole with `chunk` to `take`.
    pub fn take(&mut self, chunk: &[u8], mut take: impl FnMut(&[u8])) {
        self.rest.extend_from_slice(chunk);
        while let Some((length, packets)) = self.rest.split_first_chunk::<LENGTH_BYTES>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(packet) = packets.get(..length) else {
                return;
            };
            take(packet);
            self.rest.advance(LENGTH_BYTES + length);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_come_out_of_a_stream_however_it_is_cut(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            cuts in prop::collection::vec(1_usize..400, 1..50),
        ) {
            let mut stream = Vec::new();
            for packet in &packets {
                stream.extend(u16::try_from(packet.len()).unwrap().to_be_bytes());
                stream.extend(packet);
            }
            let (mut frames, mut found, mut cuts) = (Frames::default(), Vec::new(), cuts.iter().cycle());
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                frames.take(chunk, |packet| found.push(packet.to_vec()));
                rest = after;
            }
            prop_assert_eq!(found, packets);
            prop_assert!(frames.rest.is_empty());
        }
    }
}
