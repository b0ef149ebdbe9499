//! TLS 1.3 with raw public keys on both sides (RFC 7250): no certificates, no names, no
//! authorities. The client pins one server key, the server accepts a list. No resumption and no
//! 0-RTT, so nothing can be replayed.

use std::{collections::BTreeSet, sync::Arc};

use noq_proto::{
    ClientConfig, ServerConfig, TransportConfig,
    crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig},
};
use parking_lot::Mutex;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerIncompatible, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key},
    pki_types::{
        CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::{Error, Identity, PublicKey};

/// The application protocol; its number changes with the join handshake. 2: a hello has the kind of link and may be extended.
pub(crate) const ALPN: &[u8] = b"starhaul/2";
/// The former one, for older peers.
pub(crate) const OLD_ALPN: &[u8] = b"starhaul/1";
/// All that this code supports, best first.
pub(crate) const ALPNS: &[&[u8]] = &[ALPN, OLD_ALPN];

/// TLS configuration of connections to the peer with key `peer`.
pub(crate) fn client_config(
    identity: &Identity,
    peer: PublicKey,
    alpn: &[&[u8]],
) -> Result<Arc<QuicClientConfig>, Error> {
    let provider = provider();
    let verifier = Arc::new(KnownKeys::new(&provider, [peer]));
    let key = certified_key(identity)?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.alpn_protocols = alpn.iter().map(|alpn| alpn.to_vec()).collect();
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    QuicClientConfig::try_from(config)
        .map(Arc::new)
        .map_err(tls_error)
}

/// TLS configuration of connections from peers, whose keys must be among `trusted`; another key is stored in `refused`.
pub(crate) fn server_config(
    identity: &Identity,
    trusted: &[PublicKey],
    refused: &RefusedKey,
    alpn: &[&[u8]],
) -> Result<Arc<QuicServerConfig>, Error> {
    let provider = provider();
    let verifier = Arc::new(KnownKeys {
        refused: refused.clone(),
        ..KnownKeys::new(&provider, trusted.iter().copied())
    });
    let key = certified_key(identity)?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_error)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.alpn_protocols = alpn.iter().map(|alpn| alpn.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    QuicServerConfig::try_from(config)
        .map(Arc::new)
        .map_err(tls_error)
}

/// Configurations of a client and of a server with this key, which the client pins; the client has no key itself. For the stacks
/// with which sessions are compared.
///
/// # Errors
/// [`Error::Tls`] if TLS refuses the key.
pub fn pinned_configs(
    identity: &Identity,
    alpn: &[&[u8]],
    transport: &Arc<TransportConfig>,
) -> Result<(ClientConfig, ServerConfig), Error> {
    let provider = provider();
    let alpn: Vec<_> = alpn.iter().map(|alpn| alpn.to_vec()).collect();
    let verifier = KnownKeys::new(&provider, [identity.public_key()]);
    let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    client.alpn_protocols.clone_from(&alpn);
    let key = certified_key(identity)?;
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_error)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    server.alpn_protocols = alpn;
    let client = QuicClientConfig::try_from(client).map_err(tls_error)?;
    let mut client = ClientConfig::new(Arc::new(client));
    client.transport_config(transport.clone());
    let server = QuicServerConfig::try_from(server).map_err(tls_error)?;
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    server.transport_config(transport.clone());
    Ok((client, server))
}

/// The key that the peer of a finished handshake proved to own.
pub(crate) fn peer_key(session: &dyn noq_proto::crypto::Session) -> Option<PublicKey> {
    let identity = session.peer_identity()?;
    let keys = identity.downcast_ref::<Vec<CertificateDer<'static>>>()?;
    PublicKey::from_spki(keys.first()?)
}

/// The application protocol that both ends agreed on.
pub(crate) fn application_protocol(session: &dyn noq_proto::crypto::Session) -> Option<Vec<u8>> {
    let data = session.handshake_data()?.downcast::<HandshakeData>().ok()?;
    data.protocol
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The key pair in rustls' form, with its public half in place of a certificate.
fn certified_key(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let secret = PrivatePkcs8KeyDer::from(identity.to_pkcs8());
    let key = rustls::crypto::ring::sign::any_eddsa_type(&secret).map_err(tls_error)?;
    let public = CertificateDer::from(identity.public_key().to_spki());
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

fn tls_error(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}

/// The key that was refused last, until it is taken: rustls itself forgets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedKey(Arc<Mutex<Option<PublicKey>>>);

impl RefusedKey {
    pub(crate) fn take(&self) -> Option<PublicKey> {
        self.0.lock().take()
    }

    fn set(&self, key: Option<PublicKey>) {
        *self.0.lock() = key;
    }
}

/// A verifier that accepts exactly its keys.
#[derive(Debug)]
struct KnownKeys {
    keys: BTreeSet<PublicKey>,
    refused: RefusedKey,
    algorithms: WebPkiSupportedAlgorithms,
}

impl KnownKeys {
    /// A verifier for these keys, with the signature algorithms of `provider`.
    fn new(provider: &CryptoProvider, keys: impl IntoIterator<Item = PublicKey>) -> Self {
        Self {
            keys: keys.into_iter().collect(),
            refused: RefusedKey::default(),
            algorithms: provider.signature_verification_algorithms,
        }
    }

    fn check(&self, spki: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let key = PublicKey::from_spki(spki);
        let known = key.is_some_and(|key| self.keys.contains(&key));
        self.refused.set(key.filter(|_| !known));
        // Makes rustls send the alert access_denied, by which the peer learns what to correct.
        let denied = CertificateError::ApplicationVerificationFailure;
        known.then_some(()).ok_or(denied.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
    }
}

/// How both verifiers check signatures: TLS 1.3 with an Ed25519 key, nothing else.
macro_rules! raw_key_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::Tls13RequiredForQuic.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.check_signature(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for KnownKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    raw_key_signatures!();
}

impl ClientCertVerifier for KnownKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    raw_key_signatures!();
}
