//! `starhaul init`: finds out what a pair of gateways has to know, and writes the files of both sides.

mod answers;
mod files;
mod host;
mod pair;

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::Serialize;
use starhaul_gateway::{EgressRule, Host, Target};
use starhaul_quic::PublicKey;

use self::{
    answers::{Questions, decide, decide_list},
    files::{Site, Written},
    pair::{OnePath, Optional, Pair},
};
use crate::output::{Usage, print, shell_line};

/// Where a gateway of the package expects its files.
const SYSTEM: &str = "/etc/starhaul";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the files of this side; those of the other side go into DIR/PEER
    #[arg(long, value_name = "DIR", default_value = SYSTEM)]
    directory: PathBuf,
    /// Where this side reaches the other one
    #[arg(long, value_name = "HOST:PORT")]
    remote: Option<Target>,
    /// Name of this side [default: field]
    #[arg(long)]
    name: Option<String>,
    /// Name of the other side [default: ground]
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Public key of the other side, which then needs no new one [default: none]
    #[arg(long, value_name = "KEY")]
    peer_key: Option<PublicKey>,
    /// A path by its name and its network interface; once for each [default: every interface with an address]
    #[arg(long = "path", value_name = "NAME=INTERFACE[,cost=N][,link=leo]")]
    paths: Vec<OnePath>,
    /// Where the other side listens; may be repeated [default: all addresses, at the port of --remote]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// A SOCKS5 proxy for applications at this side, or none [default: 127.0.0.1:1080]
    #[arg(long, value_name = "ADDRESS")]
    socks5: Option<Optional>,
    /// What this side may reach through the other, as of `[egress]`; may be repeated [default: nothing]
    #[arg(long, value_name = "NETWORK:PORT")]
    allow: Vec<EgressRule>,
    /// Metrics and live page of both sides, or none [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Optional>,
    /// Replace configurations that are there; keys are never replaced
    #[arg(long)]
    force: bool,
    /// Ask nothing: take the defaults
    #[arg(long, short)]
    yes: bool,
    /// Ask nothing, and print what was written as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let asks = io::stdin().is_terminal() && !arguments.yes && !arguments.json;
    let json = arguments.json;
    let mut questions = asks.then(|| Questions::new(io::stdin().lock(), io::stderr()));
    let (directory, force) = (arguments.directory.clone(), arguments.force);
    let pair = pair(arguments, questions.as_mut())?;
    let (here, there) = (&pair.here, &pair.there);
    let here = Site::new(&directory, here);
    let there = Site::new(&directory.join(there), there);
    let written = files::write(&pair, &here, &there, force)?;
    let report = Report::new(&pair, &directory, written);
    if json {
        return print(serde_json::to_string_pretty(&report)? + "\n");
    }
    print(report.text())
}

/// What the options say, else the answers, else the defaults.
fn pair<R: io::BufRead, W: io::Write>(
    given: Arguments,
    mut questions: Option<&mut Questions<R, W>>,
) -> anyhow::Result<Pair> {
    let asked = &mut questions;
    let here = given.name.map(|name| pair::name(&name)).transpose();
    let here = here.map_err(|error| Usage(format!("--name: {error}")))?;
    let there = given.peer.map(|name| pair::name(&name)).transpose();
    let there = there.map_err(|error| Usage(format!("--peer: {error}")))?;
    let here = decide(asked, here, "Name of this side", Some("field"), pair::name)?;
    let there = decide(
        asked,
        there,
        "Name of the other side",
        Some("ground"),
        pair::name,
    )?;
    if here == there {
        return Err(Usage(format!(
            "both sides would be called {here}: write --peer NAME"
        ))
        .into());
    }
    let remote = decide(
        asked,
        given.remote,
        &format!("Where this side reaches {there}, HOST:PORT (--remote)"),
        None,
        |text| text.parse::<Target>(),
    )?;
    let found = host::interfaces(&remote);
    let default = pair::default_paths(&found);
    let paths = decide_list(
        asked,
        given.paths,
        "Paths, as NAME=INTERFACE[,cost=N][,link=leo] (--path)",
        &default,
        |text| text.parse::<OnePath>(),
    )?;
    if paths.is_empty() {
        let text =
            "no network interface has a route to the other side: write --path NAME=INTERFACE";
        return Err(Usage(text.to_owned()).into());
    }
    let peer_key = decide(
        asked,
        given.peer_key.map(Some),
        &format!("Public key of {there}, if it has one"),
        Some("none"),
        |text| match text {
            "none" => Ok(None),
            text => text.parse::<PublicKey>().map(Some),
        },
    )?;
    let socks5 = decide(
        asked,
        given.socks5,
        "SOCKS5 proxy for applications here, or none",
        Some("127.0.0.1:1080"),
        |text| text.parse::<Optional>(),
    )?;
    let allow = decide_list(
        asked,
        given.allow,
        &format!(
            "What {here} may reach through {there}, such as 10.0.0.0/8:* or *.example.org:443"
        ),
        "",
        |text| text.parse::<EgressRule>(),
    )?;
    let metrics = decide(
        asked,
        given.metrics,
        "Metrics and live page of both sides, or none",
        Some("127.0.0.1:9464"),
        |text| text.parse::<Optional>(),
    )?;
    let listen = match given.listen.is_empty() {
        true => pair::all_addresses(&remote),
        false => given.listen,
    };
    Ok(Pair {
        here,
        there,
        remote,
        listen,
        paths,
        peer_key,
        socks5: socks5.0,
        allow,
        metrics: metrics.0,
        by_units: given.directory == Path::new(SYSTEM),
    })
}

/// What was done, and what to do next.
#[derive(Serialize)]
struct Report<'p> {
    name: &'p str,
    peer: &'p str,
    public_key: String,
    peer_public_key: String,
    files: Vec<files::WrittenFile>,
    next: Vec<String>,
    #[serde(skip)]
    opens_nothing: bool,
}

impl<'p> Report<'p> {
    fn new(pair: &'p Pair, directory: &Path, written: Written) -> Self {
        let there = directory.join(&pair.there);
        let host = match &pair.remote.host {
            Host::Ip(std::net::IpAddr::V6(ip)) => format!("[{ip}]"),
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        };
        let from = there.join(".").into_os_string();
        let to = format!("root@{host}:{SYSTEM}/").into();
        let copy = shell_line(["scp".into(), "-r".into(), from, to]);
        let service = "systemctl enable --now starhaul-gateway";
        let run = match directory == Path::new(SYSTEM) {
            true => service.to_owned(),
            false => {
                let file = directory.join(pair::CONFIGURATION).into_os_string();
                shell_line(["starhaul".into(), "gateway".into(), "--config".into(), file])
            }
        };
        Self {
            name: &pair.here,
            peer: &pair.there,
            public_key: written.here.to_string(),
            peer_public_key: written.there.to_string(),
            files: written.files,
            next: vec![copy, service.to_owned(), run, "starhaul status".to_owned()],
            opens_nothing: pair.allow.is_empty(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            let did = if file.kept { "kept " } else { "wrote" };
            text += &format!("{did} {} (of {})\n", file.path.display(), file.side);
        }
        if self.opens_nothing {
            let (here, there) = (self.name, self.peer);
            text += &format!(
                "{there} lets {here} reach nothing yet: --allow NETWORK:PORT, or [egress] of its configuration\n"
            );
        }
        let [copy, there, here, see] = self.next.as_slice() else {
            return text;
        };
        text + &format!(
            "\nnext:\n  {copy}    # the files of {0}; then remove them here\n  {there}    # at {0}\n  {here}    # here\n  {see}\n",
            self.peer
        )
    }
}
