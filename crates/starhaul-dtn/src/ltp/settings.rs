//! With what the engine of a node and each of its neighbours are configured.

use starhaul_ltp::{EngineConfig, PeerConfig};
use starhaul_net::HostMemory;

use crate::config::{LtpConfig, LtpPeer, OneWay};

/// Bytes of a bundle beside its payload, at most.
const BESIDE_PAYLOAD: u64 = 1 << 20;

/// Greatest length of a block: it holds a bundle with all its blocks.
const fn block_bytes(bundle_bytes: u64) -> u64 {
    bundle_bytes.saturating_add(BESIDE_PAYLOAD)
}

/// Memory for received blocks in any case: a second one can begin.
fn least_memory(bundle_bytes: u64) -> usize {
    let bytes = block_bytes(bundle_bytes).saturating_mul(2);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The engine of a node that takes bundles with payloads of so many bytes.
pub(crate) fn engine(
    config: &LtpConfig,
    bundle_bytes: u64,
    seed: [u8; 32],
    host: Option<HostMemory>,
) -> EngineConfig {
    let mut engine = EngineConfig::new(config.engine, seed);
    engine.awaits_acceptance = true;
    engine.numbers = config.numbers;
    if let Some(host) = host {
        engine.fit_memory(host.bytes);
    }
    engine.receive_memory = engine.receive_memory.max(least_memory(bundle_bytes));
    engine
}

/// A neighbour of that engine.
pub(crate) fn peer(peer: &LtpPeer, bundle_bytes: u64, host: Option<HostMemory>) -> PeerConfig {
    let mut settings = PeerConfig::new(peer.light_time, peer.rate);
    settings.profile = peer.profile;
    settings.auth = peer.key.clone();
    settings.set_segment_size(peer.segment);
    settings.set_repair(peer.repair);
    settings.is_one_way = peer.one_way != OneWay::No;
    // What is longer is refused as it begins to come.
    settings.block_bytes = block_bytes(bundle_bytes);
    if let Some(host) = host {
        settings.fit_memory(host.bytes);
    }
    settings.receive_memory = settings.receive_memory.max(least_memory(bundle_bytes));
    settings
}
