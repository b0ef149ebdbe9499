//! The payloads of bundles that carry files: a length, a header in JSON, and the data of the file.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Greatest length of a header.
const MOST_HEADER: usize = 16 << 10;
/// Greatest length of a name with its folders.
const MOST_NAME: usize = 4096;
/// Greatest length of a name alone, in bytes: more is possible on few file systems.
const MOST_PART: usize = 255;

/// What a chunk of a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    /// Name, with the folders below the one that is sent.
    pub(super) name: String,
    /// Bytes of the file.
    pub(super) length: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub(super) sha256: String,
    /// Where in the file the data begin.
    pub(super) offset: u64,
    /// How long its bundle lives, in milliseconds; earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lifetime_ms: Option<u64>,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// The file, as its chunks named it.
    pub(super) name: String,
    pub(super) sha256: String,
    /// Why it is not there; nothing when it is, and has the hash.
    pub(super) problem: Option<String>,
}

/// A payload of a header and data.
pub(super) fn encode<H: Serialize>(header: &H, data: &[u8]) -> Vec<u8> {
    // A structure of texts and numbers can always be written.
    let header = serde_json::to_vec(header).unwrap_or_default();
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &header, data].concat()
}

/// The header and the data of a payload.
pub(super) fn decode<H: DeserializeOwned>(payload: &[u8]) -> Option<(H, &[u8])> {
    let (length, rest) = payload.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length))
        .ok()
        .filter(|length| *length <= MOST_HEADER)?;
    let header = serde_json::from_slice(rest.get(..length)?).ok()?;
    Some((header, rest.get(length..)?))
}

impl Chunk {
    /// Whether nothing in it leads out of the folder where the file shall be, or beyond the file.
    pub(super) fn is_proper(&self, data: usize) -> bool {
        let is_name = |part: &str| {
            (1..=MOST_PART).contains(&part.len())
                && part != "."
                && part != ".."
                && !part.contains(['\0', '\\'])
        };
        let is_hash = self.sha256.len() == 64
            && self
                .sha256
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
        let is_within = self
            .offset
            .checked_add(data as u64)
            .is_some_and(|end| end <= self.length);
        let is_some = data > 0 || self.length == 0;
        let names = self.name.split('/');
        self.name.len() <= MOST_NAME
            && names.clone().all(is_name)
            && names.take(1).all(|first| first != PARTS)
            && is_hash
            && is_within
            && is_some
    }
}

/// The folder of files that are not complete.
pub(super) const PARTS: &str = ".starhaul-parts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_its_folder() {
        let chunk = |name: &str| Chunk {
            name: name.to_owned(),
            length: 5,
            sha256: "0".repeat(64),
            offset: 0,
            lifetime_ms: None,
        };
        for name in ["a", "a/b.jpg", "..a", "a b", ".hidden"] {
            assert!(chunk(name).is_proper(5), "{name}");
        }
        for name in [
            "", "/a", "a/", "../a", "a/../b", "a//b", "./a", "a\0", PARTS,
        ] {
            assert!(!chunk(name).is_proper(5), "{name}");
        }
        assert!(chunk(&"n".repeat(255)).is_proper(5) && !chunk(&"n".repeat(256)).is_proper(5));
        assert!(!chunk("a").is_proper(6) && !chunk("a").is_proper(0));
        assert!(
            !Chunk {
                offset: u64::MAX,
                ..chunk("a")
            }
            .is_proper(2)
        );
        assert!(
            !Chunk {
                sha256: "../../../x".to_owned(),
                ..chunk("a")
            }
            .is_proper(2)
        );
        let payload = encode(&chunk("a"), b"hello");
        assert_eq!(decode::<Chunk>(&payload), Some((chunk("a"), &b"hello"[..])));
        assert_eq!(decode::<Chunk>(&payload[..20]), None);
        assert_eq!(decode::<Verdict>(&[255; 20]), None);
        // As earlier versions write it.
        let sha256 = "0".repeat(64);
        let header =
            format!("{{\"name\":\"a\",\"length\":5,\"sha256\":\"{sha256}\",\"offset\":0}}");
        assert_eq!(payload[4..4 + header.len()], *header.as_bytes());
    }
}
