//! Logs peers whose keys are not trusted, at a rate that cannot fill the log.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use starhaul_quic::PublicKey;

/// At most one line per key and host in this time.
const INTERVAL: Duration = Duration::from_secs(60);
/// Greatest number of keys and hosts remembered; if more are refused in one interval, others are only counted.
const MAX_REMEMBERED: usize = 16;

/// Recently refused keys.
#[derive(Debug, Default)]
pub(crate) struct RefusedKeys {
    /// When a line was written, and the number of refusals since.
    told: HashMap<(IpAddr, PublicKey), (Instant, u64)>,
    untold: u64,
}

impl RefusedKeys {
    /// A key was refused; writes a line if one is due.
    pub(crate) fn tell(&mut self, now: Instant, remote: SocketAddr, key: PublicKey) {
        if let Some((refusals, others)) = self.is_due(now, remote.ip(), key) {
            tracing::warn!(
                %remote,
                %key,
                refusals,
                others,
                "a connection was refused: its key is not trusted; to let it in, add a peer with this public key"
            );
        }
    }

    /// The numbers of refusals that a line written now reports: of this key and host, and of others without a line; `None` if no
    /// line is due.
    fn is_due(&mut self, now: Instant, host: IpAddr, key: PublicKey) -> Option<(u64, u64)> {
        let who = (host, key);
        let since = |told: Instant| now.saturating_duration_since(told);
        if let Some((told, count)) = self.told.get_mut(&who) {
            *count += 1;
            if since(*told) < INTERVAL {
                return None;
            }
            *told = now;
            return Some((std::mem::take(count), std::mem::take(&mut self.untold)));
        }
        self.told.retain(|_, (told, count)| {
            let keep = since(*told) < INTERVAL;
            if !keep {
                self.untold += *count;
            }
            keep
        });
        if self.told.len() >= MAX_REMEMBERED {
            self.untold += 1;
            return None;
        }
        self.told.insert(who, (now, 0));
        Some((1, std::mem::take(&mut self.untold)))
    }
}

#[cfg(test)]
mod tests {
    use starhaul_quic::Identity;

    use super::*;

    fn key(number: u8) -> PublicKey {
        Identity::from_secret([number; 32]).public_key()
    }

    #[test]
    fn a_host_that_tries_again_and_again_gets_a_line_a_minute() {
        let mut refused = RefusedKeys::default();
        let start = Instant::now();
        let host = IpAddr::from([192, 0, 2, 1]);
        let lines: Vec<_> = (0..180)
            .filter_map(|second| refused.is_due(start + Duration::from_secs(second), host, key(1)))
            .collect();
        assert_eq!(lines, [(1, 0), (60, 0), (60, 0)]);
    }

    #[test]
    fn a_flood_of_keys_cannot_fill_the_log_and_is_counted() {
        let mut refused = RefusedKeys::default();
        let start = Instant::now();
        let host = IpAddr::from([192, 0, 2, 1]);
        let lines = (0..200).filter(|number| refused.is_due(start, host, key(*number)).is_some());
        assert_eq!(lines.count(), MAX_REMEMBERED);
        assert_eq!(refused.told.len(), MAX_REMEMBERED);
        let later = refused.is_due(start + INTERVAL, host, key(250));
        assert_eq!(later, Some((1, 200 - MAX_REMEMBERED as u64)));
    }
}
