//! Quotas and hours of paths: what is used up, and what is out of service on purpose.

use starhaul_gateway::status::{PathService, QuotaStatus, Status};

use super::finding::{Cause, Finding};
use crate::status::service::{size, span};

pub(super) fn examine(status: &Status, peer: Option<&str>) -> Vec<Finding> {
    let peers = status.peers.iter();
    let peers = peers.filter(|other| peer.is_none_or(|name| other.name == name));
    let paths = peers.flat_map(|peer| &peer.service);
    paths.flat_map(of_path).collect()
}

fn of_path(path: &PathService) -> Vec<Finding> {
    let subject = format!("path {}", path.path);
    let name = &path.path;
    let mut findings: Vec<_> = path
        .quota
        .iter()
        .filter_map(|quota| of_quota(name, quota))
        .collect();
    if let (Some("hours"), Some(hours)) = (path.out.as_deref(), &path.hours) {
        let opens = hours
            .changes_in_s
            .map(|seconds| format!(", which begin in {}", span(seconds)));
        findings.push(Finding::note(
            Cause::Hours,
            subject.clone(),
            format!("it is outside of its hours ({}){}", hours.hours, opens.unwrap_or_default()),
            format!("nothing, if that is meant; `starhaul path set {name} active=always` puts it into service"),
        ));
    }
    if path.out.as_deref() == Some("ordered") {
        findings.push(Finding::note(
            Cause::Ordered,
            subject,
            "it was ordered down",
            format!("nothing, if that is meant; `starhaul path up {name}` puts it into service"),
        ));
    }
    findings
}

fn of_quota(name: &str, quota: &QuotaStatus) -> Option<Finding> {
    let subject = format!("path {name}");
    let (used, monthly) = (size(quota.used_bytes), size(quota.monthly_bytes));
    let ends = span(quota.ends_in_s);
    if let Some(problem) = &quota.problem {
        return Some(Finding::problem(
            Cause::Quota,
            subject,
            format!("its quota is not counted reliably: {problem}"),
            format!(
                "make room on the disk of the state folder, or say what the month has used: `starhaul path set {name} used=SIZE`"
            ),
        ));
    }
    match quota.level.as_str() {
        "reached" => Some(Finding::problem(
            Cause::Quota,
            subject,
            format!(
                "quota reached: {used} of {monthly} are used, and the month ends in {ends} (at_100 = {:?})",
                quota.at_100
            ),
            format!("wait, or give it more: `starhaul path set {name} monthly=SIZE`"),
        )),
        "nearly" => Some(Finding::note(
            Cause::Quota,
            subject,
            format!(
                "quota nearly reached: {used} of {monthly} are used, and the month ends in {ends}"
            ),
            format!("save, or give it more: `starhaul path set {name} monthly=SIZE`"),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    fn found(service: serde_json::Value) -> Vec<(Level, String)> {
        let path: PathService = serde_json::from_value(service).unwrap();
        let findings = of_path(&path).into_iter();
        findings
            .map(|finding| (finding.level, finding.found))
            .collect()
    }

    fn quota(level: &str, problem: Option<&str>) -> serde_json::Value {
        serde_json::json!({ "path": "lte", "out": null, "quota": { "monthly_bytes": 50_000_000_000_u64,
            "used_bytes": 41_000_000_000_u64, "share": 0.82, "level": level, "month": "2026-11-01", "ends_in_s": 600_000,
            "at_80": "warn", "at_100": "down", "problem": problem } })
    }

    #[test]
    fn quotas_and_hours_are_told_as_what_they_are() {
        assert!(found(quota("below", None)).is_empty());
        for (level, problem, kind, text) in [
            (
                "nearly",
                None,
                Level::Note,
                "quota nearly reached: 41.0 GB of 50.0 GB are used, and the month ends in 6 days",
            ),
            ("reached", None, Level::Problem, "quota reached"),
            (
                "below",
                Some("torn"),
                Level::Problem,
                "not counted reliably: torn",
            ),
        ] {
            let found = found(quota(level, problem));
            assert!(
                matches!(&found[..], [(found, said)] if *found == kind && said.contains(text)),
                "{found:?}"
            );
        }
        let ordered = found(serde_json::json!({ "path": "lte", "out": "ordered" }));
        assert!(
            matches!(&ordered[..], [(Level::Note, said)] if said.contains("ordered down")),
            "{ordered:?}"
        );
        let hours = serde_json::json!({ "path": "lte", "out": "hours",
            "hours": { "hours": "daily 22:00-06:00 UTC", "open": false, "changes_in_s": 3600 } });
        let found = found(hours);
        assert!(
            matches!(&found[..], [(Level::Note, said)] if said.contains("outside of its hours")),
            "{found:?}"
        );
    }
}
