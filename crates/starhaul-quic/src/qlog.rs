//! qlog records (draft-ietf-quic-qlog-main-schema, as JSON text sequences): one file for each life of a path and one for each
//! session. The QUIC stack can write its own, but then prepares them for every packet, wanted or not, and for strangers too. Where
//! files lie, and how many bytes they may have, is for [`QlogFiles`].

use std::{
    fmt::Debug,
    io::Write,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use starhaul_cc::PathController;
use starhaul_session::{Fact, Observer, Outcome, Side};

/// Ends each name of a file.
const SUFFIX: &str = "sqlog";
/// The facts of sessions, as qlog names the sets of events that a file may have.
const SESSION_SCHEMA: &str = "urn:starhaul:qlog:session-01";
/// The events of QUIC (draft-ietf-quic-qlog-quic-events).
const PATH_SCHEMA: &str = "urn:ietf:params:qlog:events:quic-12";
/// Begins each record of a JSON text sequence (RFC 7464).
const RECORD_SEPARATOR: char = '\u{1e}';

/// What records are written into, one call for each. An error ends the file; it is for the writer to report it.
pub type QlogWriter = Box<dyn Write + Send + Sync>;

/// Makes the files of qlog records.
pub trait QlogFiles: Debug + Send + Sync {
    /// A new file for the records called `name`, which has only letters, digits, `-`, `_` and `.`; `None` if there is to be none.
    /// Names may repeat: what was recorded before must stay.
    fn create(&self, name: &str) -> Option<QlogWriter>;
}

/// A qlog file that is being written.
struct Record {
    out: Option<QlogWriter>,
    beginning: Instant,
}

impl Record {
    /// A file called `name`, with its first record; `None` if there is to be none.
    fn create(
        files: &dyn QlogFiles,
        beginning: Instant,
        name: &str,
        title: String,
        (session, side, schema): (&str, Side, &str),
    ) -> Option<Self> {
        let end = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let out = files.create(&format!("{name}-{end}.{SUFFIX}"))?;
        let mut record = Self {
            out: Some(out),
            beginning,
        };
        record.write(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": title,
            "trace": {
                "common_fields": {
                    "group_id": session,
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                    "time_format": "relative_to_epoch",
                },
                "vantage_point": { "type": end },
                "event_schemas": [schema],
            },
        }));
        Some(record)
    }

    fn event(&mut self, now: Instant, name: &str, data: Value) {
        let time = millis(now.saturating_duration_since(self.beginning));
        self.write(&json!({ "time": time, "name": name, "data": data }));
    }

    fn write(&mut self, record: &Value) {
        if let Some(out) = &mut self.out {
            let line = format!("{RECORD_SEPARATOR}{record}\n");
            if out.write_all(line.as_bytes()).is_err() {
                self.out = None;
            }
        }
    }

    /// Whether records are still written.
    const fn is_open(&self) -> bool {
        self.out.is_some()
    }
}

/// Writes what happens on a path from the moment it is up: packets, their acknowledgement or loss, and the controller's figures.
pub(crate) struct PathRecord {
    record: Record,
    /// Packets acknowledged at this moment.
    acked: Vec<u64>,
}

impl PathRecord {
    /// The record of path `number` of a session, which both ends give the same name; `None` if there is to be none.
    pub(crate) fn create(
        files: &dyn QlogFiles,
        beginning: Instant,
        session: &str,
        side: Side,
        (number, name): (u32, &str),
    ) -> Option<Self> {
        let file = format!("session-{session}-path-{number}-{}", plain(name));
        let title = format!("path {number} ({name}) of session {session}");
        let record = Record::create(files, beginning, &file, title, (session, side, PATH_SCHEMA))?;
        let acked = Vec::new();
        Some(Self { record, acked })
    }

    /// A packet left, with the session's datagram of this number, if any.
    pub(crate) fn on_sent(&mut self, now: Instant, packet: u64, bytes: u64, datagram: Option<u32>) {
        if self.record.is_open() {
            let data = json!({
                "header": { "packet_type": "1RTT", "packet_number": packet },
                "raw": { "length": bytes },
                "datagram": datagram,
            });
            self.record.event(now, "quic:packet_sent", data);
        }
    }

    /// A packet was acknowledged.
    pub(crate) fn on_acked(&mut self, packet: u64) {
        if self.record.is_open() {
            self.acked.push(packet);
        }
    }

    /// These were all acknowledgements of one instant.
    pub(crate) fn on_end_of_acks(
        &mut self,
        now: Instant,
        path: &PathController,
        bytes_in_flight: u64,
        smoothed_rtt: Option<Duration>,
    ) {
        if self.acked.is_empty() {
            return;
        }
        let data = json!({
            "packet_number_space": "application_data",
            "packet_numbers": self.acked,
        });
        self.acked.clear();
        self.record.event(now, "quic:packets_acked", data);
        let controller = path.controller();
        let mut data = json!({
            "smoothed_rtt": smoothed_rtt.map(millis),
            "min_rtt": path.rtt_floor().map(millis),
            "congestion_window": controller.cwnd(),
            "bytes_in_flight": bytes_in_flight,
            "pacing_rate": path.pacing_rate(smoothed_rtt).bits_per_second(),
        });
        // What is not known yet is left out: qlog has no word for it.
        if let Value::Object(metrics) = &mut data {
            metrics.retain(|_, value| !value.is_null());
        }
        self.record
            .event(now, "quic:recovery_metrics_updated", data);
    }

    /// A packet was declared lost.
    pub(crate) fn on_lost(&mut self, now: Instant, packet: u64, bytes: u64) {
        if self.record.is_open() {
            let data = json!({
                "header": { "packet_type": "1RTT", "packet_number": packet },
                "raw": { "length": bytes },
            });
            self.record.event(now, "quic:packet_lost", data);
        }
    }
}

impl Debug for PathRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PathRecord").finish_non_exhaustive()
    }
}

/// Writes the facts of a session.
pub(crate) struct SessionRecord(Record);

impl SessionRecord {
    /// The record of the session with this name on both ends; `None` if there is to be none.
    pub(crate) fn create(
        files: &dyn QlogFiles,
        beginning: Instant,
        session: &str,
        side: Side,
    ) -> Option<Self> {
        let (file, title) = (format!("session-{session}"), format!("session {session}"));
        let about = (session, side, SESSION_SCHEMA);
        Record::create(files, beginning, &file, title, about).map(Self)
    }
}

impl Debug for SessionRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionRecord").finish_non_exhaustive()
    }
}

impl Observer for SessionRecord {
    fn on_fact(&mut self, now: Instant, fact: &Fact<'_>) {
        if self.0.is_open() {
            let name = format!("starhaul:{}", fact.name());
            self.0.event(now, &name, data(fact));
        }
    }
}

/// Prints the facts of a session into the log, at its finest level.
#[derive(Debug)]
pub(crate) struct SessionTrace(String);

impl SessionTrace {
    /// For a session of this name; `None` if the log does not take its finest level.
    pub(crate) fn wanted(session: &str) -> Option<Self> {
        tracing::enabled!(tracing::Level::TRACE).then(|| Self(session.to_owned()))
    }
}

impl Observer for SessionTrace {
    fn on_fact(&mut self, _now: Instant, fact: &Fact<'_>) {
        tracing::trace!(session = self.0, "{} {}", fact.name(), data(fact));
    }
}

/// What a record says of a fact; durations are in milliseconds.
fn data(fact: &Fact<'_>) -> Value {
    match fact {
        Fact::PathUp { path, cost } | Fact::PathCost { path, cost } => {
            json!({ "path": path.0, "cost": cost })
        }
        Fact::PathSilent { path } | Fact::PathDown { path } => json!({ "path": path.0 }),
        Fact::BottleneckShared {
            paths: (one, other),
            is_shared,
        } => json!({ "paths": [one.0, other.0], "shared": is_shared }),
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
        Fact::BlockUpdated {
            stream,
            block,
            deadline,
            priority,
        } => json!({
            "stream": stream.0,
            "block": block.0,
            "deadline": deadline.map(millis),
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
