//! Connections that the far side did not make, by the reason that it gave.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{relay::NotConnected, socks5::Reply, status};

/// Numbers of refused connections, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    not_allowed: AtomicU64,
    connection_refused: AtomicU64,
    unreachable: AtomicU64,
}

impl Refusals {
    /// Counts why a connection failed, if it was the far side's answer.
    pub(crate) fn count(&self, error: &io::Error) {
        let answer = error.get_ref().and_then(|error| error.downcast_ref());
        let Some(NotConnected(reply)) = answer else {
            return;
        };
        let counter = match reply {
            Reply::NotAllowed => &self.not_allowed,
            Reply::ConnectionRefused => &self.connection_refused,
            _ => &self.unreachable,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> status::RefusalCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        status::RefusalCounts {
            not_allowed: read(&self.not_allowed),
            connection_refused: read(&self.connection_refused),
            unreachable: read(&self.unreachable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_of_the_far_side_are_refusals() {
        let refusals = Refusals::default();
        refusals.count(&io::ErrorKind::ConnectionRefused.into());
        for reply in [
            Reply::NotAllowed,
            Reply::ConnectionRefused,
            Reply::HostUnreachable,
            Reply::GeneralFailure,
        ] {
            refusals.count(&NotConnected(reply).into());
        }
        let counted = refusals.snapshot();
        let counts = (
            counted.not_allowed,
            counted.connection_refused,
            counted.unreachable,
        );
        assert_eq!(counts, (1, 1, 2));
    }
}
