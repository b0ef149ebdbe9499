//! `starhaul serve`, `relay` and `fetch` along a chain.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use starhaul_replay::{Chain, Program};

use super::{Figures, Hops, Killed, folder::Folder};
use crate::{
    Error,
    realtime::{Bench, Measured, said},
    worlds::chain::LEOTP_PAYLOAD_SHARE,
};

/// How often the requester is looked after while it must not have ended.
const ROUND: Duration = Duration::from_millis(5);

/// What `fetch --json` tells, as far as it counts here.
#[derive(Deserialize)]
struct Fetched {
    mbit_per_s: f64,
    longest_pause_ms: f64,
}

/// Fetches what takes the run's time at the ceiling. A relay may be killed after half of the time, and started again.
pub(super) fn run(
    bench: &Bench,
    hops: &Hops,
    seed: u64,
    killed: Option<Killed>,
) -> Result<Measured<Figures>, Error> {
    let bytes = hops.rate.scaled(LEOTP_PAYLOAD_SHARE).bytes_in(hops.time());
    let folder = Folder::new(&bench.program, hops.count, bytes, seed)?;
    let links = hops.links(seed);
    let Measured {
        metrics: text,
        valid,
    } = bench.along(&links, |chain| fetch(chain, &folder, hops, killed))?;
    if !folder.is_whole()? {
        return Err(Error::Failed(
            "what was fetched is not what was served".to_owned(),
        ));
    }
    let fetched: Fetched = serde_json::from_str(&text)
        .map_err(|error| Error::Failed(format!("{error} in what fetch said: {text}")))?;
    Ok(Measured {
        metrics: Figures {
            goodput_mbps: fetched.mbit_per_s,
            longest_pause_ms: Some(fetched.longest_pause_ms),
        },
        valid,
    })
}

fn fetch(
    chain: &Chain,
    folder: &Folder,
    hops: &Hops,
    killed: Option<Killed>,
) -> Result<String, Error> {
    let _server = chain.serve(hops.count, &folder.server(hops.count))?;
    let mut relays = relays(chain, folder, hops)?;
    let from = address(chain, 1)?;
    said(chain, &folder.requester(from), |requester| {
        let Some(killed) = killed else {
            return Ok(());
        };
        let half = Instant::now() + hops.time() / 2;
        while Instant::now() < half && !requester.is_over() {
            thread::sleep(ROUND);
        }
        let node = match killed {
            Killed::Middle => hops.count / 2,
            Killed::First => 1,
        };
        if let Some(relay) = relays.remove(&node) {
            if relay.is_over() {
                return Err(Error::Failed(format!(
                    "the relay of node {node} ended by itself; what it said stands above"
                )));
            }
            relay.kill();
        }
        thread::sleep(killed.away());
        if requester.is_over() {
            return Err(Error::Failed(
                "the requester ended before a relay was killed; what it said stands above"
                    .to_owned(),
            ));
        }
        relays.insert(node, relay(chain, folder, node)?);
        Ok(())
    })
}

/// A relay in each node between the first and the last.
pub(super) fn relays(
    chain: &Chain,
    folder: &Folder,
    hops: &Hops,
) -> Result<BTreeMap<usize, Program>, Error> {
    let nodes = (1..hops.count).rev();
    nodes
        .map(|node| Ok((node, relay(chain, folder, node)?)))
        .collect()
}

fn relay(chain: &Chain, folder: &Folder, node: usize) -> Result<Program, Error> {
    let command = folder.relay(node, address(chain, node + 1)?)?;
    Ok(chain.serve(node, &command)?)
}

pub(super) fn address(chain: &Chain, node: usize) -> Result<std::net::IpAddr, Error> {
    let missing = || Error::Failed(format!("node {node} has no address"));
    chain.address(node).ok_or_else(missing)
}
