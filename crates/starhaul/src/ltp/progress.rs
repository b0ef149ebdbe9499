//! The progress of a file: a bar on a terminal, nothing elsewhere.

use std::time::Instant;

use indicatif::ProgressBar;
use starhaul_transfer::Progress;
use starhaul_units::Bandwidth;

pub(crate) struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self {
            bar: crate::output::bar(),
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
