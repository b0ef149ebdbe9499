//! The progress of a recording: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use starhaul_record::{Direction, Phase, Progress};

const STEPS: f64 = 1000.0;

pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new(direction: Direction) -> Self {
        let target = match crate::output::redraws(&std::io::stderr()) {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        let style = ProgressStyle::with_template("{prefix:>4} [{bar:30}] {percent:>3}% {wide_msg}");
        bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> "),
        );
        bar.set_prefix(direction.name());
        bar.set_message("asks the server");
        Self(bar)
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        let doing = match (progress.phase, progress.alone) {
            (Phase::Idle, _) => "leaves the path idle",
            (Phase::Search, _) => "searches for the capacity",
            (Phase::Below, _) => "counts losses below the capacity",
            (Phase::Saturated, false) => "records",
            (Phase::Saturated | Phase::Done, _) => "measures the delay alone",
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a thousand"
        )]
        self.0
            .set_position((progress.done.clamp(0.0, 1.0) * STEPS) as u64);
        let rtt = progress
            .round_trip
            .map(|rtt| format!(" · {:.1} ms", rtt.as_secs_f64() * 1e3));
        self.0.set_message(format!(
            "{doing} · {}{}",
            progress.arriving,
            rtt.unwrap_or_default()
        ));
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
