//! The key `service`: what carries the flows of a rule.

use starhaul_config::{Error, Table};

use super::{
    addresses::Transport,
    bundle,
    leotp::{CARRIERS, Carrier, DATAGRAM_CARRIERS},
};

/// The carrier of a rule.
pub(super) fn read_carrier(table: &Table<'_>, transport: Transport) -> Result<Carrier, Error> {
    // RTP has no other carrier than the session.
    if !table.defines("service") {
        return Ok(Carrier::Session);
    }
    let carriers: &[(&str, Carrier)] = match transport {
        Transport::Udp => &DATAGRAM_CARRIERS,
        Transport::Tcp => &CARRIERS,
    };
    match table.choice("service", carriers)? {
        Carrier::Bundle(_) => Ok(Carrier::Bundle(bundle::read_lifetime(table)?)),
        _ if table.has("lifetime") => {
            let problem = "this is of bundles: it needs service = \"bundle\"";
            Err(table.key_problem("lifetime", problem))
        }
        carrier => Ok(carrier),
    }
}
