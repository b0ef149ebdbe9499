//! Requirements of tests on the machine, and the handling of missing ones; what benchmarks must reach ([`Floor`]).
//!
//! Such a test calls [`skip`] and returns. It then passes, unless `STARHAUL_REQUIRE`, a list like
//! `netns,iperf3,traces`, names the missing need: a machine that is known to have it must not pass by skipping.
//! `STARHAUL_SKIPPED=FILE` collects a line for each skipped test, since a passing test's output is not shown.
//!
//! ```no_run
//! use starhaul_needs::{Need, skip, trace};
//!
//! let Some(file) = trace("leocc-example/bw_example.txt") else { return };
//! if std::process::Command::new("iperf3").arg("--version").output().is_err() {
//!     return skip(Need::Iperf3, "it is not installed");
//! }
//! ```

mod floor;
mod ports;
#[cfg(feature = "s3")]
mod s3;
mod sleeper;

pub use floor::Floor;
pub use ports::free;
#[cfg(feature = "s3")]
pub use s3::S3Server;
pub use sleeper::{FREE, Sleeper, Wakes};

use std::{
    env,
    fmt::{self, Display},
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    thread,
};

/// A requirement that not every machine meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Permission to create network namespaces and TUN devices.
    Netns,
    /// The program `iperf3`.
    Iperf3,
    /// The program `curl`.
    Curl,
    /// The recorded traces, which are not part of the project.
    Traces,
    /// IPv6, at least on loopback.
    Ipv6,
    /// Permission to send ICMP echo requests, or to use raw sockets.
    Icmp,
    /// `setpriv`, and permission to drop a capability.
    Setpriv,
    /// `script` of util-linux, which creates a terminal.
    Script,
    /// A congestion controller of the kernel.
    Kernel,
    /// Enough processor time for exact timing.
    Time,
    /// Permission to open several thousand files.
    OpenFiles,
    /// Permission to mount a file system in a namespace of its own.
    Mount,
    /// `dtnd` of `dtn7`, another bundle node.
    Dtnd,
    /// `nft`, and a kernel with TPROXY.
    Nftables,
    /// The programs `prometheus` and `promtool`.
    Prometheus,
    /// The browser `chromium`, which runs without a screen.
    Chromium,
    /// The server of Debian's package `postgresql`, and a build with the feature `postgres`.
    Postgres,
    /// A server of S3, and a build with the feature `s3` of this crate and of the bundle node.
    S3,
    /// The library of Debian's `libfaketime`, which sets a program's clock.
    Faketime,
    /// Permission to make a control group with a limit of processor time.
    Cgroup,
    /// The program `srt-live-transmit` of Debian's `srt-tools`.
    Srt,
    /// The programs `ristsender` and `ristreceiver` of Debian's `rist-tools`.
    Rist,
}

impl Need {
    /// All needs, in the order in which they are listed.
    pub const ALL: [Self; 22] = [
        Self::Netns,
        Self::Iperf3,
        Self::Curl,
        Self::Traces,
        Self::Ipv6,
        Self::Icmp,
        Self::Setpriv,
        Self::Script,
        Self::Kernel,
        Self::Time,
        Self::OpenFiles,
        Self::Mount,
        Self::Dtnd,
        Self::Nftables,
        Self::Prometheus,
        Self::Chromium,
        Self::Postgres,
        Self::S3,
        Self::Faketime,
        Self::Cgroup,
        Self::Srt,
        Self::Rist,
    ];

    /// The name in `STARHAUL_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Netns => "netns",
            Self::Iperf3 => "iperf3",
            Self::Curl => "curl",
            Self::Traces => "traces",
            Self::Ipv6 => "ipv6",
            Self::Icmp => "icmp",
            Self::Setpriv => "setpriv",
            Self::Script => "script",
            Self::Kernel => "kernel",
            Self::Time => "time",
            Self::OpenFiles => "files",
            Self::Mount => "mount",
            Self::Dtnd => "dtnd",
            Self::Nftables => "nftables",
            Self::Prometheus => "prometheus",
            Self::Chromium => "chromium",
            Self::Postgres => "postgres",
            Self::S3 => "s3",
            Self::Faketime => "faketime",
            Self::Cgroup => "cgroup",
            Self::Srt => "srt",
            Self::Rist => "rist",
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reports that this test, or the rest of it, is skipped and why; the test then returns.
///
/// # Panics
/// `STARHAUL_REQUIRE` names this need, or an unknown one.
pub fn skip(need: Need, why: impl Display) {
    if let Err(problem) = missing(need, &env::var("STARHAUL_REQUIRE").unwrap_or_default()) {
        panic!("{problem}: {why}");
    }
    println!("skipped: needs {need}: {why}");
    let Some(file) = env::var_os("STARHAUL_SKIPPED") else {
        return;
    };
    let current = thread::current();
    // Tests that run one after another have no thread of their own.
    let test = current.name().filter(|name| *name != "main");
    let program = env::args().next().unwrap_or_default();
    let program = Path::new(&program).file_stem().unwrap_or_default();
    let program = program.to_string_lossy();
    // Cargo adds a hash to the name of a test program.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let line = format!(
        "{program} {}: needs {need}: {}\n",
        test.unwrap_or("(one test)"),
        one_line(&why)
    );
    // One call, so that lines of tests that run at once do not mix.
    let written = OpenOptions::new().append(true).create(true).open(&file);
    if let Err(error) = written.and_then(|mut file| file.write_all(line.as_bytes())) {
        panic!("STARHAUL_SKIPPED={}: {error}", Path::new(&file).display());
    }
}

/// A recorded trace of this name, below the folder in `STARHAUL_TRACES` or beside the project; `None`, with a reported
/// reason, if it does not exist.
///
/// # Panics
/// As [`skip`] does.
pub fn trace(file: &str) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = env::var_os("STARHAUL_TRACES").map_or_else(|| beside.into(), PathBuf::from);
    let path = folder.join(file);
    if !path.exists() {
        let missing = path.display();
        skip(
            Need::Traces,
            format!("no {missing} (STARHAUL_TRACES names the folder)"),
        );
        return None;
    }
    Some(path)
}

/// Whether a need may be missing where this list is required.
fn missing(need: Need, required: &str) -> Result<(), String> {
    let names = Need::ALL.map(Need::name);
    for name in required
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        if !names.contains(&name) {
            let known = names.join(", ");
            return Err(format!("STARHAUL_REQUIRE: {name:?} is none of {known}"));
        }
    }
    if required.split(',').any(|name| name.trim() == need.name()) {
        return Err(format!(
            "{need} is missing, and STARHAUL_REQUIRE={required} asks for it"
        ));
    }
    Ok(())
}

fn one_line(text: &impl Display) -> String {
    let text = text.to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_may_not_be_missing_and_all_else_may() {
        assert_eq!(missing(Need::Iperf3, ""), Ok(()));
        assert_eq!(missing(Need::Iperf3, "netns,traces"), Ok(()));
        for required in ["iperf3", "netns, iperf3,traces", "iperf3,"] {
            let problem = missing(Need::Iperf3, required).unwrap_err();
            assert!(problem.starts_with("iperf3 is missing"), "{problem}");
        }
    }

    /// What CI does not look for may be skipped there for ever.
    #[test]
    fn the_run_of_everything_looks_for_each_need() {
        let run = include_str!("../../../.ci/run");
        // Whether a busy machine has time enough is known only afterwards.
        for need in Need::ALL.iter().filter(|need| **need != Need::Time) {
            let is_found = [format!("here+=({need})"), format!("here={need}\n")];
            assert!(is_found.iter().any(|line| run.contains(line)), "{need}");
        }
    }

    #[test]
    fn a_misspelt_requirement_requires_not_nothing() {
        let problem = missing(Need::Netns, "iperf").unwrap_err();
        assert!(
            problem.contains("\"iperf\"") && problem.contains("iperf3"),
            "{problem}"
        );
    }
}
