//! A TUN device with its addresses and routes, for the async runtime.

use std::io;

use bytes::{Bytes, BytesMut};
use starhaul_net::{AsyncTun, Prefix, Routing, Tun};
use tokio::task::coop::consume_budget;

use crate::config::DeviceRule;

/// Packets read before other tasks get a turn.
const BURST: usize = 64;
/// Packets that the kernel keeps while the gateway is busy.
const QUEUE_PACKETS: u32 = 1000;
/// Packets are read into buffers of this size, several into one.
const BUFFER_BYTES: usize = 256 << 10;

/// A device that is up; it goes when dropped, and its routes with it.
#[derive(Debug)]
pub(crate) struct Device {
    tun: AsyncTun,
    mtu: usize,
}

impl Device {
    /// Creates a device with the addresses and routes of a rule.
    pub(crate) fn create(rule: &DeviceRule) -> io::Result<Self> {
        let tun = Tun::create(&rule.name)?;
        let routing = Routing::open()?;
        let interface = tun.index();
        routing.set_up_as(interface, rule.mtu.into(), QUEUE_PACKETS)?;
        for address in &rule.addresses {
            routing.add_network(interface, (address.addr(), address.prefix_len()))?;
        }
        // The kernel adds the networks of the addresses itself.
        let is_new = |network: &&ipnet::IpNet| {
            let mut own = rule.addresses.iter();
            !own.any(|address| address.trunc() == **network)
        };
        if rule.add_routes {
            for network in rule.networks.iter().filter(is_new) {
                let to: Prefix = (network.addr(), network.prefix_len());
                let added = routing.add_route_to(interface, to);
                added.map_err(|error| {
                    io::Error::new(error.kind(), format!("route to {network}: {error}"))
                })?;
            }
        }
        Ok(Self {
            tun: AsyncTun::new(tun)?,
            mtu: rule.mtu.into(),
        })
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

/// A packet as a block, which holds no more memory than its own.
pub(super) fn block(packet: BytesMut) -> Bytes {
    Bytes::copy_from_slice(&packet)
}
