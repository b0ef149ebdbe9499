//! The demo on a terminal: a live table that redraws itself, a line now and then elsewhere, and the final table.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

use super::{DemoResult, Progress, SystemProgress};
use crate::{
    baseline,
    load::Class,
    report::{self, percent},
    score::lost_means,
    terminal::{COLUMNS, InPlace},
};

const LINE_EVERY: Duration = Duration::from_secs(5);
const BAR_CELLS: u64 = 24;
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Shows the figures of a run while it goes on: redrawn in place on a terminal, one line each five seconds elsewhere.
#[derive(Debug)]
pub struct Live<W> {
    out: W,
    terminal: bool,
    seconds: u64,
    place: InPlace,
    next_line: Duration,
}

impl<W: Write> Live<W> {
    /// A display for a run of `seconds`.
    pub fn new(out: W, terminal: bool, seconds: u64) -> Self {
        Self {
            out,
            terminal,
            seconds,
            place: InPlace::default(),
            next_line: LINE_EVERY,
        }
    }

    /// Shows how far the run is.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn show(&mut self, progress: &Progress) -> io::Result<()> {
        if self.terminal {
            let table = live_table(progress, self.seconds);
            self.place.draw(&mut self.out, &table)?;
        } else if progress.elapsed >= self.next_line {
            self.next_line += LINE_EVERY;
            writeln!(self.out, "{}", line(progress, self.seconds))?;
        }
        self.out.flush()
    }

    /// Removes the live table, so that the final one can take its place.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn erase(&mut self) -> io::Result<()> {
        self.place.erase(&mut self.out)
    }
}

/// Both systems side by side.
pub fn final_table(result: &DemoResult) -> String {
    let [ours, theirs] = [&result.systems.starhaul, &result.systems.mpquic];
    let (mut out, mut lost) = (String::new(), String::new());
    if result.applications.have_blocks() {
        out = format!("{}\n", report::classes(result).text());
        lost = format!("{}\n", lost_means());
    }
    text(
        &mut out,
        format_args!(
            "{}\n{lost}Against the baseline: QoE {}, download {}. Seed {}.\n",
            report::paths(result).text(),
            ratio(ours.qoe, theirs.qoe),
            ratio(ours.download.mbit_per_s, theirs.download.mbit_per_s),
            result.seed,
        ),
    );
    for line in wrapped(&baseline::note(result.baseline), COLUMNS) {
        text(&mut out, format_args!("{line}\n"));
    }
    out
}

fn ratio(ours: f64, theirs: f64) -> String {
    match theirs {
        0.0 => "not comparable".to_owned(),
        _ => format!("× {:.2}", ours / theirs),
    }
}

/// The text in lines of at most so many columns, cut between words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn live_table(progress: &Progress, seconds: u64) -> String {
    let mut out = String::new();
    let elapsed = progress.elapsed.as_secs().min(seconds);
    let full = elapsed * BAR_CELLS / seconds.max(1);
    let cells: String = (0..BAR_CELLS)
        .map(|cell| if cell < full { '█' } else { '░' })
        .collect();
    let state = if progress.draining {
        "waiting for the rest"
    } else {
        ""
    };
    text(
        &mut out,
        format_args!(
            "{BOLD}starhaul demo{PLAIN}  {cells}  {elapsed:>3} of {seconds} s  {DIM}{state}{PLAIN}\n\n"
        ),
    );
    text(
        &mut out,
        format_args!(
            "{DIM}{:<10}{:>9}{:>9}{:>9}{:>14}{:>14}{:>14}{PLAIN}\n",
            "on time, %", "text", "audio", "video", "download", "LEO", "GEO"
        ),
    );
    for (name, system) in progress.systems.named() {
        let share = |class| percent(*system.classes.of(class));
        text(
            &mut out,
            format_args!(
                "{BOLD}{name:<10}{PLAIN}{:>9}{:>9}{:>9}{:>7.1} Mbit/s{:>7.1} Mbit/s{:>7.1} Mbit/s\n",
                share(Class::Text),
                share(Class::Audio),
                share(Class::Video),
                system.download_mbit,
                system.rates.leo,
                system.rates.geo,
            ),
        );
    }
    out
}

fn line(progress: &Progress, seconds: u64) -> String {
    let mut out = format!(
        "{:>3} of {seconds} s on time:",
        progress.elapsed.as_secs().min(seconds)
    );
    for (name, SystemProgress { classes, .. }) in progress.systems.named() {
        let share = |class: Class| percent(*classes.of(class));
        text(
            &mut out,
            format_args!(
                "  {name} text {} % audio {} % video {} %",
                share(Class::Text),
                share(Class::Audio),
                share(Class::Video)
            ),
        );
    }
    out
}

fn text(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Paths, Systems, baseline::Controller, load::Classes, score::Tally, terminal::width,
    };

    fn progress(seconds: u64) -> Progress {
        let system = || SystemProgress {
            classes: Classes::from_fn(|_| Tally {
                sent: 170_000,
                on_time: 160_001,
            }),
            rates: Paths {
                leo: 99_999.9,
                geo: 99_999.9,
            },
            download_mbit: 99_999.9,
        };
        Progress {
            elapsed: Duration::from_secs(seconds),
            draining: false,
            systems: Systems {
                starhaul: system(),
                mpquic: system(),
            },
        }
    }

    #[test]
    fn a_terminal_is_redrawn_in_place() {
        let mut live = Live::new(Vec::new(), true, 30);
        live.show(&progress(1)).unwrap();
        let first = live.out.len();
        live.show(&progress(2)).unwrap();
        let lines = live.out[..first]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        assert!(live.out[first..].starts_with(format!("\x1b[{lines}A\x1b[J").as_bytes()));
    }

    #[test]
    fn the_live_table_fits_a_terminal_nobody_has_widened() {
        for draining in [false, true] {
            let progress = Progress {
                draining,
                ..progress(3600)
            };
            let table = live_table(&progress, 3600);
            assert!(width(&table) <= COLUMNS, "{}\n{table}", width(&table));
        }
    }

    #[test]
    fn notes_are_wrapped_between_words() {
        assert_eq!(wrapped("one two  three", 8), ["one two", "three"]);
        assert_eq!(wrapped("endless-word", 5), ["endless-word"]);
        assert!(
            wrapped(&baseline::note(Controller::default()), COLUMNS)
                .iter()
                .all(|line| line.len() <= COLUMNS)
        );
    }

    #[test]
    fn elsewhere_one_line_each_five_seconds_without_control_codes() {
        let mut live = Live::new(Vec::new(), false, 30);
        for second in 0..=30 {
            live.show(&progress(second)).unwrap();
        }
        live.erase().unwrap();
        let text = String::from_utf8(live.out).unwrap();
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }
}
