//! Runs in real time that count. A run in which packets left late measured this computer and not the flow, so it is made again.

use starhaul_flow::Metrics;

use crate::{
    Error,
    realtime::{Measured, go_on},
};

/// What came of all runs of one sender over one link.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Runs<M = Metrics> {
    /// Those that count, each with its seed.
    pub(crate) valid: Vec<(u64, M)>,
    /// Those in which packets left late.
    pub(crate) late: Vec<(u64, M)>,
    /// Why the flow of one failed: there are none after it.
    pub(crate) failed: Option<String>,
}

/// How the note of a failed flow begins.
const FAILED: &str = "failed: ";

impl<M: Clone> Runs<M> {
    /// Runs each seed until it counts, and all together at most twice as often as there are seeds: a computer that is always busy
    /// must come to an end too. Where one fails by itself, those before it count, and other senders still have their runs.
    ///
    /// # Errors
    /// Those of `run` that end all, as an interruption does.
    pub(crate) fn of(
        seeds: impl IntoIterator<Item = u64>,
        mut run: impl FnMut(u64) -> Result<Measured<M>, Error>,
    ) -> Result<Self, Error> {
        let seeds: Vec<u64> = seeds.into_iter().collect();
        let mut repeats = seeds.len();
        let mut runs = Self {
            valid: Vec::new(),
            late: Vec::new(),
            failed: None,
        };
        for seed in seeds {
            loop {
                go_on()?;
                let measured = run(seed);
                // A program may take a signal for its usual end, or for an error of its own.
                go_on()?;
                let Measured { metrics, valid } = match measured {
                    Err(why) if !why.ends_all() => {
                        runs.failed = Some(format!("seed {seed}: {why}"));
                        return Ok(runs);
                    }
                    measured => measured?,
                };
                if valid {
                    runs.valid.push((seed, metrics));
                    break;
                }
                runs.late.push((seed, metrics));
                if repeats == 0 {
                    break;
                }
                repeats -= 1;
            }
        }
        Ok(runs)
    }

    /// The figures that count.
    pub(crate) fn metrics(&self) -> Vec<M> {
        self.valid
            .iter()
            .map(|(_, metrics)| metrics.clone())
            .collect()
    }

    /// How many did not count.
    pub(crate) fn late_runs(&self) -> u32 {
        u32::try_from(self.late.len()).unwrap_or(u32::MAX)
    }

    /// That some did not count, if so.
    pub(crate) fn not_counted(&self, what: &str) -> Option<String> {
        (!self.late.is_empty()).then(|| {
            let late = plural(self.late_runs());
            format!("{what}: {late} not counted, since packets left late")
        })
    }

    /// Why there is no row of `what`, if no run counts, or one run is missing.
    pub(crate) fn missing(&self, what: &str) -> Option<String> {
        if let Some(why) = &self.failed {
            return Some(format!("{FAILED}{what}, {why}"));
        }
        self.valid.is_empty().then(|| {
            format!(
                "skipped: {what}, because packets left over 1 ms late in all {} runs: this computer was too busy",
                self.late.len()
            )
        })
    }
}

/// What went wrong if a note among these tells of a flow that failed.
pub(crate) fn failure(notes: &[String]) -> Option<String> {
    let has_failed = notes.iter().any(|note| note.starts_with(FAILED));
    let what = "a flow failed, as told beside the results; those of the others stand";
    has_failed.then(|| what.to_owned())
}

/// So many runs, for people.
pub(crate) fn plural(runs: u32) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(throughput_mbps: f64, valid: bool) -> Measured {
        let metrics = Metrics {
            throughput_mbps,
            ..Metrics::default()
        };
        Measured { metrics, valid }
    }

    #[test]
    fn a_late_run_is_made_again_with_its_seed_and_never_counts() {
        let mut asked = Vec::new();
        let runs = Runs::of(5..8, |seed| {
            asked.push(seed);
            Ok(measured(asked.len() as f64, asked.len() != 2))
        });
        let runs = runs.unwrap();
        assert_eq!(asked, [5, 6, 6, 7]);
        let rates: Vec<f64> = runs.metrics().iter().map(|m| m.throughput_mbps).collect();
        assert_eq!((rates, runs.late_runs()), (vec![1.0, 3.0, 4.0], 1));
        assert_eq!(runs.missing("x"), None);
    }

    #[test]
    fn a_flow_that_fails_ends_its_own_runs_alone() {
        let mut asked = Vec::new();
        let runs = Runs::of(5..9, |seed| {
            asked.push(seed);
            match seed {
                6 => Err(Error::Flow("no answer".to_owned())),
                _ => Ok(measured(1.0, true)),
            }
        });
        let runs = runs.unwrap();
        assert_eq!((asked, runs.metrics().len()), (vec![5, 6], 1));
        let note = runs.missing("leocc over x").unwrap();
        assert_eq!(note, "failed: leocc over x, seed 6: no answer");
        assert!(failure(&[note]).is_some() && failure(&["skipped: x".to_owned()]).is_none());
        let own = Runs::<Metrics>::of(1..4, |_| Err(Error::Failed("a wrong hash".to_owned())));
        assert!(own.unwrap().failed.is_some());
        for error in [
            Error::Interrupted("by a signal".to_owned()),
            Error::Settings("a loss of 2".to_owned()),
            Error::Replay(starhaul_replay::Error::Server { code: 1 }),
        ] {
            let mut error = Some(error);
            let ended = Runs::<Metrics>::of(1..2, |_| Err(error.take().unwrap()));
            assert!(ended.is_err());
        }
    }

    #[test]
    fn on_a_computer_that_is_always_busy_it_ends_without_figures() {
        let runs = Runs::of(1..4, |_| Ok(measured(1.0, false))).unwrap();
        assert_eq!((runs.metrics().len(), runs.late_runs()), (0, 6));
        let said = runs.missing("leocc over x").unwrap();
        assert!(
            said.contains("leocc over x") && said.contains("all 6 runs"),
            "{said}"
        );
    }
}
