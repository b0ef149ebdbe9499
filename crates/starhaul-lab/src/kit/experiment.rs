//! What an experiment is to its command: what it is about, its options, what it will do, and what it found.

use std::{fs, io, path::Path};

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
    /// One line that says what it measures.
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

/// The results of an experiment: tables, JSON and pages.
pub trait Found {
    /// The tables for a terminal.
    fn table(&self) -> String;

    /// One object, what `results.json` holds.
    ///
    /// # Errors
    /// None in practice.
    fn json(&self) -> Result<String, Error>;

    /// What went wrong, as notes tell, or which goals are missed: the results that are there stand.
    fn failure(&self) -> Option<String> {
        None
    }

    /// The page, tables and pictures: name of the file and text.
    fn files(&self) -> Vec<(String, String)>;

    /// Writes all into `folder`, which is made if it is not there, in place of what an experiment wrote there before.
    ///
    /// # Errors
    /// What the system says.
    fn write(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder)
            .map_err(Error::io(format!("cannot make {}", folder.display())))?;
        remove_results(folder)?;
        let mut files = vec![("results.json".to_owned(), self.json()? + "\n")];
        files.extend(self.files());
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let written = (WRITTEN.to_owned(), names.join("\n") + "\n");
        for (name, text) in std::iter::once(&written).chain(&files) {
            let file = folder.join(name);
            fs::write(&file, text)
                .map_err(Error::io(format!("cannot write {}", file.display())))?;
        }
        Ok(())
    }
}

/// Names the files that an experiment wrote into a folder, a line each: only these are removed before others come.
const WRITTEN: &str = ".starhaul-lab-files";

/// Removes what an experiment wrote into a folder before: tables of another command would pass for this one's.
fn remove_results(folder: &Path) -> Result<(), Error> {
    let names = match fs::read_to_string(folder.join(WRITTEN)) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(format!("cannot read {WRITTEN}"))(error)),
    };
    // Names alone: a line with a path would lead out of the folder.
    for name in names
        .lines()
        .filter(|name| Path::new(name).file_name() == Some(name.as_ref()))
    {
        let file = folder.join(name);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot remove {}", file.display()))(
                    error,
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What tests ask of an experiment's command.
#[cfg(test)]
pub(crate) mod asked {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use super::{Experiment, Plan};
    use crate::Error;

    /// The plan of an experiment with these arguments, which its command has to know, and seed 1.
    pub(crate) fn plan(
        experiment: &dyn Experiment,
        arguments: &[&str],
    ) -> Result<Box<dyn Plan>, Error> {
        let all = ["experiment"].iter().chain(arguments);
        let options = experiment.command().try_get_matches_from(all).unwrap();
        experiment.plan(&options, 1)
    }

    /// They are refused with an error that contains what is `said`.
    pub(crate) fn refused(experiment: &dyn Experiment, arguments: &[&str], said: &str) {
        let error = plan(experiment, arguments)
            .err()
            .map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{arguments:?} is not refused"));
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Wrote(&'static [&'static str]);

    impl Found for Wrote {
        fn table(&self) -> String {
            String::new()
        }

        fn json(&self) -> Result<String, Error> {
            Ok("{}".to_owned())
        }

        fn files(&self) -> Vec<(String, String)> {
            let file = |name: &&str| ((*name).to_owned(), "text".to_owned());
            self.0.iter().map(file).collect()
        }
    }

    #[test]
    fn a_folder_holds_the_results_of_one_experiment_and_what_others_put_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine.csv"), "").unwrap();
        Wrote(&["a.csv", "b.csv"]).write(folder.path()).unwrap();
        Wrote(&["b.csv", "c.csv"]).write(folder.path()).unwrap();
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != WRITTEN)
            .collect();
        names.sort();
        assert_eq!(names, ["b.csv", "c.csv", "mine.csv", "results.json"]);

        let outside = tempfile::tempdir().unwrap();
        let file = outside.path().join("kept");
        fs::write(&file, "").unwrap();
        fs::write(
            folder.path().join(WRITTEN),
            format!("{}\n../x\n", file.display()),
        )
        .unwrap();
        Wrote(&[]).write(folder.path()).unwrap();
        assert!(file.is_file());
    }
}
