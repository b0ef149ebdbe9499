//! The thread of a chain: it moves bytes between the node and what applications share with it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes};
use starhaul_leotp::{Event, NeighbourId, Outcome, StreamEvent, StreamId, StreamRead};
use starhaul_net::leotp::LeotpDriver;
use tokio::sync::mpsc;

use super::{halves::pair, state::ChainShared};

/// The code of a reset by an end that closes.
const CODE_CLOSED: u64 = 3;
/// How long an end that closes stays where streams were open of late, to be asked for their ends: once more over a geostationary link,
/// should the first answer be lost.
const LEAVE: Duration = Duration::from_secs(2);

/// A node, and its streams by the numbers that applications know.
pub(super) struct ChainDriver {
    driver: LeotpDriver,
    names: Vec<(NeighbourId, String)>,
    shared: Arc<ChainShared>,
    accepted: mpsc::UnboundedSender<(Bytes, u64)>,
    ids: BTreeMap<u64, StreamId>,
    keys: HashMap<StreamId, u64>,
    streams_total: u64,
    shared_keys: starhaul_log::Seldom,
}

impl ChainDriver {
    pub(super) fn new(
        driver: LeotpDriver,
        names: Vec<(NeighbourId, String)>,
        shared: Arc<ChainShared>,
        accepted: mpsc::UnboundedSender<(Bytes, u64)>,
    ) -> Self {
        Self {
            driver,
            names,
            shared,
            accepted,
            ids: BTreeMap::new(),
            keys: HashMap::new(),
            streams_total: 0,
            shared_keys: starhaul_log::Seldom::default(),
        }
    }

    /// Drives the node until no application is left or the socket fails.
    pub(super) fn run(mut self) {
        loop {
            if self.apply_changes() {
                self.leave();
                break;
            }
            // What was just done may be news at once, without a packet or a timer.
            self.handle_events();
            if let Err(error) = self.driver.turn(None) {
                tracing::error!(%error, "the end of the LEOTP chain has failed; it carries nothing any more");
                break;
            }
            self.handle_events();
        }
        let shared = self.shared.clone();
        // The socket is closed first.
        drop(self);
        shared.end(Outcome::Silent);
    }

    /// Resets what is left, and stays for a moment so that the other side hears of it.
    fn leave(&mut self) {
        let now = Instant::now();
        let node = self.driver.node();
        for id in self.ids.values() {
            node.reset_stream(now, *id, CODE_CLOSED);
        }
        let until = now + LEAVE;
        while self.driver.node().streams_asked_for() > 0 && Instant::now() < until {
            if self.driver.turn(Some(until)).is_err() {
                return;
            }
            while self.driver.node().poll_event().is_some() {}
        }
    }

    /// Does what applications want; returns whether there are none any more.
    fn apply_changes(&mut self) -> bool {
        let now = Instant::now();
        let shared = self.shared.clone();
        let (opening, changed, is_abandoned, is_closed) = {
            let mut state = shared.lock();
            (
                std::mem::take(&mut state.opening),
                std::mem::take(&mut state.changed),
                state.is_abandoned,
                state.is_closed,
            )
        };
        for (key, header) in opening {
            match self.driver.node().open_stream(now, &header) {
                Some(id) => self.note(key, id),
                None => shared.lock().close(key, Outcome::Refused(0)),
            }
        }
        for key in changed {
            if let Some(&id) = self.ids.get(&key) {
                self.send(now, key, id);
                self.receive(now, key, id);
            }
        }
        self.tell_status();
        is_closed || is_abandoned && self.ids.is_empty()
    }

    fn note(&mut self, key: u64, id: StreamId) {
        self.ids.insert(key, id);
        self.keys.insert(id, key);
        self.streams_total += 1;
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.driver.node().poll_event() {
            let now = Instant::now();
            match event {
                Event::Met(id) => {
                    let name = self.names.iter().find(|(known, _)| *known == id);
                    let name = name.map_or("?", |(_, name)| name);
                    tracing::info!(neighbour = name, "is there");
                }
                Event::Shared(id) => {
                    if let Some(withheld) = self.shared_keys.is_due(now) {
                        let name = self.names.iter().find(|(known, _)| *known == id);
                        let neighbour = name.map_or("?", |(_, name)| name);
                        tracing::warn!(
                            neighbour,
                            withheld,
                            "two programs use its key: each keeps the other from what it asks for"
                        );
                    }
                }
                Event::Stream(StreamEvent::Accepted(id)) => self.accept(now, id),
                Event::Stream(StreamEvent::Readable(id)) => self.with(id, |it, key| {
                    it.receive(now, key, id);
                }),
                Event::Stream(StreamEvent::Writable(id)) => self.with(id, |it, key| {
                    it.send(now, key, id);
                }),
                Event::Stream(StreamEvent::Closed(id, outcome)) => {
                    if let Some(key) = self.keys.remove(&id) {
                        self.ids.remove(&key);
                        self.shared.lock().close(key, outcome);
                    }
                }
                _ => {}
            }
        }
    }

    fn with(&mut self, id: StreamId, act: impl FnOnce(&mut Self, u64)) {
        if let Some(&key) = self.keys.get(&id) {
            act(self, key);
        }
    }

    fn accept(&mut self, now: Instant, id: StreamId) {
        let node = self.driver.node();
        let header = node.stream_header(id).unwrap_or_default();
        // What the application answers is among its data.
        node.answer_stream(now, id, &[]);
        let key = self.shared.lock().add();
        self.note(key, id);
        self.receive(now, key, id);
        if let Err(mpsc::error::SendError((_, key))) = self.accepted.send((header, key)) {
            // The application has dropped the end that accepts.
            drop(pair(&self.shared, key));
        }
    }

    /// Gives the node what the application wrote, as much as it takes.
    fn send(&mut self, now: Instant, key: u64, id: StreamId) {
        let mut state = self.shared.lock();
        let most = state.most_waiting();
        let Some(entry) = state.entries.get_mut(&key) else {
            return;
        };
        let node = self.driver.node();
        if let Some(code) = entry.reset {
            node.reset_stream(now, id, code);
            self.ids.remove(&key);
            self.keys.remove(&id);
            return state.close(key, Outcome::Reset(code));
        }
        while let Some(chunk) = entry.outbound.front_mut() {
            let taken = node.write_stream(now, id, chunk);
            chunk.advance(taken);
            entry.outbound_bytes -= taken;
            if !chunk.is_empty() {
                break;
            }
            entry.outbound.pop_front();
        }
        if entry.outbound.is_empty() && entry.is_finished {
            node.finish_stream(now, id);
        }
        if entry.outbound_bytes < most {
            entry.wake_writer();
        }
    }

    /// Takes from the node what the application has room for.
    fn receive(&mut self, now: Instant, key: u64, id: StreamId) {
        let mut state = self.shared.lock();
        let most = state.most_waiting();
        let Some(entry) = state.entries.get_mut(&key) else {
            return;
        };
        let node = self.driver.node();
        let before = (entry.inbound.len(), entry.has_ended);
        while entry.inbound_bytes < most {
            match node.read_stream(now, id) {
                Some(StreamRead::Data(_)) if entry.discards => {}
                Some(StreamRead::Data(data)) => {
                    entry.inbound_bytes += data.len();
                    entry.inbound.push_back(data);
                }
                Some(StreamRead::End) => entry.has_ended = true,
                None => break,
            }
        }
        entry.is_full = entry.inbound_bytes >= most;
        if before != (entry.inbound.len(), entry.has_ended) {
            entry.wake_reader();
        }
    }

    fn tell_status(&mut self) {
        let node = self.driver.node();
        let mut state = self.shared.lock();
        state.streams = (self.ids.len() as u64, self.streams_total);
        state.node = node.stats();
        state.up.clear();
        let up = self.names.iter().map(|(id, _)| node.has_met(*id));
        state.up.extend(up);
    }
}
