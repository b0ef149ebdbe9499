//! The keys that bind the connections of a session together, exported from their TLS sessions (RFC 8446 §7.5).
//!
//! The session key comes from the first connection and outlives it. The token of a further
//! connection is a MAC under that key over material exported from its own TLS session, so it is
//! worthless on any other connection, to anyone.

use noq_proto::crypto;
use ring::hmac;
use starhaul_paths::PathId;

use crate::wire::SessionId;

/// Exports the session key from the first connection.
pub(crate) const SESSION_LABEL: &[u8] = b"EXPORTER-starhaul-session";
/// Exports what a token signs from the joining connection.
pub(crate) const JOIN_LABEL: &[u8] = b"EXPORTER-starhaul-join";

/// 32 bytes that only the two ends of one TLS session know.
pub(crate) type Exported = [u8; 32];

/// The key of a session. Not shown by `Debug`.
#[derive(Clone)]
pub(crate) struct SessionKey(hmac::Key);

impl SessionKey {
    pub(crate) fn new(exported: &Exported) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, exported))
    }

    /// The token with which `path` joins over the connection that exported `joining`.
    pub(crate) fn token(&self, joining: &Exported, session: &SessionId, path: PathId) -> [u8; 32] {
        let mut token = [0; 32];
        token.copy_from_slice(hmac::sign(&self.0, &message(joining, session, path)).as_ref());
        token
    }

    /// Checks a token in constant time.
    pub(crate) fn verify(
        &self,
        joining: &Exported,
        session: &SessionId,
        path: PathId,
        token: &[u8; 32],
    ) -> bool {
        hmac::verify(&self.0, &message(joining, session, path), token).is_ok()
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey")
    }
}

pub(crate) fn export(session: &dyn crypto::Session, label: &[u8]) -> Option<Exported> {
    let mut exported = [0; 32];
    session
        .export_keying_material(&mut exported, label, &[])
        .ok()
        .map(|()| exported)
}

fn message(joining: &Exported, session: &SessionId, path: PathId) -> Vec<u8> {
    [&joining[..], &session[..], &path.0.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_for_one_connection_session_path_and_key() {
        let key = SessionKey::new(&[1; 32]);
        let token = key.token(&[2; 32], &[3; 16], PathId(4));
        assert!(key.verify(&[2; 32], &[3; 16], PathId(4), &token));
        assert!(!key.verify(&[9; 32], &[3; 16], PathId(4), &token));
        assert!(!key.verify(&[2; 32], &[9; 16], PathId(4), &token));
        assert!(!key.verify(&[2; 32], &[3; 16], PathId(9), &token));
        assert!(!SessionKey::new(&[9; 32]).verify(&[2; 32], &[3; 16], PathId(4), &token));
        let mut forged = token;
        forged[31] ^= 1;
        assert!(!key.verify(&[2; 32], &[3; 16], PathId(4), &forged));
    }
}
