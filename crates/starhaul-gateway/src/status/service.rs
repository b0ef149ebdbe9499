//! Whether the configured paths are in service, with their quotas and hours.

use serde::{Deserialize, Serialize};

use super::numbers::finite;
use crate::{path_orders::Standing, quota::keeper::calendar};

/// A configured path that has a quota or hours, or is out of service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathService {
    /// Name of the path.
    pub path: String,
    /// Why it is out of service: `ordered`, `hours`, `quota`, or `uncounted` while what its month has used is not known for sure.
    pub out: Option<String>,
    /// Monthly quota of the path; absent without one.
    #[serde(default)]
    pub quota: Option<QuotaStatus>,
    /// Hours of service of the path; absent if it is always in service.
    #[serde(default)]
    pub hours: Option<HoursStatus>,
}

/// A quota and its use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaStatus {
    /// Bytes on the wire that a month may have.
    pub monthly_bytes: u64,
    /// Bytes on the wire that this month has.
    pub used_bytes: u64,
    /// The part that is used; above 1 when it is exceeded.
    pub share: Option<f64>,
    /// `below` 80 %, `nearly` used up, or `reached`.
    pub level: String,
    /// The first day of the month, as `2026-11-01`.
    pub month: String,
    /// Seconds until the next month.
    pub ends_in_s: i64,
    /// What happens at 80 %: `warn`, `costly` or `down`.
    pub at_80: String,
    /// What happens at 100 %.
    pub at_100: String,
    /// Why the count is not to be relied on.
    #[serde(default)]
    pub problem: Option<String>,
}

/// Hours of a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoursStatus {
    /// As they are written, with their clock.
    pub hours: String,
    /// Whether it is within them.
    pub open: bool,
    /// Seconds until that changes; absent if it never does.
    pub changes_in_s: Option<i64>,
}

/// The paths that there is something to say about.
pub(super) fn all(standings: &[(String, Standing)]) -> Vec<PathService> {
    let now = calendar();
    let paths = standings.iter().map(|(path, standing)| PathService {
        path: path.clone(),
        out: standing.out.map(|why| why.name().to_owned()),
        quota: quota(standing, now),
        hours: standing.hours.as_ref().map(|hours| HoursStatus {
            hours: hours.to_string(),
            open: hours.is_open(now),
            changes_in_s: hours.next_change(now).map(|at| at.saturating_sub(now)),
        }),
    });
    let is_told =
        |path: &PathService| path.out.is_some() || path.quota.is_some() || path.hours.is_some();
    paths.filter(is_told).collect()
}

fn quota(standing: &Standing, now: i64) -> Option<QuotaStatus> {
    let (quota, usage) = standing.quota.as_ref()?;
    Some(QuotaStatus {
        monthly_bytes: quota.monthly,
        used_bytes: usage.used,
        share: finite(usage.used as f64 / quota.monthly as f64),
        level: quota.level(usage.used).name().to_owned(),
        month: usage.month.to_string(),
        ends_in_s: usage.ends.saturating_sub(now),
        at_80: quota.at_80.name().to_owned(),
        at_100: quota.at_100.name().to_owned(),
        problem: usage.unsure.clone(),
    })
}
