//! `starhaul lab leotp`, in virtual and in real time.

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

use super::{
    Given,
    goals::SYSTEM,
    orders::RULES,
    real::{Options, RealPlan},
    study,
};
use crate::{
    Error,
    kit::{About, Experiment, Plan, study::is_checked},
};

/// The experiment by its name.
pub struct Leotp;

impl Experiment for Leotp {
    fn command(&self) -> Command {
        Options::augment_args(study(&Given::default()).command())
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
        let mut all = study(&Given::default()).about();
        all.extend([real, messages]);
        all
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let real = Options::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        let checks = is_checked(options);
        if !real.real {
            let given = Given::of(&real)?;
            let only = options.get_many::<String>("only").into_iter().flatten();
            given.refuse_others(only.map(String::as_str))?;
            if checks {
                given.refuse_goals()?;
                refuse_without_goals(options)?;
            }
            return study(&given).plan(options, seed);
        }
        let runs = options.get_one("runs").copied().unwrap_or(1);
        let plan = RealPlan::new(&real, options.get_flag("quick"), runs, seed, checks)?;
        Ok(Box::new(plan))
    }
}

/// Refuses runs in virtual time that have no goal, whatever their parts. What parts have goals the study knows.
fn refuse_without_goals(options: &ArgMatches) -> Result<(), Error> {
    if options.get_flag("quick") {
        return Err(Error::Settings(
            "--check: the goals are for runs at full length: leave out --quick".to_owned(),
        ));
    }
    let [named, only] = ["systems", "only"].map(|option| {
        let named = options.get_many::<String>(option).into_iter().flatten();
        named.map(String::as_str).collect::<Vec<_>>()
    });
    if named.is_empty() {
        return Ok(());
    }
    let ablates = only.is_empty() || only.contains(&"ablation");
    let mut has_rule = false;
    for rule in RULES.iter().filter(|_| ablates) {
        let chosen = rule.chosen(&named).len();
        if chosen > 0 && chosen < rule.rows.len() {
            let rows = rule.rows.join(",");
            return Err(Error::Settings(format!(
                "--check: the goals of ablation compare all rows of a rule: add them to --systems ({rows}), or leave out ablation with --only"
            )));
        }
        has_rule |= chosen > 0;
    }
    let is_alone = has_rule && only == ["ablation"];
    if !is_alone && !named.contains(&SYSTEM) {
        return Err(Error::Settings(format!(
            "--check: of all systems {SYSTEM} has goals, and it does not run: add it to --systems"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use super::*;
    use crate::experiments::leotp::PUBLISHED;

    fn plan(arguments: &[&str]) -> Result<Box<dyn Plan>, Error> {
        let all = ["leotp", "--quick"].iter().chain(arguments);
        let options = Leotp.command().try_get_matches_from(all).unwrap();
        Leotp.plan(&options, 1)
    }

    #[test]
    fn parts_and_systems_have_the_names_that_scripts_use() {
        let about = Leotp.about().into_iter();
        let commands: Vec<String> = about.map(|about| about.command).collect();
        for part in [
            "delay",
            "bytes",
            "hop-loss",
            "switch",
            "step",
            "fairness",
            "constellation",
            "ablation",
            "sharing",
        ] {
            let command = format!("leotp --only {part}");
            assert!(commands.contains(&command), "{command}: {commands:?}");
        }
        let all = "leotp,leotp-published,bbr,cubic,hybla,vivace,leocc,split-tcp";
        let plan = plan(&["--only", "fairness", "--systems", all]).unwrap();
        assert!(plan.skipped().is_empty(), "{:?}", plan.skipped());
    }

    #[test]
    fn a_system_that_is_named_runs_also_where_it_is_not_usual() {
        for (systems, runs) in [("hybla", "3 runs"), ("leotp,leotp-neither", "6 runs")] {
            let plan = plan(&["--only", "delay", "--systems", systems]).unwrap();
            let said = plan.describe();
            assert!(said.starts_with(runs), "{systems}: {said}");
            assert!(plan.skipped().is_empty());
        }
    }

    #[test]
    fn a_name_without_a_run_is_told() {
        let plan = self::plan(&["--only", "switch", "--systems", "leotp,split-tcp"]).unwrap();
        let [said] = plan.skipped() else {
            panic!("{:?}", plan.skipped())
        };
        assert!(said.contains("split-tcp"), "{said}");
        let error = self::plan(&["--only", "switch", "--systems", "split-tcp"]).err();
        let error = error.unwrap().to_string();
        assert!(error.contains("no run"), "{error}");
    }

    #[test]
    fn what_is_given_runs_where_it_takes_effect_and_is_refused_elsewhere() {
        let given = |option: &str, value: &str, part: &str| {
            plan(&[option, value, "--only", part, "--systems", "leotp"]).unwrap()
        };
        let link = "rate=8mbit,delay=25ms,loss=2%";
        for (option, value, part, runs) in [
            ("--hops", "3", "delay", "3 runs"),
            ("--link", link, "delay", "1 run"),
        ] {
            let said = given(option, value, part).describe();
            assert!(said.starts_with(runs), "{option}: {said}");
        }
        for (arguments, why) in [
            (&["--hops", "3", "--only", "switch"][..], "as published"),
            (
                &["--hops", "3", "--only", "constellation"][..],
                "delay, bytes, hop-loss",
            ),
            (&["--hops", "3", "--check"][..], "published set-ups"),
            (&["--link", "delay=10ms"][..], "has a rate"),
            (&["--link", "rat=5mbit"][..], "--link rat=5mbit"),
            (&["--path", "missing.json"][..], "--path missing.json"),
        ] {
            let refused = plan(arguments).err().unwrap().to_string();
            assert!(refused.contains(why), "{arguments:?}: {refused}");
        }
    }

    #[test]
    fn what_has_no_goal_is_refused_before_it_runs() {
        let plan = |arguments: &[&str]| {
            let all = ["leotp", "--check"].iter().chain(arguments);
            let options = Leotp.command().try_get_matches_from(all).unwrap();
            Leotp.plan(&options, 1)
        };
        assert!(plan(&["--only", "step"]).is_ok());
        assert!(plan(&["--only", "delay", "--systems", "bbr,leotp"]).is_ok());
        let published = PUBLISHED.rows.join(",");
        let ablation = |systems: &str| plan(&["--only", "ablation", "--systems", systems]);
        assert!(plan(&["--only", "ablation"]).is_ok() && ablation(&published).is_ok());
        for (arguments, why) in [
            (
                &["--systems", "leotp,leotp-neither"][..],
                "compare all rows of a rule",
            ),
            // The whole alone is compared with nothing.
            (
                &["--only", "ablation", "--systems", "leotp"][..],
                "leave no run",
            ),
            (
                &["--only", "delay", "--systems", "bbr"][..],
                "leotp has goals",
            ),
            (&["--only", "delay", "--quick"][..], "--quick"),
        ] {
            let refused = plan(arguments).err().unwrap().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
