//! Metrics of quotas and of paths that are out of service. Labels are names of the configuration and fixed texts.

use std::fmt;

use starhaul_metrics::{Families, Unit};

use crate::status::{PathService, QuotaStatus, Status};

const REASONS: [&str; 4] = ["ordered", "hours", "quota", "uncounted"];

pub(super) fn write(status: &Status, families: &mut Families<'_>) -> fmt::Result {
    let paths: Vec<_> = status
        .peers
        .iter()
        .flat_map(|peer| {
            let paths = peer.service.iter();
            paths.map(|path| {
                (
                    [("peer", peer.name.as_str()), ("path", path.path.as_str())],
                    path,
                )
            })
        })
        .collect();
    let reasons = paths.iter().flat_map(|([peer, path], service)| {
        REASONS.map(|reason| {
            let is = service.out.as_deref() == Some(reason);
            ([*peer, *path, ("reason", reason)], f64::from(u8::from(is)))
        })
    });
    families.gauge(
        "starhaul_path_out_of_service",
        "1 for the reason why a path is out of service on purpose: ordered, hours, quota, or uncounted",
        None,
        reasons,
    )?;
    type Value = fn(&QuotaStatus) -> Option<f64>;
    let quotas: [(&str, &str, Option<Unit>, Value); 4] = [
        (
            "starhaul_path_quota",
            "Bytes on the wire that a path may carry in a month",
            Some(Unit::Bytes),
            |quota| Some(quota.monthly_bytes as f64),
        ),
        (
            "starhaul_path_quota_used",
            "Bytes on the wire that a path has carried in this month",
            Some(Unit::Bytes),
            |quota| Some(quota.used_bytes as f64),
        ),
        (
            "starhaul_path_quota_used",
            "Part of the quota that is used; above 1 when it is exceeded",
            Some(Unit::Other("ratio".to_owned())),
            |quota| quota.share,
        ),
        (
            "starhaul_path_quota_unsure",
            "1 if the count of a quota is lost, or cannot be stored",
            None,
            |quota| Some(f64::from(u8::from(quota.problem.is_some()))),
        ),
    ];
    for (name, help, unit, value) in quotas {
        let of = |service: &&PathService| value(service.quota.as_ref()?);
        let series = paths
            .iter()
            .filter_map(|(labels, service)| Some((*labels, of(service)?)));
        families.gauge(name, help, unit, series)?;
    }
    Ok(())
}
