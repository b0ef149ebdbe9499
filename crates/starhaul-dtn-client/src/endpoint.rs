//! Endpoints that people name.
//!
//! The text alone is read here, as the bundle library does: a gateway, which needs no more of bundles, is built without it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::Error;

/// All but the unreserved characters of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The endpoint that a text names: a node's service of this number and name, if it names only the node.
///
/// # Errors
/// [`Error::Refused`] when it names neither.
pub fn endpoint_of(text: &str, (number, name): (u32, &str)) -> Result<String, Error> {
    let endpoint = match text.split_once(':') {
        Some(("ipn", rest)) => of_numbers(rest, number),
        Some(("dtn", rest)) => of_names(rest, name),
        _ => None,
    };
    endpoint.ok_or_else(|| {
        Error::Refused(format!(
            "{text:?} is no endpoint: write ipn:3.0, or dtn://station/files"
        ))
    })
}

/// `[ALLOCATOR.]NODE.SERVICE`, where `!` is the local node (RFC 9758 §3); service 0 is the node itself.
fn of_numbers(text: &str, number: u32) -> Option<String> {
    let mut parts = text.rsplit('.');
    let service = match decimal(parts.next()?)? {
        0 => number,
        service => service,
    };
    let node = match parts.next()? {
        "!" if parts.next().is_none() => "!".to_owned(),
        node => {
            let (node, allocator) = (decimal(node)?, parts.next().map_or(Some(0), decimal)?);
            match (allocator, node) {
                // No node.
                (0, 0) => return None,
                (0, u32::MAX) => "!".to_owned(),
                (0, node) => node.to_string(),
                (allocator, node) => format!("{allocator}.{node}"),
            }
        }
    };
    parts
        .next()
        .is_none()
        .then(|| format!("ipn:{node}.{service}"))
}

/// Without sign and leading zeros.
fn decimal(text: &str) -> Option<u32> {
    let is_plain = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    text.parse().ok().filter(|_| is_plain)
}

/// `//NODE/SERVICE` (RFC 9171 §4.2.5.1.1); without a service it is the node itself.
fn of_names(text: &str, name: &str) -> Option<String> {
    let (node, service) = text.strip_prefix("//")?.split_once('/')?;
    let may_name = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=%".contains(c);
    let is_named = !node.is_empty() && node.chars().all(may_name);
    let service = match service.is_empty() {
        true => name,
        false => service,
    };
    let is_service = service.chars().all(|c| c.is_ascii_graphic());
    let node = percent_decode_str(node).decode_utf8().ok()?;
    let node = utf8_percent_encode(&node, RESERVED);
    (is_named && is_service).then(|| format!("dtn://{node}/{service}"))
}

#[cfg(test)]
mod tests {
    use hardy_bpv7::eid::{Eid, NodeId, Service};
    use proptest::prelude::*;

    use super::*;

    const SERVICE: (u32, &str) = (7, "files");

    /// What the library makes of the text.
    fn of_library(text: &str) -> Option<String> {
        let eid: Eid = text.parse().ok()?;
        if !eid.is_admin_endpoint() {
            return (!eid.is_null()).then(|| eid.to_string());
        }
        let node = eid.to_node_id().ok()?;
        let service = match node {
            NodeId::Dtn(_) => Service::Dtn(SERVICE.1.into()),
            _ => Service::Ipn(SERVICE.0),
        };
        Some(Eid::try_from((node, service)).ok()?.to_string())
    }

    #[test]
    fn a_node_becomes_its_service_and_a_service_stays() {
        for (text, expected) in [
            ("ipn:3.0", Some("ipn:3.7")),
            ("ipn:3.1", Some("ipn:3.1")),
            ("ipn:0.3.1", Some("ipn:3.1")),
            ("ipn:977000.3.0", Some("ipn:977000.3.7")),
            ("ipn:!.0", Some("ipn:!.7")),
            ("dtn://station/", Some("dtn://station/files")),
            ("dtn://station/a/b", Some("dtn://station/a/b")),
            ("dtn://station", None),
            ("dtn:none", None),
            ("ipn:0.0", None),
            ("ipn:3", None),
            ("ipn:3.1.2.3", None),
            ("ipn:!.3.1", None),
            ("ipn:03.1", None),
            ("station", None),
        ] {
            let found = endpoint_of(text, SERVICE).ok();
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    fn number() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("0".to_owned()),
            Just(u32::MAX.to_string()),
            Just("4294967296".to_owned()),
            any::<u32>().prop_map(|number| number.to_string()),
            "[0-9+!]{0,3}",
        ]
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_the_library_reads_it(
            text in prop_oneof![
                prop::collection::vec(number(), 0..5).prop_map(|parts| format!("ipn:{}", parts.join("."))),
                "dtn://[a-z0-9%!~/. é]{1,8}/?[a-z%/~ ]{0,5}",
                "(ipn|dtn|ipm)?:?[0-9a-z/:!.%]{0,12}",
            ]
        ) {
            // A node without a name is none here.
            prop_assume!(!text.starts_with("dtn:///"));
            prop_assert_eq!(endpoint_of(&text, SERVICE).ok(), of_library(&text));
        }
    }
}
