//! What all experiments share: where their results go, and the line that says how far they are.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use starhaul_lab::{Error, kit::Progress};

use crate::output::{check_folder, print, redraws, tell};

#[derive(clap::Args)]
pub(crate) struct Outcome {
    /// Seed of all that is random; where there are several runs of each, of the first
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write report.html, results.json and all that goes with them into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl Outcome {
    /// Makes the folder of the results and tries to write there: hours of runs are too late to learn that one cannot.
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.out else {
            return Ok(());
        };
        check_folder("--out", folder)?;
        let cannot = || format!("--out: nothing can be written into {}", folder.display());
        fs::create_dir_all(folder).with_context(cannot)?;
        let trial = folder.join(".starhaul-lab-trial");
        fs::write(&trial, "").with_context(cannot)?;
        fs::remove_file(&trial).with_context(cannot)
    }

    /// Prints and writes what was asked for, each whatever becomes of the other.
    pub(crate) fn finish(
        &self,
        table: impl FnOnce() -> String,
        json: impl FnOnce() -> Result<String, Error>,
        write: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> anyhow::Result<()> {
        if redraws(&io::stderr()) {
            tell("\r\x1b[K");
        }
        let printed = print(match self.json {
            true => json()? + "\n",
            false => table(),
        });
        if let Some(folder) = &self.out {
            write(folder).context("cannot keep the results")?;
            tell(format!("results: {}\n", folder.display()));
        }
        printed
    }
}

/// Says what will run, and what will not.
pub(crate) fn announce(skipped: &[String], plan: &str) {
    for skipped in skipped {
        tell(format!("{skipped}\n"));
    }
    tell(format!("{plan}\n"));
}

/// Redraws one line on a terminal, until [`Outcome::finish`].
pub(crate) fn show(progress: Progress) {
    const WIDTH: usize = 30;
    let mut stderr = io::stderr();
    if !redraws(&stderr) {
        return;
    }
    let full = (1..=WIDTH)
        .filter(|cell| *cell as f64 <= progress.done * WIDTH as f64)
        .count();
    let left = progress.elapsed.as_secs_f64() * (1.0 / progress.done.max(1e-9) - 1.0);
    let bar = "█".repeat(full) + &"░".repeat(WIDTH - full);
    // A terminal that went away must not end the run.
    let _ = write!(
        stderr,
        "\r{bar} {:3.0} %, about {left:.0} s left\x1b[K",
        progress.done * 100.0
    );
}
