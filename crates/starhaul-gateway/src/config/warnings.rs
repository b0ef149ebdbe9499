//! Warnings of settings that are valid but hardly intended.

use std::time::Duration;

use starhaul_session::LAST_RESORT;
use starhaul_units::Bandwidth;

use super::{AcceptRule, Config, ConnectionTargets, Framing, PathRule};

/// One line for each.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for session in &config.sessions {
        let to = &session.peer;
        let mut before: Vec<&PathRule> = Vec::new();
        for path in &session.paths {
            if let Some(other) = before.iter().find(|other| lead_the_same_way(other, path)) {
                found.push(format!(
                    "[[session]] to {to}: the paths {:?} and {:?} lead the same way: give one an interface or a local address",
                    other.name, path.name
                ));
            }
            before.push(path);
        }
    }
    let accepting = config
        .accept
        .interface
        .iter()
        .map(|name| ("[accept]", name));
    let paths = config.sessions.iter().flat_map(|session| &session.paths);
    let interfaces = paths.filter_map(|path| Some(("[[session.path]]", path.interface.as_ref()?)));
    for (table, name) in interfaces.chain(accepting) {
        if !is_here(name) {
            found.push(format!(
                "{table}: interface: this host has no network interface {name:?} now"
            ));
        }
    }
    if let Some(budget) = config.budget {
        found.extend(of_budget(config, budget));
    }
    if config.listen.is_empty() && config.accept != AcceptRule::default() {
        found.push(
            "[accept]: no peer can open a session to this gateway without \"listen\"".to_owned(),
        );
    }
    if config.egress.allow.is_empty() && !config.egress.deny.is_empty() {
        found.push("[egress]: nothing is allowed, so that \"deny\" closes nothing".to_owned());
    }
    if config.egress.opens_loopback_unasked() {
        found.push(
            "[egress]: peers may reach what listens on 127.0.0.1 of this host: if that is not meant, deny = [\"127.0.0.0/8:*\", \"[::1]:*\"]"
                .to_owned(),
        );
    }
    let open = config.metrics.and_then(|address| {
        starhaul_metrics::warning(
            address,
            "the names and addresses of all peers, paths and rules",
        )
    });
    found.extend(open);
    for rule in &config.connection_rules {
        let is_open = matches!(
            &rule.service.targets,
            ConnectionTargets::Socks5 {
                credentials: None,
                ..
            }
        );
        if is_open && !rule.listen.ip().is_loopback() {
            found.push(format!(
                "rule {:?}: whoever reaches {} uses the peer's [egress] without a password: listen on 127.0.0.1, or set \"username\" and \"password\"",
                rule.name, rule.listen
            ));
        }
    }
    for rule in &config.datagram_rules {
        let deadline = rule.service.delivery.deadline;
        if let Framing::Rtp { frame_timeout, .. } = rule.service.framing
            && frame_timeout >= deadline
        {
            found.push(format!(
                "rule {:?}: a frame without a marker bit ends after its deadline: \"frame_timeout\" is {frame_timeout:?}, \"deadline\" {deadline:?}",
                rule.name
            ));
        }
    }
    found
}

/// A budget that bounds nothing, and paths for which it is too little.
fn of_budget(config: &Config, budget: Bandwidth) -> Vec<String> {
    let paths = || config.sessions.iter().flat_map(|session| &session.paths);
    if config.listen.is_empty() && !paths().any(|path| path.cost > 0.0) {
        return vec![
            "budget: no path has a price, so that it bounds nothing: give [[session.path]] a \"cost\""
                .to_owned(),
        ];
    }
    let priced = paths().filter(|path| path.cost > 0.0 && path.cost < LAST_RESORT);
    let packet = u64::from(config.packet_bytes);
    let second = Duration::from_secs(1);
    let too_dear = priced.filter(|path| {
        let rate = budget.scaled(1.0 / path.cost);
        rate.time_to_send(packet) > second
    });
    let said = too_dear.map(|path| {
        let least = Bandwidth::from_bytes_over(packet, second).scaled(1.1 * path.cost);
        format!(
            "budget: {budget} pays for less than one packet a second over the path {:?} of cost {}, which then carries no data: write {least} or more, or a lesser \"cost\"",
            path.name, path.cost
        )
    });
    said.collect()
}

fn lead_the_same_way(one: &PathRule, other: &PathRule) -> bool {
    let from = |path: &PathRule| path.local.map(|local| local.ip());
    one.remote == other.remote && from(one) == from(other) && one.interface == other.interface
}

fn is_here(interface: &str) -> bool {
    starhaul_net::interface_index(interface).is_ok()
}
