//! Values of keys: targets, public keys, names, rates and paths, and the errors of those that are wrong.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use starhaul_config::secret_file;
use starhaul_quic::PublicKey;

use crate::{
    label::is_rule_name,
    target::{Host, ParseTargetError, Target},
};

/// A single host to which data can be sent, or the name of one.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let target: Target = text
        .parse()
        .map_err(|error: ParseTargetError| error.to_string())?;
    match target.host {
        Host::Ip(ip) if ip.is_unspecified() || is_for_many(ip) => {
            Err(format!("{text:?} is not the address of a single host"))
        }
        _ => Ok(target),
    }
}

/// Multicast and broadcast.
pub(super) fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// A peer's key; keys in the formats of other programs have errors of their own.
pub(super) fn public_key(text: &str) -> Result<PublicKey, String> {
    /// How an Ed25519 key in SPKI form begins (RFC 8410 §4).
    const SPKI: &str = "MCowBQYDK2VwAyEA";
    let wrong = match text.trim() {
        text if text.starts_with("ssh-") || text.starts_with("ecdsa-") => {
            "this is an OpenSSH key, which is of no use here"
        }
        text if text.starts_with("-----BEGIN") => "this is a file in PEM form",
        text if text.starts_with(SPKI) => {
            return Err("this is a key in SPKI form: write its last 44 characters".to_owned());
        }
        text => {
            return text
                .parse()
                .map_err(|error: starhaul_quic::Error| error.to_string());
        }
    };
    Err(format!(
        "{wrong}: write the 44 characters that `starhaul pubkey FILE` prints of the peer's key"
    ))
}

pub(super) fn interface_name(text: &str) -> Result<String, &'static str> {
    // IFNAMSIZ is 16 with the terminating zero.
    // Names that mean the same to the kernel, nftables and a shell.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let good = (1..=15).contains(&text.len()) && text.bytes().all(plain);
    good.then(|| text.to_owned())
        .ok_or("write the name of a network interface, for example eth0")
}

pub(super) fn path(directory: &Path, text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        Err("write the path of a file".to_owned())
    } else {
        Ok(directory.join(text))
    }
}

/// A file with a secret: a credential of the service, or beside the configuration.
pub(super) fn secret(directory: &Path, text: &str) -> Result<PathBuf, String> {
    path(directory, text)?;
    Ok(secret_file(directory, text))
}

/// A name for people.
pub(super) fn rule_name(text: &str) -> Result<String, &'static str> {
    is_rule_name(text)
        .then(|| text.to_owned())
        .ok_or("write 1 to 64 letters, digits, '-', '_' and '.'")
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not address:port, for example 127.0.0.1:4600 or [::1]:4600; names are not possible here")
    })
}

/// A network, or a single address.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let network = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| {
            format!("{text:?} is not a network, for example 192.168.7.0/24 or 0.0.0.0/0")
        })?;
    match network.trunc() == network {
        true => Ok(network),
        false => Err(format!(
            "{text} has bits beyond its prefix; write {}",
            network.trunc()
        )),
    }
}

/// A port, or a range of ports.
pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let range = match text.split_once('-') {
        Some((first, last)) => port(first)
            .zip(port(last))
            .map(|(first, last)| first..=last),
        None => port(text).map(|port| port..=port),
    };
    range.filter(|range| !range.is_empty()).ok_or_else(|| {
        format!("{text:?} is neither a port nor a range of ports like \"5000-5099\"")
    })
}
