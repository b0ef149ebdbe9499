//! Quotas and hours of paths as text.

use starhaul_gateway::status::{PathService, PeerStatus};

use super::cells::wrapped;

/// A line for each path of a peer that has a quota or hours, or is out of service.
pub(super) fn lines(peer: &PeerStatus) -> String {
    let paths = peer.service.iter();
    paths.map(|path| wrapped(&line(path))).collect()
}

fn line(path: &PathService) -> String {
    let mut facts = Vec::new();
    let name = &path.path;
    if let Some(reason) = &path.out {
        facts.push(match reason.as_str() {
            "quota" => "out of service by its quota".to_owned(),
            "uncounted" => "out of service, since its quota is not counted reliably".to_owned(),
            "hours" => "out of service by its hours".to_owned(),
            _ => "taken down".to_owned(),
        });
    }
    if let Some(quota) = &path.quota {
        let (used, monthly) = (size(quota.used_bytes), size(quota.monthly_bytes));
        let share = quota.share.unwrap_or_default() * 100.0;
        let ends = span(quota.ends_in_s);
        facts.push(format!(
            "{used} of {monthly} used ({:.0} %), the month ends in {ends}",
            share.floor()
        ));
        facts.extend(quota.problem.clone());
    }
    if let Some(hours) = &path.hours {
        let until = hours.changes_in_s.map(|seconds| {
            let what = if hours.open { "for" } else { "again in" };
            format!(", {what} {}", span(seconds))
        });
        facts.push(format!(
            "in service {}{}",
            hours.hours,
            until.unwrap_or_default()
        ));
    }
    format!("path {name}: {}", facts.join("; "))
}

/// Bytes as providers write them.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A time to come, in its largest unit.
pub(crate) fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_is_used_and_when_it_is_in_service() {
        let path: PathService = serde_json::from_value(serde_json::json!({ "path": "lte", "out": "hours",
            "quota": { "monthly_bytes": 50_000_000_000_u64, "used_bytes": 40_999_000_000_u64, "share": 0.81998,
                "level": "nearly", "month": "2026-11-01", "ends_in_s": 600_000, "at_80": "warn", "at_100": "down" },
            "hours": { "hours": "sat UTC", "open": false, "changes_in_s": 7200 } }))
        .unwrap();
        assert_eq!(
            line(&path),
            "path lte: out of service by its hours; 41.0 GB of 50.0 GB used (81 %), the month ends in 6 days; in service sat UTC, again in 2 h"
        );
    }
}
