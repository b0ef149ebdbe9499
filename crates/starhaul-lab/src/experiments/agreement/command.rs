//! `starhaul lab agreement`.

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

use super::{Options, Plan};
use crate::{
    Error,
    kit::{self, About, Experiment},
};

/// The experiment by its name.
pub struct Agreement;

impl Experiment for Agreement {
    fn command(&self) -> Command {
        const WHAT: &str = "Compare virtual with real time, and our controllers with the kernel's, over the same links";
        // Last, since the options have a description of their own.
        Options::augment_args(Command::new("agreement")).about(WHAT).long_about(format!(
            "{WHAT}\n\nNeeds what `starhaul replay` needs; and iperf3 for the kernel's. An otherwise idle computer."
        ))
    }

    fn about(&self) -> Vec<About> {
        vec![About {
            command: "agreement".to_owned(),
            stands_for: "LeoCC §5.2",
            shows: "virtual against real time, ours against the kernel's",
        }]
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn kit::Plan>, Error> {
        let options = Options::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        Ok(Box::new(Plan::new(&Options { seed, ..options })?))
    }
}
