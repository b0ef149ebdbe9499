//! The key `service`: what carries the flows of a rule.

use starhaul_config::{Error, Table, choice};

use super::{
    addresses::Transport,
    bundle,
    leotp::{CARRIERS, Carrier, DATAGRAM_CARRIERS},
};

/// The carrier of a rule.
pub(super) fn read_carrier(table: &Table<'_>, transport: Transport) -> Result<Carrier, Error> {
    let carriers = match transport {
        Transport::Udp => DATAGRAM_CARRIERS,
        Transport::Tcp => CARRIERS,
    };
    let carrier = table.text("service", |text| choice(text, carriers))?;
    match carrier.unwrap_or_default() {
        Carrier::Bundle(_) => Ok(Carrier::Bundle(bundle::read_lifetime(table)?)),
        _ if table.has("lifetime") => {
            let problem = "this is of bundles: it needs service = \"bundle\"";
            Err(table.key_problem("lifetime", problem))
        }
        carrier => Ok(carrier),
    }
}
