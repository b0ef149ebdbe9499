//! `starhaul replay`: takes links and a command, prints a summary; the emulation is in `starhaul-replay`.

mod log;
mod picture;
mod result;
mod source;
mod summary;

use std::{
    ffi::OsString,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use starhaul_link::LinkSpec;
use starhaul_replay::{ReplayLink, ReplaySpec, run as run_behind, supervise};

use self::{log::Log, picture::ReplayPicture};
use crate::output::{Picture, Usage, command_line, print, replace, shell_line, tell};

/// Exit code of a run that was late, if the command succeeded.
const INVALID: u8 = 3;
/// The subcommand under which this program is the first process of a command's process namespace.
pub(crate) const SUPERVISOR: &str = "replay-supervisor";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Both directions of a link: a folder that starhaul record wrote, or, for both alike, a file that starhaul trace
    /// reads or a folder with one LeoReplayer pair; more settings may follow, as in DIR,loss=0.2%,queue=500p; once for
    /// each link
    #[arg(long, value_name = "PATH")]
    trace: Vec<String>,
    /// From the command: rate=50mbit,delay=25ms,loss=0.2%,queue=500p or bw=FILE,delay=FILE or synth=leo,seed=3 or
    /// csv=FILE; once for each link
    #[arg(long, value_name = "SPEC")]
    up: Vec<String>,
    /// Toward the command; once for each link
    #[arg(long, value_name = "SPEC")]
    down: Vec<String>,
    /// Names of the links, which are those of the command's network interfaces [default: link1, link2…]
    #[arg(long, value_name = "NAME")]
    link: Vec<String>,
    /// Queue of each direction that names none: 500p (packets) or 64000b (bytes)
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Start this on the far side first, as `sh -c CMD`; the command finds its address in $STARHAUL_SERVER (over the
    /// other links: $STARHAUL_SERVER_2…). Without it the far side is this host
    #[arg(long, value_name = "CMD")]
    server: Option<OsString>,
    /// Write a line for each packet
    #[arg(id = "packet_log", long = "log", value_name = "FILE")]
    log: Option<PathBuf>,
    /// Draw throughput beside capacity, delay and drops over time: a picture when FILE ends in .svg, one page that
    /// needs no network when it ends in .html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Seed of everything random in the links
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object at the end and nothing else; what the command prints goes to standard error
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
pub(crate) struct SupervisorArguments {
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn supervisor(arguments: &SupervisorArguments) -> ExitCode {
    supervise(&arguments.command).into()
}

/// A link as given on the command line.
struct Written {
    name: String,
    up: String,
    down: String,
}

pub(crate) fn run(args: Arguments) -> anyhow::Result<ExitCode> {
    let written = written(&args)?;
    let links = written
        .iter()
        .enumerate()
        .map(|(number, written)| parse(written, args.seed, number))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let outputs = [&args.plot, &args.log].into_iter().flatten();
    let new = outputs.filter(|file| !file.exists());
    let _new = NewFiles(new.cloned().collect());
    let plot = args.plot.as_deref().map(Plot::begin).transpose()?;
    let log = args.log.as_deref();
    let log = log.map(|file| Log::begin(file, &written, args.seed));
    let mut log = log.transpose()?;
    let program = shell_line(args.command.iter().cloned());
    let report = run_behind(ReplaySpec {
        links: links.clone(),
        server: args.server,
        command: args.command,
        quiet_output: args.json,
        log: log.as_ref().map(Log::writer).transpose()?,
        tcp_window_bytes: None,
        keep_passages: false,
        supervisor: vec![SUPERVISOR.into()],
    })?;
    if let Some(log) = &mut log {
        log.finish()?;
    }
    for warning in &report.warnings {
        tell(format!("warning: {warning}\n"));
    }
    let printed = match args.json {
        true => {
            let result = result::RunResult::new(&report, &written, args.seed);
            print(format!("{}\n", serde_json::to_string(&result)?))
        }
        false => {
            tell(summary::summary(&report));
            Ok(())
        }
    };
    if let Some(plot) = plot {
        let texts = written.iter();
        let texts: Vec<_> = texts
            .map(|link| [link.up.clone(), link.down.clone()])
            .collect();
        plot.draw(&ReplayPicture {
            report: &report,
            links: &links,
            written: &texts,
            seed: args.seed,
            program: &program,
            command: &command_line(),
        })?;
    }
    // What the command ended with is said although its result could not be.
    match report.exit_code {
        0 if !report.is_valid() => Ok(INVALID.into()),
        0 => printed.map(|()| ExitCode::SUCCESS),
        code => {
            if let Err(error) = printed.map_err(|error| format!("{error:#}")) {
                tell(format!("warning: the result is not printed: {error}\n"));
            }
            Ok(code.into())
        }
    }
}

/// The n-th occurrence of each option belongs to the n-th link.
fn written(args: &Arguments) -> anyhow::Result<Vec<Written>> {
    let (up, down, named) = (args.up.len(), args.down.len(), args.link.len());
    let (traces, links) = (args.trace.len(), args.trace.len() + up);
    if links + down == 0 {
        return Err(Usage(
            "no link is given: --up and --down describe its two directions, for example --up rate=50mbit,delay=25ms --down \
             delay=25ms, or --trace PATH names a recording of both"
                .to_owned(),
        )
        .into());
    }
    if up != down || (named != 0 && named != links) {
        return Err(Usage(format!(
            "{up} × --up, {down} × --down, {traces} × --trace, {named} × --link: each link takes one --up and one --down \
             (delay=0ms where nothing holds packets up) or a --trace, and a --link if any has one"
        ))
        .into());
    }
    let with_queue = |spec: &String| match &args.queue {
        Some(queue)
            if !spec
                .split(',')
                .any(|item| item.trim().starts_with("queue=")) =>
        {
            format!("{spec},queue={queue}")
        }
        _ => spec.clone(),
    };
    let mut links: Vec<Written> = Vec::new();
    let traces = args.trace.iter().map(|trace| source::directions(trace));
    let pairs = args.up.iter().zip(&args.down);
    let pairs = pairs.map(|(up, down)| Ok([up.clone(), down.clone()]));
    for (number, directions) in traces.chain(pairs).enumerate() {
        let [up, down] = directions?;
        let name = args.link.get(number).cloned();
        let name = name.unwrap_or_else(|| format!("link{}", number + 1));
        check_name(&name, &links)?;
        links.push(Written {
            name,
            up: with_queue(&up),
            down: with_queue(&down),
        });
    }
    Ok(links)
}

fn check_name(name: &str, others: &[Written]) -> anyhow::Result<()> {
    let fits = (1..=15).contains(&name.len()) && name != "lo";
    let mut letters = name.bytes();
    if !fits || !letters.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(Usage(format!(
            "--link {name:?}: the name of a network interface has 1 to 15 letters, digits, - or _"
        ))
        .into());
    }
    if others.iter().any(|other| other.name == name) {
        return Err(Usage(format!("--link {name:?}: another link has this name")).into());
    }
    Ok(())
}

fn parse(written: &Written, seed: u64, number: usize) -> anyhow::Result<ReplayLink> {
    let parse = |option, text: &String| -> anyhow::Result<LinkSpec> {
        text.parse()
            .map_err(|error| Usage(format!("{option} {text}: {error}")).into())
    };
    let (up, down) = (parse("--up", &written.up)?, parse("--down", &written.down)?);
    Ok(ReplayLink::new(&written.name, up, down, seed, number))
}

/// The file of a plot, opened before the run so that a failure costs nothing. What is in it stays until there is another.
struct Plot {
    name: PathBuf,
    file: File,
    kind: Picture,
}

/// Files that were made for a run; those that are still empty at its end, since there was none, go again.
struct NewFiles(Vec<PathBuf>);

impl Drop for NewFiles {
    fn drop(&mut self) {
        for file in self.0.iter().filter(|file| is_empty(file)) {
            // It does no harm.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// What was in it stays until there is another.
fn open_as_it_is(name: &Path) -> std::io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(name)
}

fn empty(file: &File) -> std::io::Result<()> {
    // A pipe has no length.
    match file.metadata()?.is_file() {
        true => file.set_len(0),
        false => Ok(()),
    }
}

fn is_empty(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() == 0)
}

impl Plot {
    fn begin(name: &Path) -> anyhow::Result<Self> {
        let kind = Picture::of("--plot", name)?;
        let file = open_as_it_is(name);
        Ok(Self {
            name: name.to_owned(),
            file: file.with_context(|| format!("cannot write the plot {}", name.display()))?,
            kind,
        })
    }

    fn draw(mut self, picture: &ReplayPicture<'_>) -> anyhow::Result<()> {
        let text = match self.kind {
            Picture::Page => picture.html(),
            Picture::Svg => picture.svg(),
        };
        // Who reads a pipe has waited since it was opened, before the run.
        let written = match self.file.metadata() {
            Ok(found) if !found.is_file() => self.file.write_all(text.as_bytes()),
            _ => replace(&self.name, &text),
        };
        written.with_context(|| format!("cannot write the plot {}", self.name.display()))
    }
}
