//! Two endpoints in one process, with two emulated paths that lose packets between them: blocks go over, outcomes come back.
//! `cargo run --release -p starhaul-endpoint --example blocks`

use std::time::Duration;

use bytes::Bytes;
use starhaul_endpoint::{
    BlockOptions, ControllerConfig, Endpoint, EndpointConfig, Identity, IncomingStream, Outcome,
    PathSpec, StreamConfig,
};
use starhaul_replay::{Emulator, RelaySpec};

const BLOCKS: usize = 200;
const BLOCK_BYTES: usize = 20_000;
const INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (alice, bob) = (Identity::generate(), Identity::generate());
    let receiver = Endpoint::bind(EndpointConfig {
        trusted: vec![alice.public_key()],
        listen: vec!["127.0.0.1:0".parse()?],
        ..EndpointConfig::new(bob.clone())
    })
    .await?;
    let sender = Endpoint::bind(EndpointConfig::new(alice)).await?;

    let target = *receiver
        .listen_addresses()
        .first()
        .ok_or("one address was asked for")?;
    let relay = |link: &str, seed| -> Result<RelaySpec, starhaul_link::Error> {
        Ok(RelaySpec {
            target,
            forward: link.parse()?,
            reverse: link.parse()?,
            seed,
        })
    };
    let emulator = Emulator::start(vec![
        relay("rate=20mbit,delay=25ms,loss=2%", 1)?,
        relay("rate=10mbit,delay=80ms,loss=2%", 2)?,
    ])?;
    let paths = ["near", "far"].into_iter().zip(emulator.relays());
    let paths = paths
        .map(|(name, relay)| PathSpec {
            // Random loss would keep Cubic far below what these paths carry.
            controller: ControllerConfig::Bbr,
            ..PathSpec::new(name, relay.address())
        })
        .collect();

    tokio::spawn(receive(receiver));
    let session = sender.connect(bob.public_key(), paths).await?;
    let stream = session
        .open_stream(StreamConfig {
            deadline: Duration::from_millis(300),
            label: Bytes::from_static(b"example"),
            ..StreamConfig::default()
        })
        .await?;
    let mut handles = Vec::new();
    let mut clock = tokio::time::interval(INTERVAL);
    for _ in 0..BLOCKS {
        clock.tick().await;
        handles
            .push(stream.send_block(Bytes::from(vec![7; BLOCK_BYTES]), BlockOptions::default())?);
    }
    let (mut on_time, mut slowest) = (0, Duration::ZERO);
    for handle in handles {
        let (id, outcome) = (handle.id(), handle.outcome().await);
        match outcome {
            Outcome::Delivered {
                on_time: true,
                latency,
                ..
            } => {
                on_time += 1;
                slowest = slowest.max(latency);
            }
            other => println!("block {}: {other:?}", id.0),
        }
    }
    println!("{on_time} of {BLOCKS} blocks on time, the slowest after {slowest:?}");
    for stats in session.stream_stats() {
        println!(
            "recovered by redundancy {}, by retransmission {}",
            stats.recovered_by_redundancy, stats.recovered_by_retransmission
        );
    }
    for path in session.path_status() {
        let stats = path.stats;
        println!(
            "path {}: {} bytes sent",
            path.name,
            stats.map_or(0, |stats| stats.bytes_sent)
        );
    }
    sender.close().await;
    Ok(())
}

async fn receive(endpoint: Endpoint) {
    while let Some(session) = endpoint.accept().await {
        while let Some(stream) = session.accept_stream().await {
            if let IncomingStream::Blocks(mut stream) = stream {
                while let Some(block) = stream.recv_block().await {
                    assert_eq!(block.data.len(), BLOCK_BYTES);
                }
            }
        }
    }
}
