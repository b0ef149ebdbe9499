//! The traces of the experiments: recorded ones where their files are, synthetic ones always.

use std::time::Duration;

use starhaul_link::{LeoModel, Trace};

use super::{
    case::{Kind, TraceCase, TraceSet, percent},
    folder,
    options::Options,
};
use crate::{
    Error,
    traces::{Direction, recorded_folder},
};

/// Recorded traces, relative to their folder: name, direction, capacity and delay files.
const RECORDED: [(&str, Direction, &str, Option<&str>); 3] = [
    (
        "leocc-example",
        Direction::Up,
        "leocc-example/bw_example.txt",
        Some("leocc-example/delay_example.txt"),
    ),
    (
        "q25_A_downlink_600",
        Direction::Down,
        "leocc-downlink/q25_A_downlink_600.csv",
        None,
    ),
    (
        "q75_C_downlink_599",
        Direction::Down,
        "leocc-downlink/q75_C_downlink_599.csv",
        None,
    ),
];
const SYNTHETIC: u64 = 50;
const SYNTHETIC_QUICK: u64 = 3;
pub(super) const SYNTHETIC_TIME: Duration = Duration::from_secs(120);

impl TraceSet {
    pub(super) fn load(options: &Options) -> Result<Self, Error> {
        let mut set = match &options.traces {
            Some(folder) => folder::load(folder)?,
            None => Self::usual(options)?,
        };
        if !options.losses.is_empty() {
            set.ignore_recorded_losses();
        }
        if options.quick {
            for case in &mut set.cases {
                let seconds = match case.direction {
                    Direction::Up => 30,
                    Direction::Down => 8,
                };
                *case = case.clone().shortened(Duration::from_secs(seconds));
            }
        }
        Ok(set)
    }

    fn ignore_recorded_losses(&mut self) {
        for case in &self.cases {
            if let Some(loss) = case.recorded_loss() {
                self.skipped.push(format!(
                    "skipped: the recorded loss of {} ({} on average), because --loss says another",
                    case.name,
                    percent(loss)
                ));
            }
        }
    }

    fn usual(options: &Options) -> Result<Self, Error> {
        let mut set = Self::default();
        let folder = recorded_folder();
        for (name, direction, capacity, delay) in RECORDED {
            let file = folder.join(capacity);
            if !file.is_file() {
                set.skipped.push(format!(
                    "skipped: {name}, because {} is not there",
                    file.display()
                ));
                continue;
            }
            if options.quick && name == "q75_C_downlink_599" {
                continue;
            }
            let trace = match delay {
                Some(delay) => Trace::read(&file, Some(&folder.join(delay)))?,
                None => Trace::read_csv(&file)?,
            };
            let case = TraceCase::new(name.to_owned(), Kind::Recorded, direction, trace);
            // The loss in their tables is a constant that was not measured: they run with the published losses.
            set.cases.push(case.without_recorded_loss());
        }
        let count = if options.quick {
            SYNTHETIC_QUICK
        } else {
            SYNTHETIC
        };
        let model = LeoModel {
            duration: SYNTHETIC_TIME,
            ..LeoModel::default()
        };
        for n in 1..=count {
            // Seeds of neighbouring experiments share no trace.
            let trace = model.generate(options.seed.wrapping_mul(1000).wrapping_add(n))?;
            let name = format!("leo-{n:02}");
            let case = TraceCase::new(name, Kind::Synthetic, Direction::Up, trace);
            set.cases.push(case.without_recorded_loss());
        }
        Ok(set)
    }
}
