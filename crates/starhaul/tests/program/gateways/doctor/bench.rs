//! A pair with a fault, and the doctor beside it.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;
use starhaul_needs::Sleeper;

use super::super::{
    gateway::Pair,
    network::{Network, Side},
    wait_for,
};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");
/// What a computer with much else to do brings about by itself, for a moment.
const OF_A_BUSY_COMPUTER: [&str; 3] = ["path_silent", "socket_buffer", "loss"];

/// A pair, and how the doctor is run on one side.
pub(super) struct Bench {
    pub(super) pair: Pair,
    pub(super) network: Network,
    side: Side,
    /// A script before the doctor, in a mount namespace of its own.
    script: Option<String>,
    /// Added to the configuration that the doctor reads, and not to that of the gateway.
    more: String,
}

/// A line of the doctor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) cause: String,
    pub(super) subject: String,
    pub(super) found: String,
    pub(super) advice: String,
}

/// Output of the doctor.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) problems: Vec<Finding>,
    /// The notes, then what is well.
    pub(super) others: Vec<Finding>,
    pub(super) exit_code: Option<i32>,
}

impl Bench {
    pub(super) fn new(network: Network, pair: Pair) -> Self {
        Self {
            pair,
            network,
            side: Side::Field,
            script: None,
            more: String::new(),
        }
    }

    /// The doctor looks at the other side.
    pub(super) fn on_ground(self) -> Self {
        Self {
            side: Side::Ground,
            ..self
        }
    }

    /// The doctor runs after this script of root's.
    pub(super) fn after(self, script: &str) -> Self {
        Self {
            script: Some(script.to_owned()),
            ..self
        }
    }

    /// The doctor reads this too.
    pub(super) fn with_more(self, more: &str) -> Self {
        Self {
            more: more.to_owned(),
            ..self
        }
    }

    /// What the doctor says now.
    pub(super) fn ask(&self) -> Report {
        let name = match self.side {
            Side::Field => "field",
            Side::Ground => "ground",
        };
        let file = |ending: &str| self.pair.directory().join(format!("{name}.{ending}"));
        let text = fs::read_to_string(file("toml")).unwrap();
        let config = file("doctor.toml");
        fs::write(&config, text + &self.more).unwrap();
        let mut command = match &self.script {
            Some(script) => {
                let mut command = Command::new("unshare");
                let script = format!("{script} && exec \"$@\"");
                command.args(["--mount", "sh", "-c", &script, "sh", STARHAUL]);
                command
            }
            None => Command::new(STARHAUL),
        };
        command.args(["doctor", "--json", "--config"]).arg(config);
        command.arg("--socket").arg(file("sock"));
        read(&self.network.run(self.side, &mut command).unwrap())
    }

    /// What the doctor says of a pair without a fault. A computer with much else to do may lose packets itself, for a moment: then it is asked
    /// again.
    pub(super) fn ask_healthy(&self) -> Report {
        let mut report = self.ask();
        for _ in 0..2 {
            if report.problems.is_empty() {
                break;
            }
            report = self.ask();
        }
        assert_eq!(report.problems, []);
        report
    }

    /// Waits until the doctor names this cause first. What it names before must be one of `early`; in the end it is the only problem.
    pub(super) fn expect_after(&self, cause: &str, early: &[&str]) -> Finding {
        let mut sleeper = Sleeper::start();
        wait_for(cause, || {
            let report = self.ask();
            let woken = std::mem::replace(&mut sleeper, Sleeper::start()).end();
            if !woken.were_in_time() && report.is_disturbed(cause) {
                println!("{cause}: this computer is busy: {report:?}");
                return None;
            }
            let Some(first) = report.problems.first() else {
                println!("{cause}: none named yet: {report:?}");
                return None;
            };
            if first.cause != cause {
                let allowed = early.contains(&first.cause.as_str());
                assert!(allowed, "{cause} is planted: {report:#?}");
                return None;
            }
            assert_eq!(report.exit_code, Some(1));
            let alone = report.problems.iter().all(|other| other.cause == cause);
            assert!(alone, "{cause} is planted: {report:#?}");
            Some(first.clone())
        })
    }

    /// Waits until the doctor names this cause first, whatever follows from it.
    pub(super) fn expect_first(&self, cause: &str) -> Finding {
        wait_for(cause, || {
            let report = self.ask();
            println!("{cause} is planted: {report:?}");
            let first = report.problems.first();
            first.filter(|first| first.cause == cause).cloned()
        })
    }

    /// As [`Bench::expect_after`], with nothing before.
    pub(super) fn expect(&self, cause: &str) -> Finding {
        self.expect_after(cause, &[])
    }

    /// Waits until the doctor says that this is what limits the session, and that nothing is wrong.
    pub(super) fn expect_bottleneck(&self, cause: &str) {
        let mut sleeper = Sleeper::start();
        wait_for(cause, || {
            let report = self.ask();
            let woken = std::mem::replace(&mut sleeper, Sleeper::start()).end();
            if !woken.were_in_time() && report.is_disturbed(cause) {
                println!("{cause}: this computer is busy: {report:?}");
                return None;
            }
            assert_eq!(report.problems, [], "{cause} is planted");
            let mut others = report.others.iter();
            let told = others.find(|other| other.subject == "bottleneck toward ground");
            let told = told.unwrap_or_else(|| panic!("{report:#?}"));
            println!("{cause}: {told:?}");
            (told.cause == cause).then_some(())
        });
    }
}

impl Report {
    /// Whether it names a problem beside this cause that a busy computer brings about.
    fn is_disturbed(&self, cause: &str) -> bool {
        let mut others = self.problems.iter().filter(|other| other.cause != cause);
        others.any(|other| OF_A_BUSY_COMPUTER.contains(&other.cause.as_str()))
    }
}

fn read(output: &Output) -> Report {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = report["findings"].as_array().unwrap().iter();
    let (problems, others): (Vec<_>, _) =
        findings.partition(|finding| finding["level"] == "problem");
    assert_eq!(report["healthy"], problems.is_empty());
    let finding = |finding: &Value| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        Finding {
            cause: text("cause"),
            subject: text("subject"),
            found: text("found"),
            advice: text("advice"),
        }
    };
    Report {
        problems: problems.into_iter().map(finding).collect(),
        others: others.into_iter().map(finding).collect(),
        exit_code: output.status.code(),
    }
}
