//! Where `starhaul trace` writes a trace, and in which format.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use starhaul_link::{Format, Opportunities, Recording, write_capacity, write_csv, write_delay};
use starhaul_units::parse_duration;

use crate::output::{Closed, Usage, ending, tell};

#[derive(clap::Args)]
pub(super) struct Target {
    /// Where to write; - is standard output
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Where to write the delays, when --out gets a capacity
    #[arg(long, value_name = "FILE")]
    out_delay: Option<PathBuf>,
    /// Format to write: csv, mahimahi or delay [default: csv for a name that ends so and for -, delay where there is no
    /// capacity, else mahimahi]
    #[arg(long, value_name = "FORMAT")]
    out_format: Option<Format>,
    /// Distance of the rows of a CSV table, in whole milliseconds; with 1ms it holds the capacity exactly
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_step)]
    step: Duration,
}

impl Target {
    /// Writes a recording, and says on standard error what of it the format does not hold.
    pub(super) fn write(&self, recording: &Recording) -> anyhow::Result<()> {
        let ending = ending(&self.out);
        let table = ending == "csv" || self.out == Path::new("-");
        let promised = match ending.as_str() {
            "gz" => Some(format!(
                "{}, and compress that with gzip",
                self.out.with_extension("").display()
            )),
            "svg" | "png" | "pdf" | "html" | "htm" => {
                Some("a picture with starhaul trace plot".to_owned())
            }
            "json" => Some("JSON with starhaul trace info --json".to_owned()),
            _ => None,
        };
        if let Some(instead) = promised {
            let out = self.out.display();
            return Err(Usage(format!(
                "--out {out}: a trace is csv or lines of text; write {instead}"
            ))
            .into());
        }
        let format = match (self.out_format, &recording.capacity) {
            (Some(format), _) => format,
            (None, None) => Format::Delay,
            (None, Some(_)) if table => Format::Csv,
            (None, Some(_)) => Format::Mahimahi,
        };
        if self.out_delay.is_some() && format != Format::Mahimahi {
            return Err(usage(
                "--out-delay goes with a capacity in --out: add --out-format mahimahi",
            ));
        }
        // Nothing is written before it is known that all can be.
        if format == Format::Csv {
            let capacity = recording.capacity.as_deref();
            match capacity.map(Opportunities::period) {
                None => return Err(usage("this trace has no capacity: add --out-format delay")),
                Some(period) if period <= self.step => {
                    return Err(usage(
                        "a table of one row is not read again: take a --step shorter than the trace",
                    ));
                }
                Some(_) => {}
            }
        }
        if let Some(file) = &self.out_delay {
            if is_same(file, &self.out) {
                return Err(usage(
                    "--out-delay names the file of --out: both are written",
                ));
            }
            if recording.delay.is_none() {
                return Err(usage("this trace has no delays for --out-delay"));
            }
        }
        self.write_as(format, recording)?;
        tell_of_lost_loss(format, recording);
        Ok(())
    }

    fn write_as(&self, format: Format, recording: &Recording) -> anyhow::Result<()> {
        match format {
            Format::Csv => write_to(&self.out, |out| write_csv(recording, self.step, out)),
            Format::Mahimahi => {
                let Some(capacity) = &recording.capacity else {
                    return Err(usage("this trace has no capacity: add --out-format delay"));
                };
                write_to(&self.out, |out| write_capacity(capacity, out))?;
                match (&self.out_delay, &recording.delay) {
                    (Some(file), Some(delay)) => write_to(file, |out| write_delay(delay, out)),
                    (None, Some(delay)) if delay.range().1 > Duration::ZERO => {
                        tell(
                            "note: the mahimahi format holds no delay; --out-delay FILE writes the delays beside it\n",
                        );
                        Ok(())
                    }
                    (_, _) => Ok(()),
                }
            }
            Format::Delay => match &recording.delay {
                Some(delay) => write_to(&self.out, |out| write_delay(delay, out)),
                None => Err(usage("this trace has no delays")),
            },
            Format::Leoem => Err(usage("leoem is only read: write csv, mahimahi or delay")),
        }
    }
}

/// Says what of the loss is not written: only a table has any.
fn tell_of_lost_loss(format: Format, recording: &Recording) {
    let loss = recording.loss.as_ref().map_or(0.0, |loss| loss.mean());
    if format != Format::Csv && loss > 0.0 {
        let (name, percent) = (format.name(), loss * 100.0);
        tell(format!(
            "note: the {name} format holds no loss, and the trace has {percent:.3} %\n"
        ));
    }
}

/// Whether two names are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |file: &Path| {
        let folder = file.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let file = folder.join(file.file_name()?);
        Some(file.canonicalize().unwrap_or(file))
    };
    one == other || place(one).is_some_and(|place_of| Some(place_of) == place(other))
}

/// Writes to a file, or to standard output where its name is `-`.
pub(super) fn write_to(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let write_all = |out: &mut dyn Write| write(out).and_then(|()| out.flush());
    if file == Path::new("-") {
        return match write_all(&mut BufWriter::new(io::stdout().lock())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
            other => Ok(other?),
        };
    }
    File::create(file)
        .and_then(|out| write_all(&mut BufWriter::new(out)))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn usage(problem: &'static str) -> anyhow::Error {
    Usage(problem.to_owned()).into()
}

/// The distance of rows, which is of whole milliseconds like the opportunities of a trace.
fn parse_step(text: &str) -> Result<Duration, String> {
    let step = parse_duration(text).map_err(|error| error.to_string())?;
    let is_whole = step.subsec_nanos().is_multiple_of(1_000_000);
    match is_whole && !step.is_zero() {
        true => Ok(step),
        false => Err("write whole milliseconds, at least one, as 10ms".to_owned()),
    }
}
