//! The progress of files: bars on a terminal, nothing elsewhere.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar};
use starhaul_ltp::{Engine, EngineId};
use starhaul_transfer::{Arriving, FileReceiver, Progress};
use starhaul_units::Bandwidth;

use crate::output;

/// How often the progress of received files is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Files that are shown at a time; others have no bar.
const MOST_SHOWN: usize = 8;

pub(crate) struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self {
            bar: output::bar(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        let done = progress.left.unwrap_or(progress.acknowledged);
        let rate = Bandwidth::from_bytes_over(done, self.begun.elapsed());
        let state = match (progress.left, progress.is_verifying) {
            (Some(_), _) => ", nobody answers",
            (None, true) => ", the far side compares",
            (None, false) => "",
        };
        let reason = progress.segment_reason.map(|reason| format!(" ({reason})"));
        let repairs = match progress.repairs {
            0 => String::new(),
            repairs => format!(", {repairs} repair segments"),
        };
        self.bar.set_length(progress.length);
        self.bar.set_position(done);
        self.bar.set_message(format!(
            "{:.1} Mbit/s, segments of {} bytes{}, {} sent again{repairs}{state}",
            rate.mbit(),
            progress.segment_bytes,
            reason.unwrap_or_default(),
            progress.resent
        ));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish();
    }
}

/// A bar for each file that arrives.
pub(super) struct Arrivals {
    /// On a terminal that lets lines be overwritten.
    bars: Option<MultiProgress>,
    lines: BTreeMap<EngineId, Line>,
    next: Option<Instant>,
}

/// The line of a sender's file.
struct Line {
    bar: ProgressBar,
    has_length: bool,
    begun: Instant,
    /// What was here when the line began.
    before: Arriving,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            bars: output::redraws(&std::io::stderr()).then(MultiProgress::new),
            lines: BTreeMap::new(),
            next: None,
        }
    }

    /// When to [show](Self::show) next, if anything is to be seen or blocks arrive, as `is_busy` says.
    pub(super) fn next(&self, now: Instant, is_busy: bool) -> Option<Instant> {
        let has_news = self.bars.is_some() && (is_busy || !self.lines.is_empty());
        has_news.then(|| self.next.unwrap_or(now))
    }

    /// Shows how far files have come, at most ten times a second.
    pub(super) fn show(&mut self, files: &FileReceiver, engine: &Engine) {
        let now = Instant::now();
        let Some(bars) = &self.bars else { return };
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + SHOW_EVERY);
        let arriving = files.arriving(engine);
        let is_over = |from: &EngineId| !arriving.iter().any(|file| file.from == *from);
        self.lines.retain(|from, line| {
            let ends = is_over(from);
            if ends {
                line.end(bars);
            }
            !ends
        });
        for file in arriving {
            let is_new = !self.lines.contains_key(&file.from);
            if is_new && self.lines.len() >= MOST_SHOWN {
                continue;
            }
            let line = self.lines.entry(file.from);
            line.or_insert_with(|| Line::new(bars, now, &file))
                .show(bars, now, &file);
        }
    }

    /// The file of a sender is complete: its line goes, and what is printed next has one of its own.
    pub(super) fn end(&mut self, from: EngineId) {
        let Some(bars) = &self.bars else { return };
        if let Some(line) = self.lines.remove(&from) {
            line.end(bars);
        }
        // A terminal that is gone takes nothing else either.
        let _ = bars.clear();
    }

    /// All lines go.
    pub(super) fn clear(&mut self) {
        let Some(bars) = &self.bars else { return };
        for line in std::mem::take(&mut self.lines).into_values() {
            line.end(bars);
        }
    }
}

impl Line {
    fn new(bars: &MultiProgress, now: Instant, file: &Arriving) -> Self {
        let has_length = file.file.is_some();
        Self {
            bar: bars.add(match has_length {
                true => output::bar(),
                false => output::spinner(),
            }),
            has_length,
            begun: now,
            before: file.clone(),
        }
    }

    fn show(&mut self, bars: &MultiProgress, now: Instant, file: &Arriving) {
        if !self.has_length && file.file.is_some() {
            // Only now is known what share of it is here.
            self.end(bars);
            (self.bar, self.has_length) = (bars.add(output::bar()), true);
        }
        if let Some((_, length)) = &file.file {
            self.bar.set_length(*length);
            self.bar.set_position(file.bytes);
        }
        let message = self.message(now, file);
        self.bar.set_message(message);
    }

    fn message(&self, now: Instant, file: &Arriving) -> String {
        let elapsed = now.saturating_duration_since(self.begun);
        let came = file.bytes.saturating_sub(self.before.bytes);
        let rate = match elapsed.is_zero() {
            true => Bandwidth::ZERO,
            false => Bandwidth::from_bytes_over(came, elapsed),
        };
        let name = match &file.file {
            Some((name, _)) => output::printable(name),
            None => format!("engine {}, {:.1} MB", file.from, file.bytes as f64 / 1e6),
        };
        format!(
            "{name}: {:.1} Mbit/s, segments of {} bytes, {} sent again",
            rate.mbit(),
            file.segment_bytes,
            file.resent.saturating_sub(self.before.resent)
        )
    }

    fn end(&self, bars: &MultiProgress) {
        self.bar.finish_and_clear();
        bars.remove(&self.bar);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_file_counts_from_its_beginning() {
        let (start, bars) = (Instant::now(), MultiProgress::new());
        bars.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        let first = Arriving {
            from: EngineId(7),
            file: None,
            bytes: 1_000_000,
            resent: 40,
            segment_bytes: 1360,
        };
        let mut line = Line::new(&bars, start, &first);
        line.show(&bars, start, &first);
        assert_eq!(
            line.bar.message(),
            "engine 7, 1.0 MB: 0.0 Mbit/s, segments of 1360 bytes, 0 sent again"
        );
        let later = Arriving {
            file: Some(("a\u{1b}.tif".into(), 4_000_000)),
            bytes: 2_000_000,
            resent: 43,
            segment_bytes: 8860,
            ..first
        };
        line.show(&bars, start + Duration::from_secs(2), &later);
        assert_eq!(
            line.bar.message(),
            "a\u{fffd}.tif: 4.0 Mbit/s, segments of 8860 bytes, 3 sent again"
        );
        let shown = (line.bar.position(), line.bar.length());
        assert_eq!(shown, (2_000_000, Some(4_000_000)));
    }
}
