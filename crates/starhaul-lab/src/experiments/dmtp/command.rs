//! `starhaul lab dmtp`, in virtual and in real time.

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, parser::ValueSource};

use super::{
    real::{Options, RealPlan},
    study,
};
use crate::{
    Error,
    kit::{About, Experiment, Plan, study::is_checked},
};

/// The experiment by its name.
pub struct Dmtp;

impl Experiment for Dmtp {
    fn command(&self) -> Command {
        Options::augment_args(study().command())
    }

    fn about(&self) -> Vec<About> {
        let real = About {
            command: "dmtp --real".to_owned(),
            stands_for: "DMTP fig. 7",
            shows: "the same in real time beside MPTCP, SRT, RIST and multipath QUIC",
        };
        let mut all = study().about();
        all.push(real);
        all
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let real = Options::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        if !real.real {
            return study().plan(options, seed);
        }
        let is_given = options.value_source("runs") == Some(ValueSource::CommandLine);
        let runs = options.get_one("runs").copied().filter(|_| is_given);
        let plan = RealPlan::new(&real, options.get_flag("quick"), runs, seed)?;
        Ok(Box::new(match is_checked(options) {
            true => plan.checked()?,
            false => plan,
        }))
    }
}
