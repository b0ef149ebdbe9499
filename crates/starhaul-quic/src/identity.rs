//! The identity of a process: an Ed25519 key pair (RFC 8032), stored as PKCS#8 PEM (RFC 8410 §7), known to peers by its
//! public half.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::{SecureRandom as _, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair as _},
};

use crate::Error;

/// The bytes of a PKCS#8 Ed25519 private key (RFC 8410 §7) before the 32 bytes of the key.
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// The bytes of an Ed25519 SubjectPublicKeyInfo (RFC 8410 §4) before the 32 bytes of the key.
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// An Ed25519 key pair, the identity of this process. `Debug` shows the public half only.
#[derive(Clone)]
pub struct Identity {
    secret: [u8; 32],
    public: PublicKey,
}

/// The public half; peers are pinned by it. Displays and parses as base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl Identity {
    /// A new key pair from the system's source of randomness.
    ///
    /// # Panics
    /// When the system has no such source.
    pub fn generate() -> Self {
        let mut secret = [0; 32];
        SystemRandom::new()
            .fill(&mut secret)
            .expect("the system has a source of randomness");
        Self::from_secret(secret)
    }

    /// The key pair with these 32 secret bytes (RFC 8032 §5.1.5).
    pub fn from_secret(secret: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&secret)
            .expect("every string of 32 bytes is an Ed25519 secret");
        let mut public = [0; 32];
        public.copy_from_slice(pair.public_key().as_ref());
        Self {
            secret,
            public: PublicKey(public),
        }
    }

    /// The public half, which peers pin.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// The secret as text for a file that only its owner can read: PKCS#8 in PEM, as OpenSSL writes it.
    pub fn to_secret_text(&self) -> String {
        let body = STANDARD.encode(self.to_pkcs8());
        format!("{PEM_BEGIN}\n{body}\n{PEM_END}\n")
    }

    /// Reads the output of [`Identity::to_secret_text`] or `openssl genpkey -algorithm ed25519`.
    ///
    /// # Errors
    /// [`Error::SecretKey`] with what is wrong with the text, without its contents.
    pub fn from_secret_text(text: &str) -> Result<Self, Error> {
        let body = text
            .trim()
            .strip_prefix(PEM_BEGIN)
            .and_then(|rest| rest.strip_suffix(PEM_END))
            .ok_or_else(|| Error::SecretKey(foreign(text.trim())))?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD
            .decode(body)
            .map_err(|_| Error::SecretKey("it is not base64"))?;
        let secret = der
            .strip_prefix(&PKCS8_PREFIX[..])
            .and_then(|secret| <[u8; 32]>::try_from(secret).ok())
            .ok_or(Error::SecretKey("it is a key of another kind"))?;
        Ok(Self::from_secret(secret))
    }

    pub(crate) fn to_pkcs8(&self) -> Vec<u8> {
        [&PKCS8_PREFIX[..], &self.secret[..]].concat()
    }

    /// A key for one purpose, so that the signing secret itself is never used for anything else.
    pub fn derive_key(&self, purpose: &[u8]) -> [u8; 32] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.secret);
        let mut derived = [0; 32];
        derived.copy_from_slice(ring::hmac::sign(&key, purpose).as_ref());
        derived
    }
}

/// Describes a text without the lines of a PKCS#8 key.
fn foreign(text: &str) -> &'static str {
    let begins = |label: &str| {
        let rest = text.strip_prefix("-----BEGIN ");
        rest.is_some_and(|rest| rest.starts_with(label))
    };
    if begins("OPENSSH PRIVATE KEY") {
        "it is an OpenSSH key, whose format is another one"
    } else if begins("ENCRYPTED PRIVATE KEY") {
        "it is locked with a password, and a program that starts by itself cannot ask for one"
    } else if ["RSA ", "EC ", "DSA "].into_iter().any(begins) {
        "it is a key of another kind (RSA, EC or DSA)"
    } else if begins("CERTIFICATE") {
        "it is a certificate"
    } else if begins("PUBLIC KEY") || text.starts_with("ssh-") || text.parse::<PublicKey>().is_ok()
    {
        "it is a public key, and the secret one is needed"
    } else {
        "it has no PRIVATE KEY lines"
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

impl PublicKey {
    /// The key as a SubjectPublicKeyInfo (RFC 8410 §4), as TLS carries it (RFC 7250).
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0[..]].concat()
    }

    /// The inverse of [`PublicKey::to_spki`]; `None` for keys of other kinds.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_PREFIX[..])?;
        key.try_into().ok().map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| Error::PublicKey)?;
        bytes.try_into().map(Self).map_err(|_| Error::PublicKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_text_forms() {
        let identity = Identity::generate();
        let again = Identity::from_secret_text(&identity.to_secret_text()).unwrap();
        assert_eq!(again.public_key(), identity.public_key());
        let public = identity.public_key();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!(PublicKey::from_spki(&public.to_spki()), Some(public));
        assert_ne!(Identity::generate().public_key(), public);
    }

    #[test]
    fn reads_the_key_of_rfc_8410_and_knows_its_public_half() {
        let text = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----";
        let expected_spki = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
        let identity = Identity::from_secret_text(text).unwrap();
        assert_eq!(
            STANDARD.encode(identity.public_key().to_spki()),
            expected_spki
        );
    }

    #[test]
    fn secrets_are_never_shown() {
        let identity = Identity::from_secret([7; 32]);
        let secret = STANDARD.encode([7; 32]);
        let shown = format!("{identity:?} {identity:#?}");
        assert!(
            !shown.contains(&secret) && !shown.contains("7, 7, 7"),
            "{shown}"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        let good = Identity::generate().to_secret_text();
        for bad in ["", "secret", &good[..40], &good.replace("MC4C", "MC8C")] {
            assert!(Identity::from_secret_text(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "AAAA", "not base64 at all"] {
            assert_eq!(bad.parse::<PublicKey>(), Err(Error::PublicKey));
        }
    }
}
