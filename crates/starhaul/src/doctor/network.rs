//! What the configuration names: interfaces, addresses, names, routes.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use starhaul_gateway::{
    Config, Host,
    config::{IdentitySource, PathRule},
};
use starhaul_net::{BindOptions, Routing, interface_index, source_toward};

use super::Finding;

/// A gateway gives up a name after about so long.
const LOOKUP: Duration = Duration::from_secs(5);
/// A look-up that takes longer delays a session noticeably.
const SLOW_LOOKUP: Duration = Duration::from_secs(1);
/// What Ethernet carries; our largest packets fit.
const USUAL_MTU: u32 = 1500;

pub(super) async fn examine(config: &Config, peer: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![identity(config)];
    let warnings = config.warnings().into_iter();
    findings.extend(warnings.map(|warning| {
        let advice = "starhaul gateway check FILE shows how the configuration is read";
        Finding::note("configuration", warning, advice)
    }));
    let sessions = config.sessions.iter();
    let sessions = sessions.filter(|session| peer.is_none_or(|peer| peer == session.peer));
    for path in sessions.flat_map(|session| &session.paths) {
        findings.extend(interface(path));
        findings.extend(route(path).await);
    }
    findings
}

fn identity(config: &Config) -> Finding {
    use std::os::unix::fs::PermissionsExt as _;
    /// Read by others, written by the group or others.
    const TOO_MUCH: u32 = 0o026;
    let key = match config.identity.load() {
        Ok(identity) => identity.public_key().to_string(),
        Err(error) => {
            let advice = "starhaul keygen --out FILE makes a key; the gateway's user must be able to read it";
            return Finding::problem("key", error.to_string(), advice);
        }
    };
    if let IdentitySource::File(file) = &config.identity
        && let Ok(found) = fs::metadata(file)
        && found.permissions().mode() & TOO_MUCH != 0
    {
        let file = file.display();
        return Finding::problem(
            "key",
            format!("others may read or replace {file}"),
            format!("chmod 600 {file}"),
        );
    }
    Finding::good("key", format!("ours is {key}"))
}

fn interface(path: &PathRule) -> Vec<Finding> {
    let Some(name) = &path.interface else {
        return Vec::new();
    };
    let subject = format!("interface {name} of path {}", path.name);
    let state = interface_index(name).and_then(|interface| Routing::open()?.interface(interface));
    let state = match state {
        Ok(state) => state,
        Err(error) => {
            let advice = "connect it, or write the name that `ip link` shows";
            let found = format!("this host has none of this name: {error}");
            return vec![Finding::problem(subject, found, advice)];
        }
    };
    let mut findings = Vec::new();
    if !state.is_up || !state.has_carrier {
        let found = match state.is_up {
            true => "it has no carrier",
            false => "it is down",
        };
        let advice = format!("ip link set {name} up, and look at its cable or modem");
        findings.push(Finding::problem(subject.clone(), found, advice));
    }
    let mtu = state.mtu;
    if mtu < USUAL_MTU {
        findings.push(Finding::note(
            subject,
            format!("its MTU is {mtu}: packets are smaller there, and cost more of the link"),
            "raise it if the link carries more; otherwise nothing is wrong",
        ));
    }
    findings
}

async fn route(path: &PathRule) -> Vec<Finding> {
    let subject = format!("path {}", path.name);
    let begun = Instant::now();
    let addresses = match &path.remote.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, path.remote.port)],
        Host::Name(name) => {
            let lookup = tokio::net::lookup_host((name.as_str(), path.remote.port));
            let found = tokio::time::timeout(LOOKUP, lookup).await;
            match found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(found) => found.collect(),
                Err(error) => {
                    return vec![Finding::problem(
                        subject,
                        format!("the name {name} has no address: {error}"),
                        "ask the resolver (getent hosts NAME), or write an address",
                    )];
                }
            }
        }
    };
    let mut findings = Vec::new();
    let took = begun.elapsed();
    if took > SLOW_LOOKUP {
        findings.push(Finding::note(
            subject.clone(),
            format!("looking up its name took {:.1} s", took.as_secs_f64()),
            "write an address, or use a nearer resolver",
        ));
    }
    let source = |to: &SocketAddr| {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = path.local.unwrap_or(SocketAddr::new(any, 0));
        let options = BindOptions {
            interface: path.interface.clone(),
            ..BindOptions::new(local)
        };
        source_toward(*to, &options)
    };
    findings.push(match addresses.iter().find_map(|to| Some((to, source(to)?))) {
        Some((to, from)) => Finding::good(subject, format!("leads from {from} to {to}")),
        None => {
            let local = path.local.map(|local| format!(" from {}", local.ip()));
            let over = path.interface.as_ref().map(|name| format!(" over {name}"));
            Finding::problem(
                subject,
                format!(
                    "there is no way to {}{}{}",
                    path.remote,
                    local.unwrap_or_default(),
                    over.unwrap_or_default()
                ),
                "ip route get ADDRESS says what is missing: an address, a route or the interface",
            )
        }
    });
    findings
}
