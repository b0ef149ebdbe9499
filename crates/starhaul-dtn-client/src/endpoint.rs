//! Endpoints that people name.

use hardy_bpv7::eid::{Eid, NodeId, Service};

use crate::Error;

/// The endpoint that a text names: a node's service of this number and name, if it names only the node.
///
/// # Errors
/// [`Error::Refused`] when it names neither.
pub fn endpoint_of(text: &str, (number, name): (u32, &str)) -> Result<String, Error> {
    let wrong = || {
        Error::Refused(format!(
            "{text:?} is no endpoint: write ipn:3.0, or dtn://station/files"
        ))
    };
    let eid: Eid = text.parse().map_err(|_| wrong())?;
    if !eid.is_admin_endpoint() {
        return Ok(eid.to_string());
    }
    let node = eid.to_node_id().map_err(|_| wrong())?;
    let service = match node {
        NodeId::Dtn(_) => Service::Dtn(name.into()),
        _ => Service::Ipn(number),
    };
    let endpoint = Eid::try_from((node, service)).map_err(|_| wrong())?;
    Ok(endpoint.to_string())
}
