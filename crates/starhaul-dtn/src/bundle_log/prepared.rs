//! A bundle as the log needs it.

use hardy_bpa::{
    Bytes,
    bundle::{Bundle, BundleStatus},
};
use hardy_bpv7::bundle::Id;
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

/// Identity of a bundle: 128 bits of SHA-256, which nobody can make two bundles share.
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

/// What the agent tells nobody else: the name of a bundle's data.
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
        let named: Named<'_> = serde_json::from_slice(&self.json)?;
        Ok(named.metadata.storage_name.as_deref().and_then(number))
    }
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
