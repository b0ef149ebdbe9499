//! The progress of a file: a bar on a terminal, nothing elsewhere.

use std::time::Instant;

use indicatif::ProgressBar;
use starhaul_transfer::Progress;
use starhaul_units::Bandwidth;

pub(crate) struct Bar {
    bar: ProgressBar,
    segment: u32,
    begun: Instant,
}

impl Bar {
    pub(crate) fn new(segment: u32) -> Self {
        Self {
            bar: crate::output::bar(),
            segment,
            begun: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        let rate = Bandwidth::from_bytes_over(progress.acknowledged, self.begun.elapsed());
        let state = match progress.is_verifying {
            true => ", the far side compares",
            false => "",
        };
        self.bar.set_length(progress.length);
        self.bar.set_position(progress.acknowledged);
        self.bar.set_message(format!(
            "{:.1} Mbit/s, segments of {} bytes, {} sent again{state}",
            rate.mbit(),
            self.segment,
            progress.resent
        ));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish();
    }
}
