//! TLS for the baseline: one Ed25519 raw public key (RFC 7250), pinned by the client.
//!
//! The key comes from the experiment's seed, so that a run can be repeated; it protects nothing of value.

use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::AlwaysResolvesServerRawPublicKeys,
    sign::CertifiedKey,
};

use crate::Error;

const ALPN: &[u8] = b"starhaul-lab-mpquic";
/// RFC 8410 §7: everything of a PKCS #8 Ed25519 key that precedes its 32 secret bytes.
const PKCS8_ED25519: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];

/// The client's and the server's half for the key derived from `seed`.
pub(super) fn configs(seed: u64) -> Result<(QuicClientConfig, QuicServerConfig), Error> {
    let mut pkcs8 = PKCS8_ED25519.to_vec();
    pkcs8.extend(seed.to_be_bytes().repeat(4));
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).map_err(refused)?;
    let public = key
        .public_key()
        .ok_or_else(|| Error::Baseline("the key has no public half".into()))?;
    let pinned = CertificateDer::from(public.to_vec());
    let provider = Arc::new(ring::default_provider());

    let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned {
            key: pinned.clone(),
            provider: provider.clone(),
        }))
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.to_vec()];

    let certified = Arc::new(CertifiedKey::new(vec![pinned], key));
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    server.alpn_protocols = vec![ALPN.to_vec()];

    Ok((
        client.try_into().map_err(refused)?,
        server.try_into().map_err(refused)?,
    ))
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Baseline(error.to_string())
}

/// Accepts exactly one key.
#[derive(Debug)]
struct Pinned {
    key: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.key {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC needs TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(cert.as_ref()),
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
