//! A configuration for people.

use std::fmt::Write as _;

use starhaul_config::{size, state_folder};
use starhaul_ltp::{Profile, RepairRate};

use super::{Config, OneWay};
use crate::{
    plan::{
        ContactPlan, Moment, NodeId,
        route::{Bookings, Query, Route, earliest},
    },
    priority::CLASSES,
};

/// Bytes of the bundle whose routes are shown, and of others, which are shown where their way is another.
const SHOWN: (u64, &str) = (1_000_000, "1 MB");
const OTHERS: [(u64, &str); 2] = [(1000, "1 kB"), (100_000_000, "100 MB")];

pub(super) fn describe(config: &Config, now: Moment) -> String {
    let mut text = format!("node {}\n", config.node);
    let storage = &config.storage;
    let place = match &storage.folder {
        // Where the unit may not write; it is not the unit that asks.
        Some(folder) if folder.starts_with("/etc") && state_folder().is_none() => format!(
            "{} (without \"folder\", the unit starhaul-dtn has /var/lib/starhaul-dtn)",
            folder.display()
        ),
        Some(folder) => folder.display().to_string(),
        None => "memory: no restart finds it again".to_owned(),
    };
    let data = match &storage.bucket {
        Some(bucket) => format!("; data in {bucket}"),
        None => String::new(),
    };
    let metadata = match &storage.database {
        Some(_) => ", known to PostgreSQL",
        None if storage.sqlite => ", known to SQLite",
        None => "",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "storage: {place}{data}{metadata}; at most {} bundles, {}; one at most {}",
        storage.bundles,
        size::show(storage.bytes),
        size::show(storage.bundle_bytes)
    );
    if let Some(ltp) = &config.ltp {
        let _ = writeln!(text, "LTP: engine {} at {}", ltp.engine, ltp.listen);
        for peer in &ltp.peers {
            let rate = peer
                .rate
                .map_or("unknown".to_owned(), |rate| rate.to_string());
            let at = peer.address.as_ref();
            let at = at.map_or("where its data come from".to_owned(), ToString::to_string);
            let (node, engine, light) = (&peer.node, peer.engine, peer.light_time);
            let segment = peer.segment;
            let repair = match peer.repair {
                None => String::new(),
                Some(RepairRate::Auto) => {
                    ", repair segments for what reports show to be lost".to_owned()
                }
                Some(rate) => format!(", repair segments for {rate} lost"),
            };
            let profile = match peer.profile {
                Profile::Rfc5326 => String::new(),
                other => format!(", profile {other}"),
            };
            let key = if peer.key.is_some() {
                ", with a key"
            } else {
                ""
            };
            let way = match peer.one_way {
                OneWay::No => "",
                OneWay::Out => "; it cannot answer: bundles count as sent when they have left",
                OneWay::In => "; nothing is sent to it",
            };
            let _ = writeln!(
                text,
                "  {node}: engine {engine} at {at}, light time {light:?}, rate {rate}, segments {segment}{profile}{repair}{key}{way}"
            );
        }
    }
    if let Some(tcp) = &config.tcp {
        let listen = tcp
            .listen
            .map_or("nowhere".to_owned(), |listen| listen.to_string());
        let _ = writeln!(text, "TCPCLv4: connections are accepted at {listen}");
        for peer in &tcp.peers {
            let at = peer.address.as_ref();
            let how = at.map_or("it connects".to_owned(), |address| format!("at {address}"));
            let _ = writeln!(text, "  {}: {how}", peer.node);
        }
    }
    for (pattern, via) in &config.routes {
        let _ = writeln!(text, "route: {pattern} via {via}");
    }
    for (pattern, class) in &config.priorities {
        let class = CLASSES.iter().find(|(_, known)| known == class);
        let name = class.map_or("normal", |(name, _)| *name);
        let _ = writeln!(text, "priority: {pattern} is {name}");
    }
    let _ = writeln!(text, "security: {}", config.keys.describe());
    if let Some(address) = config.metrics {
        let _ = writeln!(text, "metrics: http://{address}/metrics");
    }
    if let Some(warning) = config.warning() {
        let _ = writeln!(text, "warning: {warning}");
    }
    describe_plan(config, now, &mut text);
    text
}

/// The contacts, and how bundles would travel from here: as a node routes those of each size.
fn describe_plan(config: &Config, now: Moment, text: &mut String) {
    let plan = &config.plan;
    if plan.contacts().is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "plan: {} contacts of {} nodes",
        plan.contacts().len(),
        plan.nodes().len()
    );
    let ways = plan.clone().with(config.always());
    let search = |bytes: u64| {
        let query = Query {
            from: &config.node,
            now,
            bytes,
            expiry: Moment::MAX,
        };
        earliest(&ways, query, &Bookings::default())
    };
    // A larger one would not be taken.
    let others = OTHERS.map(|(bytes, name)| {
        let fits = bytes <= config.storage.bundle_bytes;
        fits.then(|| (name, search(bytes)))
    });
    let routes = search(SHOWN.0);
    for node in plan
        .nodes()
        .into_iter()
        .filter(|node| **node != config.node)
    {
        let route = routes.get(node);
        let way = way(&ways, route, SHOWN.1);
        let _ = writeln!(text, "  {node}: {way}");
        for (name, others) in others.iter().flatten() {
            let other = others.get(node);
            if hops(&ways, other) != hops(&ways, route) {
                let way = self::way(&ways, other, name);
                let _ = writeln!(text, "    {way}");
            }
        }
        if is_unanswered(config, node, now) && !is_never_to_answer(config, node) {
            let _ = writeln!(
                text,
                "warning: {node} never answers in this plan, so that nothing counts as sent to it: write both_ways = true, or its contact back, or one_way = \"out\" in its [[ltp.peer]]"
            );
        }
    }
}

/// The nodes on a way, the next one first.
fn hops<'a>(plan: &'a ContactPlan, route: Option<&Route>) -> Vec<&'a NodeId> {
    let places = route.iter().flat_map(|route| &route.contacts);
    let contacts = places.filter_map(|place| plan.contacts().get(*place));
    contacts.map(|contact| &contact.to).collect()
}

/// When a bundle of this size arrives, and how.
fn way(plan: &ContactPlan, route: Option<&Route>, size: &str) -> String {
    let Some(Route { arrival, .. }) = route else {
        return format!("no route for {size}");
    };
    let way = hops(plan, route);
    let way: Vec<String> = way.into_iter().map(ToString::to_string).collect();
    format!("{size} arrives at {arrival} by way of {}", way.join(", "))
}

/// Whether the configuration says that a neighbour acknowledges nothing.
fn is_never_to_answer(config: &Config, neighbour: &NodeId) -> bool {
    let mut peers = config.ltp.iter().flat_map(|ltp| &ltp.peers);
    peers.any(|peer| peer.node == *neighbour && peer.one_way == OneWay::Out)
}

/// Whether a neighbour is sent something and cannot acknowledge it.
fn is_unanswered(config: &Config, neighbour: &NodeId, now: Moment) -> bool {
    let to_come = |from: &NodeId, to: &NodeId| {
        let ends = (from.clone(), to.clone());
        let contacts = config.plan.contacts().iter();
        contacts.filter(move |contact| {
            (&contact.from, &contact.to) == (&ends.0, &ends.1) && contact.end > now
        })
    };
    let first = to_come(&config.node, neighbour)
        .map(|contact| contact.start)
        .min();
    let heard = to_come(neighbour, &config.node)
        .map(|contact| contact.end.plus(contact.light_time))
        .max();
    first.is_some_and(|first| heard.is_none_or(|heard| heard <= first))
}
