//! An engine of LTP that sends and receives bundles as blocks.

use std::time::{Duration, Instant};

use starhaul_dtn::blocks;
use starhaul_ltp::{Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig};
use starhaul_net::{IoMode, ltp::LtpDriver};

/// The source's own number.
pub(crate) const SOURCE: EngineId = EngineId(1);
/// The node that it talks to.
pub(crate) const NODE: EngineId = EngineId(2);
/// How long the node may take for all that it was sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine of LTP in place of the source's node, and what it receives.
pub(crate) struct Source {
    pub(crate) driver: LtpDriver,
    pub(crate) received: Vec<bytes::Bytes>,
    peer: EngineId,
}

impl Source {
    pub(crate) fn new() -> Self {
        Self::between(SOURCE, NODE)
    }

    /// In place of another node.
    pub(crate) fn between(own: EngineId, peer: EngineId) -> Self {
        let mut engine = Engine::new(EngineConfig::new(own, [7; 32]));
        let config = PeerConfig::new(Duration::ZERO, None);
        engine.add_peer(Instant::now(), peer, config).unwrap();
        engine.open_service(blocks::BUNDLE);
        let local = "127.0.0.1:0".parse().unwrap();
        Self {
            driver: LtpDriver::bind(local, IoMode::default(), engine).unwrap(),
            received: Vec::new(),
            peer,
        }
    }

    pub(crate) fn send(&mut self, bundle: Vec<u8>) {
        let outgoing = Outgoing {
            to: self.peer,
            service: blocks::BUNDLE,
            red: bundle.len() as u64,
            block: bundle.into(),
        };
        self.driver.engine().send(Instant::now(), outgoing).unwrap();
    }

    /// Receives until `count` bundles have come, or for `patience`.
    pub(crate) fn receive(&mut self, count: usize, patience: Duration) {
        let limit = Instant::now() + patience;
        while self.received.len() < count && Instant::now() < limit {
            self.driver.turn(Some(limit)).unwrap();
            while let Some(event) = self.driver.poll_event() {
                if let Event::RedPart { block, .. } = event {
                    self.received.push(block.into_bytes());
                }
            }
        }
        // The report of the last block leaves.
        self.driver.turn(Some(Instant::now())).unwrap();
    }

    /// Goes on until the node has stored or refused all that was sent.
    pub(crate) async fn settled(mut self) -> Self {
        let settling = tokio::task::spawn_blocking(move || {
            let limit = Instant::now() + PATIENCE;
            while self.driver.engine().sessions().0 > 0 && Instant::now() < limit {
                self.receive(self.received.len() + 1, Duration::from_millis(10));
            }
            assert_eq!(
                self.driver.engine().sessions().0,
                0,
                "blocks without an answer"
            );
            self
        });
        settling.await.unwrap()
    }
}
