//! noq's multipath QUIC on sockets of both hosts, with each of its controllers: a connection over both paths for each stream of the
//! offer, as in virtual time, and each block a QUIC stream of its own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use starhaul_demo::baseline::{ConnectionId, Controller, Driver, Handle, MpQuicEvent, MpQuicNode};
use starhaul_replay::{Host, Hosts};
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError};

use super::{
    Arrivals, BlockSender, BlockSystem, CHEAP, DEAR, Offer, OfferedBlock, at, socket_address,
    task::Task,
};
use crate::{Error, worlds::stack::mpquic_name};

const LABEL: &str = "blocks";
const PORT: u16 = 4434;
/// How long the connections may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_millis(5);
/// Of the keys, which protect nothing of value.
const SEED: u64 = 1;

/// By the path that it fills first, and its controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct MpQuic {
    name: &'static str,
    paths: [usize; 2],
    controller: Controller,
}

impl MpQuic {
    pub(super) const ALL: [Self; 4] = [
        Self::new(
            mpquic_name(Controller::NewReno),
            [CHEAP, DEAR],
            Controller::NewReno,
        ),
        Self::new("mpquic-dear", [DEAR, CHEAP], Controller::NewReno),
        Self::new(
            mpquic_name(Controller::Cubic),
            [CHEAP, DEAR],
            Controller::Cubic,
        ),
        Self::new(mpquic_name(Controller::Bbr), [CHEAP, DEAR], Controller::Bbr),
    ];

    const fn new(name: &'static str, paths: [usize; 2], controller: Controller) -> Self {
        Self {
            name,
            paths,
            controller,
        }
    }
}

impl BlockSystem for MpQuic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        None
    }

    fn open<'h>(
        &self,
        hosts: &'h Hosts,
        offer: &Offer,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn BlockSender + 'h>, Error> {
        let [first, second] = self
            .paths
            .map(|link| socket_address(hosts, Host::Far, link, PORT));
        let remotes = [first?, second?];
        let start = |host, is_server: bool, port| {
            at(hosts, host, || {
                let node = MpQuicNode::new(
                    is_server,
                    self.controller,
                    SEED,
                    SEED ^ u64::from(is_server),
                )?;
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
                Ok(Driver::start(node, any)?)
            })
        };
        let (receiver, mut received) = start(Host::Far, true, PORT)?;
        let (sender, mut events) = start(Host::Near, false, 0)?;
        let reader = Task::start("mpquic-receiver", {
            let arrivals = arrivals.clone();
            move |_| {
                // Ends with the receiver.
                while let Some(event) = received.blocking_recv() {
                    if let MpQuicEvent::BlockReceived { data, .. } = event {
                        arrivals.arrived(Instant::now(), &data);
                    }
                }
            }
        })?;
        let handle = sender.handle();
        let ends = Ends {
            _sender: sender,
            _receiver: receiver,
            _reader: reader,
        };
        let connect = |_| handle.connect(LABEL, &remotes).map_err(Error::from);
        let connections = offer.streams.iter().map(connect);
        let connections = connections.collect::<Result<Vec<_>, Error>>()?;
        until_connected(&mut events, connections.len())?;
        Ok(Box::new(MpQuicSender {
            handle,
            connections,
            events,
            _ends: ends,
        }))
    }
}

struct MpQuicSender {
    handle: Handle,
    /// In the order of the streams.
    connections: Vec<ConnectionId>,
    events: UnboundedReceiver<MpQuicEvent>,
    _ends: Ends,
}

/// In the order in which they must end.
struct Ends {
    _sender: Driver,
    _receiver: Driver,
    _reader: Task,
}

impl BlockSender for MpQuicSender {
    fn offer(&mut self, block: OfferedBlock) -> Result<(), Error> {
        self.check()?;
        let missing = || Error::Failed(format!("there is no stream {}", block.stream));
        let connection = self.connections.get(block.stream).ok_or_else(missing)?;
        self.handle.send_block(*connection, block.data);
        Ok(())
    }

    fn check(&mut self) -> Result<(), Error> {
        loop {
            match self.events.try_recv() {
                Ok(MpQuicEvent::Lost { reason, .. }) => {
                    return Err(Error::Flow(format!("multipath QUIC was lost: {reason}")));
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::Flow("multipath QUIC stopped".to_owned()));
                }
            }
        }
    }
}

/// Waits until so many connections are up.
fn until_connected(
    events: &mut UnboundedReceiver<MpQuicEvent>,
    connections: usize,
) -> Result<(), Error> {
    let limit = Instant::now() + PATIENCE;
    let mut up = 0;
    while up < connections {
        match events.try_recv() {
            Ok(MpQuicEvent::Connected { .. }) => up += 1,
            Ok(_) => {}
            Err(TryRecvError::Empty) if Instant::now() < limit => std::thread::sleep(ROUND),
            Err(_) => {
                return Err(Error::Failed(format!(
                    "multipath QUIC was not connected within {PATIENCE:?}"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use bytes::Bytes;

    use super::*;

    fn driver(is_server: bool) -> (Driver, UnboundedReceiver<MpQuicEvent>) {
        let node = MpQuicNode::new(
            is_server,
            Controller::NewReno,
            SEED,
            SEED ^ u64::from(is_server),
        )
        .unwrap();
        Driver::start(node, (Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    #[test]
    fn a_receiver_that_ends_is_a_failure() {
        let (receiver, _received) = driver(true);
        let (sender, mut events) = driver(false);
        let handle = sender.handle();
        let connection = handle.connect(LABEL, &[receiver.address()]).unwrap();
        until_connected(&mut events, 1).unwrap();
        let reader = Task::start("nothing", |_| {}).unwrap();
        let (other, _) = driver(true);
        let mut sender = MpQuicSender {
            handle,
            connections: vec![connection],
            events,
            _ends: Ends {
                _sender: sender,
                _receiver: other,
                _reader: reader,
            },
        };
        let block = OfferedBlock::alone(Bytes::from_static(b"block"));
        sender.offer(block.clone()).unwrap();
        drop(receiver);
        // Its last packet may be lost; then the connection ends as one that is idle.
        let limit = Instant::now() + 6 * PATIENCE;
        let mut told = Ok(());
        while told.is_ok() && Instant::now() < limit {
            std::thread::sleep(ROUND);
            told = sender.offer(block.clone());
        }
        assert!(matches!(told, Err(Error::Flow(_))), "{told:?}");
    }
}
