//! A record of all paths over time, as a table in a file: a row for each path and interval.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::Serialize;

use crate::status::{KnownPath, Status};

/// Size at which a file is put aside as `FILE.1`, in place of an earlier one.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A row of the table.
#[derive(Serialize)]
struct Row<'s> {
    /// Seconds since 1970.
    time_s: f64,
    peer: &'s str,
    path: &'s str,
    opened_by: &'s str,
    state: &'s str,
    sent_bit_per_s: Option<u64>,
    received_bit_per_s: Option<u64>,
    bytes_sent: u64,
    bytes_received: u64,
    datagrams_sent: u64,
    datagrams_lost: u64,
    reconfigurations: u64,
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    one_way_delay_ms: Option<f64>,
    loss: Option<f64>,
    capacity_bit_per_s: Option<u64>,
    cwnd_bytes: Option<u64>,
    bytes_in_flight: Option<u64>,
    controller: &'s str,
    cost: Option<f64>,
}

/// A file that grows by rows and may be moved or truncated by others at any time.
#[derive(Debug)]
pub struct PathRecords {
    path: PathBuf,
    file: File,
    max_bytes: u64,
}

impl PathRecords {
    /// Opens the file, or makes it, readable by its owner only.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: open(path)?,
            max_bytes: MAX_FILE_BYTES,
        })
    }

    /// Adds a row for each path that has a state, or is `out` of service on purpose. A file that was moved away is made anew, and one
    /// that has become empty gets its heading again; one that has become too large is moved to `FILE.1`.
    ///
    /// # Errors
    /// The file cannot be written; the rows are lost, and later ones may succeed.
    pub fn write(&mut self, status: &Status, now: SystemTime) -> io::Result<()> {
        self.follow_path()?;
        if self.file.metadata()?.len() >= self.max_bytes {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            self.file = open(&self.path)?;
        }
        let before = self.file.metadata()?.len();
        let rows = rows(status, now, before == 0)?;
        self.file.write_all(&rows).inspect_err(|_| {
            // Part of a row would spoil the next one.
            let _ = self.file.set_len(before);
        })
    }

    fn follow_path(&mut self) -> io::Result<()> {
        let id = |file: &std::fs::Metadata| (file.dev(), file.ino());
        let ours = id(&self.file.metadata()?);
        let there = std::fs::metadata(&self.path);
        if !there.is_ok_and(|there| id(&there) == ours) {
            self.file = open(&self.path)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    // They tell which hosts exchanged data, when and how much.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

fn rows(status: &Status, now: SystemTime, with_heading: bool) -> io::Result<Vec<u8>> {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH);
    let time_s = since_1970.unwrap_or(Duration::ZERO).as_millis() as f64 / 1e3;
    let mut table = csv::WriterBuilder::new()
        .has_headers(with_heading)
        .from_writer(Vec::new());
    for known in status.known_paths() {
        let out = known.out_of_service().map(|_| "out");
        if let Some(state) = known.state().or(out) {
            table.serialize(row(time_s, state, &known))?;
        }
    }
    table.into_inner().map_err(csv::IntoInnerError::into_error)
}

fn row<'s>(time_s: f64, state: &'s str, known: &KnownPath<'s>) -> Row<'s> {
    let (totals, now) = (known.totals, known.now);
    let figures = now.and_then(|path| path.figures.as_ref());
    Row {
        time_s,
        peer: &known.peer.name,
        path: &totals.name,
        opened_by: &totals.opened_by,
        state,
        sent_bit_per_s: now.and_then(|path| path.traffic.sent_bit_per_s),
        received_bit_per_s: now.and_then(|path| path.traffic.received_bit_per_s),
        bytes_sent: totals.bytes_sent,
        bytes_received: totals.bytes_received,
        datagrams_sent: totals.datagrams_sent,
        datagrams_lost: totals.datagrams_lost,
        reconfigurations: totals.reconfigurations,
        rtt_ms: figures.and_then(|path| path.rtt_ms),
        min_rtt_ms: figures.and_then(|path| path.min_rtt_ms),
        one_way_delay_ms: figures.and_then(|path| path.one_way_delay_ms),
        loss: figures.and_then(|path| path.loss),
        capacity_bit_per_s: figures.map(|path| path.rate_bit_per_s),
        cwnd_bytes: now.map(|path| path.cwnd_bytes),
        bytes_in_flight: now.map(|path| path.bytes_in_flight),
        controller: now.map_or("", |path| &path.controller),
        cost: figures.and_then(|path| path.cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway with one configured path that is down, whose peer named it `name`.
    fn status(name: &str) -> Status {
        let path = serde_json::json!({ "name": name, "opened_by": "us", "bytes_sent": 5, "bytes_received": 7,
            "datagrams_sent": 2, "datagrams_lost": 1, "reconfigurations": 0 });
        let peer = serde_json::json!({ "name": "far", "public_key": "k", "sessions": 0, "failed_attempts": 0,
            "last_error": null, "configured_paths": [name], "paths": [path] });
        let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
            "ingress": [], "peers": [peer], "sessions": [] });
        serde_json::from_value(status).expect("a status")
    }

    /// Path and bytes of each row.
    fn read(file: &Path) -> Vec<(String, String)> {
        let mut table = csv::Reader::from_path(file).unwrap();
        let heading = table.headers().unwrap().clone();
        let column = |name| heading.iter().position(|other| other == name).unwrap();
        let (path, bytes) = (column("path"), column("bytes_received"));
        let rows = table.records().map(Result::unwrap);
        rows.map(|row| (row[path].to_owned(), row[bytes].to_owned()))
            .collect()
    }

    #[test]
    fn rows_go_on_in_a_whole_table_when_the_file_is_moved_or_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let [file, moved] = ["paths.csv", "old.csv"].map(|name| folder.path().join(name));
        let mut records = PathRecords::open(&file).unwrap();
        let mut write = |count: usize| {
            for _ in 0..count {
                records.write(&status("a,\"b"), SystemTime::now()).unwrap();
            }
        };
        let rows = |count| vec![("a,\"b".to_owned(), "7".to_owned()); count];
        write(3);
        assert_eq!(read(&file), rows(3));
        std::fs::rename(&file, &moved).unwrap();
        write(2);
        assert_eq!((read(&moved), read(&file)), (rows(3), rows(2)));
        OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(0)
            .unwrap();
        write(1);
        assert_eq!(read(&file), rows(1));
        // Another life of the gateway goes on with it.
        let mut records = PathRecords::open(&file).unwrap();
        records.write(&status("a,\"b"), SystemTime::now()).unwrap();
        assert_eq!(read(&file), rows(2));
    }

    /// A table without it would look as if nothing had been recorded.
    #[test]
    fn a_path_out_of_service_has_a_row_and_one_that_the_peer_closed_has_none() {
        let mut status = status("lte");
        status.peers[0].configured_paths.clear();
        let states = |status: &Status| {
            let text = rows(status, SystemTime::now(), true).unwrap();
            let mut table = csv::Reader::from_reader(&text[..]);
            let states = table.records().map(|row| row.unwrap()[4].to_owned());
            states.collect::<Vec<_>>()
        };
        assert!(states(&status).is_empty());
        let quota = serde_json::json!([{ "path": "lte", "out": "quota" }]);
        status.peers[0].service = serde_json::from_value(quota).unwrap();
        assert_eq!(states(&status), ["out"]);
        status.peers[0].paths[0].opened_by = "peer".to_owned();
        assert!(states(&status).is_empty());
    }

    #[test]
    fn the_disk_taken_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paths.csv");
        let mut records = PathRecords::open(&file).unwrap();
        records.max_bytes = 1000;
        for _ in 0..200 {
            records.write(&status("a"), SystemTime::now()).unwrap();
        }
        let sizes: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes.iter().all(|size| *size < 1200), "{sizes:?}");
    }
}
