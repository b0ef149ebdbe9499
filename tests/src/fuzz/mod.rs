//! The bodies of the fuzz targets: each takes any bytes and panics when a promise is broken. `fuzz/` runs them under
//! libFuzzer; the ordinary tests replay the corpora in `fuzz/corpus`.

mod control;
mod dtn;
mod flow;
mod gateway;
mod leotp;
mod leotp_hostile;
mod leotp_network;
mod leotp_streams;
mod link;
mod ltp;
mod network;
mod node;
mod orbit;
mod prober;
mod record;
mod session;

pub use control::{congestion_control, path_monitor};
pub use dtn::{dtn_block, dtn_config, dtn_flow, dtn_log, dtn_plan, dtn_tcpcl};
pub use flow::lab_flow;
pub use gateway::{
    gateway_config, gateway_control, gateway_label, gateway_quotas, gateway_status, gateway_text,
    rtp, socks5, tunnel,
};
pub use leotp::{leotp_chain, leotp_node, leotp_packet, relay_config};
pub use leotp_hostile::leotp_hostile;
pub use leotp_streams::{Endings as StreamEndings, run as run_streams};
pub use link::{link_convert, link_spec, link_trace};
pub use ltp::{delivered_between_engines, ltp_engine, ltp_pair, ltp_segment};
pub use network::network_news;
pub use node::{NodeReport, quic_node, run_nodes};
pub use orbit::{orbit_elements, orbit_text};
pub use prober::{detector, prober_datagram, prober_search};
pub use record::{record_datagram, record_journal, record_session};
pub use session::{fec_decode, quic_handshake, session_datagram, session_pair};

/// The body of a target.
pub type Body = fn(&[u8]);

/// All targets, by the name of the file and of the corpus folder.
pub const TARGETS: [(&str, Body); 44] = [
    ("congestion_control", congestion_control),
    ("detector", detector),
    ("dtn_block", dtn_block),
    ("dtn_config", dtn_config),
    ("dtn_flow", dtn_flow),
    ("dtn_log", dtn_log),
    ("dtn_plan", dtn_plan),
    ("dtn_tcpcl", dtn_tcpcl),
    ("fec_decode", fec_decode),
    ("gateway_config", gateway_config),
    ("gateway_control", gateway_control),
    ("gateway_label", gateway_label),
    ("gateway_quotas", gateway_quotas),
    ("gateway_status", gateway_status),
    ("gateway_text", gateway_text),
    ("lab_flow", lab_flow),
    ("leotp_chain", leotp_chain),
    ("leotp_hostile", leotp_hostile),
    ("leotp_node", leotp_node),
    ("leotp_packet", leotp_packet),
    ("leotp_streams", leotp_streams),
    ("link_convert", link_convert),
    ("link_spec", link_spec),
    ("link_trace", link_trace),
    ("ltp_engine", ltp_engine),
    ("ltp_pair", ltp_pair),
    ("ltp_segment", ltp_segment),
    ("network_news", network_news),
    ("orbit_elements", orbit_elements),
    ("orbit_text", orbit_text),
    ("path_monitor", path_monitor),
    ("prober_datagram", prober_datagram),
    ("prober_search", prober_search),
    ("quic_handshake", quic_handshake),
    ("record_datagram", record_datagram),
    ("record_journal", record_journal),
    ("record_session", record_session),
    ("quic_node", quic_node),
    ("relay_config", relay_config),
    ("rtp", rtp),
    ("session_datagram", session_datagram),
    ("session_pair", session_pair),
    ("socks5", socks5),
    ("tunnel", tunnel),
];

/// Streams over a LEOTP network under random operations.
pub fn leotp_streams(data: &[u8]) {
    run_streams(data);
}

/// Splits fuzzer input into parts, each after its length in two bytes; the last may be truncated.
pub fn parts(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (part, rest) = rest.split_at(length);
        data = rest;
        Some(part)
    })
}

/// The inverse of [`parts`].
pub fn join<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in parts {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        joined.extend(length.to_be_bytes());
        joined.extend(&part[..usize::from(length)]);
    }
    joined
}
