//! LTP authentication (RFC 5327 §2.1): a header extension names cipher suite and key, a trailer extension holds the HMAC
//! of all bytes of the segment before it, in every profile.

use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::{
    sdnv,
    segment::{Extensions, Segment},
};

/// Tag of both extensions (RFC 5327 §5).
const TAG: u8 = 0;
/// Number of the cipher suite HMAC-SHA1-80.
const SUITE: u8 = 0;
const VALUE_BYTES: usize = 10;
/// Tag, length and value of the trailer extension.
pub(crate) const TRAILER_BYTES: usize = 2 + VALUE_BYTES;
type HmacSha1 = Hmac<Sha1>;

/// A key that both ends share, with cipher suite HMAC-SHA1-80 of RFC 5327. With a key, every segment is signed, and what
/// comes without a valid signature is dropped.
#[derive(Clone)]
pub struct AuthKey {
    mac: HmacSha1,
    /// The header extension as on the wire.
    header: Box<[u8]>,
}

impl AuthKey {
    /// A key of any length above zero, as anybody knows the empty one; 20 bytes or more are recommended (RFC 2104 §3). `id`, at most 100
    /// bytes, tells the peer which key is meant; it may be empty. `None` where either is not so.
    pub fn new(secret: &[u8], id: &[u8]) -> Option<Self> {
        if secret.is_empty() || id.len() > 100 {
            return None;
        }
        let mut header = vec![TAG];
        sdnv::encode(1 + id.len() as u64, &mut header);
        header.push(SUITE);
        header.extend_from_slice(id);
        Some(Self {
            mac: HmacSha1::new_from_slice(secret).ok()?,
            header: header.into(),
        })
    }

    /// The header extension of a segment signed with this key.
    pub(crate) fn header(&self) -> Extensions<'_> {
        Extensions {
            count: 1,
            bytes: &self.header,
        }
    }

    /// Appends a segment with its signature.
    pub(crate) fn write(&self, segment: &Segment<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        segment.write_before_trailers(1, out);
        out.extend_from_slice(segment.trailer.bytes);
        out.push(TAG);
        sdnv::encode(VALUE_BYTES as u64, out);
        let value = self.mac.clone().chain_update(&out[start..]).finalize();
        out.extend_from_slice(&value.into_bytes()[..VALUE_BYTES]);
    }

    /// Whether a parsed segment, whose bytes are `raw`, was signed with this key. The signature must be its last trailer.
    pub(crate) fn is_signed(&self, segment: &Segment<'_>, raw: &[u8]) -> bool {
        let suite = segment.header.value(TAG);
        if suite.is_none() || suite != self.header().value(TAG) {
            return false;
        }
        let last = segment.trailer.iter().last();
        let Some((TAG, value)) = last.filter(|(_, value)| value.len() == VALUE_BYTES) else {
            return false;
        };
        let Some(signed) = raw.len().checked_sub(VALUE_BYTES) else {
            return false;
        };
        let mac = self.mac.clone().chain_update(&raw[..signed]);
        mac.verify_truncated_left(value).is_ok()
    }
}

impl std::fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Body, Encoding, EngineId, SessionId, parse};

    #[test]
    fn one_changed_bit_or_another_key_is_noticed() {
        for encoding in [Encoding::Rfc5326, Encoding::Fixed] {
            notices_changes(encoding);
        }
    }

    fn notices_changes(encoding: Encoding) {
        let key = AuthKey::new(b"a secret of twenty-one", b"k1").unwrap();
        let segment = Segment {
            encoding,
            session: SessionId {
                originator: EngineId(1),
                number: 2,
            },
            header: key.header(),
            body: Body::ReportAck { report: 3 },
            trailer: Extensions {
                count: 1,
                bytes: &[0xc0, 1, 7],
            },
        };
        let mut bytes = Vec::new();
        key.write(&segment, &mut bytes);
        assert_eq!(bytes.len(), segment.encoded_len() + TRAILER_BYTES);
        let is_signed = |key: &AuthKey, bytes: &[u8]| {
            parse(bytes)
                .is_ok_and(|(segment, rest)| rest.is_empty() && key.is_signed(&segment, bytes))
        };
        assert!(is_signed(&key, &bytes), "{encoding:?}");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_signed(&key, &changed), "{encoding:?}: bit {bit}");
        }
        for other in [("another secret", "k1"), ("a secret of twenty-one", "k2")] {
            let other = AuthKey::new(other.0.as_bytes(), other.1.as_bytes()).unwrap();
            assert!(!is_signed(&other, &bytes));
        }
        let mut unsigned = Vec::new();
        segment.write(&mut unsigned);
        assert!(!is_signed(&key, &unsigned));
    }
}
