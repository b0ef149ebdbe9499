//! How a node hears of the reconfigurations of a hop besides its packets, as an operator says it.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use starhaul_cc::{KnownTimes, ProbeTarget, Timetable};

/// Of a file with times: more than are taken.
const MOST_TIMES_BYTES: u64 = 64 << 20;

/// How a node hears of reconfigurations of the hop to a neighbour; by default it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopSignals {
    /// The operator's timetable. One without an offset serves a prober alone.
    pub timetable: Option<Timetable>,
    /// Times that are known before, as of a constellation that was computed.
    pub times: KnownTimes,
    /// The file that such times are in. It is read again whenever it changes while the hop is watched, and then holds in place of `times`.
    pub schedule: Option<PathBuf>,
    /// What is probed by ICMP echo, on the way to the neighbour or elsewhere.
    pub probe: Option<ProbeTarget>,
}

impl HopSignals {
    /// What of them has no effect, for people; `None` if all has.
    pub fn problem(&self) -> Option<String> {
        let undated = self.timetable.filter(|it| it.offset.is_none());
        let undated = undated.filter(|_| self.probe.is_none())?;
        Some(format!(
            "\"{undated}\" tells no time by itself: add link = \"leo\", or an offset, as in \"12s every 15s\""
        ))
    }

    /// By what it is known, for people; `None`: not at all.
    pub fn summary(&self) -> Option<String> {
        let probes = self.probe.map(|_| "probes".to_owned());
        let timetable = self.timetable.map(|timetable| timetable.to_string());
        let times = match (self.times.iter().count(), &self.schedule) {
            (0, None) => None,
            (0, Some(file)) => Some(format!("the times in {}", file.display())),
            (count, _) => Some(format!("a list of {count}")),
        };
        let by: Vec<String> = [probes, timetable, times].into_iter().flatten().collect();
        (!by.is_empty()).then(|| by.join(", "))
    }

    /// Reads the times of its file, if it has one.
    ///
    /// # Errors
    /// Those of [`HopSignals::read_times`].
    pub fn load_times(&mut self) -> Result<(), String> {
        if let Some(file) = &self.schedule {
            self.times = Self::read_times(file)?;
        }
        Ok(())
    }

    /// The times in a file, a line of seconds since 1970 each.
    ///
    /// # Errors
    /// It cannot be read, or has no times; a text for people.
    pub fn read_times(file: &Path) -> Result<KnownTimes, String> {
        let bytes = File::open(file).and_then(|open| contents(&open));
        let bytes = bytes.map_err(|error| unreadable(file, &error))?;
        times_in(file, &bytes)
    }
}

/// What a file with times holds, and a byte more than is taken of one that is too long.
pub(super) fn contents(open: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open.take(MOST_TIMES_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The times among what a file holds, or a text for people why there are none.
pub(super) fn times_in(file: &Path, bytes: &[u8]) -> Result<KnownTimes, String> {
    // The end of a part of it may be a part of a time.
    if bytes.len() as u64 > MOST_TIMES_BYTES {
        let most = MOST_TIMES_BYTES >> 20;
        return Err(format!("{}: it is longer than {most} MiB", file.display()));
    }
    // Comments may be of any characters.
    String::from_utf8_lossy(bytes)
        .parse::<KnownTimes>()
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// That a file cannot be read, for people.
pub(super) fn unreadable(file: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", file.display())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timetable_without_an_offset_needs_probes() {
        let alone = HopSignals {
            timetable: Some(Timetable::ONEWEB),
            ..HopSignals::default()
        };
        let said = alone.problem().unwrap();
        assert!(said.starts_with("\"every 11s\" tells no time"), "{said}");
        let dated = HopSignals {
            timetable: Some(Timetable::STARLINK),
            ..HopSignals::default()
        };
        let probed = HopSignals {
            probe: Some(ProbeTarget::Auto),
            ..alone
        };
        assert!(dated.problem().is_none() && probed.problem().is_none());
    }

    #[test]
    fn times_are_read_from_a_file_that_is_named_where_they_are_wrong() {
        let folder = std::env::temp_dir().join(format!("starhaul-times-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("hop.times");
        let read = || HopSignals::read_times(&file);
        assert!(read().unwrap_err().starts_with("cannot read "));
        std::fs::write(&file, "# a hop\n1767225620.25\n").unwrap();
        let times = read().unwrap();
        let expected = Duration::from_millis(1_767_225_620_250);
        assert_eq!(times.iter().collect::<Vec<_>>(), [expected]);
        std::fs::write(&file, b"# Gr\xf6\xdfe\n1767225620.25\n").unwrap();
        assert_eq!(read().unwrap(), times, "a comment of other characters");
        let mut signals = HopSignals {
            schedule: Some(file.clone()),
            ..HopSignals::default()
        };
        let said = format!("the times in {}", file.display());
        assert_eq!(signals.summary(), Some(said));
        signals.load_times().unwrap();
        assert_eq!(
            (&signals.times, signals.summary()),
            (&times, Some("a list of 1".into()))
        );
        std::fs::write(&file, "12s every 15s\n").unwrap();
        let error = read().unwrap_err();
        assert!(error.contains("hop.times: line 1: "), "{error}");
        // Of such a file a part was taken.
        std::fs::write(&file, "1767225620\n# ").unwrap();
        let long = File::options().write(true).open(&file).unwrap();
        long.set_len(MOST_TIMES_BYTES + 1).unwrap();
        let error = read().unwrap_err();
        assert!(
            error.ends_with("hop.times: it is longer than 64 MiB"),
            "{error}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
