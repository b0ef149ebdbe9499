//! Tells observers which paths seem to share a bottleneck. Without an observer nothing is compared.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use starhaul_paths::{PathId, Sharing};

use super::Session;
use crate::facts::Fact;

/// So often, when the session is called.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pairs of paths that were found to share a bottleneck, the lower number first, until they are found to have one each.
#[derive(Debug, Default)]
pub(super) struct SharedBottlenecks {
    pairs: BTreeSet<(PathId, PathId)>,
    compared: Option<Instant>,
}

impl SharedBottlenecks {
    /// The path is gone; another life of it begins anew.
    pub(super) fn forget(&mut self, path: PathId) {
        self.pairs
            .retain(|(one, other)| *one != path && *other != path);
    }

    fn is_due(&self, now: Instant) -> bool {
        self.compared
            .is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL)
    }
}

impl Session {
    /// Compares each path with each other one, at times.
    pub(super) fn compare_paths(&mut self) {
        if self.observers.is_empty() || !self.bottlenecks.is_due(self.now) {
            return;
        }
        self.bottlenecks.compared = Some(self.now);
        let mut found = Vec::new();
        for (one, path) in self.paths.iter() {
            let others = self.paths.iter().filter(|(other, _)| *other > one);
            found.extend(others.map(|(other, compared)| {
                let sharing = path.monitor.rtts().sharing(compared.monitor.rtts());
                ((one, other), sharing)
            }));
        }
        for (paths, sharing) in found {
            let is_news = match sharing {
                Sharing::Common => self.bottlenecks.pairs.insert(paths),
                Sharing::Apart => self.bottlenecks.pairs.remove(&paths),
                Sharing::Unknown => false,
            };
            if is_news {
                let is_shared = sharing == Sharing::Common;
                self.observers
                    .note(self.now, || Fact::BottleneckShared { paths, is_shared });
            }
        }
    }
}
