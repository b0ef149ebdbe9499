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
        let rate = Bandwidth::from_bytes_over(progress.acknowledged, self.begun.elapsed());
        let state = match progress.is_verifying {
            true => ", the far side compares",
            false => "",
        };
        let reason = progress.segment_reason.map(|reason| format!(" ({reason})"));
        self.bar.set_length(progress.length);
        self.bar.set_position(progress.acknowledged);
        self.bar.set_message(format!(
            "{:.1} Mbit/s, segments of {} bytes{}, {} sent again{state}",
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
