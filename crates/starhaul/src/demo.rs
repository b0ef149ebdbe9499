//! `starhaul demo`: arguments in, tables, JSON and report out; all the rest is in `starhaul-demo`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
#[cfg(feature = "dtn")]
use starhaul_demo::space::{SpaceLive, SpaceOptions, run_space, space_table};
use starhaul_demo::{
    self as demo, DemoOptions, DemoRun, Live, Report, baseline::Controller, load::Applications,
};
use starhaul_link::Loss;
#[cfg(feature = "dtn")]
use tokio::signal::unix::{SignalKind, signal};

use crate::output::{Picture, command_line, print, qlog_folder, redraws, replace, tell};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Instead: a lander, an orbiter and a station as bundle nodes over contacts that open and close, with 4 s of light time
    /// and 5 % loss; time is told 60 times as fast as it passes
    #[cfg(feature = "dtn")]
    #[arg(long, conflicts_with_all = ["seconds", "leo_trace", "leo_loss", "geo_loss", "baseline", "only", "qlog", "report"])]
    space: bool,
    /// For how long the applications send
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=demo::MAX_SECONDS))]
    seconds: u64,
    /// Replay a recorded LEO path: a file of any format that starhaul trace reads, or a capacity file and the delays that
    /// belong to it
    #[arg(long, value_name = "FILE", num_args = 1..=2)]
    leo_trace: Vec<PathBuf>,
    /// Random loss of the LEO path, for example 2%, 0.02, or ge:1%:5 for bursts
    #[arg(long, value_name = "P", default_value = "2%")]
    leo_loss: Loss,
    /// Random loss of the GEO path
    #[arg(long, value_name = "P", default_value = "2%")]
    geo_loss: Loss,
    /// Congestion control of the baseline: newreno as in MPDTP's paper, cubic, which keeps most deadlines of the three over these paths,
    /// or bbr
    #[arg(long, value_name = "NAME", default_value = Controller::default().name(), value_parser = clap::builder::PossibleValuesParser::new(Controller::ALL.map(Controller::name)))]
    baseline: String,
    /// Run only text, audio and video (blocks), or only the download: what their figures beside each other are compared with
    #[arg(long, value_name = "WHICH", conflicts_with = "report", value_parser = clap::builder::PossibleValuesParser::new([Applications::Blocks, Applications::Download].map(Applications::name)))]
    only: Option<String>,
    /// Seed of losses, of the synthetic LEO path and of the download's bytes
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write a qlog of each session and path of Starhaul there, at most 1 GiB
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Write a report with plots: one HTML page that needs no network, when FILE ends in .html, or a picture
    /// when it ends in .svg
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    #[cfg(feature = "dtn")]
    if args.space {
        return runtime.block_on(show_space(&args));
    }
    runtime.block_on(show(args))
}

#[cfg(feature = "dtn")]
async fn show_space(args: &Arguments) -> anyhow::Result<()> {
    let mut live = SpaceLive::new(io::stderr(), redraws(&io::stderr()));
    let options = SpaceOptions {
        seed: args.seed,
        ..SpaceOptions::default()
    };
    let told_to_end = stop_signal()?;
    let result = run_space(options, told_to_end, |progress| {
        // A terminal that went away must not end the run.
        let _ = live.show(progress);
    });
    let result = result.await;
    let _ = live.erase();
    let result = result?;
    print(match args.json {
        true => format!("{}\n", serde_json::to_string(&result)?),
        false => space_table(&result),
    })?;
    anyhow::ensure!(result.is_complete(), "not all pictures have arrived");
    Ok(())
}

/// Returns when the program is told to end.
#[cfg(feature = "dtn")]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // A terminal that is closed.
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// One of those that the command line allows.
fn controller(name: &str) -> Controller {
    let mut all = Controller::ALL.into_iter();
    all.find(|controller| controller.name() == name)
        .unwrap_or_default()
}

/// One of those that the command line allows, or all.
fn applications(only: Option<&str>) -> Applications {
    let mut all = Applications::ALL.into_iter();
    all.find(|applications| Some(applications.name()) == only)
        .unwrap_or_default()
}

async fn show(args: Arguments) -> anyhow::Result<()> {
    let options = DemoOptions {
        seconds: args.seconds,
        leo_trace: args.leo_trace,
        leo_loss: args.leo_loss,
        geo_loss: args.geo_loss,
        baseline: controller(&args.baseline),
        applications: applications(args.only.as_deref()),
        seed: args.seed,
        qlog: args.qlog.as_deref().map(qlog_folder).transpose()?,
    };
    // Before the run, which a wrong path would waste.
    let report = args.report.map(check_report).transpose()?;
    let mut live = Live::new(io::stderr(), redraws(&io::stderr()), options.seconds);
    tell(format!("{}\n", options.describe_links()));
    let run = demo::run(&options, |progress| {
        // A terminal that went away must not end the run.
        let _ = live.show(progress);
    })
    .await?;
    let _ = live.erase();
    for warning in &run.result.warnings {
        tell(format!("warning: {warning}\n"));
    }
    // The report comes after the results, which it must not cost.
    let printed = print(match args.json {
        true => format!("{}\n", serde_json::to_string(&run.result)?),
        false => demo::final_table(&run.result),
    });
    if let Some((file, kind)) = report {
        write_report(&file, kind, &run, &options.describe_links())?;
    }
    printed
}

fn write_report(file: &Path, kind: Picture, run: &DemoRun, links: &str) -> anyhow::Result<()> {
    let report = Report {
        result: &run.result,
        all_series: &run.all_series,
        command: &command_line(),
        links,
    };
    let text = match kind {
        Picture::Svg => report.svg(),
        Picture::Page => report.html(),
    };
    let written = replace(file, &text);
    written.with_context(|| format!("cannot write the report {}", file.display()))?;
    tell(format!("report: {}\n", file.display()));
    Ok(())
}

/// Refuses a file that cannot be written. One that exists stays as it is until there is another report.
fn check_report(file: PathBuf) -> anyhow::Result<(PathBuf, Picture)> {
    let kind = Picture::of("--report", &file)?;
    let checked = match File::create_new(&file) {
        Ok(_) => fs::remove_file(&file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let opened = File::options().append(true).create(true).open(&file);
            opened.map(drop)
        }
        Err(error) => Err(error),
    };
    checked.with_context(|| format!("cannot write the report {}", file.display()))?;
    Ok((file, kind))
}
