//! A configuration as text, so that an operator sees how it was read.

use std::fmt::Write as _;

use ipnet::IpNet;
use starhaul_endpoint::{Detection, LinkKind, ProbeMethod, ProbeTarget, RateRule};

use starhaul_config::size;

use crate::{hours::show_offset, quota::Quota};

use super::{
    AcceptRule, BundleRule, Carriage, Carrier, Config, ConnectionService, ConnectionTargets,
    ControlPath, ControllerRule, DatagramService, Delivery, Framing, IdentitySource, IngressRule,
    LeotpRule, PacketMatch, PathRule, TransparentTargets, TunnelRule,
    tunnels::{code_point_name, protocol_name},
};

/// One line per fact.
pub(super) fn describe(config: &Config) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(config, &mut text);
    text
}

fn write(config: &Config, out: &mut String) -> std::fmt::Result {
    match &config.identity {
        IdentitySource::File(file) => writeln!(out, "identity: key in {}", file.display())?,
        IdentitySource::Inline(identity) => writeln!(out, "identity: {}", identity.public_key())?,
    }
    match &config.control {
        ControlPath::Default => {
            writeln!(out, "control: {}", ControlPath::default_path().display())?
        }
        ControlPath::At(path) => writeln!(out, "control: {}", path.display())?,
        ControlPath::Off => writeln!(out, "control: off")?,
    }
    if let Some(group) = &config.control_group {
        writeln!(out, "status: also for members of the group {group}")?;
    }
    if let Some(address) = config.metrics {
        writeln!(out, "metrics and live page: http://{address}/")?;
    }
    if let Some(folder) = &config.state {
        writeln!(out, "state: in {}", folder.display())?;
    }
    writeln!(
        out,
        "packets: at most {} bytes of UDP payload",
        config.packet_bytes
    )?;
    writeln!(out, "idle paths: probed every {:?}", config.keepalive)?;
    writeln!(out, "paths chosen by: {}", config.scheduler.name())?;
    if let Some(budget) = config.budget {
        writeln!(
            out,
            "paths with a cost: together at most {budget} in each session, each byte times its cost"
        )?;
    }
    let limits = config.session_limits;
    writeln!(
        out,
        "sessions: each at most {} streams, {} to send, {} received",
        limits.max_streams,
        size::show(limits.max_send_bytes as u64),
        size::show(limits.max_receive_bytes as u64)
    )?;
    for address in &config.listen {
        writeln!(out, "listen: {address}, {}", accept_text(&config.accept))?;
    }
    for peer in &config.peers {
        writeln!(out, "peer {}: {}", peer.name, peer.public_key)?;
    }
    for session in &config.sessions {
        writeln!(out, "session to {}:", session.peer)?;
        for path in &session.paths {
            writeln!(out, "  {}", path_line(path))?;
        }
    }
    if let Some(leotp) = &config.leotp {
        write_leotp(leotp, out)?;
    }
    if let Some(bundle) = &config.bundle {
        write_bundle(bundle, out)?;
    }
    for rule in &config.datagram_rules {
        writeln!(out, "{}", datagram_line(rule))?;
    }
    for rule in &config.connection_rules {
        writeln!(out, "{}", connection_line(rule))?;
    }
    for rule in &config.tunnels {
        write_tunnel(rule, out)?;
    }
    if config.egress.allow.is_empty() {
        writeln!(
            out,
            "egress: nothing (peers reach nothing through this gateway)"
        )?;
    }
    for rule in &config.egress.allow {
        writeln!(out, "egress: allow {rule}")?;
    }
    for network in &config.egress.clients {
        writeln!(out, "egress: connections of clients from {network}")?;
    }
    for rule in &config.egress.deny {
        writeln!(out, "egress: deny {rule}")?;
    }
    if !config.egress.allow.is_empty() {
        let limits = config.egress.limits;
        writeln!(
            out,
            "egress: at most {} streams, {} lookups, {} targets of a UDP association",
            limits.max_streams, limits.max_lookups, limits.max_targets
        )?;
    }
    Ok(())
}

fn write_leotp(rule: &LeotpRule, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "LEOTP: at udp {}, at most {} of a connection on the way, {} of all",
        rule.listen,
        size::show(rule.window as u64),
        size::show(rule.memory as u64)
    )?;
    if rule.rate_rule == RateRule::Published {
        writeln!(out, "  rates by the published rule")?;
    }
    for neighbour in &rule.neighbours {
        let address = neighbour.address.as_ref().map(ToString::to_string);
        let at = address.as_deref().unwrap_or("wherever it calls from");
        let is_upstream = rule.upstream.as_ref() == Some(&neighbour.name);
        let role = if is_upstream {
            ", toward the far gateway"
        } else {
            ""
        };
        write!(out, "  neighbour {} at {at}{role}", neighbour.name)?;
        if let Some(signals) = neighbour.signals.summary() {
            write!(out, ", reconfigurations by {signals}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_bundle(rule: &BundleRule, out: &mut String) -> std::fmt::Result {
    let socket = rule.socket.as_ref();
    let socket = socket.map(|socket| socket.display().to_string());
    writeln!(
        out,
        "bundles: by the node at {}, at most {} flows of a far gateway, {} of each stream unread",
        socket.as_deref().unwrap_or("the default socket"),
        rule.max_flows,
        size::show(rule.window)
    )?;
    for peer in &rule.peers {
        writeln!(out, "  far gateway {} at {}", peer.name, peer.endpoint)?;
    }
    Ok(())
}

fn write_tunnel(rule: &TunnelRule, out: &mut String) -> std::fmt::Result {
    let list = |networks: &[IpNet]| {
        let networks: Vec<_> = networks.iter().map(ToString::to_string).collect();
        networks.join(", ")
    };
    let device = &rule.device;
    let routes = if device.add_routes {
        "routes to"
    } else {
        "leads to"
    };
    writeln!(
        out,
        "tun {}: device {} with {}, MTU {}, {routes} {} by peer {}",
        rule.name,
        device.name,
        list(&device.addresses),
        device.mtu,
        list(&device.networks),
        rule.peer
    )?;
    for class in &rule.classes {
        let carriage = match &class.carriage {
            Carriage::Reliable => "reliable".to_owned(),
            Carriage::Deadline(delivery) => delivery_text(delivery),
        };
        let (name, matches) = (&class.name, match_text(&class.matches));
        writeln!(
            out,
            "  {name}: {matches}, priority {}, {carriage}",
            class.priority
        )?;
    }
    Ok(())
}

fn match_text(matches: &PacketMatch) -> String {
    let mut text = match matches.protocols.as_slice() {
        [] if matches == &PacketMatch::default() => return "what is left".to_owned(),
        [] => "any protocol".to_owned(),
        protocols => protocol_name(protocols).to_owned(),
    };
    for (index, ports) in matches.ports.iter().enumerate() {
        let before = if index == 0 { " port " } else { ", " };
        let _ = match (ports.start(), ports.end()) {
            (first, last) if first == last => write!(text, "{before}{first}"),
            (first, last) => write!(text, "{before}{first}-{last}"),
        };
    }
    if !matches.dscp.is_empty() {
        let names: Vec<_> = matches
            .dscp
            .iter()
            .map(|dscp| code_point_name(*dscp))
            .collect();
        let _ = write!(text, " with DSCP {}", names.join(" or "));
    }
    text
}

fn accept_text(rule: &AcceptRule) -> String {
    let mut text = format!(
        "at most {} sessions, {} of one key, {} handshakes, {} of one host, our direction by {}",
        rule.max_sessions,
        rule.max_sessions_per_peer,
        rule.max_handshakes,
        rule.max_handshakes_per_host,
        controller(&rule.controller)
    );
    let of_leo = rule.leo_controller.as_ref();
    if let Some(of_leo) = of_leo.filter(|of_leo| rule.controller.name() != of_leo.name()) {
        let _ = write!(text, ", of low orbits by {}", of_leo.name());
    }
    if rule.link == LinkKind::Leo {
        text += ", low orbit";
    }
    if let Some(interface) = &rule.interface {
        let _ = write!(text, " over {interface}");
    }
    if let Some(detection) = &rule.detection {
        let _ = write!(text, ", {}", detection_text(detection));
    }
    text
}

fn path_line(path: &PathRule) -> String {
    let mut line = format!("path {} to {}", path.name, path.remote);
    if let Some(local) = path.local {
        let _ = write!(line, " from {local}");
    }
    if let Some(interface) = &path.interface {
        let _ = write!(line, " over {interface}");
    }
    let _ = write!(
        line,
        ", cost {}, {}",
        path.cost,
        controller(&path.controller)
    );
    if let Some(limit) = path.limit {
        let _ = write!(line, ", at most {limit}");
    }
    if let Some(quota) = &path.quota {
        let _ = write!(line, ", {}", quota_text(quota));
    }
    if let Some(hours) = &path.hours {
        let _ = write!(line, ", in service {hours}");
    }
    if path.link == LinkKind::Leo {
        line += ", low orbit";
    }
    if let Some(detection) = &path.detection {
        let _ = write!(line, ", {}", detection_text(detection));
    }
    line
}

/// In the largest unit of a provider that keeps it whole.
fn decimal(bytes: u64) -> String {
    let units = [
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
    ];
    let mut units = units.into_iter();
    match units.find(|(_, unit)| bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => size::show(bytes),
    }
}

fn quota_text(quota: &Quota) -> String {
    let mut text = format!(
        "at most {} a month from day {}",
        decimal(quota.monthly),
        quota.scheme.begins
    );
    if quota.scheme.offset_s != 0 {
        let _ = write!(text, " at UTC{}", show_offset(quota.scheme.offset_s));
    }
    let (at_80, at_100) = (quota.at_80.name(), quota.at_100.name());
    let _ = write!(text, " (at 80 % {at_80}, at 100 % {at_100})");
    text
}

fn detection_text(detection: &Detection) -> String {
    let whom = match detection.target {
        ProbeTarget::Auto => "the nearest stable address".to_owned(),
        ProbeTarget::Host(host) => host.to_string(),
    };
    let how = match detection.method {
        ProbeMethod::Auto => "by ICMP or UDP",
        ProbeMethod::Icmp => "by ICMP",
        ProbeMethod::Udp => "by UDP",
    };
    let config = detection.detector;
    let mut text = format!(
        "reconfigurations watched by probing {whom} {how} every {:?} ({:?} while idle), outages above {:?}",
        config.probe_interval, config.idle_interval, config.outage_threshold
    );
    if let Some(timetable) = detection.timetable {
        let _ = write!(text, ", timetable {timetable}");
    }
    text
}

fn datagram_line(rule: &IngressRule<DatagramService>) -> String {
    let service = &rule.service;
    let codec = match service.framing {
        Framing::Datagrams => String::new(),
        Framing::Rtp { codec, .. } => format!(", codec {codec}"),
    };
    let carrier = match service.carrier {
        Carrier::Bundle(lifetime) => {
            let order = if service.delivery.ordered {
                ", in order"
            } else {
                ""
            };
            bundle_text(&rule.peer, lifetime) + order
        }
        Carrier::Session | Carrier::Leotp => format!(
            "by peer {}, priority {}, {}{codec}",
            rule.peer,
            rule.priority,
            delivery_text(&service.delivery)
        ),
    };
    format!(
        "{} {}: {} → {} {carrier}, at most {} clients",
        rule.kind, rule.name, rule.listen, service.target, service.clients.max_clients
    )
}

fn connection_line(rule: &IngressRule<ConnectionService>) -> String {
    let service = &rule.service;
    let (to, login, udp) = match &service.targets {
        ConnectionTargets::Fixed(target) => (format!(" → {target}"), "", String::new()),
        ConnectionTargets::Transparent(transparent) => {
            let client = match transparent.keep_client {
                true => ", from the clients' addresses",
                false => "",
            };
            (transparent_text(transparent), client, String::new())
        }
        ConnectionTargets::Socks5 {
            credentials,
            delivery,
        } => {
            let login = match credentials {
                Some(_) => ", with password",
                None => ", without password",
            };
            let udp = match service.carrier {
                Carrier::Session => format!(", UDP {}", delivery_text(delivery)),
                Carrier::Leotp | Carrier::Bundle(_) => ", no UDP".to_owned(),
            };
            (String::new(), login, udp)
        }
    };
    let carrier = match service.carrier {
        Carrier::Session => format!("by peer {}, priority {}", rule.peer, rule.priority),
        Carrier::Leotp => "over LEOTP".to_owned(),
        Carrier::Bundle(lifetime) => bundle_text(&rule.peer, lifetime),
    };
    let mut line = format!(
        "{} {}: {}{to} {carrier}{login}, at most {} connections",
        rule.kind, rule.name, rule.listen, service.limits.max_connections
    );
    if let Some(idle) = service.limits.idle_timeout {
        let _ = write!(line, ", reset when idle for {idle:?}");
    }
    line + &udp
}

fn bundle_text(peer: &str, lifetime: std::time::Duration) -> String {
    format!("by bundles to {peer}, which live for {lifetime:?}")
}

fn transparent_text(targets: &TransparentTargets) -> String {
    let networks: Vec<_> = targets.networks.iter().map(ToString::to_string).collect();
    let mut text = format!(" takes what passes to {}", networks.join(", "));
    if !targets.ports.is_empty() {
        let ports = targets.ports.iter();
        let ports = ports.map(|ports| format!("{}-{}", ports.start(), ports.end()));
        let _ = write!(text, " port {}", ports.collect::<Vec<_>>().join(", "));
    }
    if let Some(interface) = &targets.interface {
        let _ = write!(text, " over {interface}");
    }
    text
}

fn delivery_text(delivery: &Delivery) -> String {
    let mode = delivery.mode.name();
    let order = if delivery.ordered { ", in order" } else { "" };
    format!(
        "deadline {:?}, {mode}, redundancy at most {}{order}",
        delivery.deadline, delivery.max_coding_rate
    )
}

fn controller(rule: &ControllerRule) -> String {
    match rule {
        ControllerRule::SelfReliant(config) => config.name().to_owned(),
        ControllerRule::Dedicated { rate, feed: None } => format!("dedicated {rate}"),
        ControllerRule::Dedicated {
            rate,
            feed: Some(feed),
        } => {
            format!("dedicated {rate}, then as {} says", feed.display())
        }
    }
}
