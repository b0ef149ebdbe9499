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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn networks_of_open_connections_stay_but_not_without_end() {
        // None beside another, so that none are joined.
        let net = |number: u32| {
            let address = Ipv4Addr::from(number << 9);
            IpNet::new(address.into(), 24).unwrap()
        };
        assert_eq!(with_open(&[net(2)], &[net(1)]), [net(1), net(2)]);
        let mut open = Vec::new();
        for number in 0..5000 {
            open = with_open(&[net(number)], &open);
            assert!(open.contains(&net(number)) && open.len() <= 1 + MOST_FORMER);
        }
    }
}
