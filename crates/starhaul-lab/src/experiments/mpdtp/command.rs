//! `starhaul lab mpdtp`, in virtual and in real time.

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
pub struct Mpdtp;

impl Experiment for Mpdtp {
    fn command(&self) -> Command {
        Options::augment_args(study().command())
    }

    fn about(&self) -> Vec<About> {
        let real = About {
            command: "mpdtp --real".to_owned(),
            stands_for: "MPDTP fig. 4, 5",
            shows: "the same in real time beside MPTCP and multipath QUIC",
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
        if is_checked(options) {
            return Err(Error::Settings(
                "--check has goals for runs in virtual time: leave out --real".into(),
            ));
        }
        let only = options.get_many::<String>("only").into_iter().flatten();
        let only: Vec<&str> = only.map(String::as_str).collect();
        let is_given = options.value_source("runs") == Some(ValueSource::CommandLine);
        let runs = options.get_one("runs").copied().filter(|_| is_given);
        let plan = RealPlan::new(&real, &only, options.get_flag("quick"), runs, seed)?;
        Ok(Box::new(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(arguments: &[&str]) -> Result<String, Error> {
        let all = ["mpdtp"].iter().chain(arguments);
        let options = Mpdtp.command().try_get_matches_from(all).unwrap();
        Ok(Mpdtp.plan(&options, 1)?.describe())
    }

    #[test]
    fn in_real_time_parts_and_systems_are_chosen_by_name() {
        let own = ["--real", "--systems", "starhaul,mpquic"];
        let cases: [(&[&str], &str); 4] = [
            (&[], "starhaul, mpquic, 3 runs of each at 19 points"),
            (
                &["--only", "loss"],
                "starhaul, mpquic, 3 runs of each at 7 points",
            ),
            (&["--quick"], "starhaul, mpquic, 1 run of each at 2 points"),
            (
                &["--quick", "--runs", "2"],
                "starhaul, mpquic, 2 runs of each at 2 points",
            ),
        ];
        for (more, said) in cases {
            let found = described(&[&own[..], more].concat()).unwrap();
            assert!(found.starts_with(said), "{more:?}: {found}");
        }
        let error = described(&["--real", "--check"]).unwrap_err();
        assert!(error.to_string().contains("leave out --real"), "{error}");
        let error = described(&["--real", "--systems", "rist"]).unwrap_err();
        assert!(error.to_string().contains("one latency for all"), "{error}");
    }
}
