//! Telling an application that its streams ask for more than the paths carry, so that it may send less.

use starhaul_units::Bandwidth;
use tokio::sync::watch;

/// The streams of this side ask for more than its paths carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// What the streams ask for: blocks of the last two seconds, or the bandwidth that their settings name if that is more.
    pub wanted: Bandwidth,
    /// What all usable paths together can carry now, by their estimates.
    pub available: Bandwidth,
}

/// Hears of the overloads of one session, see [`Session::overloads`](crate::Session::overloads).
#[derive(Clone, Debug)]
pub struct Overloads {
    newest: watch::Receiver<Option<Overload>>,
}

impl Overloads {
    pub(crate) const fn new(newest: watch::Receiver<Option<Overload>>) -> Self {
        Self { newest }
    }

    /// Waits for the next overload; of several that came since the last call, the newest. `None` when the session has ended. Cancelling
    /// loses nothing.
    pub async fn next_overload(&mut self) -> Option<Overload> {
        self.newest.changed().await.ok()?;
        *self.newest.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_is_told_once_and_then_the_end() {
        let overload = |mbit| Overload {
            wanted: Bandwidth::from_mbit(mbit),
            available: Bandwidth::from_mbit(1),
        };
        let (told, newest) = watch::channel(None);
        let mut overloads = Overloads::new(newest);
        told.send_replace(Some(overload(2)));
        told.send_replace(Some(overload(3)));
        assert_eq!(overloads.next_overload().await, Some(overload(3)));
        told.send_replace(Some(overload(4)));
        drop(told);
        assert_eq!(overloads.next_overload().await, Some(overload(4)));
        assert_eq!(overloads.next_overload().await, None);
    }
}
