//! `starhaul lab dmtp`, in virtual and in real time.

use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _, value_parser};
use starhaul_session::Mode;

use super::{
    MODES, SYSTEMS,
    course::Course,
    real::{Asked, RealPlan},
    study,
};
use crate::{
    Error,
    kit::{About, Experiment, Plan, options, study::is_checked},
    systems::blocks::comparison,
};

/// The part that there is in real time, too.
const REAL_PART: &str = "loss";

/// The experiment by its name.
pub struct Dmtp;

// Without a description, which would replace that of the command.
#[derive(clap::Args)]
struct Options {
    /// In real time: part loss with our own stack over emulated links between network namespaces, beside the rivals that this
    /// computer has: MPTCP, SRT, RIST, multipath QUIC. Needs what replay needs; --runs is 3 by default
    #[arg(long)]
    real: bool,
    /// Losses of the cheap path, each for 5 s [default: those of the paper and 20 %, with --real those of the paper]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = starhaul_units::parse_share)]
    loss: Vec<f64>,
    /// Mean numbers of packets that part bursts loses in a row [default: 5,20]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = in_a_row)]
    burst: Vec<f64>,
    /// With --real: so many systems at once, each over links of its own
    #[arg(long, value_name = "N", requires = "real", default_value_t = 1, value_parser = value_parser!(u8).range(1..=16))]
    at_once: u8,
}

fn in_a_row(text: &str) -> Result<f64, String> {
    let number = starhaul_units::parse_decimal(text.trim()).filter(|number| *number >= 1.0);
    number.ok_or_else(|| "a mean number of packets, at least 1, such as 5".to_owned())
}

/// That part bursts has rows of these losses and systems, which are those of the command.
fn check_rows(losses: &[f64], systems: &[&str]) -> Result<(), Error> {
    if !losses.is_empty() && losses.iter().all(|loss| *loss <= 0.0) {
        return Err(Error::Settings(
            "--burst: nothing is lost in a row where nothing is lost: give a --loss above zero"
                .into(),
        ));
    }
    // As the part has it: without protection there is nothing to compare.
    let protected = MODES.iter().filter(|mode| **mode != Mode::None);
    let protected: Vec<&str> = protected.map(|mode| mode.name()).collect();
    let has_rows = protected.iter().any(|name| systems.contains(name));
    match systems.is_empty() || has_rows {
        true => Ok(()),
        false => Err(Error::Settings(format!(
            "--burst: part bursts compares {} alone: add one of them to --systems",
            protected.join(", ")
        ))),
    }
}

impl Experiment for Dmtp {
    fn command(&self) -> Command {
        let help = format!(
            "Run only these systems: {}; with --real those of its table, or modes of ours",
            SYSTEMS.join(", ")
        );
        // Which systems there are depends on where they run.
        let any = |systems: Arg| systems.value_parser(value_parser!(String)).help(help);
        Options::augment_args(study(&Course::default()).command()).mut_arg("systems", any)
    }

    fn about(&self) -> Vec<About> {
        let real = About {
            command: "dmtp --real".to_owned(),
            stands_for: "DMTP fig. 7",
            shows: "the same in real time beside MPTCP, SRT, RIST and multipath QUIC",
        };
        let mut all = study(&Course::default()).about();
        all.push(real);
        all
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let asked = Options::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        match asked.real {
            true => asked.in_real_time(options, seed),
            false => asked.in_virtual_time(options, seed),
        }
    }
}

impl Options {
    fn in_virtual_time(self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let only = options::names(options, "only");
        let runs = |part: &str| only.is_empty() || only.contains(&part);
        if !self.burst.is_empty() && !runs("bursts") {
            return Err(Error::Settings(
                "--burst is of part bursts: add it to --only".into(),
            ));
        }
        let systems = options::names(options, "systems");
        options::in_virtual_time(&systems, &SYSTEMS, &comparison::known())?;
        if !self.burst.is_empty() {
            check_rows(&self.loss, &systems)?;
        }
        let course = Course::new(self.loss, self.burst);
        course.check(runs("bursts"))?;
        if is_checked(options) {
            let judged = Mode::FecRetransmit.name();
            if !systems.is_empty() && !systems.contains(&judged) {
                return Err(Error::Settings(format!(
                    "--check: of all systems {judged} has goals, and it does not run: add it to --systems"
                )));
            }
            if runs("paths") && !course.needs_the_dear_path() {
                return Err(Error::Settings(
                    "--check: part paths has a goal where more than nothing and at most 10 % is lost: add such a --loss, or leave it out with --only"
                        .into(),
                ));
            }
        }
        study(&course).plan(options, seed)
    }

    fn in_real_time(self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        options::refuse(
            options,
            "qlog",
            "runs in virtual time leave records: leave out --real",
        )?;
        options::refuse(
            options,
            "burst",
            "losses come in a row in virtual time only: leave out --real",
        )?;
        let only = options::names(options, "only");
        if let Some(other) = only.iter().find(|part| **part != REAL_PART) {
            return Err(Error::Settings(format!(
                "--only {other}: in real time there is part {REAL_PART} alone: leave out --real, or the other parts"
            )));
        }
        let plan = RealPlan::new(&Asked {
            systems: &options::names(options, "systems"),
            losses: &self.loss,
            at_once: self.at_once,
            quick: options.get_flag("quick"),
            runs: options::runs(options),
            seed,
        })?;
        Ok(Box::new(match is_checked(options) {
            true => plan.checked()?,
            false => plan,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::kit::experiment::asked;

    fn plan(arguments: &[&str]) -> Result<Box<dyn Plan>, Error> {
        asked::plan(&Dmtp, arguments)
    }

    fn refused(arguments: &[&str], said: &str) {
        asked::refused(&Dmtp, arguments, said);
    }

    #[test]
    fn the_part_that_is_measured_in_real_time_may_be_named() {
        let own = ["--real", "--systems", "starhaul"];
        for more in [&[][..], &["--only", "loss"]] {
            let said = plan(&[&own[..], more].concat()).unwrap().describe();
            assert!(said.starts_with("starhaul, 3 runs of each"), "{said}");
        }
        refused(
            &["--real", "--only", "loss,bursts"],
            "--only bursts: in real time there is part loss alone",
        );
    }

    #[test]
    fn modes_are_systems_in_real_time_too() {
        let said = plan(&["--real", "--systems", "fec+retransmit,none"]);
        let said = said.unwrap().describe();
        assert!(said.starts_with("starhaul, starhaul-none, "), "{said}");
    }

    /// An option that is taken and ignored starts hours of runs that nobody asked for.
    #[test]
    fn what_only_one_kind_of_run_has_is_refused_with_the_other() {
        let kind = |arguments: &[&str]| {
            let all = ["dmtp"].iter().chain(arguments);
            let found = Dmtp.command().try_get_matches_from(all);
            found.err().map(|error| error.kind())
        };
        let missing = Some(ErrorKind::MissingRequiredArgument);
        for with in [&[][..], &["--only", "loss"], &["--qlog", "records"]] {
            assert_eq!(kind(&[&["--at-once", "2"][..], with].concat()), missing);
        }
        refused(&["--real", "--qlog", "records"], "leave out --real");
        refused(&["--real", "--burst", "5"], "leave out --real");
        refused(&["--only", "loss", "--burst", "5"], "add it to --only");
        refused(&["--loss", "0", "--burst", "5"], "give a --loss above zero");
        for system in ["none", "mpquic", "none,mpquic-bbr"] {
            let arguments = ["--systems", system, "--burst", "5"];
            refused(&arguments, "retransmit, fec, fec+retransmit alone");
        }
        assert!(plan(&["--loss", "0,5%", "--burst", "5"]).is_ok());
        assert!(plan(&["--systems", "mpquic,fec", "--burst", "5"]).is_ok());
        refused(&["--systems", "srt"], "srt runs in real time only");
        refused(&["--systems", "fek"], "is none of none, retransmit, fec");
        refused(&["--only", "bursts", "--loss", "99%"], "burst");
        assert!(plan(&["--only", "loss", "--loss", "99%"]).is_ok());
    }

    #[test]
    fn what_has_no_goal_is_not_checked_in_virtual_time() {
        let both = ["--check", "--systems", "fec+retransmit", "--only"];
        refused(
            &["--check", "--systems", "fec,mpquic"],
            "fec+retransmit has goals",
        );
        refused(
            &[&both[..], &["paths", "--loss", "20%"]].concat(),
            "part paths has a goal",
        );
        assert!(plan(&[&both[..], &["loss", "--loss", "20%"]].concat()).is_ok());
    }
}
