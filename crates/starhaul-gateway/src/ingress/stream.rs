//! The byte stream behind a connection.

use std::io;

use starhaul_endpoint::{ByteReader, ByteWriter};

use super::{Rule, SESSION_WAIT};
use crate::{
    config::ConnectionService,
    label::{Flow, Label},
    target::Target,
};

/// A byte stream on which the far side connects to `target`.
pub(super) async fn open(
    rule: &Rule<ConnectionService>,
    target: &Target,
) -> io::Result<(ByteReader, ByteWriter)> {
    let session = rule
        .peer
        .session_within(SESSION_WAIT)
        .await
        .ok_or(io::ErrorKind::NetworkUnreachable)?;
    let flow = Flow::Tcp {
        target: target.clone(),
    };
    let label = Label::new(&rule.config.name, flow).encode();
    let stream = session.inner.open_bytes(rule.config.priority, label).await;
    stream
        .map(starhaul_endpoint::ByteStream::into_split)
        .map_err(|error| {
            session.note(&error);
            io::Error::other(error)
        })
}
