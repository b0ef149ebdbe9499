//! `starhaul replay`: links and a command in, a summary out; all the rest is in `starhaul-net`.

mod result;
mod summary;

use std::{
    ffi::OsString,
    fs::File,
    io::{BufWriter, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context as _;
use starhaul_link::LinkSpec;
use starhaul_net::replay::{ReplayLink, ReplaySpec, run as run_behind, supervise};

use crate::output::{command_line, print};

/// The run was late, and the command has no complaint of its own.
const INVALID: u8 = 3;
/// The subcommand under which this program is the first process of a command's process namespace.
pub(crate) const SUPERVISOR: &str = "replay-supervisor";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// From the command: rate=50mbit,delay=25ms,loss=0.2%,queue=500p or bw=FILE,delay=FILE or synth=leo,seed=3 or csv=FILE;
    /// once for each link
    #[arg(long, value_name = "SPEC", required = true)]
    up: Vec<String>,
    /// Toward the command; once for each link
    #[arg(long, value_name = "SPEC", required = true)]
    down: Vec<String>,
    /// Names of the links, which are those of the command's network interfaces [default: link1, link2…]
    #[arg(long, value_name = "NAME")]
    link: Vec<String>,
    /// Queue of each direction that names none: 500p (packets) or 64000b (bytes)
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Start this on the far side first, as `sh -c CMD`; the command finds its address in $STARHAUL_SERVER (over the other
    /// links: $STARHAUL_SERVER_2…). Without it the far side is this host
    #[arg(long, value_name = "CMD")]
    server: Option<OsString>,
    /// Write a line for each packet
    #[arg(id = "packet_log", long = "log", value_name = "FILE")]
    log: Option<PathBuf>,
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

/// A link as it was written.
struct Written {
    name: String,
    up: String,
    down: String,
}

pub(crate) fn run(args: Arguments) -> anyhow::Result<ExitCode> {
    let written = written(&args)?;
    let links = written
        .iter()
        .map(parse)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let log = match &args.log {
        Some(file) => Some(begin_log(file, &written, args.seed)?),
        None => None,
    };
    let report = run_behind(ReplaySpec {
        links,
        seed: args.seed,
        server: args.server,
        command: args.command,
        quiet_output: args.json,
        log: log.map(|log| -> Box<dyn std::io::Write + Send> { Box::new(log) }),
        supervisor: vec![SUPERVISOR.into()],
    })?;
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    match args.json {
        true => {
            let result = result::RunResult::new(&report, &written, args.seed);
            print(format!("{}\n", serde_json::to_string(&result)?))?;
        }
        false => eprint!("{}", summary::summary(&report)),
    }
    Ok(match report.exit_code {
        0 if !report.is_valid() => INVALID.into(),
        code => code.into(),
    })
}

/// The n-th of each option belongs to the n-th link.
fn written(args: &Arguments) -> anyhow::Result<Vec<Written>> {
    let (up, down, named) = (args.up.len(), args.down.len(), args.link.len());
    if up != down || (named != 0 && named != up) {
        return Err(Usage(format!(
            "{up} × --up, {down} × --down, {named} × --link: each link takes one --up and one --down, and a --link if any has one"
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
    for (number, (up, down)) in args.up.iter().zip(&args.down).enumerate() {
        let name = args.link.get(number).cloned();
        let name = name.unwrap_or_else(|| format!("link{}", number + 1));
        check_name(&name, &links)?;
        links.push(Written {
            name,
            up: with_queue(up),
            down: with_queue(down),
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

fn parse(written: &Written) -> anyhow::Result<ReplayLink> {
    let parse = |option, text: &String| -> anyhow::Result<LinkSpec> {
        text.parse()
            .map_err(|error| Usage(format!("{option} {text}: {error}")).into())
    };
    Ok(ReplayLink {
        name: written.name.clone(),
        up: parse("--up", &written.up)?,
        down: parse("--down", &written.down)?,
    })
}

fn begin_log(file: &PathBuf, links: &[Written], seed: u64) -> anyhow::Result<BufWriter<File>> {
    let begin = || -> std::io::Result<_> {
        let mut log = BufWriter::with_capacity(1 << 20, File::create(file)?);
        writeln!(log, "# starhaul {} replay log", env!("CARGO_PKG_VERSION"))?;
        writeln!(log, "# command: {}", command_line().replace('\n', " "))?;
        writeln!(log, "# seed: {seed}")?;
        for link in links {
            writeln!(log, "# link {}: up {}", link.name, link.up)?;
            writeln!(log, "# link {}: down {}", link.name, link.down)?;
        }
        Ok(log)
    };
    begin().with_context(|| format!("cannot write the log {}", file.display()))
}

/// Options that make no sense together.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
