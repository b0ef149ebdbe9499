//! The files that `starhaul orbit paths --out` writes: one for a path, or a folder for several.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufWriter, Write as _},
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use starhaul_cc::KnownTimes;
use starhaul_link::{Delay, MAX_TRACE_DURATION, write_delay};
use starhaul_orbit::{End, PathOverTime, write_leoem, write_table};
use starhaul_units::Bandwidth;

use crate::output::{Usage, check_folder, ending, tell};

/// Most steps of all paths that are written at once.
const MAX_STEPS: u128 = 2_000_000;

/// Where paths go, and in which formats.
pub(super) struct Target<'a> {
    out: &'a Path,
    capacity: Option<(End, Bandwidth)>,
    kind: Kind,
}

enum Kind {
    File(Format),
    Folder(Vec<Format>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Table,
    Log,
    Delays,
    Times,
}

impl Format {
    const fn ending(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Table => "csv",
            Self::Log => "log",
            Self::Delays => "txt",
            Self::Times => "times",
        }
    }

    /// Why nothing would read paths of these times in this format.
    fn refusal(
        self,
        (duration, step): (Duration, Duration),
        is_link: bool,
    ) -> Option<&'static str> {
        let steps = duration.as_nanos().div_ceil(step.as_nanos().max(1));
        let length = steps.saturating_mul(step.as_nanos());
        let is_trace = match self {
            Self::Json | Self::Times => false,
            Self::Table => is_link,
            Self::Log | Self::Delays => true,
        };
        if self == Self::Log && step.subsec_nanos() != 0 {
            return Some(
                "a path log has whole seconds; take a --step of whole seconds, or another format",
            );
        }
        // A row lasts until the next, and the last one as long as the one before it; that of a log alone for a second.
        let is_lost = match self {
            Self::Json | Self::Delays | Self::Times => false,
            Self::Table => is_link,
            Self::Log => step != Duration::from_secs(1),
        };
        if is_lost && steps < 2 {
            return Some(
                "one step alone is not read again; take a shorter --step or a longer --duration",
            );
        }
        (is_trace && length > MAX_TRACE_DURATION.as_nanos())
            .then_some("a trace is read up to 2 h; take a --duration of at most 2h, or .json")
    }
}

impl<'a> Target<'a> {
    /// Refuses what cannot be written, or not be read again, before time is spent on it.
    pub(super) fn new(
        out: &'a Path,
        pairs: &[(usize, usize)],
        times: (Duration, Duration),
        capacity: Option<(End, Bandwidth)>,
    ) -> Result<Self, Usage> {
        let steps = times.0.as_nanos().div_ceil(times.1.as_nanos().max(1)) * pairs.len() as u128;
        if steps > MAX_STEPS {
            return Err(Usage(format!(
                "--out: {} paths make {steps} steps, more than {MAX_STEPS}; take fewer stations or longer steps",
                pairs.len()
            )));
        }
        if out == Path::new("-") {
            return Err(Usage(
                "--out -: paths are written to a file, or to a folder".to_owned(),
            ));
        }
        if pairs.len() > 1 || ending(out).is_empty() {
            return Self::folder(out, times, capacity);
        }
        let refused = |why: &str| Err(Usage(format!("--out {}: {why}", out.display())));
        let format = match ending(out).as_str() {
            "json" => Format::Json,
            "csv" => Format::Table,
            "log" => Format::Log,
            "txt" => Format::Delays,
            "times" => Format::Times,
            _ => {
                return refused(
                    "a path is written as .json, .csv, .log, .txt or .times; `starhaul orbit plot` draws it",
                );
            }
        };
        let is_link = capacity.is_some();
        if is_link && format != Format::Table {
            return refused(
                "only a table has the capacity of --rate; name a file that ends in .csv",
            );
        }
        if let Some(why) = format.refusal(times, is_link) {
            return refused(why);
        }
        Ok(Self {
            out,
            capacity,
            kind: Kind::File(format),
        })
    }

    /// A folder, without the log if it could not be read.
    fn folder(
        out: &'a Path,
        times: (Duration, Duration),
        capacity: Option<(End, Bandwidth)>,
    ) -> Result<Self, Usage> {
        check_folder("--out", out)?;
        if let Some(why) = Format::Table.refusal(times, capacity.is_some()) {
            return Err(Usage(format!("--out {} with --rate: {why}", out.display())));
        }
        let mut formats = vec![Format::Json, Format::Table];
        match Format::Log.refusal(times, false) {
            None => formats.push(Format::Log),
            Some(why) => tell(format!("no path logs are written: {why}\n")),
        }
        Ok(Self {
            out,
            capacity,
            kind: Kind::Folder(formats),
        })
    }

    pub(super) fn write(&self, paths: &[PathOverTime]) -> anyhow::Result<()> {
        let out = self.out;
        let formats = match (&self.kind, paths) {
            (Kind::File(format), [path]) => {
                if let Some(why) = unreadable(path, *format) {
                    anyhow::bail!("--out {}: {why}; .json and .csv tell of it", out.display());
                }
                return self.write_path(out, path, *format);
            }
            (Kind::Folder(formats), _) => formats,
            (Kind::File(_), _) => return Ok(()),
        };
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        for (path, name) in paths.iter().zip(file_names(paths)) {
            for format in formats {
                match unreadable(path, *format) {
                    Some(why) => tell(format!("no {name}.{}: {why}\n", format.ending())),
                    None => {
                        let file = out.join(format!("{name}.{}", format.ending()));
                        self.write_path(&file, path, *format)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn write_path(&self, file: &Path, path: &PathOverTime, format: Format) -> anyhow::Result<()> {
        // A capacity that makes no trace is told before there is a file.
        let link = path.link(self.capacity.filter(|_| format == Format::Table))?;
        let times = match format {
            Format::Times => times(path)?,
            _ => String::new(),
        };
        let create = || fs::File::create(file).map(BufWriter::new);
        let written = create().and_then(|mut out| {
            match format {
                Format::Json => writeln!(out, "{}", path.to_json())?,
                Format::Table => write_table(path, self.capacity, &mut out)?,
                Format::Log => write_leoem(path, &mut out)?,
                Format::Delays => {
                    if let Delay::Trace(delay) = link.delay {
                        write_delay(&delay, &mut out)?;
                    }
                }
                Format::Times => out.write_all(times.as_bytes())?,
            }
            out.flush()
        });
        written.with_context(|| format!("cannot write {}", file.display()))
    }
}

/// When a path becomes another one, as relays and gateways of LEOTP read it.
fn times(path: &PathOverTime) -> anyhow::Result<String> {
    let start = path.start().unix().context("times begin with 1970")?;
    let times = KnownTimes::new(path.changes().into_iter().map(|at| start + at))?;
    let (from, to) = (path.from(), path.to());
    Ok(times.to_text(&format!(
        "changes of the path from {from} to {to}, in seconds since 1970-01-01 00:00:00 UTC"
    )))
}

/// A path that never exists has no delay: a log of it is not read, and delays would be those of a link without any. One that does not change
/// has no times.
fn unreadable(path: &PathOverTime, format: Format) -> Option<String> {
    if format == Format::Times && path.changes().is_empty() {
        return Some(format!(
            "the path from {} to {} never changes, and a .times has nothing to tell then",
            path.from(),
            path.to()
        ));
    }
    let connected = path.steps().any(|(_, step)| step.is_connected());
    let is_delay = matches!(format, Format::Log | Format::Delays);
    (is_delay && !connected).then(|| {
        format!(
            "{} and {} are never connected, and a .{} has no delay to tell then",
            path.from(),
            path.to(),
            format.ending()
        )
    })
}

/// The names of the files of each path. Where stations differ only in case or punctuation, those after the first have a number.
fn file_names(paths: &[PathOverTime]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |path: &PathOverTime| {
        let plain = format!("{}-{}", file_name(path.from()), file_name(path.to()));
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        names
            .find(|name| taken.insert(name.clone()))
            .unwrap_or(plain)
    };
    paths.iter().map(name).collect()
}

/// A station's name as a part of the name of a file.
fn file_name(station: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    station.to_lowercase().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_path_are_those_of_its_changes() {
        let path = |steps: &str| {
            let text = format!(
                r#"{{"start":"2026-01-01T00:00:00Z","step_ms":500,"nodes":["a","b","1","2"],"steps":[{steps}]}}"#
            );
            PathOverTime::from_json("path.json", &text).unwrap()
        };
        let over = |satellite: u32| format!(r#"{{"path":[0,{satellite},1],"delays_ns":[5,6]}}"#);
        let changing = path(&[2, 2, 3, 2].map(over).join(","));
        let text = times(&changing).unwrap();
        let read: KnownTimes = text.parse().unwrap();
        let expected = [1_767_225_601_000, 1_767_225_601_500].map(Duration::from_millis);
        assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(unreadable(&changing, Format::Times), None);
        let still = path(&[2, 2].map(over).join(","));
        let why = unreadable(&still, Format::Times).unwrap();
        assert!(why.contains("never changes"), "{why}");
    }
}
