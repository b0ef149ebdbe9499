//! qlog records: whole, one file for each end of each path and session, and true.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use starhaul_session::Mode;

use super::net::{CLIENT, Net, Party, SERVER, client_config, server_config};
use crate::{Node, QlogFiles, QlogWriter};

/// Files in memory.
#[derive(Clone, Debug, Default)]
struct Files(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

struct Writer(Files, String);

impl QlogFiles for Files {
    fn create(&self, name: &str) -> Option<QlogWriter> {
        self.0.lock().insert(name.to_owned(), Vec::new());
        Some(Box::new(Writer(self.clone(), name.to_owned())))
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut files = self.0.0.lock();
        files.entry(self.1.clone()).or_default().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Files {
    /// The records of the files whose names begin and end so, by name.
    fn records(&self, begin: &str, end: &str) -> BTreeMap<String, Vec<Value>> {
        let files = self.0.lock();
        let found = files
            .iter()
            .filter(|(name, _)| name.starts_with(begin) && name.ends_with(end));
        found
            .map(|(name, bytes)| {
                let text = std::str::from_utf8(bytes).unwrap();
                let records = text.split('\u{1e}').skip(1);
                let parsed = records.map(|record| serde_json::from_str(record).unwrap());
                (name.clone(), parsed.collect())
            })
            .collect()
    }
}

fn named(records: &[Value], name: &str) -> usize {
    records
        .iter()
        .filter(|record| record["name"] == name)
        .count()
}

/// A session over two paths, of which one loses packets, that carries 300 blocks.
fn record_blocks(files: &Files) -> Net {
    let start = Instant::now();
    let node = |mut config: crate::NodeConfig| {
        config.qlog = Some(Arc::new(files.clone()));
        Party::new(Node::new(config, start).unwrap())
    };
    let specs = ["rate=20mbit,delay=20ms,loss=3%", "rate=5mbit,delay=60ms"];
    let parties = (node(client_config()), node(server_config()));
    let mut net = Net::with_parties(7, start, parties.0, parties.1, &specs);
    net.connect();
    net.run_ms(1000);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    for number in 0..300_u32 {
        net.send_block(CLIENT, stream, number.to_be_bytes().repeat(400));
        net.run_ms(5);
    }
    net.run_ms(3000);
    net
}

#[test]
fn each_path_and_session_leaves_a_record_at_both_ends() {
    let files = Files::default();
    let mut net = record_blocks(&files);
    let arrived = net.party(SERVER).blocks().len();

    let (client, server) = (
        files.records("session-", "-client.sqlog"),
        files.records("session-", "-server.sqlog"),
    );
    let of_paths = |name: &String, _: &mut _| name.contains("-path-");
    let (mut client, mut server) = (client, server);
    let paths =
        [&mut client, &mut server].map(|files| files.extract_if(.., of_paths).collect::<Vec<_>>());
    let session = |name: &str| name.split('-').nth(1).map(str::to_owned);
    let [(client_name, ours)] = &client.iter().collect::<Vec<_>>()[..] else {
        panic!("{:?}", client.keys());
    };
    let [(server_name, theirs)] = &server.iter().collect::<Vec<_>>()[..] else {
        panic!("{:?}", server.keys());
    };
    assert_eq!(session(client_name), session(server_name));
    assert_eq!(ours[0]["serialization_format"], "application/qlog+json-seq");
    assert_eq!(ours[0]["trace"]["vantage_point"]["type"], "client");
    assert_eq!(named(ours, "starhaul:path_up"), 2);
    assert_eq!(named(ours, "starhaul:block_queued"), 300);
    assert_eq!(named(ours, "starhaul:block_ended"), 300);
    assert_eq!(named(theirs, "starhaul:block_received"), arrived);
    let lost = named(ours, "starhaul:datagram_lost");
    assert!(lost > 0, "of 3 % of the packets");
    let times: Vec<f64> = ours[1..]
        .iter()
        .map(|record| record["time"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted() && times[times.len() - 1] > 2_000.0);

    // Both ends call a path the same.
    let names = paths.each_ref().map(|paths| {
        let names = paths.iter().map(|(name, _)| name.rsplit_once('-'));
        names.map(|name| name.unwrap().0).collect::<Vec<_>>()
    });
    assert_eq!(names[0], names[1]);
    assert_eq!(names[0].len(), 2, "{names:?}");
    for (name, records) in paths.iter().flatten() {
        let [sent, acked, lost, metrics] = [
            "packet_sent",
            "packets_acked",
            "packet_lost",
            "recovery_metrics_updated",
        ]
        .map(|event| named(records, &format!("quic:{event}")));
        // The server has little to send over the slower path.
        let counts = format!("{name}: {sent} sent, {acked} times acknowledged, {lost} lost");
        assert!(sent > 0 && acked > 0 && metrics == acked, "{counts}");
        assert!(lost <= sent / 5, "{counts}");
    }
    // Each datagram that the session put on a path left in one packet of it.
    for (path, (name, records)) in paths[0].iter().enumerate() {
        let numbers = |records: &[Value], event: &str, path: Option<usize>| -> Vec<u64> {
            let records = records.iter().filter(|record| record["name"] == event);
            let data = records.map(|record| &record["data"]);
            let data = data.filter(|data| path.is_none_or(|path| data["path"] == path));
            data.filter_map(|data| data["datagram"].as_u64()).collect()
        };
        let packets = numbers(records, "quic:packet_sent", None);
        for datagram in numbers(ours, "starhaul:fragment_sent", Some(path)) {
            assert!(packets.contains(&datagram), "{datagram} is not in {name}");
        }
    }
}

/// The first record of a file, by draft-ietf-quic-qlog-main-schema (`QlogFileSeq`, `TraceSeq`, `CommonFields`).
fn assert_begins_as_qlog(name: &str, head: &Value) {
    let (end, schema) = (
        match name.ends_with("-client.sqlog") {
            true => "client",
            false => "server",
        },
        match name.contains("-path-") {
            true => "urn:ietf:params:qlog:events:quic-12",
            false => "urn:starhaul:qlog:session-01",
        },
    );
    let file_schema = "urn:ietf:params:qlog:file:sequential";
    assert_eq!(head["file_schema"], file_schema, "{name}");
    let format = "application/qlog+json-seq";
    assert_eq!(head["serialization_format"], format, "{name}");
    let trace = &head["trace"];
    assert_eq!(trace["vantage_point"]["type"], end, "{name}");
    assert_eq!(trace["event_schemas"], json!([schema]), "{name}");
    let common = &trace["common_fields"];
    assert!(common["group_id"].is_string(), "{name}");
    assert_eq!(common["time_format"], "relative_to_epoch", "{name}");
    // A monotonic clock has no epoch that anybody else knows.
    let reference = json!({ "clock_type": "monotonic", "epoch": "unknown" });
    assert_eq!(common["reference_time"], reference, "{name}");
}

/// Whether an event has the data that its definition requires (draft-ietf-quic-qlog-quic-events), and those that the documentation promises,
/// each of its type.
fn is_whole(kind: &str, data: &Value) -> bool {
    match kind {
        "quic:packet_sent" | "quic:packet_lost" => {
            let header = &data["header"];
            header["packet_type"] == "1RTT"
                && header["packet_number"].is_u64()
                && data["raw"]["length"].is_u64()
        }
        "quic:packets_acked" => {
            let numbers = data["packet_numbers"].as_array();
            data["packet_number_space"] == "application_data"
                && numbers
                    .is_some_and(|numbers| !numbers.is_empty() && numbers.iter().all(Value::is_u64))
        }
        "quic:recovery_metrics_updated" => {
            let rtts = ["smoothed_rtt", "min_rtt"].iter();
            let counts = ["congestion_window", "bytes_in_flight", "pacing_rate"].iter();
            // Optional, and then left out: `null` is no number.
            rtts.map(|key| data.get(key))
                .all(|rtt| rtt.is_none_or(Value::is_number))
                && counts.map(|key| &data[key]).all(Value::is_u64)
        }
        _ => kind.starts_with("starhaul:") && data.is_object(),
    }
}

/// What qvis and other readers of qlog take for granted.
#[test]
fn files_and_events_have_the_keys_that_readers_of_qlog_need() {
    let files = Files::default();
    record_blocks(&files);
    let mut kinds = BTreeSet::new();
    for (name, records) in files.records("session-", ".sqlog") {
        let (head, events) = records.split_first().unwrap();
        assert_begins_as_qlog(&name, head);
        for event in events {
            let time = event["time"].as_f64();
            assert!(time.is_some_and(|time| time >= 0.0), "{name}: {event}");
            let kind = event["name"].as_str().unwrap();
            assert!(is_whole(kind, &event["data"]), "{name}: {event}");
            assert_eq!(kind.starts_with("quic:"), name.contains("-path-"), "{kind}");
            kinds.insert(kind.to_owned());
        }
    }
    // What a name brings into a reader's pictures was there to be checked.
    for kind in [
        "packet_sent",
        "packets_acked",
        "packet_lost",
        "recovery_metrics_updated",
    ] {
        assert!(kinds.contains(&format!("quic:{kind}")), "no {kind}");
    }
}
