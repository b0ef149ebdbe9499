//! The byte stream behind a connection.

use std::{io, net::IpAddr};

use super::{ConnectionWay, Rule, SESSION_WAIT};
use crate::{
    byte_stream::{Reader, Writer, of_bundles, of_chain, of_session},
    config::ConnectionService,
    label::{Flow, Label},
    target::Target,
};

/// A byte stream on which the far side connects to `target`, from the client's address if one is given.
pub(super) async fn open(
    rule: &Rule<ConnectionService>,
    target: &Target,
    client: Option<IpAddr>,
) -> io::Result<(Reader, Writer)> {
    let flow = Flow::Tcp {
        target: target.clone(),
        client,
    };
    let label = Label::new(&rule.config.name, flow).encode();
    let peer = match &rule.way {
        ConnectionWay::Peer(peer) => peer,
        ConnectionWay::Chain(chain) => return chain.open(label).map(of_chain),
        ConnectionWay::Bundle(way) => {
            let opened = way.flows.open(way.peer, label, way.lifetime);
            return opened.map(|(reader, writer)| of_bundles(reader, writer));
        }
    };
    let session = peer
        .session_within(SESSION_WAIT)
        .await
        .ok_or(io::ErrorKind::NetworkUnreachable)?;
    let stream = session.inner.open_bytes(rule.config.priority, label).await;
    stream.map(of_session).map_err(|error| {
        session.note(&error);
        io::Error::other(error)
    })
}
