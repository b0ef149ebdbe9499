//! Authentication: keys shared by both sides, and the tags (HMAC-SHA-256, RFC 2104, truncated to 128 bits) of all
//! messages.

use ring::hmac;

/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;

/// Identifies a key on the wire without revealing it.
pub type KeyId = [u8; 8];

/// A secret that a client and a server share. `Debug` shows its public name only.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    mac: Mac,
}

/// Computes and verifies tags.
#[derive(Clone)]
pub struct Mac(hmac::Key);

/// A key for each direction, so that no message can be reflected to its sender.
#[derive(Clone, Debug)]
pub(crate) struct SessionKeys {
    pub(crate) to_server: Mac,
    pub(crate) to_client: Mac,
    pub(crate) session: u64,
}

impl Key {
    /// Creates a key from 32 secret bytes that serve no other purpose.
    pub fn new(secret: &[u8; 32]) -> Self {
        let mac = Mac::new(secret);
        let mut id = KeyId::default();
        fill(&mut id, &mac.derive(&[b"key id"]));
        Self { id, mac }
    }

    /// The identifier on the wire.
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn mac(&self) -> &Mac {
        &self.mac
    }

    /// The keys of the session opened by this handshake.
    pub(crate) fn session(&self, nonce: &[u8], cookie: &[u8]) -> SessionKeys {
        let derive = |purpose: &[u8]| self.mac.derive(&[purpose, nonce, cookie]);
        let mut session = [0; 8];
        fill(&mut session, &derive(b"session"));
        SessionKeys {
            to_server: Mac::new(&derive(b"to server")),
            to_client: Mac::new(&derive(b"to client")),
            session: u64::from_be_bytes(session),
        }
    }
}

impl Mac {
    /// Creates tags with this secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Computes the tag of these bytes.
    pub(crate) fn tag(&self, signed: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        fill(&mut tag, hmac::sign(&self.0, signed).as_ref());
        tag
    }

    /// Whether the tag belongs to these bytes, in constant time.
    pub(crate) fn verify(&self, signed: &[u8], tag: &[u8; TAG_BYTES]) -> bool {
        let ours = self.tag(signed);
        let difference = ours.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(difference) == 0
    }

    /// Derives 32 bytes for one purpose from parts of fixed lengths.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"starhaul record 1 ");
        for part in parts {
            context.update(part);
        }
        let mut derived = [0; 32];
        fill(&mut derived, context.sign().as_ref());
        derived
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Key").field(&self.id).finish()
    }
}

impl std::fmt::Debug for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mac")
    }
}

/// Copies as much of the beginning of `from` as fits.
fn fill(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
