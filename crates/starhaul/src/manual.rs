//! Completions and manual pages, generated from the definition of the command line.

mod reference;

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{command, output::print};
use anyhow::Context as _;
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use self::reference::File;

#[derive(clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Shell that the script is for
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
pub(crate) struct ManpagesArguments {
    /// Folder that the pages are written into
    directory: PathBuf,
}

/// A term and its description.
type Entry = (&'static str, &'static str);

/// Parts of a command's manual page beside its options.
struct Facts {
    /// The name of the command, with its parents.
    command: &'static str,
    exit_status: &'static [Entry],
    files: &'static [Entry],
    environment: &'static [Entry],
}

const EXIT_STATUS: &[Entry] = &[
    ("0", "Done."),
    ("1", "Failed; standard error says why."),
    (
        "2",
        "Wrong usage, or a wrong configuration or key file: it has to be changed before trying again.",
    ),
];
const ENVIRONMENT: &[Entry] = &[
    (
        "STARHAUL_LOG",
        "What to log on standard error, where --log does not say.",
    ),
    ("NO_COLOR", "Not empty: no colours in the log."),
    ("TERM", "dumb: no colours, and nothing is redrawn."),
];
const SOCKETS: &[Entry] = &[
    (
        "$XDG_RUNTIME_DIR/starhaul/control.sock",
        "The control socket of a gateway whose configuration names none.",
    ),
    (
        "/run/starhaul/control.sock",
        "The same where that variable is not set, as for a system service.",
    ),
];
const RUNTIME_DIRECTORY: Entry = (
    "XDG_RUNTIME_DIR",
    "Where the control socket is, unless the configuration says.",
);
#[cfg(feature = "dtn")]
const FILES_OF_NODE: &[Entry] = &[
    ("FILE", "The configuration. Read at the start alone."),
    (
        "$XDG_RUNTIME_DIR/starhaul/dtn.sock, /run/starhaul-dtn/dtn.sock",
        "The socket of a node whose configuration names none; the second where that variable is not set.",
    ),
];
const FILES_OF_RELAY: &[Entry] = &[
    ("FILE", "The configuration. Read at the start alone."),
    (
        "the key files",
        "One for each neighbour, made by starhaul-keygen(1). Only the relay should be able to read them (chmod 600).",
    ),
];
const FACTS: &[Facts] = &[
    Facts {
        command: "starhaul-gateway",
        exit_status: &[],
        files: &[
            (
                "FILE",
                "The configuration, starhaul-gateway.toml(5). Read at the start, and again at SIGHUP; a wrong one is then refused, and the gateway goes on as before.",
            ),
            (
                "the key file",
                "Named by the configuration and made by starhaul-keygen(1). Only its owner should be able to read it (chmod 600).",
            ),
            SOCKETS[0],
            SOCKETS[1],
        ],
        environment: &[
            RUNTIME_DIRECTORY,
            (
                "STARHAUL_GATEWAY_…",
                "The value of a key in place of what the configuration says, such as STARHAUL_GATEWAY_METRICS; see starhaul-gateway.toml(5).",
            ),
        ],
    },
    Facts {
        command: "starhaul-dtn-node",
        exit_status: &[],
        files: &[],
        environment: &[
            RUNTIME_DIRECTORY,
            (
                "STARHAUL_DTN_…",
                "The value of a key in place of what the configuration says, such as STARHAUL_DTN_STORAGE_MAX_BYTES.",
            ),
        ],
    },
    Facts {
        command: "starhaul-relay",
        exit_status: &[],
        files: &[],
        environment: &[(
            "STARHAUL_RELAY_…",
            "The value of a key in place of what the configuration says, such as STARHAUL_RELAY_CACHE.",
        )],
    },
    Facts {
        command: "starhaul-status",
        exit_status: &[],
        files: SOCKETS,
        environment: &[RUNTIME_DIRECTORY],
    },
    Facts {
        command: "starhaul-ltp-send",
        exit_status: &[(
            "3",
            "With --one-way: all of the file has left, and nobody can tell whether it arrives.",
        )],
        files: &[],
        environment: &[],
    },
    Facts {
        command: "starhaul-replay",
        exit_status: &[
            (
                "3",
                "The command ended well, and packets left so late that the run does not count.",
            ),
            ("others", "That of the command."),
        ],
        files: &[],
        environment: &[
            (
                "STARHAUL_SERVER",
                "Set for the command: the address of the far side over the first link.",
            ),
            ("STARHAUL_SERVER_2 …", "The same over the other links."),
        ],
    },
    Facts {
        command: "starhaul-detect",
        exit_status: &[],
        files: &[],
        environment: &[(
            "STARHAUL_SERVER",
            "The far end, where --toward does not say.",
        )],
    },
    Facts {
        command: "starhaul-lab-flow",
        exit_status: &[],
        files: &[],
        environment: &[
            (
                "STARHAUL_SERVER",
                "The server, where --server does not say.",
            ),
            (
                "STARHAUL_FLOW_SECRET",
                "The secret, where --secret does not say.",
            ),
        ],
    },
    Facts {
        command: "starhaul-lab-leocc",
        exit_status: &[],
        files: &[(
            "DIR",
            "With --out: report.html, results.json, results.csv and pictures.",
        )],
        environment: &[("STARHAUL_TRACES", "Folder of the recorded traces.")],
    },
    Facts {
        command: "starhaul-keygen",
        exit_status: &[],
        files: &[(
            "FILE",
            "With --out: the secret key, readable by its owner alone. Never overwritten.",
        )],
        environment: &[],
    },
    Facts {
        command: "starhaul-record-client",
        exit_status: &[],
        files: &[
            (
                "DIR/up-bw.txt, DIR/up-delay.txt, DIR/up.csv",
                "The trace of what this end sent; the same with down.",
            ),
            (
                "DIR/up-journal.jsonl",
                "What it was made of; starhaul-record-finish(1) reads it.",
            ),
            ("DIR/summary.json", "Figures of both."),
        ],
        environment: &[],
    },
];

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut typed(), "starhaul", &mut script);
    print(script)
}

/// The command line without hidden commands, which scripts would offer, too.
fn typed() -> clap::Command {
    let all = command();
    let shown = all.get_subcommands().filter(|below| !below.is_hide_set());
    clap::Command::new("starhaul")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(shown.cloned())
}

pub(crate) fn manpages(arguments: &ManpagesArguments) -> anyhow::Result<()> {
    let directory = &arguments.directory;
    write_all(directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}

fn write_all(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut command = command().disable_help_subcommand(true);
    command.build();
    write_command(&command, directory)?;
    write_files(directory)
}

/// Writes a page for each configuration file.
fn write_files(directory: &Path) -> io::Result<()> {
    let write = |file: &File, mut page: Roff, files: &'static [Entry], commands: &str| {
        entries(&mut page, "FILES", &[files]);
        see_also(&mut page, &[commands]);
        std::fs::write(directory.join(format!("{}.5", file.name)), page.render())
    };
    let gateway = File {
        name: "starhaul-gateway.toml",
        of: "a Starhaul gateway",
        sample_command: "starhaul gateway sample",
        sample: starhaul_gateway::Config::sample(),
    };
    let commands = "starhaul-gateway(1), starhaul-keygen(1), starhaul-status(1)";
    let page = reference::gateway(&gateway);
    write(&gateway, page, FACTS[0].files, commands)?;
    let relay = File {
        name: "starhaul-relay.toml",
        of: "a relay of LEOTP",
        sample_command: "starhaul relay --sample",
        sample: starhaul_contents::config::Config::sample(),
    };
    let commands = "starhaul-relay(1), starhaul-keygen(1)";
    let page = reference::other(&relay, starhaul_contents::config::Config::definition());
    write(&relay, page, FILES_OF_RELAY, commands)?;
    #[cfg(feature = "dtn")]
    {
        let node = File {
            name: "starhaul-dtn.toml",
            of: "a bundle node",
            sample_command: "starhaul dtn sample",
            sample: starhaul_dtn::Config::sample(),
        };
        let page = reference::other(&node, starhaul_dtn::Config::definition());
        write(
            &node,
            page,
            FILES_OF_NODE,
            "starhaul-dtn(1), starhaul-dtn-node(1)",
        )?;
    }
    Ok(())
}

/// Writes a page for the command and for each of its subcommands.
fn write_command(command: &clap::Command, directory: &Path) -> io::Result<()> {
    let shown = || {
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
    };
    for below in shown() {
        write_command(below, directory)?;
    }
    let man = Man::new(command.clone());
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let of_it = |facts: &&Facts| {
        let rest = name.strip_prefix(facts.command);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let of_it = || FACTS.iter().filter(of_it);
    let all = |first: &'static [Entry], more: fn(&Facts) -> &'static [Entry]| -> Vec<_> {
        std::iter::once(first).chain(of_it().map(more)).collect()
    };
    let mut more = Roff::new();
    entries(
        &mut more,
        "EXIT STATUS",
        &all(EXIT_STATUS, |facts| facts.exit_status),
    );
    entries(&mut more, "FILES", &all(&[], |facts| facts.files));
    entries(
        &mut more,
        "ENVIRONMENT",
        &all(ENVIRONMENT, |facts| facts.environment),
    );
    let mut others: Vec<_> = shown()
        .filter_map(clap::Command::get_display_name)
        .map(page_of)
        .collect();
    if let Some((above, _)) = name.rsplit_once('-') {
        others.insert(0, page_of(above));
    }
    let pages = ["starhaul-gateway", "starhaul-dtn", "starhaul-relay"];
    if let Some(page) = pages.iter().find(|page| name.starts_with(**page)) {
        others.push(format!("{page}.toml(5)"));
    }
    see_also(
        &mut more,
        &others.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    page.extend(more.render().into_bytes());
    std::fs::write(directory.join(format!("{name}.1")), page)
}

fn page_of(name: &str) -> String {
    format!("{name}(1)")
}

fn entries(page: &mut Roff, title: &str, entries: &[&[Entry]]) {
    if entries.iter().all(|some| some.is_empty()) {
        return;
    }
    page.control("SH", [title]);
    for (term, meaning) in entries.iter().copied().flatten() {
        page.control("TP", []);
        page.text([bold(*term)]);
        page.text([roman(*meaning)]);
    }
}

fn see_also(page: &mut Roff, others: &[&str]) {
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(others.join(", "))]);
}
