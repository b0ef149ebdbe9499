//! What the configuration names: interfaces, addresses, names, routes.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use starhaul_gateway::{
    Config, Host,
    config::{IdentitySource, PathRule},
};
use starhaul_net::{BindOptions, Routing, interface_index, source_toward};
use tokio::task::JoinSet;

use super::{Cause, Finding};

/// A gateway gives up a name after about so long.
const LOOKUP: Duration = Duration::from_secs(5);
/// A look-up that takes longer delays a session noticeably.
const SLOW_LOOKUP: Duration = Duration::from_secs(1);
/// What findings about the own key are about.
const KEY: &str = "key";
/// What findings about keys of the chain that cannot be used are about.
const CHAIN_KEYS: &str = "[leotp] keys";
/// What to do about a key that cannot be used.
const MAKE_A_KEY: &str =
    "starhaul keygen --out FILE makes a key; the gateway's user must be able to read it";
/// What Ethernet carries; our largest packets fit.
const USUAL_MTU: u32 = 1500;

/// A path whose remote is known, and how its sockets are bound.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) peer: String,
    pub(super) path: String,
    pub(super) remote: SocketAddr,
    pub(super) options: BindOptions,
    /// The MTU of its interface, if the configuration names that.
    pub(super) mtu: Option<u32>,
}

pub(super) async fn examine(config: &Config, peer: Option<&str>) -> (Vec<Finding>, Vec<Way>) {
    let mut findings = vec![identity(config)];
    findings.extend(secrets(config));
    let warnings = config.warnings().into_iter();
    findings.extend(warnings.map(|warning| {
        let advice = "starhaul gateway check FILE shows how the configuration is read";
        Finding::note(Cause::Configuration, "configuration", warning, advice)
    }));
    let sessions = config.sessions.iter();
    let sessions = sessions.filter(|session| peer.is_none_or(|peer| peer == session.peer));
    let paths = sessions.flat_map(|session| session.paths.iter().map(|path| (&session.peer, path)));
    let mut routes = JoinSet::new();
    for (number, (peer, path)) in paths.enumerate() {
        findings.extend(interface(peer, path));
        let (peer, path) = (peer.clone(), path.clone());
        // A resolver that does not answer holds up its path alone.
        routes.spawn(async move { (number, route(&peer, &path).await) });
    }
    let mut routes = routes.join_all().await;
    routes.sort_by_key(|(number, _)| *number);
    let mut ways = Vec::new();
    for (_, (found, way)) in routes {
        findings.extend(found);
        ways.extend(way);
    }
    (findings, ways)
}

fn identity(config: &Config) -> Finding {
    let key = match config.identity.load() {
        Ok(identity) => identity.public_key().to_string(),
        Err(error) => return Finding::problem(Cause::Key, KEY, error.to_string(), MAKE_A_KEY),
    };
    let open = match &config.identity {
        IdentitySource::File(file) => open_to_others(KEY, file),
        IdentitySource::Inline(_) => None,
    };
    open.unwrap_or_else(|| Finding::good(Cause::Key, KEY, format!("ours is {key}")))
}

/// A gateway that runs has its keys: that this user may not read them is no problem then.
pub(super) fn excuse_withheld_key(config: Option<&Config>, findings: &mut [Finding]) {
    let Some(config) = config else { return };
    let is_withheld = |file: &Path| {
        fs::read(file).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let keys = findings
        .iter_mut()
        .filter(|finding| finding.cause == Cause::Key);
    for key in keys {
        let is_excused = match (&key.subject[..], &config.identity) {
            (KEY, IdentitySource::File(file)) => is_withheld(file),
            (CHAIN_KEYS, _) => chain_files(config).any(is_withheld),
            _ => false,
        };
        if is_excused {
            *key = key
                .clone()
                .only_noted("the gateway has it; as root, the doctor examines it, too");
        }
    }
}

/// The other files with secrets that cannot be used, or that others may use.
fn secrets(config: &Config) -> Vec<Finding> {
    let unusable = config.check_leotp_keys().err();
    let unusable = unusable
        .map(|error| Finding::problem(Cause::Key, CHAIN_KEYS, error.to_string(), MAKE_A_KEY));
    let of_chain = chain_files(config).filter_map(|file| open_to_others("[leotp]", file));
    let passwords = config.password_files();
    unusable
        .into_iter()
        .chain(of_chain)
        .chain(passwords.filter_map(|file| open_to_others("[[socks5]]", file)))
        .collect()
}

/// The files of keys of the chain.
fn chain_files(config: &Config) -> impl Iterator<Item = &Path> {
    let chain = config.leotp.iter();
    chain.flat_map(|chain| {
        let keys = chain.neighbours.iter().map(|neighbour| &neighbour.key);
        keys.chain([&chain.secret]).map(PathBuf::as_path)
    })
}

fn open_to_others(subject: &str, file: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;
    /// Read by others, written by the group or others.
    const TOO_MUCH: u32 = 0o026;
    let mode = fs::metadata(file).ok()?.permissions().mode();
    let file = file.display();
    (mode & TOO_MUCH != 0).then(|| {
        Finding::problem(
            Cause::Key,
            subject,
            format!("others may read or replace {file}"),
            format!("chmod 600 {file}"),
        )
    })
}

fn interface(peer: &str, path: &PathRule) -> Vec<Finding> {
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
            return vec![
                Finding::problem(Cause::Interface, subject, found, advice).on(peer, &path.name),
            ];
        }
    };
    let mut findings = Vec::new();
    if !state.is_up || !state.has_carrier {
        let found = match state.is_up {
            true => "it has no carrier",
            false => "it is down",
        };
        let advice = format!("ip link set {name} up, and look at its cable or modem");
        let found = Finding::problem(Cause::InterfaceDown, subject.clone(), found, advice);
        findings.push(found.on(peer, &path.name));
    }
    let mtu = state.mtu;
    if mtu < USUAL_MTU {
        findings.push(Finding::note(
            Cause::Mtu,
            subject,
            format!("its MTU is {mtu}: packets are smaller there, and cost more of the link"),
            "raise it if the link carries more; otherwise nothing is wrong",
        ));
    }
    findings
}

async fn route(peer: &str, path: &PathRule) -> (Vec<Finding>, Option<Way>) {
    let subject = format!("path {}", path.name);
    let begun = Instant::now();
    let addresses = match &path.remote.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, path.remote.port)],
        Host::Name(name) => match look_up(name, path.remote.port).await {
            Ok(found) => found,
            Err(found) => {
                let advice = "ask the resolver (getent hosts NAME), or write an address";
                let problem = Finding::problem(Cause::Name, subject, found, advice);
                return (vec![problem.on(peer, &path.name)], None);
            }
        },
    };
    let mut findings = Vec::new();
    let took = begun.elapsed();
    if took > SLOW_LOOKUP {
        findings.push(Finding::note(
            Cause::SlowName,
            subject.clone(),
            format!("looking up its name took {:.1} s", took.as_secs_f64()),
            "write an address, or use a nearer resolver",
        ));
    }
    let options = |to: &SocketAddr| {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = path.local.unwrap_or(SocketAddr::new(any, 0));
        BindOptions {
            interface: path.interface.clone(),
            ..BindOptions::new(local)
        }
    };
    let mut leads = addresses
        .iter()
        .filter_map(|to| Some((to, source_toward(*to, &options(to))?)));
    let Some((to, from)) = leads.next() else {
        let local = path.local.map(|local| format!(" from {}", local.ip()));
        let over = path.interface.as_ref().map(|name| format!(" over {name}"));
        let problem = Finding::problem(
            Cause::Route,
            subject,
            format!(
                "there is no way to {}{}{}",
                path.remote,
                local.unwrap_or_default(),
                over.unwrap_or_default()
            ),
            "ip route get ADDRESS says what is missing: an address, a route or the interface",
        );
        findings.push(problem.on(peer, &path.name));
        return (findings, None);
    };
    let found = format!("leads from {from} to {to}");
    findings.push(Finding::good(Cause::Route, subject, found));
    let way = Way {
        peer: peer.to_owned(),
        path: path.name.clone(),
        remote: *to,
        options: options(to),
        mtu: path.interface.as_deref().and_then(mtu_of),
    };
    (findings, Some(way))
}

fn mtu_of(interface: &str) -> Option<u32> {
    let number = interface_index(interface).ok()?;
    Some(Routing::open().ok()?.interface(number).ok()?.mtu)
}

/// The addresses of a name, or why there are none.
async fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let lookup = tokio::net::lookup_host((name, port));
    match tokio::time::timeout(LOOKUP, lookup).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(format!("the name {name} has no address: {error}")),
        Err(_) => Err(format!(
            "the name {name} has no address: no name server answers within {} s",
            LOOKUP.as_secs()
        )),
    }
}
