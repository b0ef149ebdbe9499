//! Keys. Neighbours share a secret: it authenticates their hellos, and with the life of each it gives the key of each
//! direction for as long as both live. Responder and requesters share a secret too: with the id of a content it gives the
//! key of the content's segments, so that the same bytes have the same ciphertext for every requester and cache.

use bytes::Bytes;
use ring::{
    aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hmac,
};

use crate::name::{ContentId, SEAL_BYTES, Segment};

/// Bytes of a packet's authentication between neighbours.
pub(crate) const MAC_BYTES: usize = 8;
/// Bytes of a hello's authentication.
pub(crate) const HELLO_MAC_BYTES: usize = 16;

/// A random number that names the life of a node for one neighbour: from its start to its end.
pub(crate) type Life = [u8; 16];

/// The secret that two neighbours share.
#[derive(Clone)]
pub struct NeighbourKey(hmac::Key);

impl NeighbourKey {
    /// The key of 32 secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Whether another one is of the same secret.
    pub fn is_same_as(&self, other: &Self) -> bool {
        is_same(&self.hello_mac(&[]), &other.hello_mac(&[]))
    }

    /// Authenticates a hello.
    pub(crate) fn hello_mac(&self, hello: &[u8]) -> [u8; HELLO_MAC_BYTES] {
        first(derive(&self.0, &[b"hello", hello]))
    }

    /// The key of the packets from the node with the first life to the one with the second.
    pub(crate) fn direction(&self, from: &Life, to: &Life) -> PacketKey {
        let key = derive(&self.0, &[b"direction", from, to]);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key);
        PacketKey(LessSafeKey::new(key.expect("a key of 32 bytes")))
    }
}

/// Authenticates the packets of one direction between two neighbours: Poly1305 with a key of its own for each packet,
/// truncated to [`MAC_BYTES`].
pub(crate) struct PacketKey(LessSafeKey);

impl PacketKey {
    /// Authenticates the packet with this number, which must not be used for another one.
    pub(crate) fn mac(&self, number: u64, packet: &[u8]) -> [u8; MAC_BYTES] {
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(packet), &mut [])
            .expect("a packet is shorter than the limit of the cipher");
        std::array::from_fn(|at| tag.as_ref()[at])
    }
}

/// Whether two authentications are the same, in a time that does not depend on where they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).map(|(a, b)| a ^ b);
    one.len() == other.len() && differences.fold(0, |all, bits| all | bits) == 0
}

/// The secret of a responder and those who may read its contents.
#[derive(Clone)]
pub struct ContentSecret(hmac::Key);

impl ContentSecret {
    /// The secret of 32 bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The id of the content that has this name: the same at the responder and at every requester, and nothing of the
    /// name is learned from it without the secret.
    pub fn id_of_name(&self, name: &str) -> ContentId {
        ContentId(first(derive(&self.0, &[b"name", name.as_bytes()])))
    }

    /// A key for another purpose of those that have the secret.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        derive(&self.0, &[b"purpose", purpose.as_bytes()])
    }

    /// The key of a content.
    pub(crate) fn of(&self, content: ContentId) -> ContentKey {
        Self::content_key(content, derive(&self.0, &[b"content", &content.0]))
    }

    /// The key of a content of a stream, which the accepting side drew a part of: no former life of it sealed with that key.
    pub(crate) fn of_stream(&self, content: ContentId, salt: &[u8; 8]) -> ContentKey {
        Self::content_key(content, derive(&self.0, &[b"stream", &content.0, salt]))
    }

    fn content_key(content: ContentId, key: [u8; 32]) -> ContentKey {
        let key: [u8; 16] = first(key);
        let key = UnboundKey::new(&AES_128_GCM, &key).expect("a key of 16 bytes");
        ContentKey {
            content,
            key: LessSafeKey::new(key),
        }
    }
}

/// The key of the segments of one content.
pub(crate) struct ContentKey {
    content: ContentId,
    key: LessSafeKey,
}

impl ContentKey {
    /// Seals data of the content. The nonce is the offset: the same data always give the same ciphertext.
    pub(crate) fn seal(&self, offset: u64, is_end: bool, data: &[u8]) -> Segment {
        let mut sealed = Vec::with_capacity(data.len() + SEAL_BYTES);
        sealed.extend_from_slice(data);
        let aad = Aad::from(self.aad(is_end));
        self.key
            .seal_in_place_append_tag(nonce(offset), aad, &mut sealed)
            .expect("a segment is shorter than the limit of the cipher");
        Segment {
            offset,
            is_end,
            sealed: sealed.into(),
        }
    }

    /// The data of a segment, if it was sealed with this key.
    pub(crate) fn open(&self, segment: &Segment) -> Option<Bytes> {
        let mut sealed = segment.sealed.to_vec();
        let aad = Aad::from(self.aad(segment.is_end));
        let data = self
            .key
            .open_in_place(nonce(segment.offset), aad, &mut sealed);
        let length = data.ok()?.len();
        sealed.truncate(length);
        Some(sealed.into())
    }

    fn aad(&self, is_end: bool) -> [u8; 17] {
        let mut aad = [u8::from(is_end); 17];
        aad[..16].copy_from_slice(&self.content.0);
        aad
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn derive(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    context.update(b"starhaul leotp 1 ");
    parts.iter().for_each(|part| context.update(part));
    let tag = context.sign();
    std::array::from_fn(|at| tag.as_ref()[at])
}

fn first<const N: usize>(bytes: [u8; 32]) -> [u8; N] {
    std::array::from_fn(|at| bytes[at])
}

impl std::fmt::Debug for NeighbourKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NeighbourKey")
    }
}

impl std::fmt::Debug for ContentSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentSecret")
    }
}

impl std::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PacketKey")
    }
}

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ContentKey({})", self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_opens_only_as_what_it_was_sealed() {
        let id = ContentId([1; 16]);
        let key = ContentSecret::new(&[2; 32]).of(id);
        let segment = key.seal(5, true, b"data");
        assert_eq!(
            segment,
            ContentSecret::new(&[2; 32]).of(id).seal(5, true, b"data")
        );
        assert_eq!((segment.length(), segment.end()), (4, 9));
        assert_eq!(key.open(&segment).as_deref(), Some(&b"data"[..]));
        let moved = Segment {
            offset: 6,
            ..segment.clone()
        };
        let longer = Segment {
            is_end: false,
            ..segment.clone()
        };
        let mut bytes = segment.sealed.to_vec();
        bytes[0] ^= 1;
        let changed = Segment {
            sealed: bytes.into(),
            ..segment.clone()
        };
        let short = Segment {
            sealed: Bytes::from_static(b"short"),
            ..segment.clone()
        };
        for wrong in [&moved, &longer, &changed, &short] {
            assert_eq!(key.open(wrong), None);
        }
        let other = ContentSecret::new(&[2; 32]).of(ContentId([3; 16]));
        assert_eq!(other.open(&segment), None);
        assert_eq!(ContentSecret::new(&[4; 32]).of(id).open(&segment), None);
    }

    #[test]
    fn each_direction_life_and_number_has_its_own_authentication() {
        let key = NeighbourKey::new(&[1; 32]);
        let (a, b, c) = ([1; 16], [2; 16], [3; 16]);
        let mac = key.direction(&a, &b).mac(1, b"packet");
        assert!(is_same(&mac, &key.direction(&a, &b).mac(1, b"packet")));
        for other in [
            key.direction(&b, &a).mac(1, b"packet"),
            key.direction(&a, &c).mac(1, b"packet"),
            key.direction(&a, &b).mac(2, b"packet"),
            key.direction(&a, &b).mac(1, b"packer"),
            NeighbourKey::new(&[2; 32])
                .direction(&a, &b)
                .mac(1, b"packet"),
        ] {
            assert!(!is_same(&mac, &other));
        }
    }
}
