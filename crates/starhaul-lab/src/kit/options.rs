//! Options of an experiment that runs in virtual and in real time: what only one of both has is refused with the other, and never ignored.

use clap::{ArgMatches, parser::ValueSource};

use crate::Error;

/// The names that an option was given.
pub(crate) fn names<'o>(options: &'o ArgMatches, option: &str) -> Vec<&'o str> {
    let named = options.get_many::<String>(option).into_iter().flatten();
    named.map(String::as_str).collect()
}

/// Whether the command line has an option, which may have a default.
pub(crate) fn is_given(options: &ArgMatches, option: &str) -> bool {
    options.value_source(option) == Some(ValueSource::CommandLine)
}

/// `--runs`, if the command line has it.
pub(crate) fn runs(options: &ArgMatches) -> Option<u32> {
    let runs = options.get_one("runs").copied();
    runs.filter(|_| is_given(options, "runs"))
}

/// Refuses an option.
///
/// # Errors
/// [`Error::Settings`] with `why` if the command line has it.
pub(crate) fn refuse(options: &ArgMatches, option: &str, why: &str) -> Result<(), Error> {
    match is_given(options, option) {
        true => Err(Error::Settings(format!("--{option}: {why}"))),
        false => Ok(()),
    }
}

/// Refuses names of systems that do not run in virtual time: `known` do, and those of `real` only in real time.
///
/// # Errors
/// [`Error::Settings`] names the first one, and what to name in its place.
pub(crate) fn in_virtual_time(named: &[&str], known: &[&str], real: &[&str]) -> Result<(), Error> {
    let Some(unknown) = named.iter().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let known = known.join(", ");
    Err(Error::Settings(match real.contains(unknown) {
        true => format!(
            "--systems: {unknown} runs in real time only: add --real, or name some of {known}"
        ),
        false => format!("--systems: {unknown:?} is none of {known}"),
    }))
}
