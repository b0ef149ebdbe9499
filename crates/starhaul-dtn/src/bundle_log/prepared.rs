//! A bundle as the log needs it.

use hardy_bpa::{
    Bytes,
    bundle::{Bundle, BundleStatus, ReadOnlyMetadata, WritableMetadata},
};
use hardy_bpv7::{
    block::Block,
    bundle::{Bundle as Parsed, Id},
    hop_info::HopInfo,
};
use serde::Deserialize;
use time::OffsetDateTime;

use super::{Key, record::Known};

/// Stands before the number of a bundle in the name of its data.
const NAME: &str = "log/";

/// A bundle as the log needs it.
pub(super) struct Prepared {
    pub(super) key: Key,
    /// All but its status.
    pub(super) json: Bytes,
    pub(super) status: String,
}

/// Identity of a bundle: 128 bits of SHA-256, a collision of which cannot be found.
pub(super) fn key(id: &Id) -> Result<Key, serde_json::Error> {
    Ok(key_of_json(&serde_json::to_vec(id)?))
}

pub(super) fn key_of_json(id: &[u8]) -> Key {
    let digest = ring::digest::digest(&ring::digest::SHA256, id);
    let mut key = Key::default();
    key.iter_mut()
        .zip(digest.as_ref())
        .for_each(|(to, from)| *to = *from);
    key
}

pub(super) fn name(number: u64) -> String {
    format!("{NAME}{number:x}")
}

/// The number of data by their name; `None` if they are in a file.
pub(super) fn number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(NAME)?, 16).ok()
}

/// The name of a bundle's data, which the agent shows in its JSON only.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: Name<'a>,
}

#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    storage_name: Option<std::borrow::Cow<'a, str>>,
}

impl Prepared {
    pub(super) fn new(bundle: &Bundle) -> Result<Self, serde_json::Error> {
        Ok(Self {
            key: key(&bundle.bundle.id)?,
            status: serde_json::to_string(&bundle.metadata.status)?,
            json: serde_json::to_vec(bundle)?.into(),
        })
    }

    /// The name of its data, if it stands in the JSON as it is: to find it costs less than to read all of that. Within a string the quotes would
    /// be escaped.
    fn plain_name(&self) -> Option<&str> {
        const BEFORE: &str = r#""storage_name":""#;
        let text = std::str::from_utf8(&self.json).ok()?;
        let name = text.get(text.rfind(BEFORE)? + BEFORE.len()..)?;
        let name = name.get(..name.find('"')?)?;
        (!name.contains('\\')).then_some(name)
    }

    pub(super) fn known(&self, number: u64, bundle: &Bundle, is_in_file: bool) -> Known<'_> {
        Known {
            number,
            key: self.key,
            expiry: milliseconds(bundle.expiry()),
            received: nanoseconds(bundle),
            is_in_file,
            status: &self.status,
            bundle: &self.json,
        }
    }

    /// The number of its data, if those are in the log.
    pub(super) fn number(&self) -> Result<Option<u64>, serde_json::Error> {
        if let Some(name) = self.plain_name() {
            return Ok(number(name));
        }
        let named: Named<'_> = serde_json::from_slice(&self.json)?;
        Ok(named.metadata.storage_name.as_deref().and_then(number))
    }
}

/// Whether two bundles of one number are the same but for their status. Their JSON would say so, too; to write that costs many times
/// as much.
pub(super) fn is_same(one: &Bundle, other: &Bundle) -> bool {
    is_same_metadata(one, other) && is_same_parsed(&one.bundle, &other.bundle)
}

// Both take apart all fields, so that a new one is not forgotten.

fn is_same_metadata(one: &Bundle, other: &Bundle) -> bool {
    let (one, other) = (&one.metadata, &other.metadata);
    let ReadOnlyMetadata {
        received_at,
        ingress_peer_node,
        ingress_peer_addr,
        ingress_cla: _,
        next_hop: _,
    } = &one.read_only;
    let WritableMetadata { flow_label } = &one.writable;
    *received_at == other.read_only.received_at
        && *ingress_peer_node == other.read_only.ingress_peer_node
        && *ingress_peer_addr == other.read_only.ingress_peer_addr
        && *flow_label == other.writable.flow_label
}

fn is_same_parsed(one: &Parsed, other: &Parsed) -> bool {
    let Parsed {
        id,
        flags,
        crc_type,
        destination,
        report_to,
        lifetime,
        previous_node,
        age,
        hop_count,
        blocks,
    } = one;
    let hops = |hops: &Option<HopInfo>| hops.as_ref().map(|hops| (hops.limit, hops.count));
    let mut numbered = blocks.iter();
    *id == other.id
        && *flags == other.flags
        && *crc_type == other.crc_type
        && *destination == other.destination
        && *report_to == other.report_to
        && *lifetime == other.lifetime
        && *previous_node == other.previous_node
        && *age == other.age
        && hops(hop_count) == hops(&other.hop_count)
        && blocks.len() == other.blocks.len()
        && numbered.all(|(number, block)| {
            let other = other.blocks.get(number);
            other.is_some_and(|other| is_same_block(block, other))
        })
}

fn is_same_block(one: &Block, other: &Block) -> bool {
    let Block {
        block_type,
        flags,
        crc_type,
        bib,
        bcb,
        extent,
        data,
    } = one;
    *block_type == other.block_type
        && *flags == other.flags
        && *crc_type == other.crc_type
        && *bib == other.bib
        && *bcb == other.bcb
        && *extent == other.extent
        && *data == other.data
}

/// A status by its JSON.
pub(super) fn status(text: &str) -> Option<BundleStatus> {
    serde_json::from_str(text).ok()
}

/// Milliseconds since 1970.
pub(super) fn milliseconds(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

fn nanoseconds(bundle: &Bundle) -> i64 {
    let received = bundle.metadata.read_only.received_at;
    i64::try_from(received.unix_timestamp_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hardy_bpa::bundle::BundleMetadata;
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};

    use super::*;

    fn bundle() -> Bundle {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let hops = HopInfo { limit: 9, count: 1 };
        let builder = builder
            .with_hop_count(&hops)
            .with_lifetime(Duration::from_secs(60));
        let built = builder.with_payload(b"x".as_slice().into());
        let metadata = BundleMetadata::default();
        let bundle = built.build(CreationTimestamp::now()).unwrap().0;
        Bundle { bundle, metadata }
    }

    #[test]
    fn bundles_are_the_same_exactly_if_their_json_is() {
        let (one, node) = (bundle(), "ipn:9.0".parse().unwrap());
        let changes: [&dyn Fn(&mut Bundle); 14] = [
            &|_| {},
            &|bundle| bundle.metadata.status = BundleStatus::Waiting,
            &|bundle| bundle.metadata.read_only.next_hop = Some("ipn:9.0".parse().unwrap()),
            &|bundle| bundle.metadata.writable.flow_label = Some(1),
            &|bundle| bundle.metadata.read_only.received_at += Duration::from_nanos(1),
            &|bundle| bundle.metadata.read_only.ingress_peer_node = Some(node_of(&node)),
            &|bundle| bundle.bundle.destination = node.clone(),
            &|bundle| bundle.bundle.report_to = node.clone(),
            &|bundle| bundle.bundle.lifetime += Duration::from_millis(1),
            &|bundle| bundle.bundle.previous_node = Some(node.clone()),
            &|bundle| bundle.bundle.age = Some(Duration::ZERO),
            &|bundle| bundle.bundle.hop_count = None,
            &|bundle| bundle.bundle.blocks.get_mut(&1).unwrap().extent.end += 1,
            &|bundle| bundle.bundle.blocks.retain(|number, _| *number != 1),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = one.clone();
            change(&mut other);
            let json = |bundle: &Bundle| serde_json::to_vec(bundle).unwrap();
            assert_eq!(
                is_same(&one, &other),
                json(&one) == json(&other),
                "change {number}"
            );
        }
    }

    #[test]
    fn the_number_is_the_one_that_the_json_says() {
        let with = |source: &str, name: &str| {
            let json = serde_json::json!({"bundle": {"source": source}, "metadata": {"storage_name": name, "flow_label": 1}});
            let prepared = Prepared {
                key: Key::default(),
                json: serde_json::to_vec(&json).unwrap().into(),
                status: String::new(),
            };
            prepared.number().unwrap()
        };
        let hostile = r#"dtn://x/","storage_name":"log/7","y":""#;
        for source in ["ipn:1.5", hostile] {
            assert_eq!(with(source, "log/1f"), Some(0x1f));
            assert_eq!(with(source, "file/1f"), None);
            assert_eq!(with(source, r#"a"log/7"#), None);
            assert_eq!(with(source, hostile), None);
        }
    }

    fn node_of(endpoint: &hardy_bpv7::eid::Eid) -> hardy_bpv7::eid::NodeId {
        endpoint.to_node_id().unwrap()
    }
}
