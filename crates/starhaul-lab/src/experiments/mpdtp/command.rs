//! `starhaul lab mpdtp`, in virtual and in real time.

use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _, value_parser};

use super::{
    BY_BANDWIDTH, BY_LOSS, OURS, RIVAL, SYSTEMS, Sweep,
    real::{Asked, RealPlan},
    study,
};
use crate::{
    Error,
    kit::{About, Experiment, Plan, options, study::is_checked},
    systems::blocks::comparison,
};

/// The greatest bandwidth that can be asked for, per offered load.
const MOST_BANDWIDTH: f64 = 100.0;

/// The experiment by its name.
pub struct Mpdtp;

// Without a description, which would replace that of the command.
#[derive(clap::Args)]
struct Options {
    /// In real time: our own stack over emulated links between network namespaces, beside the rivals that this computer has:
    /// MPTCP, SRT, RIST, multipath QUIC. Needs what replay needs; --runs is 3 by default
    #[arg(long)]
    real: bool,
    /// Losses of both paths in part loss [default: those of the paper]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = starhaul_units::parse_share)]
    loss: Vec<f64>,
    /// Bandwidths of both paths together in part bandwidth, as multiples of the offered load [default: 0.5,1,1.5,2,3,5]
    #[arg(long, value_name = "F,…", value_delimiter = ',', value_parser = factor)]
    bandwidth: Vec<f64>,
    /// With --real: so many systems at once, each over links of its own
    #[arg(long, value_name = "N", requires = "real", default_value_t = 1, value_parser = value_parser!(u8).range(1..=16))]
    at_once: u8,
}

fn factor(text: &str) -> Result<f64, String> {
    let number = starhaul_units::parse_decimal(text.trim());
    let number = number.filter(|number| *number > 0.0 && *number <= MOST_BANDWIDTH);
    number.ok_or_else(|| format!("a multiple of the offered load, at most {MOST_BANDWIDTH}"))
}

impl Experiment for Mpdtp {
    fn command(&self) -> Command {
        let help = format!(
            "Run only these systems: {}; with --real those of its table, or modes of ours [default: with --real all that this computer has, \
             but for starhaul-none, -retransmit, -fec, srt-dear and mpquic-dear; with --quick starhaul, mptcp and mpquic]",
            known().join(", ")
        );
        // Which systems there are depends on where they run.
        let any = |systems: Arg| systems.value_parser(value_parser!(String)).help(help);
        Options::augment_args(study(&Sweep::default()).command()).mut_arg("systems", any)
    }

    fn about(&self) -> Vec<About> {
        let real = About {
            command: "mpdtp --real".to_owned(),
            stands_for: "MPDTP fig. 4, 5",
            shows: "the same in real time beside MPTCP, SRT, RIST and multipath QUIC",
        };
        let mut all = study(&Sweep::default()).about();
        all.push(real);
        all
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let asked = Options::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        let only = options::names(options, "only");
        for (option, part) in [("bandwidth", BY_BANDWIDTH.0), ("loss", BY_LOSS.0)] {
            if !only.is_empty() && !only.contains(&part) {
                let why = format!("it is of part {part}, which does not run: add it to --only");
                options::refuse(options, option, &why)?;
            }
        }
        match asked.real {
            true => asked.in_real_time(options, seed),
            false => asked.in_virtual_time(options, seed),
        }
    }
}

/// The systems in virtual time.
fn known() -> Vec<&'static str> {
    let mut known = SYSTEMS.to_vec();
    known.dedup();
    known
}

impl Options {
    fn in_virtual_time(self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let systems = options::names(options, "systems");
        options::in_virtual_time(&systems, &known(), &comparison::known())?;
        let has_ours = OURS.iter().any(|ours| systems.contains(&ours.name()));
        let is_judged = has_ours && systems.contains(&RIVAL.name());
        if is_checked(options) && !systems.is_empty() && !is_judged {
            let ours = OURS.map(|ours| ours.name()).join(" or ");
            return Err(Error::Settings(format!(
                "--check: the goals are for {ours} beside {}: add them to --systems",
                RIVAL.name()
            )));
        }
        study(&self.sweep()).plan(options, seed)
    }

    fn in_real_time(self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        options::refuse(
            options,
            "qlog",
            "runs in virtual time leave records: leave out --real",
        )?;
        if is_checked(options) {
            return Err(Error::Settings(
                "--check has goals for runs in virtual time: leave out --real".into(),
            ));
        }
        let plan = RealPlan::new(&Asked {
            systems: &options::names(options, "systems"),
            only: &options::names(options, "only"),
            at_once: self.at_once,
            sweep: &self.sweep(),
            quick: options.get_flag("quick"),
            runs: options::runs(options),
            seed,
        })?;
        Ok(Box::new(plan))
    }

    fn sweep(&self) -> Sweep {
        Sweep {
            factors: self.bandwidth.clone(),
            losses: self.loss.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::kit::experiment::asked;

    fn plan(arguments: &[&str]) -> Result<Box<dyn Plan>, Error> {
        asked::plan(&Mpdtp, arguments)
    }

    fn refused(arguments: &[&str], said: &str) {
        asked::refused(&Mpdtp, arguments, said);
    }

    #[test]
    fn in_real_time_parts_and_systems_are_chosen_by_name() {
        let own = ["--real", "--systems", "fec+retransmit,mpquic"];
        let cases: [(&[&str], &str); 6] = [
            (&[], "starhaul, mpquic, 3 runs of each at 19 points"),
            (
                &["--only", "loss"],
                "starhaul, mpquic, 3 runs of each at 7 points",
            ),
            (
                &["--only", "loss", "--loss", "3%,7%"],
                "starhaul, mpquic, 3 runs of each at 2 points",
            ),
            (
                &["--only", "bandwidth", "--bandwidth", "4"],
                "starhaul, mpquic, 3 runs of each at 2 points",
            ),
            (&["--quick"], "starhaul, mpquic, 1 run of each at 2 points"),
            (
                &["--quick", "--runs", "2"],
                "starhaul, mpquic, 2 runs of each at 2 points",
            ),
        ];
        for (more, said) in cases {
            let found = plan(&[&own[..], more].concat()).unwrap().describe();
            assert!(found.starts_with(said), "{more:?}: {found}");
        }
        refused(&["--real", "--systems", "rust"], "srt-apart-fec");
    }

    /// An option that is taken and ignored starts many runs that nobody asked for.
    #[test]
    fn what_only_one_kind_of_run_has_is_refused_with_the_other() {
        let all = ["mpdtp", "--at-once", "2", "--qlog", "records"];
        let found = Mpdtp.command().try_get_matches_from(all);
        let kind = found.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::MissingRequiredArgument));
        refused(&["--real", "--check"], "leave out --real");
        refused(&["--real", "--qlog", "records"], "leave out --real");
        refused(&["--systems", "mptcp"], "mptcp runs in real time only");
        refused(&["--systems", "fek"], "is none of dedicated, bbr, none");
        refused(&["--only", "bandwidth", "--loss", "1%"], "--loss: it is of");
        refused(&["--check", "--systems", "fec,mpquic"], "dedicated or bbr");
        assert!(plan(&["--check", "--systems", "bbr,mpquic"]).is_ok());
    }
}
