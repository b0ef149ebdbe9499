//! Whole nodes between applications, and between engines of LTP.

use std::{net::SocketAddr, sync::Arc, time::Duration, vec};

use bytes::Bytes;
use hardy_bpv7::{
    builder::Builder,
    bundle::ParsedBundle,
    creation_timestamp::CreationTimestamp,
    dtn_time::DtnTime,
    eid::{Eid, Service},
};
use parking_lot::Mutex;
use starhaul_ltp::{EngineId, NumberWidth, Profile, SegmentSize};
use starhaul_net::{IoMode, PeerAddress};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{
    Checklist, Cost, LARGE_BYTES, SMALL_BYTES, Stopwatch, blocking, changed, ends, loopback,
    payload,
};
use crate::{
    Config, Error, LtpConfig, LtpPeer, Node, OneWay, Storage,
    app::App,
    ltp::blocks::{join, split},
    payload::Payload,
    plan::{ContactPlan, NodeId},
    security::Keys,
};

/// Applications that send at a time.
const SENDERS: u32 = 16;
/// How long nothing may arrive.
const SILENCE: Duration = Duration::from_secs(60);
const LIFETIME: Duration = Duration::from_secs(3600);
/// The application that receives.
const SERVICE: u32 = 100;
/// Bytes of a block of small bundles, as a node sends it.
const BLOCK_BYTES: usize = 64 << 10;
/// Small bundles between the source and the sink at a time.
const UNDER_WAY: u32 = 8192;
/// Large bundles between the applications at a time, as many as a node sends: more would only lie in its store, and the rate be that of
/// its growth.
const LARGE_UNDER_WAY: usize = 64;

/// Large bundles from an application of one node to that of its neighbour.
pub(super) async fn large(count: u32, storage: impl Fn(&str) -> Storage) -> Result<Cost, Error> {
    let far = Node::start(config(2, storage("far"), &[(1, None)])?).await?;
    let address = far.handle().ltp_address();
    let near = Node::start(config(1, storage("near"), &[(2, address)])?).await?;
    let (deliveries, mut delivered) = mpsc::channel(1);
    let (receiver, to) = far
        .handle()
        .open(Some(&SERVICE.to_string()), deliveries)
        .await?;
    let (unused, _) = mpsc::channel(1);
    let (sender, _) = near.handle().open(None, unused).await?;
    let all = Arc::new(Sending {
        payloads: Mutex::new(blocking(move || Ok(large_load(count))).await?),
        room: Semaphore::new(LARGE_UNDER_WAY),
    });
    let watch = Stopwatch::start();
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        sending.spawn(send(sender.clone(), to.clone(), all.clone()));
    }
    let mut list = Checklist::new(count, LARGE_BYTES);
    while list.left > 0 {
        let delivery = tokio::time::timeout(SILENCE, delivered.recv()).await;
        let lost = || Error::Bench(format!("{} large bundles are lost", list.left));
        let delivery = delivery.ok().flatten().ok_or_else(lost)?;
        list.arrived(&delivery.payload)?;
        all.room.add_permits(1);
        // The node may have given up waiting; then it comes twice, which the list notices.
        let _ = delivery.acknowledged.send(());
    }
    let cost = watch.stop();
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|error| Error::Bench(error.to_string()))??;
    }
    receiver.close().await;
    sender.close().await;
    near.shutdown().await;
    far.shutdown().await;
    Ok(cost)
}

/// What the applications that send share.
struct Sending {
    /// What is left to be sent.
    payloads: Mutex<vec::IntoIter<Payload>>,
    /// A permit for each bundle that may leave.
    room: Semaphore,
}

/// As before LTP alone, all payloads are there before it begins: as applications have filled them, and no code has read them.
fn large_load(count: u32) -> vec::IntoIter<Payload> {
    let payloads = (0..count).map(|number| Payload::prepared(&payload(number, LARGE_BYTES)));
    payloads.collect::<Vec<_>>().into_iter()
}

async fn send(app: Arc<App>, to: Eid, all: Arc<Sending>) -> Result<(), Error> {
    loop {
        let next = all.payloads.lock().next();
        let Some(payload) = next else {
            return Ok(());
        };
        // It comes back when a bundle has arrived.
        if let Ok(permit) = all.room.acquire().await {
            permit.forget();
        }
        let sent = app
            .send_prepared(to.clone(), payload, LIFETIME, false)
            .await;
        sent?;
    }
}

/// Small bundles from one engine through a node to another engine.
pub(super) async fn small(count: u32, storage: Storage) -> Result<Cost, Error> {
    let sink = ends::engine(3, 2, None)?;
    let peers = [(1, None), (3, Some(sink.local_addr()))];
    let node = Node::start(config(2, storage, &peers)?).await?;
    let source = ends::engine(1, 2, node.handle().ltp_address())?;
    let cost = blocking(move || {
        let load = small_load(count)?;
        let mut blocks = Vec::new();
        let cost = ends::carry(source, &load, sink, |block| {
            blocks.push(block);
            Ok(())
        })?;
        let mut list = Checklist::new(count, SMALL_BYTES);
        for (service, block) in blocks {
            let bundles = split(service, &block.into_bytes());
            for bundle in bundles.map_err(|error| Error::Bench(error.to_string()))? {
                let parsed = ParsedBundle::parse(&bundle, hardy_bpv7::bpsec::no_keys);
                let parsed = parsed.map_err(|_| changed())?.bundle;
                let block = parsed.blocks.get(&1).ok_or_else(changed)?;
                list.arrived(bundle.get(block.payload_range()).unwrap_or_default())?;
            }
        }
        match list.left {
            0 => Ok(cost),
            left => Err(Error::Bench(format!("{left} small bundles are lost"))),
        }
    });
    let cost = cost.await;
    node.shutdown().await;
    cost
}

fn small_load(count: u32) -> Result<ends::Load, Error> {
    let (source, to) = (endpoint(1)?, endpoint(3)?);
    let mut blocks = Vec::new();
    let (mut bundles, mut bytes) = (Vec::new(), 0);
    for number in 0..count {
        let bundle = small_bundle(&source, &to, number)?;
        bytes += bundle.len() + 1;
        bundles.push(bundle);
        if bytes >= BLOCK_BYTES || number + 1 == count {
            let block = match bundles.as_slice() {
                [one] => one.clone(),
                all => join(all),
            };
            blocks.push((block, u32::try_from(bundles.len()).unwrap_or(u32::MAX)));
            bundles.clear();
            bytes = 0;
        }
    }
    Ok(ends::Load {
        to: EngineId(2),
        blocks,
        bundles: count,
        under_way: UNDER_WAY,
    })
}

fn small_bundle(source: &Eid, to: &Eid, number: u32) -> Result<Bytes, Error> {
    let builder = Builder::new(source.clone(), to.clone())
        .with_lifetime(LIFETIME)
        .with_payload(payload(number, SMALL_BYTES).into());
    let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number.into());
    let built = builder.build(stamp);
    let (_, data) = built.map_err(|error| Error::Bench(error.to_string()))?;
    Ok(data.into_vec().into())
}

fn endpoint(node: u64) -> Result<Eid, Error> {
    let endpoint = Eid::try_from((self::node(node)?, Service::Ipn(SERVICE)));
    endpoint.map_err(|error| Error::Bench(error.to_string()))
}

fn node(number: u64) -> Result<NodeId, Error> {
    let node = format!("ipn:{number}.0").parse();
    node.map_err(|_| Error::Bench("no node number".to_owned()))
}

fn config(
    number: u64,
    storage: Storage,
    peers: &[(u64, Option<SocketAddr>)],
) -> Result<Config, Error> {
    let peers = peers.iter().map(|(peer, address)| {
        Ok(LtpPeer {
            node: node(*peer)?,
            engine: EngineId(*peer),
            address: address.map(PeerAddress::At),
            light_time: Duration::ZERO,
            rate: None,
            segment: SegmentSize::Auto,
            profile: Profile::default(),
            repair: None,
            one_way: OneWay::No,
            key: None,
        })
    });
    Ok(Config {
        node: node(number)?,
        control: None,
        storage,
        ltp: Some(LtpConfig {
            engine: EngineId(number),
            listen: loopback(),
            numbers: NumberWidth::default(),
            mode: IoMode::default(),
            peers: peers.collect::<Result<_, Error>>()?,
        }),
        tcp: None,
        routes: Vec::new(),
        priorities: Vec::new(),
        plan: ContactPlan::default(),
        keys: Keys::default(),
        status_reports: false,
        metrics: None,
    })
}
