//! The traces of a folder that the caller names: tables, mahimahi traces, LeoReplayer pairs, and what `starhaul record` wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

use starhaul_link::{Loss, Recording, Trace};

use super::case::{Kind, TraceCase, TraceSet};
use crate::{Error, traces::Direction};

/// What is left of a name when these are taken from its end tells one trace from another.
const SUFFIXES: [&str; 4] = [".csv", ".txt", ".log", ".tsv"];
const SUMMARY: &str = "summary.json";

/// Every trace of a folder and of the recordings in it; what is none is named with the reason.
pub(super) fn load(folder: &Path) -> Result<TraceSet, Error> {
    let mut reader = Reader::default();
    reader.read(folder)?;
    if reader.set.cases.is_empty() {
        let said = reader.set.skipped.join("\n");
        let line = if said.is_empty() { "" } else { "\n" };
        return Err(Error::Settings(format!(
            "{} holds no trace with a capacity: it needs .csv tables (of starhaul orbit paths with --rate), bw_X.txt beside \
             delay_X.txt, mahimahi traces, or what starhaul record wrote{line}{said}",
            folder.display()
        )));
    }
    Ok(reader.set)
}

#[derive(Default)]
struct Reader {
    set: TraceSet,
}

impl Reader {
    fn read(&mut self, folder: &Path) -> Result<(), Error> {
        let (files, folders) = entries(folder)?;
        self.recording(folder);
        for file in &files {
            self.file(file, is_recording(folder));
        }
        for inner in &folders {
            if is_recording(inner) || is_unfinished(inner) {
                self.recording(inner);
            } else {
                let why = "it is a folder of its own: name it with --traces";
                self.skip(&file_name(inner), why);
            }
        }
        Ok(())
    }

    /// Both ways of a folder of `starhaul record`, as far as they are there.
    fn recording(&mut self, folder: &Path) {
        let name = file_name(&folder.canonicalize().unwrap_or_else(|_| folder.into()));
        if is_unfinished(folder) {
            let next = format!("starhaul record finish {}", folder.display());
            self.skip(&name, &format!("the recording was not finished: {next}"));
        }
        for (way, direction) in [("up", Direction::Up), ("down", Direction::Down)] {
            let file = |what: &str| folder.join(format!("{way}-{what}.txt"));
            if !file("bw").is_file() {
                continue;
            }
            let delay = file("delay");
            let name = format!("{name}-{way}");
            match Trace::read(&file("bw"), delay.is_file().then_some(&delay)) {
                Ok(trace) => self.add(&name, direction, trace, recorded_loss(folder, way)),
                Err(why) => self.skip(&name, &why.to_string()),
            }
        }
    }

    fn file(&mut self, file: &Path, recording: bool) {
        let name = file_name(file);
        let of_recording = ["up-", "down-", "up.csv", "down.csv", SUMMARY]
            .iter()
            .any(|beginning| name.starts_with(beginning));
        if (recording && of_recording) || partner(file, "delay", "bw").is_some() {
            return;
        }
        let trace = match partner(file, "bw", "delay") {
            Some(delay) => Trace::read(file, Some(&delay)).map(Some),
            None => Recording::read(file, None).map(|(recording, _)| trace_of(recording)),
        };
        let down = name.contains("down");
        let direction = if down { Direction::Down } else { Direction::Up };
        match trace {
            Ok(Some(trace)) => self.add(&name, direction, trace, None),
            Ok(None) => self.skip(&name, "it tells no capacity"),
            Err(why) => self.skip(&name, &why.to_string()),
        }
    }

    fn add(&mut self, file: &str, direction: Direction, trace: Trace, loss: Option<Loss>) {
        let known = |name: &str| self.set.cases.iter().any(|case| case.name == name);
        let shortened = stem(file).to_owned();
        let mut names = [shortened, file.to_owned()]
            .into_iter()
            .chain((2..).map(|n| format!("{file} ({n})")));
        let name = names.find(|name| !known(name)).unwrap_or_default();
        if trace.delay.is_none() {
            let skipped = format!("skipped: the delay of {name}, because nothing tells it: none");
            self.set.skipped.push(skipped);
        }
        let case = TraceCase::new(name, Kind::Recorded, direction, trace);
        self.set.cases.push(case.with_recorded_loss(loss));
    }

    fn skip(&mut self, what: &str, why: &str) {
        self.set
            .skipped
            .push(format!("skipped: {what}, because {why}"));
    }
}

/// Files and folders, each sorted, without hidden ones.
fn entries(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(Error::io(format!("cannot read {}", folder.display())))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| !file_name(path).starts_with('.'))
        .collect();
    all.sort();
    Ok(all.into_iter().partition(|path| !path.is_dir()))
}

fn is_recording(folder: &Path) -> bool {
    ["up-bw.txt", "down-bw.txt"]
        .iter()
        .any(|name| folder.join(name).is_file())
}

fn is_unfinished(folder: &Path) -> bool {
    let begun = ["up-journal.jsonl", "down-journal.jsonl"]
        .iter()
        .any(|name| folder.join(name).is_file());
    begun && !is_recording(folder)
}

/// What a recording's summary says of the loss of one way.
fn recorded_loss(folder: &Path, way: &str) -> Option<Loss> {
    let text = fs::read(folder.join(SUMMARY)).ok()?;
    let ways: Vec<serde_json::Value> = serde_json::from_slice(&text).ok()?;
    let of_way = ways.iter().find(|summary| summary["direction"] == way)?;
    of_way["loss_setting"].as_str()?.parse().ok()
}

/// The file beside this one whose name has `to` in place of `from`.
fn partner(file: &Path, from: &str, to: &str) -> Option<PathBuf> {
    let name = file_name(file);
    let other = |(at, _): (usize, &str)| {
        let (before, after) = (&name[..at], &name[at + from.len()..]);
        let other = file.with_file_name(format!("{before}{to}{after}"));
        other.is_file().then_some(other)
    };
    name.match_indices(from).find_map(other)
}

fn stem(file: &str) -> &str {
    let unpacked = file.strip_suffix(".gz").unwrap_or(file);
    let cut = SUFFIXES.iter().find_map(|end| unpacked.strip_suffix(end));
    cut.filter(|stem| !stem.is_empty()).unwrap_or(unpacked)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn trace_of(recording: Recording) -> Option<Trace> {
    Some(Trace {
        capacity: recording.capacity?,
        delay: recording.delay,
        loss: recording.loss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: &str = "1\n2\n3\n4\n";
    const TABLE: &str = "t_s,owd_ms,capacity_mbps,loss_p\n0,10,8,0.01\n0.05,10,8,0.03\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    fn names(set: &TraceSet) -> Vec<&str> {
        set.cases.iter().map(|case| &*case.name).collect()
    }

    #[test]
    fn what_is_no_trace_is_named_and_stops_nothing() {
        let folder = folder(&[
            ("README.md", "# About, these\n"),
            ("LICENSE", "Do what you want\n"),
            (".hidden", "x"),
            ("bad.csv", "t_s,capacity_mbps\n0,much\n"),
            ("alone-delay.txt", "10\n11\n10\n"),
            ("inner/x.txt", RATE),
            ("good.csv", TABLE),
            ("rate.txt", RATE),
        ]);
        let set = load(folder.path()).unwrap();
        assert_eq!(names(&set), ["good", "rate"]);
        let said = set.skipped.join("\n");
        for (what, why) in [
            ("README.md", "because"),
            ("LICENSE", "because"),
            ("bad.csv", "bad.csv:2"),
            ("alone-delay.txt", "no capacity"),
            ("inner", "folder of its own"),
            ("the delay of rate", "nothing tells it"),
        ] {
            let line = set.skipped.iter().find(|line| line.contains(what));
            assert!(
                line.is_some_and(|line| line.contains(why)),
                "{what}: {said}"
            );
        }
        assert_eq!(set.skipped.len(), 6, "{said}");
    }

    #[test]
    fn a_recording_gives_both_ways_with_their_delay_and_loss() {
        let summary = r#"[{"direction":"up","loss_setting":"ge:1%:5"},{"direction":"down","loss_setting":"0.2%"}]"#;
        let mut files = vec![
            ("summary.json", summary),
            ("report.html", "<!doctype html>"),
        ];
        let names_of = ["up-bw.txt", "down-bw.txt"].map(|name| (name, RATE));
        let delays = ["up-delay.txt", "down-delay.txt"].map(|name| (name, "25\n"));
        let rest = ["up.csv", "down.csv"].map(|name| (name, TABLE));
        files.extend(names_of.into_iter().chain(delays).chain(rest));
        files.push(("up-journal.jsonl", "{}\n"));
        let recording = folder(&files);
        let inside: Vec<(String, &str)> = files
            .iter()
            .map(|(name, text)| (format!("monday/{name}"), *text))
            .collect();
        let mut inside: Vec<(&str, &str)> = inside.iter().map(|(n, t)| (&**n, *t)).collect();
        inside.push(("sunday/up-journal.jsonl", "{}\n"));
        inside.push(("rate.txt", RATE));
        let several = folder(&inside);

        let set = load(recording.path()).unwrap();
        let loss: Vec<_> = set.cases.iter().map(|case| case.recorded_loss()).collect();
        assert_eq!(loss, [Some(0.01), Some(0.002)]);
        let directions = set.cases.iter().map(|case| case.direction);
        assert!(directions.eq([Direction::Up, Direction::Down]));
        assert!(set.cases.iter().all(|case| case.trace.delay.is_some()));
        // The page is the only thing that is not the recording's.
        assert_eq!(set.skipped.len(), 1, "{:?}", set.skipped);

        let set = load(several.path()).unwrap();
        assert_eq!(names(&set), ["rate", "monday-up", "monday-down"]);
        let said = set.skipped.join("\n");
        assert!(
            said.contains("sunday") && said.contains("record finish"),
            "{said}"
        );
    }

    #[test]
    fn two_files_never_make_one_trace() {
        let folder = folder(&[
            ("my.a.csv", TABLE),
            ("my.b.csv", TABLE),
            ("my.b.txt", RATE),
            ("leo-1.csv", TABLE),
            ("city.down", RATE),
            ("city.up", RATE),
            ("x-bw-1.txt", RATE),
            ("x-delay-1.txt", "9\n"),
        ]);
        let set = load(folder.path()).unwrap();
        let expected = [
            "city.down",
            "city.up",
            "leo-1",
            "my.a",
            "my.b",
            "my.b.txt",
            "x-bw-1",
        ];
        assert_eq!(names(&set), expected);
        assert!(set.cases.iter().all(|case| case.kind == Kind::Recorded));
        let paired = set.cases.iter().find(|case| case.name == "x-bw-1").unwrap();
        assert!(paired.trace.delay.is_some());
    }

    #[test]
    fn a_folder_without_any_says_what_was_wrong_with_each_file() {
        let folder = folder(&[("notes", "nothing here\n")]);
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("holds no trace") && error.contains("skipped: notes"),
            "{error}"
        );
    }
}
