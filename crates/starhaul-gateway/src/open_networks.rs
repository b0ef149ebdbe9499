//! The networks of transparent sockets whose connections go on when the configuration has them no more.

use ipnet::IpNet;
use starhaul_net::Prefix;

/// Networks of earlier configurations that are remembered at most: connections do not last for ever.
const MOST_FORMER: usize = 1024;

/// These networks, and those of connections that may be open since an earlier configuration.
pub(crate) fn with_open(networks: &[IpNet], open: &[IpNet]) -> Vec<IpNet> {
    let all = IpNet::aggregate(&[networks, open].concat());
    match all.len() > networks.len() + MOST_FORMER {
        true => IpNet::aggregate(&networks.to_vec()),
        false => all,
    }
}

/// Networks as nftables takes them into one set: none within another.
pub(crate) fn prefixes(networks: &[IpNet]) -> Vec<Prefix> {
    let apart = IpNet::aggregate(&networks.to_vec());
    let apart = apart.iter();
    apart.map(|net| (net.addr(), net.prefix_len())).collect()
}
