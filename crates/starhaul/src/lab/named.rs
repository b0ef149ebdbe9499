//! The experiments of `starhaul-lab` as subcommands.

use anyhow::bail;
use clap::{ArgMatches, Args as _, Command, FromArgMatches, Subcommand, error::ErrorKind};
use starhaul_lab::{
    Error, experiments,
    kit::{Context, Experiment},
    realtime::Bench,
};

use super::outcome::{Outcome, announce, show};
use crate::{output::command_line, replay::SUPERVISOR};

/// An experiment and what was asked of it.
pub(crate) struct Named {
    experiment: Box<dyn Experiment>,
    options: ArgMatches,
    outcome: Outcome,
}

impl Named {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let plan = self.experiment.plan(&self.options, self.outcome.seed)?;
        self.outcome.prepare()?;
        announce(plan.skipped(), &plan.describe());
        let context = Context {
            command: &command_line(),
            bench: &bench,
        };
        let found = plan.run(&context, &mut show)?;
        self.outcome.finish(
            || found.table(),
            || found.json(),
            |folder| found.write(folder),
        )?;
        match found.failure() {
            Some(what) => bail!(what),
            None => Ok(()),
        }
    }
}

/// Runs flows with this program at both ends.
fn bench() -> Result<Bench, Error> {
    let program = std::env::current_exe()
        .map_err(|error| Error::Failed(format!("cannot find this program's file: {error}")))?;
    Ok(Bench {
        program,
        supervisor: vec![SUPERVISOR.into()],
    })
}

impl Subcommand for Named {
    fn augment_subcommands(command: Command) -> Command {
        let commands = experiments::all().into_iter();
        command.subcommands(commands.map(|one| Outcome::augment_args(one.command())))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}

impl FromArgMatches for Named {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (name, options) = matches.subcommand().unwrap_or(("", matches));
        let experiment =
            find(name).ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        Ok(Self {
            experiment,
            options: options.clone(),
            outcome: Outcome::from_arg_matches(options)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn find(name: &str) -> Option<Box<dyn Experiment>> {
    let mut all = experiments::all().into_iter();
    all.find(|experiment| experiment.command().get_name() == name)
}
