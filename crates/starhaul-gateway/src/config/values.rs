//! Addresses and keys as they are written, and what is said of those that cannot be meant.

use std::net::{IpAddr, Ipv4Addr};

use starhaul_quic::PublicKey;

use crate::target::{Host, ParseTargetError, Target};

/// Somebody who can be sent to, as far as the text shows.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let target: Target = text
        .parse()
        .map_err(|error: ParseTargetError| error.to_string())?;
    match target.host {
        Host::Ip(ip) if ip.is_unspecified() || is_for_many(ip) => {
            Err(format!("{text:?} is nobody's own address"))
        }
        _ => Ok(target),
    }
}

/// Multicast and broadcast.
pub(super) fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// A peer's key; what other programs call a public key is told apart.
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
