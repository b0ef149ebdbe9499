//! BPSec (RFC 9172, RFC 9173): signatures and encryption of payloads, with keys that two applications' nodes share.
//!
//! Only the ends have them: the agent is given none. Version 0.6 of its library, where it has the keys, rewrites a bundle that is
//! signed and encrypted into one that its destination refuses.

use std::fmt;

use bytes::Bytes;
use hardy_bpv7::{
    block::{self, BibCoverage, Payload},
    bpsec::{
        self, encryptor,
        key::{EncAlgorithm, Key, KeyAlgorithm, KeySet, Operation, Type},
        rfc9173::ScopeFlags,
        signer,
    },
    bundle::{Bundle, ParsedBundle},
    eid::Eid,
    status_report::ReasonCode,
};

use crate::checksum;

/// The number of the payload block (RFC 9171 §4.1).
const PAYLOAD: u64 = 1;
/// Lengths of keys to sign with: less is guessed, more is hashed.
const SIGN_BYTES: std::ops::RangeInclusive<usize> = 32..=64;

/// The keys of a node. All nodes that exchange protected payloads have the same.
#[derive(Clone, Default)]
pub struct Keys {
    sign: Option<Key>,
    encrypt: Option<Key>,
    require: bool,
}

/// A payload that is not to be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The bundle cannot be parsed, or was changed on the way.
    #[error("the bundle is damaged, or protected with another key: {0}")]
    Damaged(String),
    /// There is no key for it.
    #[error("the payload is protected with a key that is not here")]
    NoKey,
    /// It lacks the protection that is required here.
    #[error("the payload is not protected, and this node requires it")]
    Unprotected,
}

impl Keys {
    /// Keys as they stand in files; `require` refuses payloads that are not signed, or not encrypted if there is no key to
    /// sign.
    ///
    /// # Errors
    /// A key of another length, or none although protection is required.
    pub fn new(sign: Option<&[u8]>, encrypt: Option<&[u8]>, require: bool) -> Result<Self, String> {
        if require && sign.is_none() && encrypt.is_none() {
            return Err("require: write sign_key or encrypt_key, too".to_owned());
        }
        let sign = sign.map(|bytes| {
            let operations = [Operation::Sign, Operation::Verify];
            match SIGN_BYTES.contains(&bytes.len()) {
                true => Ok(key(bytes, KeyAlgorithm::HS512, None, operations)),
                false => Err(format!(
                    "sign_key: the file has {} bytes: write 32 to 64",
                    bytes.len()
                )),
            }
        });
        let encrypt = encrypt.map(|bytes| {
            let algorithm = match bytes.len() {
                16 => EncAlgorithm::A128GCM,
                32 => EncAlgorithm::A256GCM,
                other => {
                    return Err(format!(
                        "encrypt_key: the file has {other} bytes: write 16 or 32"
                    ));
                }
            };
            let operations = [Operation::Encrypt, Operation::Decrypt];
            Ok(key(
                bytes,
                KeyAlgorithm::Direct,
                Some(algorithm),
                operations,
            ))
        });
        Ok(Self {
            sign: sign.transpose()?,
            encrypt: encrypt.transpose()?,
            require,
        })
    }

    /// Whether payloads are signed or encrypted, and so cannot change unnoticed.
    pub fn protects(&self) -> bool {
        self.sign.is_some() || self.encrypt.is_some()
    }

    /// What is done with payloads, for people.
    pub fn describe(&self) -> String {
        let does = match (&self.sign, &self.encrypt) {
            (None, None) => "payloads are neither signed nor encrypted",
            (Some(_), None) => "payloads are signed",
            (None, Some(_)) => "payloads are encrypted",
            (Some(_), Some(_)) => "payloads are signed and encrypted",
        };
        let asks = if self.require {
            ", and refused otherwise"
        } else {
            ""
        };
        format!("{does}{asks}")
    }

    /// Protects the payload of a new bundle.
    ///
    /// # Errors
    /// What the library reports; a bundle without a payload, for one.
    pub fn protect(
        &self,
        bundle: Bundle,
        data: Box<[u8]>,
        source: &Eid,
    ) -> Result<Box<[u8]>, String> {
        let (mut bundle, mut data) = (bundle, data);
        if let Some(key) = &self.sign {
            let context = signer::Context::HMAC_SHA2(ScopeFlags::default());
            let signer = signer::Signer::new(&bundle, &data);
            let signer = signer.sign_block(PAYLOAD, context, source.clone(), key);
            let signed = signer
                .map_err(|(_, error)| error.to_string())?
                .rebuild_bundle();
            (bundle, data) = signed.map_err(|error| error.to_string())?;
        }
        if let Some(key) = &self.encrypt {
            // The header of the security block changes when a block of signatures is encrypted with the payload.
            let scope = ScopeFlags {
                include_security_header: false,
                ..ScopeFlags::default()
            };
            let context = encryptor::Context::AES_GCM(scope);
            let encryptor = encryptor::Encryptor::new(&bundle, &data);
            let encryptor = encryptor.encrypt_block(PAYLOAD, context, source.clone(), key);
            data = encryptor
                .map_err(|(_, error)| error.to_string())?
                .rebuild()
                .map_err(|error| error.to_string())?;
        }
        Ok(data)
    }

    /// The bundle that these bytes are, and its payload, verified and decrypted; no copy unless it is encrypted.
    ///
    /// # Errors
    /// All of [`Refused`].
    pub fn open(&self, data: &Bytes) -> Result<(Bundle, Bytes), Refused> {
        let (bundle, payload) = self.opened(data)?;
        let payload = match payload {
            Payload::Borrowed(payload) => data.slice_ref(payload),
            Payload::Decrypted(payload) => Bytes::copy_from_slice(&payload),
        };
        Ok((bundle, payload))
    }

    /// Whether a bundle, which was parsed from these bytes without keys, is what its source sent, as far as that can be told now: one whose
    /// key is missing may be.
    ///
    /// # Errors
    /// [`Refused::Damaged`] and [`Refused::Unprotected`].
    pub fn check(&self, bundle: &Bundle, data: &[u8]) -> Result<(), Refused> {
        let mut kinds = bundle.blocks.values().map(|block| block.block_type);
        let is_protected = kinds.any(|kind| {
            matches!(
                kind,
                block::Type::BlockIntegrity | block::Type::BlockSecurity
            )
        });
        if is_protected || self.require {
            return match self.opened(data) {
                Ok(_) | Err(Refused::NoKey) => Ok(()),
                Err(error) => Err(error),
            };
        }
        // To parse it again would tell nothing more.
        let block = bundle.blocks.get(&PAYLOAD);
        let payload = block.and_then(|block| block.payload(data));
        match payload.is_none_or(|payload| checksum::matches(bundle, data, payload)) {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    /// What a report says of a payload that is not to be used.
    pub fn reason(&self, refused: &Refused) -> ReasonCode {
        match refused {
            Refused::Unprotected => ReasonCode::MissingSecurityOperation,
            _ if self.protects() => ReasonCode::FailedSecurityOperation,
            _ => ReasonCode::BlockUnintelligible,
        }
    }

    fn opened<'a>(&self, data: &'a [u8]) -> Result<(Bundle, Payload<'a>), Refused> {
        let damaged = |error: hardy_bpv7::Error| match error {
            hardy_bpv7::Error::InvalidBPSec(bpsec::Error::NoKey) => Refused::NoKey,
            other => Refused::Damaged(other.to_string()),
        };
        let keys = self.key_set();
        let bundle = ParsedBundle::parse_with_keys(data, &keys)
            .map_err(damaged)?
            .bundle;
        let block = bundle.blocks.get(&PAYLOAD);
        let is_encrypted = block.is_some_and(|block| block.bcb.is_some());
        let is_signed = block.is_some_and(|block| !matches!(block.bib, BibCoverage::None));
        let is_protected = match self.sign {
            // Its signature is encrypted, too: without the key it can be neither right nor wrong.
            Some(_) if is_signed && is_encrypted && self.encrypt.is_none() => {
                return Err(Refused::NoKey);
            }
            Some(_) => is_signed && bundle.verify_block(PAYLOAD, data, &keys).map_err(damaged)?,
            None => is_encrypted,
        };
        if self.require && !is_protected {
            return Err(Refused::Unprotected);
        }
        let payload = bundle.block_data(PAYLOAD, data, &keys).map_err(damaged)?;
        if !checksum::matches(&bundle, data, payload.as_ref()) {
            return Err(changed());
        }
        Ok((bundle, payload))
    }

    fn key_set(&self) -> KeySet {
        KeySet::new(self.sign.iter().chain(&self.encrypt).cloned().collect())
    }
}

/// What a payload is that differs from the checksum that its source has told.
fn changed() -> Refused {
    Refused::Damaged("the payload was changed".to_owned())
}

impl fmt::Debug for Keys {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.describe())
    }
}

fn key(
    bytes: &[u8],
    algorithm: KeyAlgorithm,
    encryption: Option<EncAlgorithm>,
    operations: [Operation; 2],
) -> Key {
    Key {
        key_type: Type::OctetSequence { key: bytes.into() },
        key_algorithm: Some(algorithm),
        enc_algorithm: encryption,
        operations: Some(operations.into_iter().collect()),
        ..Key::default()
    }
}

#[cfg(test)]
mod tests {
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};

    use super::*;

    fn keys(sign: Option<u8>, encrypt: Option<u8>, require: bool) -> Keys {
        let (sign, encrypt) = (sign.map(|byte| [byte; 32]), encrypt.map(|byte| [byte; 32]));
        Keys::new(
            sign.as_ref().map(|key| &key[..]),
            encrypt.as_ref().map(|key| &key[..]),
            require,
        )
        .unwrap()
    }

    fn protected(keys: &Keys) -> Bytes {
        let source: Eid = "ipn:1.5".parse().unwrap();
        let builder = Builder::new(source.clone(), "ipn:2.5".parse().unwrap());
        let (bundle, data) = builder
            .with_payload(b"a secret".as_slice().into())
            .build(CreationTimestamp::now())
            .unwrap();
        keys.protect(bundle, data, &source)
            .unwrap()
            .into_vec()
            .into()
    }

    #[test]
    fn the_right_keys_open_and_others_do_not() {
        for (sign, encrypt) in [(Some(1), None), (None, Some(2)), (Some(1), Some(2))] {
            let sender = keys(sign, encrypt, false);
            let data = protected(&sender);
            assert_eq!(
                data.windows(8).any(|bytes| bytes == b"a secret"),
                encrypt.is_none()
            );
            let open = |keys: Keys| keys.open(&data).map(|(_, payload)| payload);
            assert_eq!(
                open(keys(sign, encrypt, true)).as_deref(),
                Ok(&b"a secret"[..])
            );
            // Another key of either kind.
            let wrong = open(keys(sign.map(|_| 7), encrypt.map(|_| 8), true));
            assert!(
                matches!(wrong, Err(Refused::Damaged(_) | Refused::NoKey)),
                "{wrong:?}"
            );
            // None: what is encrypted stays closed, what is signed can be read unless protection is required.
            let missing = open(keys(None, None, false));
            match encrypt {
                Some(_) => assert_eq!(missing, Err(Refused::NoKey)),
                None => assert_eq!(missing.as_deref(), Ok(&b"a secret"[..])),
            }
            // Each changed byte of the payload is noticed.
            if let Some(at) = data.windows(8).position(|bytes| bytes == b"a secret") {
                let mut changed = data.to_vec();
                changed[at] ^= 1;
                assert!(keys(sign, encrypt, true).open(&changed.into()).is_err());
            }
        }
        let plain = protected(&keys(None, None, false));
        assert_eq!(
            keys(Some(1), None, true).open(&plain).unwrap_err(),
            Refused::Unprotected
        );
        assert_eq!(
            keys(None, Some(1), true).open(&plain).unwrap_err(),
            Refused::Unprotected
        );
    }

    /// What is encrypted with its signature waits for the key that is missing, and for no other.
    #[test]
    fn a_signature_that_cannot_be_read_is_no_wrong_one() {
        let both = protected(&keys(Some(1), Some(2), false));
        let refused = |keys: Keys, data: &Bytes| keys.open(data).unwrap_err();
        for require in [false, true] {
            for sign in [1, 7] {
                let missing = refused(keys(Some(sign), None, require), &both);
                assert_eq!(missing, Refused::NoKey, "{sign} {require}");
            }
            let another = refused(keys(Some(1), Some(8), require), &both);
            assert!(matches!(another, Refused::Damaged(_)), "{another:?}");
        }
        // Where nothing is signed, there is no signature to wait for.
        let encrypted = protected(&keys(None, Some(2), false));
        let unsigned = refused(keys(Some(1), None, true), &encrypted);
        assert_eq!(unsigned, Refused::Unprotected);
        let closed = refused(keys(Some(1), None, false), &encrypted);
        assert_eq!(closed, Refused::NoKey);
    }

    /// A node looks at what comes before it knows whether an application is there.
    #[test]
    fn a_check_finds_what_opening_finds_and_waits_for_keys() {
        let senders = [
            (None, None),
            (Some(1), None),
            (None, Some(2)),
            (Some(1), Some(2)),
        ];
        for (sign, encrypt) in senders {
            let whole = protected(&keys(sign, encrypt, false));
            let bundle = ParsedBundle::parse(&whole, bpsec::no_keys).unwrap().bundle;
            let payload = bundle.blocks[&PAYLOAD].payload_range();
            for receiver in senders.into_iter().chain([(Some(7), Some(8))]) {
                for require in [false, true] {
                    if require && receiver == (None, None) {
                        continue;
                    }
                    let keys = keys(receiver.0, receiver.1, require);
                    for at in [None, Some(payload.start), Some(payload.end - 1)] {
                        let mut data = whole.to_vec();
                        if let Some(at) = at {
                            data[at] ^= 1;
                        }
                        let data = Bytes::from(data);
                        // A CRC that is wrong is found before.
                        let Ok(parsed) = ParsedBundle::parse(&data, bpsec::no_keys) else {
                            continue;
                        };
                        let expected = match keys.open(&data) {
                            Ok(_) | Err(Refused::NoKey) => Ok(()),
                            Err(error) => Err(error),
                        };
                        let checked = keys.check(&parsed.bundle, &data);
                        let what = format!("{sign:?} {encrypt:?} {receiver:?} {require} {at:?}");
                        assert_eq!(checked, expected, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn keys_of_a_wrong_length_are_refused() {
        assert!(
            Keys::new(Some(&[1; 31]), None, false)
                .unwrap_err()
                .contains("31 bytes")
        );
        assert!(
            Keys::new(None, Some(&[1; 24]), false)
                .unwrap_err()
                .contains("24 bytes")
        );
        assert!(Keys::new(None, None, true).is_err());
    }
}
