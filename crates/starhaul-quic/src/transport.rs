//! Settings of the QUIC stack: one endpoint per socket, its randomness from a seed, its time from the driver.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use noq_proto::{
    ClientConfig, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, NoneTokenStore,
    ServerConfig, TimeSource, TransportConfig, VarInt,
    crypto::{self, CryptoError, HandshakeTokenKey},
};
use parking_lot::Mutex;
use rand_chacha::{
    ChaCha12Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use ring::{aead, hmac};

use crate::{Identity, LocalId, controller::PathControlHandle, packet_size::PacketBytes};

/// A connection is lost when nothing has arrived for this time, or for twice the time between probes if that is longer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The range of the time between probes; a value outside counts as the nearest one inside.
const KEEPALIVES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Room for one batch of datagrams, which leaves as soon as it is put there.
pub(crate) const DATAGRAM_SEND_BUFFER_BYTES: usize = 128 * 1024;
/// Room for received datagrams; they are taken out after each packet, so it fills only before the path has joined.
const DATAGRAM_RECEIVE_BUFFER_BYTES: usize = 256 * 1024;
/// Room for the join handshake, both for the sender and the receiver.
const CONTROL_WINDOW: u32 = 4096;
const CONNECTION_ID_BYTES: usize = 8;
/// The largest UDP payload that we announce to accept; above [`PacketBytes::stack_bytes`] of any limit.
const RECEIVED_BYTES: u16 = 1500;

/// The endpoint of one socket, refusing connections unless `server` is given.
pub(crate) fn endpoint(
    local: LocalId,
    identity: &Identity,
    server: Option<Arc<ServerConfig>>,
    rng: &mut ChaCha12Rng,
) -> Endpoint {
    // Bound to the socket: with one key for all, anyone who saw a connection id on one path could
    // have its reset token computed on another (RFC 9000 §21.11). Stable over restarts, so that a
    // restarted process resets old connections at once.
    let purpose = [&b"stateless reset"[..], &local.0.to_be_bytes()].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &identity.derive_key(&purpose));
    let mut config = EndpointConfig::new(Arc::new(key));
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    config.rng_seed(Some(seed));
    rng.fill_bytes(&mut seed);
    config.cid_generator(Arc::new(move || Box::new(SeededIds::new(seed))));
    // In range, so never refused.
    let _ = config.max_udp_payload_size(RECEIVED_BYTES);
    Endpoint::new(Arc::new(config), server, true)
}

/// So many packets that overtake one show that it is lost (RFC 9002 §6.1.1), as many as the session bears at the most.
const PACKET_THRESHOLD: u32 = 256;

/// Settings of a connection whose sending `control` governs, with packets of at most `packet_bytes`. The sides may have different
/// `keepalive`: the sooner of both timeouts holds, and so do the probes of the side that probes more often.
pub(crate) fn connection(
    control: &PathControlHandle,
    packet_bytes: PacketBytes,
    keepalive: Duration,
) -> Arc<TransportConfig> {
    let packet_bytes = packet_bytes.stack_bytes();
    let mut config = TransportConfig::default();
    let keepalive = keepalive.clamp(KEEPALIVES.0, KEEPALIVES.1);
    let idle = IDLE_TIMEOUT.max(keepalive * 2);
    let idle = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
    config
        .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
        // While the session's probes arrive in time this is never due: it keeps connections alive that have not joined.
        .keep_alive_interval(Some(keepalive))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(CONTROL_WINDOW))
        .receive_window(VarInt::from_u32(CONTROL_WINDOW))
        .send_window(u64::from(CONTROL_WINDOW))
        // What is overtaken is lost once it is late by an eighth of the round trip (RFC 9002 §6.1.2): the session sends again sooner what
        // few have overtaken, and more where the path reorders.
        .packet_threshold(PACKET_THRESHOLD)
        .datagram_send_buffer_size(DATAGRAM_SEND_BUFFER_BYTES)
        .datagram_receive_buffer_size(Some(DATAGRAM_RECEIVE_BUFFER_BYTES))
        // The stack's own discovery probes three times in a row, which one burst of losses can defeat, and takes bursts of loss
        // for a smaller MTU. It is configured for the largest size, and `crate::packet_size` finds the size in use.
        .mtu_discovery_config(None)
        .initial_mtu(packet_bytes)
        .min_mtu(packet_bytes)
        .congestion_controller_factory(Arc::new(control.clone()));
    Arc::new(config)
}

/// Settings of one connection that we open.
pub(crate) fn outgoing(
    crypto: Arc<dyn crypto::ClientConfig>,
    transport: Arc<TransportConfig>,
    rng: &mut ChaCha12Rng,
) -> ClientConfig {
    let mut first_id = [0; 20];
    rng.fill_bytes(&mut first_id);
    let mut config = ClientConfig::new(crypto);
    config
        .transport_config(transport)
        .token_store(Arc::new(NoneTokenStore))
        .initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&first_id)));
    config
}

/// Settings shared by all connections that peers open; each gets its own transport settings.
pub(crate) fn incoming(
    crypto: Arc<dyn crypto::ServerConfig>,
    identity: &Identity,
    clock: &Clock,
) -> ServerConfig {
    let key = RetryKey(identity.derive_key(b"retry token"));
    let mut config = ServerConfig::new(crypto, Arc::new(key));
    config
        .time_source(Arc::new(clock.clone()))
        .migration(true)
        .max_incoming(64)
        .incoming_buffer_size(16 * 1024)
        .incoming_buffer_size_total(1024 * 1024);
    config
}

/// Connection ids from a seed.
struct SeededIds(Mutex<ChaCha12Rng>);

impl SeededIds {
    fn new(seed: [u8; 32]) -> Self {
        Self(Mutex::new(ChaCha12Rng::from_seed(seed)))
    }
}

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; CONNECTION_ID_BYTES];
        let rng = self.0.get_mut();
        rng.fill_bytes(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Wall clock for the age of retry tokens, made from the driver's instants; its zero is arbitrary.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: Instant,
    millis: Arc<AtomicU64>,
}

impl Clock {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            millis: Arc::default(),
        }
    }

    /// The node's first instant.
    pub(crate) const fn beginning(&self) -> Instant {
        self.start
    }

    pub(crate) fn advance(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.start).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.millis.fetch_max(millis, Ordering::Relaxed);
    }
}

impl TimeSource for Clock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}

/// Seals retry tokens with AES-256-GCM under a key of their own, derived from the token's 128-bit nonce.
struct RetryKey([u8; 32]);

impl RetryKey {
    fn key(&self, nonce: u128) -> Result<(aead::LessSafeKey, aead::Nonce), CryptoError> {
        let master = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let derived = hmac::sign(&master, &nonce.to_be_bytes());
        let key =
            aead::UnboundKey::new(&aead::AES_256_GCM, derived.as_ref()).map_err(|_| CryptoError)?;
        // Each derived key seals one token, so a constant AEAD nonce is unique.
        let nonce = aead::Nonce::assume_unique_for_key([0; 12]);
        Ok((aead::LessSafeKey::new(key), nonce))
    }
}

impl HandshakeTokenKey for RetryKey {
    fn seal(&self, token_nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        let (key, nonce) = self.key(token_nonce)?;
        key.seal_in_place_append_tag(nonce, aead::Aad::empty(), data)
            .map_err(|_| CryptoError)
    }

    fn open<'a>(&self, token_nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let (key, nonce) = self.key(token_nonce)?;
        key.open_in_place(nonce, aead::Aad::empty(), data)
            .map(|data| &*data)
            .map_err(|_| CryptoError)
    }
}
