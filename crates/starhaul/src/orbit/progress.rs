//! The progress of paths over time: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let target = match crate::output::redraws(&std::io::stderr()) {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% step {pos} of {len}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        Self(bar)
    }

    pub(super) fn show(&self, done: u32, all: u32) {
        self.0.set_length(all.into());
        self.0.set_position(done.into());
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
