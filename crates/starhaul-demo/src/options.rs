//! What the demo is asked to do, and the links it makes of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_gateway::QlogFolder;
use starhaul_link::{LeoModel, LinkSpec, Loss, QueueLimit, Recording, Trace};
use starhaul_units::Bandwidth;

use super::Paths;
use crate::{Error, baseline::Controller, load::Applications};

/// 40 ms of queue at the rates below: enough for the bursts of a congestion controller, short enough for voice.
const LEO_QUEUE_BYTES: usize = 512 << 10;
const GEO_QUEUE_BYTES: usize = 512 << 10;
const GEO_RATE: Bandwidth = Bandwidth::from_mbit(10);
const GEO_ONE_WAY: Duration = Duration::from_millis(300);

/// Most seconds of a run: every block of it is kept, and drawn by a report, and the trace of a link is two hours long at most.
pub const MAX_SECONDS: u64 = 3_600;

/// What the demo is asked to do.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// For how long the applications send, in whole seconds, 1 to [`MAX_SECONDS`].
    pub seconds: u64,
    /// The LEO path's trace: one file of any format that [`Recording::read`] knows, or a capacity and the delays that belong
    /// to it; synthetic when empty. Its loss gives way to `leo_loss`.
    pub leo_trace: Vec<PathBuf>,
    /// Random loss of the LEO path in each direction.
    pub leo_loss: Loss,
    /// Random loss of the GEO path in each direction.
    pub geo_loss: Loss,
    /// The baseline's congestion control.
    pub baseline: Controller,
    /// Which applications run.
    pub applications: Applications,
    /// Seed of losses, of the synthetic link and of the download's bytes.
    pub seed: u64,
    /// Where qlog records of Starhaul's sessions and paths go; `None` for none.
    pub qlog: Option<QlogFolder>,
}

impl DemoOptions {
    /// One direction of each path; both directions are alike.
    pub(super) fn links(&self) -> Result<Paths<LinkSpec>, Error> {
        if !(1..=MAX_SECONDS).contains(&self.seconds) {
            let range = format!("the demo lasts 1 to {MAX_SECONDS} seconds");
            return Err(Error::Settings(range));
        }
        let trace = match &self.leo_trace[..] {
            [] => LeoModel::default().generate(self.seed)?,
            [file] => read(file, None)?,
            [file, delay] => read(file, Some(delay))?,
            _ => {
                return Err(Error::Settings(
                    "--leo-trace takes one file, or a file and the delays that belong to it".into(),
                ));
            }
        };
        let leo = LinkSpec::from_trace(trace)
            .with_loss(self.leo_loss)
            .with_queue(QueueLimit::Bytes(LEO_QUEUE_BYTES));
        let geo = LinkSpec::constant(GEO_RATE, GEO_ONE_WAY)
            .with_loss(self.geo_loss)
            .with_queue(QueueLimit::Bytes(GEO_QUEUE_BYTES));
        Ok(Paths { leo, geo })
    }

    /// Describes the links, as text for people.
    pub fn describe_links(&self) -> String {
        let leo = match &self.leo_trace[..] {
            [] => format!("a synthetic LEO path (seed {})", self.seed),
            [file, ..] => format!(
                "a LEO path replayed from {}",
                file.file_name().unwrap_or_default().display()
            ),
        };
        format!(
            "{leo} with {} loss, and a GEO path of 10 Mbit/s and 600 ms RTT with {} loss",
            self.leo_loss, self.geo_loss
        )
    }
}

/// What a file says of the path, with the delays of another one in place of its own.
fn read(file: &Path, delay: Option<&PathBuf>) -> Result<Trace, Error> {
    let (mut recording, _) = Recording::read(file, None)?;
    if let Some(delay) = delay {
        let (delays, _) = Recording::read(delay, None)?;
        let Some(series) = delays.delay else {
            return Err(Error::Settings(format!(
                "--leo-trace: {} holds no delays",
                delay.display()
            )));
        };
        recording = recording.with_delay((*series).clone())?;
    }
    let Some(capacity) = recording.capacity else {
        return Err(Error::Settings(format!(
            "--leo-trace: {} holds no capacity: give a capacity file first, then the delays",
            file.display()
        )));
    };
    Ok(Trace {
        capacity,
        delay: recording.delay,
        loss: recording.loss,
    })
}

#[cfg(test)]
mod tests {
    use starhaul_link::Delay;

    use super::*;

    #[test]
    fn impossible_settings_are_refused() {
        let options = |seconds, traces: &[&str]| DemoOptions {
            seconds,
            leo_trace: traces.iter().map(PathBuf::from).collect(),
            leo_loss: Loss::NONE,
            geo_loss: Loss::NONE,
            baseline: Controller::default(),
            applications: Applications::default(),
            seed: 1,
            qlog: None,
        };
        assert!(options(1, &[]).links().is_ok());
        assert!(options(MAX_SECONDS, &[]).links().is_ok());
        assert!(options(0, &[]).links().is_err());
        assert!(options(MAX_SECONDS + 1, &[]).links().is_err());
        assert!(options(1, &["a", "b", "c"]).links().is_err());
        let missing = options(1, &["/no/such/trace"]).links().unwrap_err();
        assert!(missing.to_string().contains("/no/such/trace"), "{missing}");
    }

    #[test]
    fn a_trace_of_any_format_is_the_leo_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let capacity = file("capacity", "1\n2\n4\n");
        let delays = file("delays", "12.5\n13\n");
        // a table by its content, whatever its name
        let table = file("table.txt", "t_s,capacity_mbps,rtt_ms\n0,10,40\n1,20,40\n");
        let links = |leo_trace| {
            let options = DemoOptions {
                seconds: 1,
                leo_trace,
                leo_loss: Loss::NONE,
                geo_loss: Loss::NONE,
                baseline: Controller::default(),
                applications: Applications::default(),
                seed: 1,
                qlog: None,
            };
            options.links().map(|links| links.leo.delay)
        };
        let delay_ms = |leo_trace| match links(leo_trace).unwrap() {
            Delay::Trace(series) => series.at(Duration::ZERO).as_secs_f64() * 1e3,
            Delay::Constant(delay) => delay.as_secs_f64() * 1e3,
        };
        assert_eq!(delay_ms(vec![capacity.clone()]), 0.0);
        assert_eq!(delay_ms(vec![table.clone()]), 20.0);
        assert_eq!(delay_ms(vec![capacity.clone(), delays.clone()]), 12.5);
        assert_eq!(delay_ms(vec![table, delays.clone()]), 12.5);
        for (files, missing) in [
            (vec![delays.clone()], "no capacity"),
            (vec![capacity.clone(), capacity], "no delays"),
        ] {
            let error = links(files).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
