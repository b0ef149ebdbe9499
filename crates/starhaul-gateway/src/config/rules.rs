//! From tables to a [`Config`]: which keys there are, what they may hold, and what must fit together.

use std::{
    collections::{HashMap, HashSet},
    io::Read as _,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_config::{Document, Error, Table, nearest};
use starhaul_quic::{Identity, MAX_PATHS, MOST_PACKET_BYTES, PublicKey};
use starhaul_session::SchedulerChoice;

use super::{
    ClientLimits, Config, ConnectionLimits, ConnectionService, ConnectionTargets, ControlPath,
    Credentials, DatagramService, Framing, IdentitySource, IngressRule, LinkKind, PathRule, Peer,
    SessionLimits, SessionRule, accept,
    addresses::{Addresses, Taken, Transport},
    bundle::{self, BundleRule},
    carriers::read_carrier,
    controllers::read_controller,
    delivery::{DELIVERY, read_delivery, read_priority},
    detection,
    group::group_name,
    keys::{CODECS, INCLUDE, LONGEST_IDLE_TIMEOUT, TOP},
    leotp,
    leotp::{Carrier, LeotpRule},
    service, transparent,
    tunnels::{self, TunnelRule},
    values::{
        interface_name, is_for_many, network, path, public_key, rule_name, secret, socket_address,
        target,
    },
};
use crate::{
    egress_policy::{EgressLimits, EgressPolicy, EgressRule},
    target::Host,
};

/// Longest path of a local socket (unix(7)), without the zero at its end.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Reads and checks a whole configuration; `own_key` finds out the key that belongs to an identity, where it can.
pub(super) fn read(
    document: &Document<'_>,
    name: &Path,
    own_key: impl Fn(&IdentitySource) -> Option<PublicKey>,
) -> Result<Config, Error> {
    let tree = document.tree()?;
    let top = document.top(&tree, &TOP)?;
    let directory = name.parent().unwrap_or(Path::new(""));

    top.texts(INCLUDE, |file| path(directory, file))?;
    let mut addresses = Addresses::default();
    let listen = read_listen(&top, &mut addresses)?;
    let metrics = read_metrics(&top, &mut addresses)?;
    let identity = read_identity(&top, name, directory);
    let own_key = identity.as_ref().ok().and_then(own_key);
    let peers = read_peers(&top, own_key)?;
    let sessions = read_sessions(&top, &peers, directory, &mut addresses)?;
    let accept = accept::read(&top.table("accept")?, directory)?;
    let leotp = match top.table_if("leotp")? {
        Some(table) => Some(read_leotp(&table, directory, &mut addresses)?),
        None => None,
    };
    let bundle = top.table_if("bundle")?;
    let bundle = bundle
        .map(|table| bundle::read(&table, directory))
        .transpose()?;
    if peers.is_empty() && leotp.is_none() && bundle.is_none() {
        return Err(top.problem("no [[peer]]: only peers with a known key can be talked to"));
    }
    let mut rules = IngressRules {
        leotp: leotp.as_ref(),
        bundle: bundle.as_ref(),
        peers: &peers,
        sessions: &sessions,
        listening: !listen.is_empty(),
        addresses,
        names: HashSet::new(),
    };
    let config = Config {
        identity: identity?,
        datagram_rules: [
            rules.read(&top, "udp", Transport::Udp, read_udp)?,
            rules.read(&top, "rtp", Transport::Udp, read_rtp)?,
        ]
        .concat(),
        connection_rules: [
            rules.read(&top, "tcp", Transport::Tcp, read_tcp)?,
            rules.read(&top, "tproxy", Transport::Tcp, read_tproxy)?,
            rules.read(&top, "socks5", Transport::Tcp, |table| {
                read_socks5(table, directory)
            })?,
        ]
        .concat(),
        tunnels: rules.read_tunnels(&top)?,
        egress: read_egress(&top)?,
        control: read_control(&top, directory)?,
        control_group: top.text_if("control_group", group_name)?,
        metrics,
        state: read_state(&top, &sessions, directory)?,
        qlog: None,
        packet_bytes: read_packet_bytes(&top)?,
        keepalive: top.duration("keepalive")?,
        scheduler: read_scheduler(&top)?,
        budget: top.rate_if("budget")?,
        session_limits: read_session_limits(&top)?,
        listen,
        accept,
        peers,
        sessions,
        leotp,
        bundle,
    };
    transparent::check_overlaps(&config.connection_rules)
        .map_err(|problem| top.problem(problem))?;
    let has_other_ways = config.leotp.is_some() || config.bundle.is_some();
    if config.listen.is_empty() && config.sessions.is_empty() && !has_other_ways {
        return Err(
            top.problem("neither \"listen\" nor a [[session]]: this gateway would have no session")
        );
    }
    Ok(config)
}

fn read_listen(top: &Table<'_>, addresses: &mut Addresses) -> Result<Vec<SocketAddr>, Error> {
    let listen = top.texts("listen", |text| {
        let address = socket_address(text)?;
        match is_for_many(address.ip()) {
            true => Err(format!(
                "{text:?} is a multicast or broadcast address: no answer can come from it"
            )),
            false => Ok(address),
        }
    })?;
    for address in &listen {
        let taken = Taken {
            address: *address,
            transport: Transport::Udp,
            interface: None,
            only_v6: true,
            owner: "\"listen\"".to_owned(),
        };
        let taken = addresses.take(taken);
        taken.map_err(|problem| top.key_problem("listen", problem))?;
    }
    Ok(listen)
}

fn read_metrics(top: &Table<'_>, addresses: &mut Addresses) -> Result<Option<SocketAddr>, Error> {
    let Some(address) = top.text_if("metrics", socket_address)? else {
        return Ok(None);
    };
    let taken = addresses.take(Taken {
        address,
        transport: Transport::Tcp,
        interface: None,
        only_v6: false,
        owner: "\"metrics\"".to_owned(),
    });
    taken.map_err(|problem| top.key_problem("metrics", problem))?;
    Ok(Some(address))
}

/// Counts that end with the gateway would be no quotas.
fn read_state(
    top: &Table<'_>,
    sessions: &[SessionRule],
    directory: &Path,
) -> Result<Option<PathBuf>, Error> {
    let state = top.text_if("state", |text| path(directory, text))?;
    let mut paths = sessions.iter().flat_map(|session| &session.paths);
    match paths.find(|path| path.quota.is_some()) {
        Some(path) if state.is_none() => Err(top.problem(format!(
            "\"monthly\" of the path {:?} needs \"state\", the folder where its count is kept, for example state = \"/var/lib/starhaul\"",
            path.name
        ))),
        _ => Ok(state),
    }
}

fn read_leotp(
    table: &Table<'_>,
    directory: &Path,
    addresses: &mut Addresses,
) -> Result<LeotpRule, Error> {
    let rule = leotp::read(table, directory)?;
    let taken = addresses.take(Taken {
        address: rule.listen,
        transport: Transport::Udp,
        interface: None,
        only_v6: false,
        owner: "[leotp]".to_owned(),
    });
    taken.map_err(|problem| table.key_problem("listen", problem))?;
    Ok(rule)
}

fn read_identity(top: &Table<'_>, name: &Path, directory: &Path) -> Result<IdentitySource, Error> {
    let table = top.table_if("identity")?.ok_or_else(|| {
        top.problem("the table [identity] is missing; make a key with: starhaul keygen --out FILE")
    })?;
    match (table.has("file"), table.has("secret")) {
        (true, false) => table
            .text("file", |file| secret(directory, file))
            .map(IdentitySource::File),
        (false, true) => table
            .text("secret", Identity::from_secret_text)
            .map(IdentitySource::Inline),
        _ => Err(table.problem(format!(
            "write either \"file\" or \"secret\" ({} names the key file relative to itself)",
            name.display()
        ))),
    }
}

fn read_control(top: &Table<'_>, directory: &Path) -> Result<ControlPath, Error> {
    let control = top.text_if("control", |text| match text {
        "off" => Ok(ControlPath::Off),
        file => {
            let path = path(directory, file)?;
            match path.as_os_str().len() {
                ..=MAX_SOCKET_PATH_BYTES => Ok(ControlPath::At(path)),
                length => Err(format!(
                    "a socket's path has at most {MAX_SOCKET_PATH_BYTES} bytes, and {} has {length}",
                    path.display()
                )),
            }
        }
    })?;
    Ok(control.unwrap_or(ControlPath::Default))
}

fn read_packet_bytes(top: &Table<'_>) -> Result<u16, Error> {
    let bytes = top.whole("packet_bytes")?;
    Ok(u16::try_from(bytes).unwrap_or(MOST_PACKET_BYTES))
}

fn read_scheduler(top: &Table<'_>) -> Result<SchedulerChoice, Error> {
    let choices = SchedulerChoice::ALL.map(|choice| (choice.name(), choice));
    top.choice("scheduler", &choices)
}

fn read_session_limits(top: &Table<'_>) -> Result<SessionLimits, Error> {
    Ok(SessionLimits {
        max_streams: top.count("max_streams")?,
        max_send_bytes: top.bytes("max_send_bytes")?,
        max_receive_bytes: top.bytes("max_receive_bytes")?,
    })
}

fn read_peers(top: &Table<'_>, own_key: Option<PublicKey>) -> Result<Vec<Peer>, Error> {
    let mut names = HashSet::new();
    let mut keys = HashMap::new();
    let mut peers = Vec::new();
    for table in top.tables("peer")? {
        let name = table.text("name", rule_name)?;
        if !names.insert(name.clone()) {
            return Err(table.key_problem("name", format!("{name:?} is the name of two peers")));
        }
        let public_key = table.text("public_key", public_key)?;
        if Some(public_key) == own_key {
            return Err(table.key_problem(
                "public_key",
                "this is our own key; write what `starhaul pubkey FILE` prints of the peer's",
            ));
        }
        if let Some(other) = keys.insert(public_key, name.clone()) {
            return Err(table.key_problem("public_key", format!("peer {other:?} has the same key")));
        }
        peers.push(Peer { name, public_key });
    }
    Ok(peers)
}

fn read_sessions(
    top: &Table<'_>,
    peers: &[Peer],
    directory: &Path,
    addresses: &mut Addresses,
) -> Result<Vec<SessionRule>, Error> {
    let mut sessions: Vec<SessionRule> = Vec::new();
    for table in top.tables("session")? {
        let peer = read_peer_name(&table, peers)?;
        if sessions.iter().any(|other| other.peer == peer) {
            return Err(table.key_problem(
                "peer",
                format!("peer {peer:?} has a [[session]] already; give that one more paths"),
            ));
        }
        let mut names = HashSet::new();
        let mut paths = Vec::new();
        for path in table.tables("path")? {
            if paths.len() == MAX_PATHS {
                return Err(path.problem(format!(
                    "a session has at most {MAX_PATHS} paths; remove this one and those after it"
                )));
            }
            let rule = read_path(&path, directory)?;
            take_local(&path, &rule, addresses)?;
            if !names.insert(rule.name.clone()) {
                return Err(
                    path.key_problem("name", format!("{:?} is the name of two paths", rule.name))
                );
            }
            paths.push(rule);
        }
        if paths.is_empty() {
            return Err(table.problem("no [[session.path]]: a session needs at least one"));
        }
        sessions.push(SessionRule { peer, paths });
    }
    Ok(sessions)
}

fn read_path(table: &Table<'_>, directory: &Path) -> Result<PathRule, Error> {
    let remote = table.text("remote", target)?;
    let local = table.text_if("local", local_address)?;
    if let (Host::Ip(remote), Some(local)) = (&remote.host, local)
        && remote.is_ipv4() != local.is_ipv4()
    {
        return Err(table.key_problem(
            "local",
            format!("{local} and the remote {remote} are not of one IP version"),
        ));
    }
    let (quota, hours) = service::read(table)?;
    let link = detection::read_link(table)?;
    let controller = read_controller(table, directory, None)?;
    let listens = link == LinkKind::Leo || controller.heeds_reconfigurations();
    Ok(PathRule {
        name: table.text("name", rule_name)?,
        local,
        interface: table.text_if("interface", interface_name)?,
        remote,
        cost: table.number("cost")?,
        limit: table.rate_if("limit")?,
        quota,
        hours,
        link,
        controller,
        detection: detection::read(table, listens)?,
    })
}

fn take_local(table: &Table<'_>, rule: &PathRule, addresses: &mut Addresses) -> Result<(), Error> {
    let Some(address) = rule.local else {
        return Ok(());
    };
    let taken = Taken {
        address,
        transport: Transport::Udp,
        interface: rule.interface.clone(),
        only_v6: true,
        owner: format!("path {:?}", rule.name),
    };
    let taken = addresses.take(taken);
    taken.map_err(|problem| table.key_problem("local", problem))
}

/// What ingress rules are checked against, and what those read so far take.
struct IngressRules<'c> {
    leotp: Option<&'c LeotpRule>,
    bundle: Option<&'c BundleRule>,
    peers: &'c [Peer],
    sessions: &'c [SessionRule],
    /// Peers can open sessions to us.
    listening: bool,
    addresses: Addresses,
    names: HashSet<String>,
}

impl IngressRules<'_> {
    /// The rules `[[kind]]`.
    fn read<S>(
        &mut self,
        top: &Table<'_>,
        kind: &'static str,
        transport: Transport,
        read_service: impl Fn(&Table<'_>) -> Result<S, Error>,
    ) -> Result<Vec<IngressRule<S>>, Error> {
        let mut rules = Vec::new();
        for table in top.tables(kind)? {
            let name = self.name(&table)?;
            let peer = match read_carrier(&table, transport)? {
                Carrier::Session => self.peer(&table)?,
                Carrier::Leotp => self.check_leotp(&table)?,
                Carrier::Bundle(_) => bundle::check(&table, transport, self.bundle)?,
            };
            let rule = IngressRule {
                kind,
                listen: table.text("listen", socket_address)?,
                peer,
                priority: read_priority(&table)?,
                service: read_service(&table)?,
                name,
            };
            let taken = self.addresses.take(Taken {
                address: rule.listen,
                transport,
                interface: None,
                only_v6: false,
                owner: format!("rule {:?}", rule.name),
            });
            taken.map_err(|problem| table.key_problem("listen", problem))?;
            rules.push(rule);
        }
        Ok(rules)
    }
}

impl IngressRules<'_> {
    /// The rules `[[tun]]`.
    fn read_tunnels(&mut self, top: &Table<'_>) -> Result<Vec<TunnelRule>, Error> {
        let mut rules: Vec<TunnelRule> = Vec::new();
        for table in top.tables("tun")? {
            let name = self.name(&table)?;
            let peer = self.peer(&table)?;
            let rule = tunnels::read(&table, name, peer)?;
            tunnels::check_paths(&table, &rule, self.sessions)?;
            tunnels::check_routes(&table, &rule, &rules)?;
            let same = |other: &&TunnelRule| other.device.name == rule.device.name;
            if !rule.device.name.contains('%') && rules.iter().any(|other| same(&other)) {
                let problem = format!("{:?} is the device of two rules", rule.device.name);
                return Err(table.key_problem("device", problem));
            }
            rules.push(rule);
        }
        Ok(rules)
    }

    /// A name that no other rule has.
    fn name(&mut self, table: &Table<'_>) -> Result<String, Error> {
        let name = table.text("name", rule_name)?;
        match self.names.insert(name.clone()) {
            true => Ok(name),
            false => Err(table.key_problem("name", format!("{name:?} is the name of two rules"))),
        }
    }

    /// The peer whose session carries a rule.
    fn peer(&self, table: &Table<'_>) -> Result<String, Error> {
        let peer = read_peer_name(table, self.peers)?;
        if !self.listening && !self.sessions.iter().any(|session| session.peer == peer) {
            return Err(table.key_problem(
                "peer",
                format!(
                    "there is no [[session]] to {peer:?} and no \"listen\" where it could open one"
                ),
            ));
        }
        Ok(peer)
    }

    /// A rule over LEOTP leads to the gateway at the far end of the chain, which is no peer.
    fn check_leotp(&self, table: &Table<'_>) -> Result<String, Error> {
        let of_sessions = ["peer", "priority"].into_iter().chain(DELIVERY);
        if let Some(key) = table.first_of(of_sessions) {
            let problem = "this is of sessions: with service = \"leotp\" it has no effect";
            return Err(table.key_problem(key, problem));
        }
        match self.leotp.is_some_and(|leotp| leotp.upstream.is_some()) {
            true => Ok(String::new()),
            false => Err(table.key_problem(
                "service",
                "\"leotp\" needs a table [leotp] with an \"upstream\"",
            )),
        }
    }
}

fn read_udp(table: &Table<'_>) -> Result<DatagramService, Error> {
    let carrier = read_carrier(table, Transport::Udp)?;
    let lifetime = match carrier {
        Carrier::Bundle(lifetime) => Some(lifetime),
        _ => None,
    };
    Ok(DatagramService {
        carrier,
        target: table.text("target", target)?,
        delivery: read_delivery(table, lifetime)?,
        clients: read_clients(table, lifetime)?,
        framing: Framing::Datagrams,
    })
}

fn read_rtp(table: &Table<'_>) -> Result<DatagramService, Error> {
    Ok(DatagramService {
        carrier: Carrier::Session,
        target: table.text("target", target)?,
        delivery: read_delivery(table, None)?,
        clients: read_clients(table, None)?,
        framing: Framing::Rtp {
            codec: table.choice("codec", &CODECS)?,
            frame_timeout: table.duration("frame_timeout")?,
        },
    })
}

fn read_tcp(table: &Table<'_>) -> Result<ConnectionService, Error> {
    Ok(ConnectionService {
        targets: ConnectionTargets::Fixed(table.text("target", target)?),
        carrier: read_carrier(table, Transport::Tcp)?,
        limits: read_connections(table)?,
    })
}

fn read_tproxy(table: &Table<'_>) -> Result<ConnectionService, Error> {
    let listen = table.text("listen", socket_address)?;
    if listen.port() == 0 {
        return Err(table.key_problem("listen", "write a port: the kernel must know it"));
    }
    Ok(ConnectionService {
        targets: ConnectionTargets::Transparent(transparent::read(table, listen.is_ipv4())?),
        carrier: read_carrier(table, Transport::Tcp)?,
        limits: read_connections(table)?,
    })
}

/// The first line of a file with a password, without its end.
fn read_password(file: &Path) -> Result<String, String> {
    /// More than any password has.
    const MOST: u64 = 1024;
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    let mut text = String::new();
    // What is no file may never end.
    if !std::fs::metadata(file).map_err(cannot)?.is_file() {
        return Err(format!("{} is no file", file.display()));
    }
    let opened = std::fs::File::open(file).map_err(cannot)?;
    opened
        .take(MOST)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn read_socks5(table: &Table<'_>, directory: &Path) -> Result<ConnectionService, Error> {
    let credential = |text: &str| match text.len() {
        1..=255 => Ok(text.to_owned()),
        _ => Err("write 1 to 255 bytes (RFC 1929)"),
    };
    let username = table.text_if("username", credential)?;
    let password = table.text_if("password", credential)?;
    let of_file = table.text_if("password_file", |file| {
        let file = secret(directory, file)?;
        let password = credential(&read_password(&file)?);
        let password = password.map_err(|error| format!("{}: {error}", file.display()))?;
        Ok::<_, String>((password, Some(file)))
    })?;
    if password.is_some() && of_file.is_some() {
        return Err(table.problem("write either \"password\" or \"password_file\""));
    }
    let password = password.map(|password| (password, None));
    let credentials = match (username, password.or(of_file)) {
        (Some(username), Some((password, file))) => Some(Credentials {
            username,
            password,
            file,
        }),
        (None, None) => None,
        _ => {
            let problem =
                "\"username\" and a password need each other: \"password\" or \"password_file\"";
            return Err(table.problem(problem));
        }
    };
    Ok(ConnectionService {
        targets: ConnectionTargets::Socks5 {
            credentials,
            delivery: read_delivery(table, None)?,
        },
        carrier: read_carrier(table, Transport::Tcp)?,
        limits: read_connections(table)?,
    })
}

/// Bounds on clients; answers by bundles may take their lifetime.
fn read_clients(table: &Table<'_>, lifetime: Option<Duration>) -> Result<ClientLimits, Error> {
    let idle_timeout = match lifetime {
        Some(lifetime) if !table.has("idle_timeout") => lifetime.min(LONGEST_IDLE_TIMEOUT),
        _ => table.duration("idle_timeout")?,
    };
    Ok(ClientLimits {
        max_clients: table.count("max_clients")?,
        idle_timeout,
        answered_timeout: table.duration("answered_timeout")?,
        max_queued: table.count("max_queued")?,
    })
}

fn read_connections(table: &Table<'_>) -> Result<ConnectionLimits, Error> {
    Ok(ConnectionLimits {
        max_connections: table.count("max_connections")?,
        idle_timeout: table.duration_if("idle_timeout")?,
    })
}

fn read_egress(top: &Table<'_>) -> Result<EgressPolicy, Error> {
    let table = top.table("egress")?;
    Ok(EgressPolicy {
        allow: table.texts("allow", str::parse::<EgressRule>)?,
        deny: table.texts("deny", str::parse::<EgressRule>)?,
        clients: table.texts("clients", network)?,
        limits: EgressLimits {
            max_streams: table.count("max_streams")?,
            max_lookups: table.count("max_lookups")?,
            max_targets: table.count("max_targets")?,
        },
    })
}

/// The key `peer`, which may be left out when there is only one.
fn read_peer_name(table: &Table<'_>, peers: &[Peer]) -> Result<String, Error> {
    let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
    let peer = table.text_if("peer", |name| {
        if names.contains(&name) {
            Ok(name.to_owned())
        } else {
            Err(format!(
                "there is no [[peer]] {name:?}; {}",
                nearest(name, &names)
            ))
        }
    })?;
    match (peer, names.as_slice()) {
        (Some(peer), _) => Ok(peer),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(table.problem("there is no [[peer]] that could carry it")),
        (None, _) => Err(table.problem("the key \"peer\" is missing, and there are several peers")),
    }
}

fn local_address(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0)))
        .map_err(|_| format!("{text:?} is neither an address nor address:port"))?;
    match is_for_many(address.ip()) {
        true => Err(format!(
            "{text:?} is a multicast or broadcast address: nothing can be sent from it"
        )),
        false => Ok(address),
    }
}
