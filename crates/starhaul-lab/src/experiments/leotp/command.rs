//! `starhaul lab leotp`, in virtual and in real time.

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

use super::{
    real::{Options, RealPlan},
    study,
};
use crate::{
    Error,
    kit::{About, Experiment, Plan},
};

/// The experiment by its name.
pub struct Leotp;

impl Experiment for Leotp {
    fn command(&self) -> Command {
        Options::augment_args(study().command())
    }

    fn about(&self) -> Vec<About> {
        let real = About {
            command: "leotp --real".to_owned(),
            stands_for: "LEOTP fig. 12",
            shows: "relays as processes in real time, beside the kernel's TCP from end to end",
        };
        let messages = About {
            command: "leotp --real --messages".to_owned(),
            stands_for: "",
            shows: "messages and their answers through gateways and relays, beside the kernel's TCP",
        };
        let mut all = study().about();
        all.extend([real, messages]);
        all
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let real = Options::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        if !real.real {
            return study().plan(options, seed);
        }
        let runs = options.get_one("runs").copied().unwrap_or(1);
        let plan = RealPlan::new(&real, options.get_flag("quick"), runs, seed)?;
        Ok(Box::new(plan))
    }
}
