//! The messages between the hosts of flows.

use starhaul_cc::Reconfiguration;
use starhaul_link::Band;

use crate::{ACK_BYTES, Ack, DataPacket, PACKET_BYTES};

/// An ICMP echo of 56 bytes with its headers.
const PROBE_BYTES: usize = 84;

/// The load of a packet.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A data packet of the flow with this number.
    Data(usize, DataPacket),
    /// An acknowledgement of the flow with this number.
    Ack(usize, Ack),
    /// A probe of the satellite link.
    Probe(u64),
    /// The answer to the probe with this number.
    Echo(u64),
    /// A reconfiguration found by the receiving end's detector, for all flows.
    News(Reconfiguration),
}

impl starhaul_sim::Load for Message {
    fn bytes(&self) -> usize {
        match self {
            Self::Data(..) => usize::try_from(PACKET_BYTES).unwrap_or(usize::MAX),
            Self::Ack(..) | Self::News(_) => ACK_BYTES,
            Self::Probe(_) | Self::Echo(_) => PROBE_BYTES,
        }
    }

    fn band(&self) -> Band {
        match self {
            Self::Data(..) | Self::Ack(..) | Self::News(_) => Band::Data,
            Self::Probe(_) | Self::Echo(_) => Band::Icmp,
        }
    }
}
