//! TLS for the baseline: one Ed25519 raw public key (RFC 7250), pinned by the client.
//!
//! The key comes from the experiment's seed, so that a run can be repeated; it protects nothing of value.

use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{crypto::ring, server::AlwaysResolvesServerRawPublicKeys};
use starhaul_quic::{
    Identity,
    tls::{KnownKeys, certified_key},
};

use crate::Error;

const ALPN: &[u8] = b"starhaul-lab-mpquic";

/// The client's and the server's half for the key derived from `seed`.
pub(super) fn configs(seed: u64) -> Result<(QuicClientConfig, QuicServerConfig), Error> {
    let mut secret = [0; 32];
    for part in secret.chunks_exact_mut(8) {
        part.copy_from_slice(&seed.to_be_bytes());
    }
    let identity = Identity::from_secret(secret);
    let provider = Arc::new(ring::default_provider());
    let verifier = KnownKeys::new(&provider, [identity.public_key()]);

    let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.to_vec()];

    let key = certified_key(&identity).map_err(refused)?;
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    server.alpn_protocols = vec![ALPN.to_vec()];

    Ok((
        client.try_into().map_err(refused)?,
        server.try_into().map_err(refused)?,
    ))
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Baseline(error.to_string())
}
