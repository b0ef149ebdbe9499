//! qlog records (draft-ietf-quic-qlog-main-schema, as JSON text sequences): one file for each path, which the QUIC stack writes, and
//! one for each session with its facts. Where files lie, and how many bytes they may have, is for [`QlogFiles`].

use std::{
    fmt::Debug,
    io::Write,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{ConnectionId, QlogConfig, QlogFactory};
use serde_json::{Value, json};
use starhaul_session::{Fact, Observer, Outcome, Side};

/// Ends each name of a file.
const SUFFIX: &str = "sqlog";
/// The facts of sessions, as qlog names the sets of events that a file may have.
const SCHEMA: &str = "urn:starhaul:qlog:session-01";
/// Begins each record of a JSON text sequence (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// What a record is written into.
pub type QlogWriter = Box<dyn Write + Send + Sync>;

/// Makes the files of qlog records.
pub trait QlogFiles: Debug + Send + Sync {
    /// A new file for the records called `name`, which has only letters, digits, `-`, `_` and `.`; `None` if there is to be none.
    /// Names may repeat: what was recorded before must stay.
    fn create(&self, name: &str) -> Option<QlogWriter>;
}

/// Settings of the records of one connection: the name of its file, and the instant from which all files of a node count.
pub(crate) struct PathRecord {
    pub(crate) files: Arc<dyn QlogFiles>,
    pub(crate) beginning: Instant,
    /// The session and the path, where they are known already.
    pub(crate) path: Option<(String, String)>,
}

impl QlogFactory for PathRecord {
    fn for_connection(
        &self,
        side: noq_proto::Side,
        remote: SocketAddr,
        first_id: ConnectionId,
        _now: Instant,
    ) -> Option<QlogConfig> {
        let end = if side.is_client() { "client" } else { "server" };
        let (name, title) = match &self.path {
            Some((session, path)) => (
                format!("path-{first_id}-{}-{end}.{SUFFIX}", plain(path)),
                format!("path {path} of session {session} to {remote}"),
            ),
            None => (
                format!("path-{first_id}-{end}.{SUFFIX}"),
                format!("path from {remote}"),
            ),
        };
        let mut config = QlogConfig::new(self.files.create(&name)?);
        config.title(Some(title)).start_time(self.beginning);
        Some(config)
    }
}

/// Writes the facts of a session.
pub(crate) struct SessionRecord {
    out: Option<QlogWriter>,
    beginning: Instant,
}

impl SessionRecord {
    /// The record of the session with this number on both ends; `None` if there is to be none.
    pub(crate) fn create(
        files: &dyn QlogFiles,
        beginning: Instant,
        session: &str,
        side: Side,
    ) -> Option<Self> {
        let end = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let out = files.create(&format!("session-{session}-{end}.{SUFFIX}"))?;
        let mut record = Self {
            out: Some(out),
            beginning,
        };
        record.write(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": format!("session {session}"),
            "trace": {
                "common_fields": {
                    "group_id": session,
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                    "time_format": "relative_to_epoch",
                },
                "vantage_point": { "type": end },
                "event_schemas": [SCHEMA],
            },
        }));
        Some(record)
    }

    /// A record that cannot be written ends the file.
    fn write(&mut self, record: &Value) {
        let Some(out) = &mut self.out else {
            return;
        };
        let mut line = vec![RECORD_SEPARATOR];
        let written = serde_json::to_writer(&mut line, record)
            .map_err(Into::into)
            .and_then(|()| {
                line.push(b'\n');
                out.write_all(&line)
            });
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write a session's qlog; it ends here");
            self.out = None;
        }
    }
}

impl Debug for SessionRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionRecord").finish_non_exhaustive()
    }
}

impl Observer for SessionRecord {
    fn on_fact(&mut self, now: Instant, fact: &Fact<'_>) {
        if self.out.is_none() {
            return;
        }
        let time = millis(now.saturating_duration_since(self.beginning));
        self.write(&json!({
            "time": time,
            "name": format!("starhaul:{}", fact.name()),
            "data": data(fact),
        }));
    }
}

/// Prints the facts of a session into the log, at its finest level.
#[derive(Debug)]
pub(crate) struct SessionTrace;

impl Observer for SessionTrace {
    fn on_fact(&mut self, _now: Instant, fact: &Fact<'_>) {
        tracing::trace!("{fact}");
    }
}

/// What a record says of a fact; durations are in milliseconds.
fn data(fact: &Fact<'_>) -> Value {
    match fact {
        Fact::PathUp { path, cost } => json!({ "path": path.0, "cost": cost }),
        Fact::PathSilent { path } | Fact::PathDown { path } => json!({ "path": path.0 }),
        Fact::StreamOpened {
            stream,
            opener,
            mode,
        } => json!({
            "stream": stream.0,
            "opener": format!("{opener:?}").to_lowercase(),
            "mode": mode.name(),
        }),
        Fact::BlockQueued {
            stream,
            block,
            bytes,
            deadline,
            priority,
        } => json!({
            "stream": stream.0,
            "block": block.0,
            "bytes": bytes,
            "deadline": millis(*deadline),
            "priority": priority,
        }),
        Fact::BlockCoded {
            stream,
            block,
            data,
            redundancy,
            fragment_bytes,
        } => json!({
            "stream": stream.0,
            "block": block.0,
            "data": data,
            "redundancy": redundancy,
            "fragment_bytes": fragment_bytes,
        }),
        Fact::FragmentSent {
            stream,
            block,
            fragment: (code, index),
            datagram,
            purpose,
            arrivals,
        } => {
            let arrivals = arrivals
                .iter()
                .map(|(path, after)| json!({ "path": path.0, "after": millis(*after) }));
            json!({
                "stream": stream.0,
                "block": block.0,
                "code": code,
                "index": index,
                "path": datagram.path.0,
                "datagram": datagram.sequence,
                "purpose": purpose.name(),
                "predicted_arrivals": arrivals.collect::<Vec<_>>(),
            })
        }
        Fact::FrameSent {
            stream,
            start,
            end,
            datagram,
            is_retransmission,
        } => json!({
            "stream": stream.0,
            "start": start,
            "end": end,
            "path": datagram.path.0,
            "datagram": datagram.sequence,
            "retransmission": is_retransmission,
        }),
        Fact::DatagramLost {
            datagram,
            stream,
            block,
        } => json!({
            "path": datagram.path.0,
            "datagram": datagram.sequence,
            "stream": stream.map(|stream| stream.0),
            "block": block.map(|block| block.0),
        }),
        Fact::BlockEnded {
            stream,
            block,
            outcome,
        } => ended(stream.0, block.0, *outcome),
        Fact::BlockReceived {
            stream,
            block,
            bytes,
            latency,
            is_recovered,
        } => json!({
            "stream": stream.0,
            "block": block.0,
            "bytes": bytes,
            "latency": millis(*latency),
            "recovered": is_recovered,
        }),
        other => json!({ "fact": other.to_string() }),
    }
}

fn ended(stream: u32, block: u32, outcome: Outcome) -> Value {
    let mut data = json!({ "stream": stream, "block": block });
    let more = match outcome {
        Outcome::Delivered {
            latency,
            on_time,
            recovered_by_redundancy,
            recovered_by_retransmission,
        } => json!({
            "outcome": "delivered",
            "latency": millis(latency),
            "on_time": on_time,
            "recovered_by_redundancy": recovered_by_redundancy,
            "recovered_by_retransmission": recovered_by_retransmission,
        }),
        Outcome::Expired(cause) => json!({
            "outcome": "expired",
            "cause": format!("{cause:?}").to_lowercase(),
        }),
        Outcome::Cancelled { because_of } => json!({
            "outcome": "cancelled",
            "because_of": because_of.map(|block| block.0),
        }),
        Outcome::Failed => json!({ "outcome": "failed" }),
    };
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    data
}

/// Milliseconds with microseconds behind the point, as qlog counts time.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// By what both ends name a session in their records.
pub(crate) fn session_name(nonce: &[u8; 16]) -> String {
    nonce
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A path's name as a part of a file's.
fn plain(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.chars()
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}
