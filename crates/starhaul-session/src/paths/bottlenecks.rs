//! Which paths seem to share a bottleneck, for observers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use starhaul_paths::{PathId, Sharing};

use super::Path;

/// So often, when the session is called.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pairs of paths that were found to share a bottleneck, the lower number first, until they are found to have one each.
#[derive(Debug, Default)]
pub(super) struct Bottlenecks {
    pairs: BTreeSet<(PathId, PathId)>,
    compared: Option<Instant>,
}

impl Bottlenecks {
    /// The path is gone; another life of it begins anew.
    pub(super) fn forget(&mut self, path: PathId) {
        self.pairs
            .retain(|(one, other)| *one != path && *other != path);
    }

    /// Compares each path with each other one when that is due. Returns the pairs that were found to share a bottleneck, and those found
    /// not to any more.
    pub(super) fn compare(
        &mut self,
        now: Instant,
        paths: &BTreeMap<PathId, Path>,
    ) -> Vec<((PathId, PathId), bool)> {
        if !self.is_due(now) {
            return Vec::new();
        }
        self.compared = Some(now);
        let mut news = Vec::new();
        for (one, path) in paths {
            for (other, compared) in paths.iter().filter(|(other, _)| *other > one) {
                let pair = (*one, *other);
                let sharing = path.monitor.rtts().sharing(compared.monitor.rtts());
                let is_news = match sharing {
                    Sharing::Common => self.pairs.insert(pair),
                    Sharing::Apart => self.pairs.remove(&pair),
                    Sharing::Unknown => false,
                };
                if is_news {
                    news.push((pair, sharing == Sharing::Common));
                }
            }
        }
        news
    }

    fn is_due(&self, now: Instant) -> bool {
        self.compared
            .is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL)
    }
}
