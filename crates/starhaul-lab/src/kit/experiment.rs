//! What an experiment is to its command: what it is about, its options, what it will do, and what it found.

use std::{fs, path::Path};

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::Progress;
use crate::{Error, realtime::Bench};

/// One line of `starhaul lab list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// What to type after `starhaul lab`.
    pub command: String,
    /// The figure or section of a paper that it stands for.
    pub stands_for: &'static str,
    /// What it shows.
    pub shows: &'static str,
}

/// An experiment that `starhaul lab` runs by its name.
pub trait Experiment: Send + Sync {
    /// What to type after `starhaul lab`, with a line of help and the options beside those that all experiments have.
    fn command(&self) -> Command;

    /// It and its parts, for the list.
    fn about(&self) -> Vec<About>;

    /// Makes the experiment that was asked for, before anything runs.
    ///
    /// # Errors
    /// What was asked for cannot run.
    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error>;
}

/// An experiment as it was asked for.
pub trait Plan {
    /// What is left out, one sentence each.
    fn skipped(&self) -> &[String];

    /// What will run and how long that takes, for people.
    fn describe(&self) -> String;

    /// Runs everything; `progress` is called now and then.
    ///
    /// # Errors
    /// A run that cannot be made.
    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error>;
}

/// What an experiment cannot know by itself.
pub struct Context<'a> {
    /// The command line that repeats it.
    pub command: &'a str,
    /// With what flows run in real time.
    pub bench: &'a dyn Fn() -> Result<Bench, Error>,
}

/// Results as one JSON object.
///
/// # Errors
/// None in practice: results have only texts as keys.
pub(crate) fn to_json(results: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(results).map_err(|error| Error::Failed(error.to_string()))
}

/// What an experiment found.
pub trait Found {
    /// The tables for a terminal.
    fn table(&self) -> String;

    /// One object, what `results.json` holds.
    ///
    /// # Errors
    /// None in practice.
    fn json(&self) -> Result<String, Error>;

    /// The page, tables and pictures: name of the file and text.
    fn files(&self) -> Vec<(String, String)>;

    /// Writes all into `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// What the system says.
    fn write(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder)
            .map_err(Error::io(format!("cannot make {}", folder.display())))?;
        let results = ("results.json".to_owned(), self.json()? + "\n");
        for (name, text) in std::iter::once(results).chain(self.files()) {
            let file = folder.join(name);
            fs::write(&file, text)
                .map_err(Error::io(format!("cannot write {}", file.display())))?;
        }
        Ok(())
    }
}
