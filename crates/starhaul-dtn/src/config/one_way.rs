//! Neighbours over LTP to which, or from which, nothing comes back: what must be known of such a link, and what fits with it.

use starhaul_config::{Table, definition::names};
use starhaul_ltp::RepairRate;
use starhaul_units::Bandwidth;

use super::{LtpPeer, TcpConfig};
use crate::{
    Error,
    plan::{Contact, ContactPlan, Moment, NodeId},
};

/// Which way a link over LTP carries segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OneWay {
    /// In both directions.
    #[default]
    No,
    /// To the neighbour alone: it acknowledges nothing, so that a bundle counts as sent when it has left.
    Out,
    /// From the neighbour alone: nothing is sent to it, no report either.
    In,
}

/// The values as the configuration spells them.
pub(super) const WAYS: [(&str, OneWay); 3] =
    [("no", OneWay::No), ("out", OneWay::Out), ("in", OneWay::In)];
pub(super) const WAY_NAMES: [&str; WAYS.len()] = names(&WAYS);

/// Checks what a neighbour's table says of a link without a way back. Its rate may come from the plan.
pub(super) fn check(table: &Table<'_>, peer: &LtpPeer) -> Result<(), Error> {
    if peer.one_way != OneWay::Out {
        return Ok(());
    }
    let missing = match (&peer.address, peer.rate, peer.repair) {
        (None, ..) => "it never speaks: write its address",
        (_, None, _) => {
            "nobody reports how fast segments may leave: write rate, or the same rate in all contacts of the plan"
        }
        (.., None | Some(RepairRate::Auto)) => {
            "nobody asks for what is lost: write the share of segments that is, as repair = \"5%\""
        }
        _ => return Ok(()),
    };
    Err(table.key_problem("one_way", missing).into())
}

/// Checks that the plan sends nothing to neighbours from which the link leads here alone, unless it goes over TCPCLv4.
pub(super) fn check_plan(
    table: &Table<'_>,
    peer: &LtpPeer,
    own: &NodeId,
    plan: &ContactPlan,
    tcp: Option<&TcpConfig>,
) -> Result<(), Error> {
    let is_sent_to = plan.knows(own, &peer.node) && !is_over_tcp(&peer.node, tcp);
    if peer.one_way != OneWay::In || !is_sent_to {
        return Ok(());
    }
    let problem = format!(
        "the plan has contacts from here to {}, and nothing is sent there: write both_ways = false in its own",
        peer.node
    );
    Err(table.key_problem("one_way", problem).into())
}

/// Contacts without an end from neighbours to which nothing is sent, and that the plan does not name: it knows then that none leads there.
pub(super) fn arrivals(
    peers: &[LtpPeer],
    own: &NodeId,
    plan: &ContactPlan,
    tcp: Option<&TcpConfig>,
) -> Vec<Contact> {
    let silent = peers.iter().filter(|peer| {
        peer.one_way == OneWay::In && !plan.knows(&peer.node, own) && !is_over_tcp(&peer.node, tcp)
    });
    let arrival = silent.map(|peer| Contact {
        from: peer.node.clone(),
        to: own.clone(),
        start: Moment::default(),
        end: Moment::MAX,
        rate: peer.rate.unwrap_or(Bandwidth::MAX),
        light_time: peer.light_time,
    });
    arrival.collect()
}

fn is_over_tcp(node: &NodeId, tcp: Option<&TcpConfig>) -> bool {
    let mut peers = tcp.iter().flat_map(|tcp| &tcp.peers);
    peers.any(|peer| peer.node == *node)
}
