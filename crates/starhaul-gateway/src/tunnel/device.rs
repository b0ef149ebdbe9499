//! A TUN device with its addresses and routes, for the async runtime.

use std::io;

use bytes::BytesMut;
use ipnet::IpNet;
use rustix::io::Errno;
use starhaul_net::{AsyncTun, Prefix, Routing, Tun};
use tokio::task::coop::consume_budget;

use crate::config::DeviceRule;

/// Packets read before other tasks get a turn.
const BURST: usize = 64;
/// Packets that the kernel keeps while the gateway is busy.
const QUEUE_PACKETS: u32 = 1000;
/// Packets are read into buffers of this size, several into one.
const BUFFER_BYTES: usize = 256 << 10;

/// A device; it goes when dropped, and its routes with it.
#[derive(Debug)]
pub(crate) struct Device {
    tun: AsyncTun,
    mtu: usize,
    /// IPv6 was switched off when it was created: it has none of the addresses and routes.
    lacks_ipv6: bool,
}

impl Device {
    /// Creates a device with the addresses and routes of a rule.
    pub(crate) fn create(rule: &DeviceRule) -> io::Result<Self> {
        let tun = Tun::create(&rule.name)?;
        let routing = Routing::open()?;
        let interface = tun.index();
        routing.set_up_as(interface, rule.mtu.into(), QUEUE_PACKETS)?;
        // A tunnel of both versions of IP is one of IPv4 where there is no IPv6.
        let has_ipv4 = rule.addresses.iter().any(|own| own.addr().is_ipv4());
        let mut lacks_ipv6 = false;
        let mut check = |what: &str, network: &IpNet, added: io::Result<()>| match added {
            Err(error) if has_ipv4 && has_no_ipv6(network, &error) => {
                lacks_ipv6 = true;
                Ok(())
            }
            other => other.map_err(|error| {
                io::Error::new(error.kind(), format!("{what} {network}: {error}"))
            }),
        };
        for address in &rule.addresses {
            let added = routing.add_network(interface, prefix(address));
            check("address", address, added)?;
        }
        for network in routes(rule) {
            let added = routing.add_route_to(interface, prefix(&network));
            check("route to", &network, added)?;
        }
        if lacks_ipv6 {
            let device = tun.name();
            tracing::warn!(
                device,
                "IPv6 is switched off on this host: the tunnel carries IPv4 alone"
            );
        }
        Ok(Self {
            tun: AsyncTun::new(tun)?,
            mtu: rule.mtu.into(),
            lacks_ipv6,
        })
    }

    /// Adds those addresses and routes of the rule that are gone: other programs remove some, and an interface that was set down and up
    /// lacks most. Returns whether there were any. One that is down is left alone.
    pub(crate) fn restore(&self, rule: &DeviceRule) -> io::Result<bool> {
        let (routing, interface) = (Routing::open()?, self.tun.get().index());
        if !routing.interface(interface)?.is_up {
            return Ok(false);
        }
        let addresses = rule.addresses.iter();
        let addresses = addresses.map(|own| (*own, routing.add_network(interface, prefix(own))));
        let connected = connected(rule).map(|network| {
            let added = routing.add_connected_route(interface, prefix(&network));
            (network, added)
        });
        let routes = routes(rule).map(|network| {
            let added = routing.add_route_to(interface, prefix(&network));
            (network, added)
        });
        let (mut were_gone, mut refused) = (false, None);
        for (network, added) in addresses.chain(connected).chain(routes) {
            match added {
                Ok(()) => were_gone = true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // It was told when the device was created.
                Err(error) if self.lacks_ipv6 && has_no_ipv6(&network, &error) => {}
                // One version of IP may have been switched off.
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(were_gone), Err)
    }

    /// Its name, with the number that the kernel chose.
    pub(crate) fn name(&self) -> &str {
        self.tun.get().name()
    }

    /// Waits for packets and passes some to `take`.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) async fn read(
        &self,
        buffer: &mut BytesMut,
        mut take: impl FnMut(BytesMut),
    ) -> io::Result<()> {
        // Waiting for readiness costs no budget: a busy device would keep other tasks from running.
        consume_budget().await;
        let read = |tun: &Tun| {
            if buffer.len() < self.mtu {
                *buffer = BytesMut::zeroed(BUFFER_BYTES.max(self.mtu));
            }
            let length = tun.try_read(buffer)?;
            if let Some(length) = length {
                take(buffer.split_to(length));
            }
            Ok(length.is_some())
        };
        self.tun.read(BURST, read).await
    }

    /// Passes a packet to the kernel.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        self.tun.get().write(packet)
    }
}

/// The networks of the rule that need a route: the kernel adds those of the addresses itself. All addresses are two halves, which go before
/// the host's default routes whatever the metric of these.
fn routes(rule: &DeviceRule) -> impl Iterator<Item = IpNet> {
    let networks = rule.networks.iter().filter(|_| rule.add_routes);
    let networks = networks.filter(|network| {
        let mut own = rule.addresses.iter();
        !own.any(|address| address.trunc() == **network)
    });
    networks.flat_map(|network| {
        let least = network.prefix_len().max(1);
        network.subnets(least).into_iter().flatten()
    })
}

/// Those to which the kernel adds routes itself.
fn connected(rule: &DeviceRule) -> impl Iterator<Item = IpNet> {
    let own = rule.addresses.iter().filter(|_| rule.add_routes);
    let networks = own.filter(|own| (1..own.max_prefix_len()).contains(&own.prefix_len()));
    networks.map(IpNet::trunc)
}

/// Whether the kernel refused an address or route because IPv6 is switched off: on the device, or altogether.
fn has_no_ipv6(network: &IpNet, error: &io::Error) -> bool {
    let refusals = [Errno::ACCESS, Errno::OPNOTSUPP].map(Some);
    network.addr().is_ipv6() && refusals.contains(&Errno::from_io_error(error))
}

fn prefix(network: &IpNet) -> Prefix {
    (network.addr(), network.prefix_len())
}
