//! Checks the normal dependencies of a crate, as `cargo tree` resolves them for that crate alone.
//!
//! `cargo metadata` would not do: it joins the features of the whole workspace, so a test tool that needs system
//! randomness would seem to give it to every core.

use std::{path::Path, process::Command};

use super::{CORES, FLOORS};

/// Packages that no core may depend on: runtimes, sockets, clocks, threads, and the system's randomness.
const FORBIDDEN: [&str; 22] = [
    "async-io",
    "async-std",
    "chrono",
    "crossbeam-channel",
    "futures-timer",
    "getrandom",
    "instant",
    "mio",
    "nix",
    "noq",
    "noq-udp",
    "polling",
    "quanta",
    "quinn",
    "quinn-udp",
    "rayon",
    "rustix",
    "smol",
    "socket2",
    "time",
    "tokio",
    "web-time",
];

/// A forbidden package that a core may depend on through one dependency, and why.
const DOORS: [(&str, &str, &str); 8] = [
    // A TLS library must draw its keys from the system; tests of the cores above do not depend on their values.
    ("starhaul-quic", "ring", "getrandom"),
    // Connection ids and packet number skips; noq-proto takes no seed for its reset keys.
    ("starhaul-quic", "noq-proto", "getrandom"),
    // Dates as values: the feature that reads the clock is off.
    ("starhaul-orbit", "sgp4", "chrono"),
    // Only its HMAC is used, which needs no randomness.
    ("starhaul-record", "ring", "getrandom"),
    // Only its ciphers and its HMAC are used, with keys and nonces that come from the caller.
    ("starhaul-leotp", "ring", "getrandom"),
    // The linear program is given no limit of time, and the clock by which it would keep one decides nothing.
    ("starhaul-paths", "microlp", "web-time"),
    ("starhaul-session", "microlp", "web-time"),
    ("starhaul-quic", "microlp", "web-time"),
];

/// Errors of running `cargo tree` and parsing its output.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It could not be started.
    #[error("cargo cannot be run: {0}")]
    Run(#[from] std::io::Error),
    /// It ran and failed.
    #[error("cargo tree failed: {0}")]
    Failed(String),
    /// A line of its output is not `depth name version`.
    #[error("cargo tree answered a line that is no dependency: {0:?}")]
    Line(String),
}

/// The normal dependencies of the workspace's crate `name`, as `cargo tree --prefix depth` prints them.
pub fn tree_of(workspace: &Path, name: &str) -> Result<String, TreeError> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--locked",
            "--no-dedupe",
            "--package",
            name,
        ])
        .args([
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "depth",
            "--format",
            " {p}",
        ])
        .current_dir(workspace)
        .output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(TreeError::Failed(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}

/// The forbidden dependencies of crate `name` with this tree; empty when there are none.
pub fn violations(name: &str, tree: &str) -> Result<Vec<String>, TreeError> {
    let mut found = Vec::new();
    // The packages from the root of the tree to the current line.
    let mut chain: Vec<&str> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let bad = || TreeError::Line(line.to_owned());
        let mut words = line.split_whitespace();
        let depth: usize = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(bad)?;
        let package = words.next().ok_or_else(bad)?;
        chain.truncate(depth);
        chain.push(package);
        let how = || chain.join(" → ");
        if CORES.contains(&name) && FORBIDDEN.contains(&package) && !has_door(name, &chain) {
            found.push(format!("{package} is forbidden to a core: {}", how()));
        }
        if depth == 1 && package.starts_with("starhaul") && floor(package) >= floor(name) {
            found.push(format!("{package} is not on a floor below: {}", how()));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn has_door(name: &str, chain: &[&str]) -> bool {
    DOORS.iter().any(|(core, door, package)| {
        *core == name && chain.contains(door) && chain.last() == Some(package)
    })
}

/// A crate without a floor counts as above all others, so that no crate may use it.
fn floor(name: &str) -> usize {
    FLOORS
        .iter()
        .position(|crates| crates.contains(&name))
        .unwrap_or(FLOORS.len())
}

#[cfg(test)]
mod tests {
    use super::violations;

    #[test]
    fn a_core_with_a_runtime_deep_below_is_refused() {
        let tree =
            "0 starhaul-cc v0.1.0 (/x)\n1 harmless v1.0.0\n2 tokio v1.54.0\n1 bytes v1.0.0\n";
        assert_eq!(
            violations("starhaul-cc", tree).unwrap(),
            ["tokio is forbidden to a core: starhaul-cc → harmless → tokio"]
        );
        assert!(violations("starhaul-gateway", tree).unwrap().is_empty());
    }

    #[test]
    fn randomness_passes_only_through_the_door_of_the_crate_that_has_one() {
        let through =
            "0 starhaul-quic v0.1.0\n1 rustls v0.23.0\n2 ring v0.17.0\n3 getrandom v0.2.0\n";
        assert!(violations("starhaul-quic", through).unwrap().is_empty());
        assert_eq!(violations("starhaul-session", through).unwrap().len(), 1);
        let direct = "0 starhaul-quic v0.1.0\n1 ring v0.17.0\n1 rand v0.9.0\n2 getrandom v0.3.0\n";
        assert_eq!(
            violations("starhaul-quic", direct).unwrap(),
            ["getrandom is forbidden to a core: starhaul-quic → rand → getrandom"]
        );
    }

    #[test]
    fn a_crate_on_the_same_floor_or_above_is_refused() {
        let tree = "0 starhaul-cc v0.1.0\n1 starhaul-fec v0.1.0\n1 starhaul-units v0.1.0\n1 starhaul-new v0.1.0\n";
        let found = violations("starhaul-cc", tree).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("starhaul-fec is not on a floor below"));
        assert!(found[1].starts_with("starhaul-new is not on a floor below"));
    }
}
