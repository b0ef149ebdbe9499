//! Passing the stack's events to the tasks that wait for them.

use std::{sync::Arc, time::Instant};

use starhaul_quic::{NodeEvent, SessionHandle, SignalTarget};
use starhaul_session::{Event, Mode, PathId, StreamConfig, StreamId};

use crate::{
    Block, Error, Overload,
    paths::prober,
    queue::{Bounds, Queue},
    state::{ByteEntry, Filled, OpenedContent, OpenedStream, SessionEntry, SessionShared, State},
};

/// The code with which streams are refused if the application is too slow to accept them.
const CODE_REFUSED: u32 = 0x5ef0;
/// A received block counts as so many bytes at least, which is more than it costs besides its own.
const LEAST_COUNTED_BYTES: usize = 256;

/// Drains the stack's events.
pub(crate) fn dispatch(state: &mut State, now: Instant) {
    while let Some(event) = state.node.poll_event() {
        match event {
            NodeEvent::Connected(session) => connected(state, session, now),
            NodeEvent::Accepted { session, peer } => {
                let entry = Arc::new(SessionShared::new(session, peer));
                let _ = entry.established_at.set(now);
                let mut accepted = SessionEntry::new(entry.clone());
                accepted.accepted = true;
                state.sessions.insert(session, accepted);
                let peer = state.peer_name(session);
                tracing::debug!(session = session.0, peer, "session accepted");
                if state.incoming.try_push(entry, 0).is_err() {
                    state.close_session(session, "the application accepts no sessions");
                }
            }
            NodeEvent::Closed {
                session,
                error,
                streams,
            } => {
                let peer = state.peer_name(session);
                if let Some(entry) = state.sessions.get(&session) {
                    entry.shared.keep_ended(streams);
                }
                match &error {
                    Some(error) => {
                        tracing::debug!(session = session.0, peer, %error, "session ended");
                    }
                    None => tracing::debug!(session = session.0, peer, "session closed"),
                }
                state.end_session(session, error.map(Error::Transport));
            }
            NodeEvent::PathUp {
                session,
                path,
                name,
            } => {
                if let Some(others) = state.path_lines.take(now) {
                    let peer = state.peer_name(session);
                    tracing::info!(session = session.0, peer, path = name, others, "path up");
                }
                if let Some(entry) = state.sessions.get_mut(&session) {
                    entry.down.remove(&path);
                    if entry.accepted {
                        probe_accepted(state, session, path);
                    }
                }
                state.remove_retired(session, now);
            }
            NodeEvent::PathDown {
                session,
                path,
                name,
                reason,
            } => {
                let peer = state.peer_name(session);
                match state.is_open(session) {
                    true => {
                        if let Some(others) = state.path_lines.take(now) {
                            tracing::warn!(
                                session = session.0,
                                peer,
                                path = name,
                                reason,
                                others,
                                "path down"
                            );
                        }
                    }
                    // The task that waits for the session gets the reason, and tries again and again.
                    false => {
                        tracing::debug!(
                            session = session.0,
                            peer,
                            path = name,
                            reason,
                            "path down"
                        );
                    }
                }
                let follower = SignalTarget::Path(session, path);
                state.probers.leave(follower);
                let paths = state.node.path_status(session);
                if let Some(entry) = state.sessions.get_mut(&session) {
                    // The peer may have removed others.
                    let is_there = |id: PathId| paths.iter().any(|status| status.path == id);
                    entry.down.retain(|id, _| is_there(*id));
                    if is_there(path) {
                        entry.down.insert(path, reason);
                    }
                }
            }
            NodeEvent::Refused { remote, key } => state.refused.tell(now, remote, key),
            NodeEvent::Session { session, event } => session_event(state, session, event, now),
        }
    }
    state.probers.pace(now, &state.node);
}

/// A path that a peer opened is up: starts a prober for it if it leads over our dish.
fn probe_accepted(state: &mut State, session: SessionHandle, path: PathId) {
    let Some(detection) = state.accepting.detection else {
        return;
    };
    let paths = state.node.path_status(session);
    if let Some(status) = paths.iter().find(|status| status.path == path) {
        let interface = state.accepting.interface.clone();
        let prober = prober(detection, status.remote, None, interface);
        let follower = SignalTarget::Path(session, path);
        state.probers.follow(follower, prober, None);
    }
}

fn connected(state: &mut State, session: SessionHandle, now: Instant) {
    let Some(entry) = state.sessions.get_mut(&session) else {
        return;
    };
    let _ = entry.shared.established_at.set(now);
    if let Some(connecting) = entry.connecting.take() {
        // A caller that no longer waits has closed the session.
        let _ = connecting.send(Ok(()));
    }
    let own = &entry.own_paths;
    let down = entry.down.iter().filter_map(|(path, reason)| {
        let name = own.get(path)?.spec.name.clone();
        Some((name, reason.clone()))
    });
    for (path, reason) in down.collect::<Vec<_>>() {
        let peer = state.peer_name(session);
        tracing::warn!(session = session.0, peer, path, reason, "path down");
    }
}

fn session_event(state: &mut State, session: SessionHandle, event: Event, now: Instant) {
    let Some(entry) = state.sessions.get_mut(&session) else {
        return;
    };
    match event {
        Event::StreamOpened { stream, config } => {
            if !opened(entry, state.block_bounds, stream, config)
                && let Some(machine) = state.node.session(session)
            {
                if let Some(others) = state.refused_streams.is_due(now) {
                    tracing::warn!(
                        session = session.0,
                        ?stream,
                        others,
                        "stream refused: too many wait"
                    );
                }
                // Errors mean that the stream has ended already.
                let _ = machine.stop(now, stream, CODE_REFUSED);
                let _ = machine.reset(now, stream, CODE_REFUSED);
            }
        }
        Event::BlockReceived {
            stream,
            block,
            data,
            latency,
        } => {
            let block = Block {
                id: block,
                data,
                latency,
            };
            received(state, (session, stream), block);
        }
        Event::BlockMissing { stream, block } => {
            tracing::debug!(
                session = session.0,
                ?stream,
                ?block,
                "the peer gave a block up"
            );
        }
        Event::BlockOutcome {
            stream,
            block,
            outcome,
        } => {
            // Mostly the application waits for none, and blocks are many.
            if !entry.outcomes.is_empty()
                && let Some(waiting) = entry.outcomes.remove(&(stream, block))
            {
                // The handle may have been dropped.
                let _ = waiting.send(outcome);
            }
        }
        Event::Readable(stream) => {
            let bytes = entry.bytes.get(&stream);
            let reader = bytes.and_then(|bytes| bytes.reader.take());
            state.woken.add_reader(reader);
        }
        Event::Writable(stream) => {
            let bytes = entry.bytes.get(&stream);
            let writer = bytes.and_then(|bytes| bytes.writer.take());
            state.woken.add(writer);
        }
        Event::Reset { stream, code } => {
            if let Some(bytes) = entry.bytes.get_mut(&stream) {
                bytes.reset = Some(code);
                state.woken.add(bytes.reader.take());
            }
            end_blocks(entry, stream);
        }
        Event::Stopped { stream, code } => {
            if let Some(bytes) = entry.bytes.get_mut(&stream) {
                bytes.stopped.send_replace(Some(code));
                state.woken.add(bytes.writer.take());
            }
        }
        Event::StreamFinished(stream) => end_blocks(entry, stream),
        Event::Overload { wanted, available } => {
            let told = Overload { wanted, available };
            entry.overload.send_replace(Some(told));
            if let Some(others) = entry.overloads.is_due(now) {
                let peer = state.peer_name(session);
                tracing::warn!(session = session.0, peer, %wanted, %available, others, "streams ask for more than the paths carry");
            }
        }
    }
}

/// Queues a block for the application; mostly of the same stream as the one before, whose queue is at hand.
fn received(state: &mut State, (session, stream): (SessionHandle, StreamId), block: Block) {
    let is_its = |last: &Filled| (last.session, last.stream) == (session, stream);
    if !state.filled.last().is_some_and(is_its) {
        let entry = state.sessions.get(&session);
        let Some(blocks) = entry.and_then(|entry| entry.blocks.get(&stream)) else {
            return;
        };
        state.filled.push(Filled {
            session,
            stream,
            blocks: blocks.clone(),
        });
    }
    if let Some(filled) = state.filled.last() {
        let bytes = block.data.len().max(LEAST_COUNTED_BYTES);
        filled.blocks.push_dropping_oldest(block, bytes);
    }
}

/// Queues a stream of the peer for the application; returns `false` if too many wait already.
fn opened(entry: &mut SessionEntry, bounds: Bounds, id: StreamId, config: StreamConfig) -> bool {
    let push = |config, content| {
        let opened = OpenedStream {
            id,
            config,
            content,
        };
        entry.shared.incoming.try_push(opened, 0).is_ok()
    };
    match config.mode {
        Mode::Reliable => {
            let (bytes, signs) = ByteEntry::new();
            let is_taken = push(config, OpenedContent::Bytes(signs));
            if is_taken {
                entry.bytes.insert(id, bytes);
            }
            is_taken
        }
        _ => {
            let blocks = Arc::new(Queue::new(bounds, entry.shared.budget.clone()));
            let is_taken = push(config, OpenedContent::Blocks(blocks.clone()));
            if is_taken {
                entry.blocks.insert(id, blocks);
            }
            is_taken
        }
    }
}

fn end_blocks(entry: &mut SessionEntry, stream: StreamId) {
    if let Some(blocks) = entry.blocks.remove(&stream) {
        blocks.close();
    }
}
