//! From tables to a [`Config`]: which keys there are, what they may hold, and what must fit together.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
};

use hardy_eid_patterns::EidPattern;
use starhaul_config::{Document, Table, secret_file, state_folder};
use starhaul_ltp::{AuthKey, EngineId, NumberWidth, Profile};
use starhaul_net::{PeerAddress, ltp::reaches};

use super::{
    Bucket, Config, DatabaseUrl, LtpConfig, LtpPeer, Storage, TcpConfig, TcpPeer,
    definition::{KINDS, Kept, MODES, TOP},
    one_way::{self, WAYS},
};
use crate::{
    Error,
    plan::{self, ContactPlan, Moment, NodeId},
    priority::{CLASSES, Class},
    security,
};

pub(super) fn read(document: &Document<'_>, name: &Path, start: Moment) -> Result<Config, Error> {
    let tree = document.tree()?;
    let top = document.top(&tree, &TOP)?;
    let folder = name.parent().unwrap_or(Path::new(""));
    top.texts("include", |text| path(folder, text))?;
    let node = top.text("node", plan::node)?;
    let plan = read_plan(&top, folder, start)?;
    let tcp = top.table_if("tcp")?;
    let tcp = tcp.map(|table| read_tcp(&table, &node)).transpose()?;
    let ltp = top.table_if("ltp")?;
    let ltp = ltp.map(|table| read_ltp(&table, &node, folder, (&plan, tcp.as_ref())));
    let ltp = ltp.transpose()?;
    let peers = ltp.as_ref().map(|ltp| ltp.peers.as_slice());
    let peers = peers.unwrap_or_default();
    let arrivals = one_way::arrivals(peers, &node, &plan, tcp.as_ref());
    let config = Config {
        control: top.text_if("control", |text| path(folder, text))?,
        metrics: top.text_if("metrics", starhaul_metrics::address)?,
        storage: read_storage(&top, folder)?,
        ltp,
        tcp,
        routes: read_routes(&top, &node)?,
        priorities: read_priorities(&top)?,
        plan: plan.with(arrivals),
        keys: read_keys(&top.table("security")?, folder)?,
        status_reports: top.flag("status_reports")?,
        node,
    };
    if config.ltp.is_none() && config.tcp.is_none() {
        return Err(top
            .problem("the node talks to nobody: write [ltp] or [tcp]")
            .into());
    }
    Ok(config)
}

fn read_storage(top: &Table<'_>, folder: &Path) -> Result<Storage, Error> {
    let table = top.table("storage")?;
    let kept = table.choice("kind", &KINDS)?;
    let of_disk = table.first_of(["folder", "sync", "database", "s3"]);
    if let Some(key) = of_disk.filter(|_| kept == Kept::Memory) {
        return Err(table
            .key_problem(
                key,
                "memory has no such thing: remove it, or write kind = \"disk\"",
            )
            .into());
    }
    let database = table.text_if("database", |text| database(folder, text))?;
    if kept == Kept::Sqlite && database.is_some() {
        let problem =
            "SQLite keeps what PostgreSQL would keep: remove it, or write kind = \"disk\"";
        return Err(table.key_problem("database", problem).into());
    }
    let bucket = read_bucket(&table, database.is_some())?;
    // A service may write nothing beside its configuration.
    let of_service = state_folder().filter(|_| !table.has("folder"));
    let folder = of_service.as_deref().unwrap_or(folder);
    let folder = table.text("folder", |text| path(folder, text))?;
    let storage = Storage {
        folder: (kept != Kept::Memory).then_some(folder),
        sync: table.flag("sync")?,
        sqlite: kept == Kept::Sqlite,
        database,
        bucket,
        bytes: table.size("max_bytes")?,
        bundles: table.count("max_bundles")?,
        bundle_bytes: table.size("max_bundle_bytes")?,
    };
    if storage.bundle_bytes > storage.bytes {
        return Err(table
            .key_problem(
                "max_bundle_bytes",
                "one bundle may not need more than all together",
            )
            .into());
    }
    Ok(storage)
}

fn read_bucket(table: &Table<'_>, has_database: bool) -> Result<Option<Bucket>, Error> {
    let text = |key| table.text_if(key, |text| Ok::<_, String>(text.to_owned()));
    let (region, endpoint) = (text("s3_region")?, table.text_if("s3_endpoint", endpoint)?);
    let Some((name, prefix)) = table.text_if("s3", bucket)? else {
        let of_bucket = table.first_of(["s3_region", "s3_endpoint"]);
        return match of_bucket {
            Some(key) => Err(table
                .key_problem(key, "there is no bucket: write s3, too")
                .into()),
            None => Ok(None),
        };
    };
    if !has_database {
        let problem = "what is known of these bundles must be in PostgreSQL: write database, too";
        return Err(table.key_problem("s3", problem).into());
    }
    Ok(Some(Bucket {
        name,
        prefix,
        region,
        endpoint,
    }))
}

/// The bucket and the prefix of `s3://BUCKET/PREFIX`.
fn bucket(text: &str) -> Result<(String, String), String> {
    if !cfg!(feature = "s3") {
        return Err("this program was built without S3: build it with --features s3".to_owned());
    }
    let rest = text.strip_prefix("s3://").unwrap_or_default();
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    match name.is_empty() {
        true => Err(format!("{text} is no s3://BUCKET/PREFIX")),
        false => Ok((name.to_owned(), prefix.trim_matches('/').to_owned())),
    }
}

fn endpoint(text: &str) -> Result<String, String> {
    let is_url = ["http://", "https://"].iter().any(|scheme| {
        let host = text.strip_prefix(scheme);
        host.is_some_and(|host| !host.is_empty())
    });
    match is_url {
        true => Ok(text.to_owned()),
        false => Err(format!("{text} is no http:// or https:// of a server")),
    }
}

/// The connection string in the first line of a file.
fn database(folder: &Path, file: &str) -> Result<DatabaseUrl, String> {
    if !cfg!(feature = "postgres") {
        let problem =
            "this program was built without PostgreSQL: build it with --features postgres";
        return Err(problem.to_owned());
    }
    let file = secret(folder, file)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let url = text.lines().next().unwrap_or_default().trim();
    match url.starts_with("postgres://") || url.starts_with("postgresql://") {
        true => Ok(DatabaseUrl(url.to_owned())),
        false => Err(format!(
            "the first line of {} is no postgres://USER:PASSWORD@HOST/DATABASE",
            file.display()
        )),
    }
}

fn read_ltp(
    table: &Table<'_>,
    own: &NodeId,
    folder: &Path,
    (plan, tcp): (&ContactPlan, Option<&TcpConfig>),
) -> Result<LtpConfig, Error> {
    let own_number = number_of(own);
    let engine = table.whole_if("engine")?.or(own_number);
    let engine = engine.ok_or_else(|| table.missing("engine"))?;
    let mut config = LtpConfig {
        engine: EngineId(engine),
        listen: table.text("listen", address)?,
        numbers: table.choice("numbers", &NumberWidth::ALL)?,
        mode: table.choice("mode", &MODES)?,
        peers: Vec::new(),
    };
    let mut engines = BTreeSet::from([config.engine]);
    for table in table.tables("peer")? {
        let node = peer_node(&table, own, config.peers.iter().map(|peer| &peer.node))?;
        let engine = table.whole_if("engine")?.or(number_of(&node));
        let engine = EngineId(engine.ok_or_else(|| table.missing("engine"))?);
        if !engines.insert(engine) {
            return Err(table
                .key_problem(
                    "engine",
                    format!("{engine} is the number of another engine"),
                )
                .into());
        }
        let to: Option<PeerAddress> = table.text_if("address", str::parse)?;
        if let Some(PeerAddress::At(to)) = to
            && !reaches(config.listen, to)
        {
            let problem = format!(
                "{to} cannot be reached from {}, where [ltp] listens: listen at an address of the same version of IP, or at [::]:PORT for both",
                config.listen
            );
            return Err(table.key_problem("address", problem).into());
        }
        let key = table.text_if("key", |text| secret(folder, text))?;
        let key = key.map(|file| {
            let key = std::fs::read(&file);
            let key = key.map_err(|reason| unreadable(&table, "key", &file, &reason))?;
            let key = AuthKey::new(key.trim_ascii(), b"");
            key.ok_or_else(|| Error::from(table.key_problem("key", "the file is empty")))
        });
        let mut peer = LtpPeer {
            node,
            engine,
            address: to,
            light_time: table.duration("light_time")?,
            rate: table.rate_if("rate")?,
            segment: table.text("segment", str::parse)?,
            profile: table.choice("profile", &Profile::ALL)?,
            repair: table.text_if("repair", str::parse)?,
            one_way: table.choice("one_way", &WAYS)?,
            key: key.transpose()?,
        };
        as_planned(&mut peer, own, plan);
        let has_repair = peer.repair.is_some();
        if let Some(lacking) = peer.profile.lacking(has_repair, config.numbers) {
            let problem = format!("the profile {} has no {lacking}", peer.profile);
            return Err(table.key_problem("profile", problem).into());
        }
        one_way::check(&table, &peer)?;
        one_way::check_plan(&table, &peer, own, plan, tcp)?;
        config.peers.push(peer);
    }
    if config.peers.is_empty() {
        return Err(table
            .problem("write [[ltp.peer]] for each neighbour")
            .into());
    }
    Ok(config)
}

/// What the plan says of the way to a neighbour holds for its link, too.
fn as_planned(peer: &mut LtpPeer, own: &NodeId, plan: &ContactPlan) {
    let ends = [(own, &peer.node), (&peer.node, own)];
    let contacts = plan.contacts().iter();
    let between = contacts.filter(|contact| ends.contains(&(&contact.from, &contact.to)));
    let longest = between.clone().map(|contact| contact.light_time).max();
    // Of links whose contacts differ, reports tell what they carry.
    let mut sends = between.filter(|contact| contact.from == *own);
    let first = sends.next().map(|contact| contact.rate);
    let planned = first.filter(|rate| sends.all(|contact| contact.rate == *rate));
    peer.light_time = peer.light_time.max(longest.unwrap_or_default());
    peer.rate = peer.rate.or(planned);
}

fn read_tcp(table: &Table<'_>, own: &NodeId) -> Result<TcpConfig, Error> {
    let mut config = TcpConfig {
        listen: table.text_if("listen", address)?,
        peers: Vec::new(),
        accepts_unknown: table.flag("accept_unknown")?,
    };
    for peer in table.tables("peer")? {
        let node = peer_node(&peer, own, config.peers.iter().map(|peer| &peer.node))?;
        let address = peer.text_if("address", str::parse)?;
        if address.is_none() && config.listen.is_none() {
            return Err(peer
                .problem("write its address, or listen in [tcp] for its connection")
                .into());
        }
        config.peers.push(TcpPeer { node, address });
    }
    if config.listen.is_none() && config.peers.is_empty() {
        return Err(table
            .problem("write listen, or [[tcp.peer]] with an address")
            .into());
    }
    Ok(config)
}

/// The node of a neighbour, which is not this one and no neighbour yet.
fn peer_node<'a>(
    table: &Table<'_>,
    own: &NodeId,
    mut others: impl Iterator<Item = &'a NodeId>,
) -> Result<NodeId, Error> {
    let node = table.text("node", plan::node)?;
    if node == *own {
        return Err(table.key_problem("node", "this is the node itself").into());
    }
    if others.any(|other| *other == node) {
        return Err(table
            .key_problem("node", format!("{node} is a neighbour already"))
            .into());
    }
    Ok(node)
}

fn read_priorities(top: &Table<'_>) -> Result<Vec<(EidPattern, Class)>, Error> {
    let mut rules = Vec::new();
    for table in top.tables("priority")? {
        rules.push((read_pattern(&table)?, table.choice("class", &CLASSES)?));
    }
    Ok(rules)
}

/// The endpoints that a table is about.
fn read_pattern(table: &Table<'_>) -> Result<EidPattern, Error> {
    let read = |text: &str| {
        let wrong =
            || format!("{text:?} is no pattern of endpoints: write ipn:3.* or dtn://station/**");
        text.parse::<EidPattern>().map_err(|_| wrong())
    };
    Ok(table.text("to", read)?)
}

fn read_routes(top: &Table<'_>, own: &NodeId) -> Result<Vec<(EidPattern, NodeId)>, Error> {
    let mut routes = Vec::new();
    for table in top.tables("route")? {
        let to = read_pattern(&table)?;
        let via = table.text("via", plan::node)?;
        if via == *own {
            return Err(table.key_problem("via", "this is the node itself").into());
        }
        routes.push((to, via));
    }
    Ok(routes)
}

fn read_plan(top: &Table<'_>, folder: &Path, start: Moment) -> Result<ContactPlan, Error> {
    let Some(file) = top.text_if("plan", |text| path(folder, text))? else {
        return Ok(plan::read_contacts(top, start)?);
    };
    if top.has("contact") {
        return Err(top
            .key_problem("contact", "the contacts stand in the plan's own file")
            .into());
    }
    let text =
        std::fs::read_to_string(&file).map_err(|reason| unreadable(top, "plan", &file, &reason))?;
    Ok(plan::read_plan(&text, &file, plan::epoch(top, start)?)?)
}

fn read_keys(table: &Table<'_>, folder: &Path) -> Result<security::Keys, Error> {
    let key = |name| {
        let file = table.text_if(name, |text| secret(folder, text))?;
        let key = file.map(|file| {
            std::fs::read(&file).map_err(|reason| unreadable(table, name, &file, &reason))
        });
        key.transpose()
    };
    let (sign, encrypt) = (key("sign_key")?, key("encrypt_key")?);
    let require = table.flag("require")?;
    security::Keys::new(sign.as_deref(), encrypt.as_deref(), require)
        .map_err(|error| table.problem(error).into())
}

/// A file that a key names cannot be read.
fn unreadable(table: &Table<'_>, key: &str, file: &Path, reason: &std::io::Error) -> Error {
    let problem = format!("cannot read {}: {reason}", file.display());
    table.key_problem(key, problem).into()
}

fn number_of(node: &NodeId) -> Option<u64> {
    match node {
        NodeId::Ipn(ipn) => Some(u64::from(ipn.node_number)).filter(|number| *number > 0),
        _ => None,
    }
}

fn path(folder: &Path, text: &str) -> Result<PathBuf, &'static str> {
    match text.is_empty() {
        true => Err("write the path of a file"),
        false => Ok(folder.join(text)),
    }
}

/// A file with a secret: a credential of the service, or beside the configuration.
fn secret(folder: &Path, text: &str) -> Result<PathBuf, &'static str> {
    path(folder, text)?;
    Ok(secret_file(folder, text))
}

/// An address and a port; a name is looked up.
fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        format!("{text:?} cannot be resolved: write an address and a port, for example 10.0.0.2:4556 ({error})")
    })?;
    found
        .next()
        .ok_or_else(|| format!("{text:?} has no address"))
}
