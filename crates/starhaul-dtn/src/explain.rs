//! The values of LTP that a node computes for its neighbours, for people.

use starhaul_ltp::{Explained, NumberWidth, RepairRate};
use starhaul_net::{HostMemory, host_memory};

use crate::{
    config::{Config, LtpConfig, LtpPeer, OneWay},
    ltp::settings,
    node::{usual_windows, window_over},
    plan::NodeId,
    priority::Class,
};

impl Config {
    /// Every value of LTP that a node on this host has for each of its neighbours over LTP, given or computed, and why it has it.
    pub fn explain(&self) -> Vec<(NodeId, Vec<Explained>)> {
        explain(self)
    }
}

fn explain(config: &Config) -> Vec<(NodeId, Vec<Explained>)> {
    let (host, bundle_bytes) = (host_memory(), config.storage.bundle_bytes);
    let Some(ltp) = &config.ltp else {
        return Vec::new();
    };
    // It takes no part in what is told.
    let engine = settings::engine(ltp, bundle_bytes, [0; 32], host);
    let of_peer = |peer: &LtpPeer| {
        let settings = settings::peer(peer, bundle_bytes, host);
        let mut rows = settings.explain();
        rows.extend(given(ltp, peer));
        rows.push(Explained::new(
            "longest block",
            format!("{} bytes", settings.longest_block(engine.receive_memory)),
            "max_bundle_bytes and 1 MiB for the other blocks of a bundle; one that is longer is refused when that is known",
        ));
        rows.push(Explained::new(
            "receive memory of all",
            format!("{} bytes", engine.receive_memory),
            reason_of_memory(host),
        ));
        rows.extend(under_way(config, ltp, &peer.node));
        (peer.node.clone(), rows)
    };
    ltp.peers.iter().map(of_peer).collect()
}

/// What the configuration says beside what the engine tells of itself.
fn given(ltp: &LtpConfig, peer: &LtpPeer) -> [Explained; 5] {
    let numbers = match ltp.numbers {
        NumberWidth::Bits32 => "32 bits",
        NumberWidth::Bits64 => "64 bits",
    };
    let repair = match peer.repair {
        None => "none".to_owned(),
        Some(RepairRate::Auto) => "auto, none at first".to_owned(),
        Some(rate) => format!("for {rate} lost"),
    };
    let way = match peer.one_way {
        OneWay::No => "no",
        OneWay::Out => "out: nothing is acknowledged or sent again",
        OneWay::In => "in: nothing is sent, no report either",
    };
    let key = match peer.key.is_some() {
        true => "of a file",
        false => "none",
    };
    [
        Explained::new(
            "session numbers",
            numbers.to_owned(),
            "given, or 32 bits, which every engine knows; of what this node sends",
        ),
        Explained::new(
            "system calls",
            ltp.mode.name().to_owned(),
            "given, or segmentation offload, which takes the least time",
        ),
        Explained::new(
            "repair segments",
            repair,
            "given; auto follows what reports show to be lost, and without any what is lost is sent again",
        ),
        Explained::new("one way", way.to_owned(), "given, or both ways"),
        Explained::new(
            "key",
            key.to_owned(),
            "given; segments without its signature are dropped (RFC 5327)",
        ),
    ]
}

/// How many bytes of bundles leave before the first of them is acknowledged.
fn under_way(config: &Config, ltp: &LtpConfig, node: &NodeId) -> Vec<Explained> {
    let window = window_over(ltp);
    let mut rows = vec![Explained::new(
        "bundles under way",
        format!("{window} bytes"),
        "what the link that carries most in three round trips carries in them, from 64 MiB to 1 GiB; those of all neighbours share as much, or 512 MiB",
    )];
    let is_any_urgent = config
        .priorities
        .iter()
        .any(|(_, class)| *class == Class::Urgent);
    let usual = usual_windows(ltp).remove(node).filter(|_| is_any_urgent);
    rows.extend(usual.map(|usual| {
        Explained::new(
            "not urgent",
            format!("{} bytes of them", usual.min(window)),
            "what the link carries in three round trips and a second, so that urgent bundles wait for few",
        )
    }));
    rows
}

fn reason_of_memory(host: Option<HostMemory>) -> &'static str {
    match host {
        Some(HostMemory {
            is_limited: true, ..
        }) => {
            "a quarter of what the control group of the node allows, from 64 MiB to 8 GiB, and room for two blocks in any case"
        }
        Some(_) => {
            "a quarter of this host's memory, from 64 MiB to 8 GiB, and room for two blocks in any case"
        }
        None => "8 GiB: this host does not tell how much memory it has",
    }
}
