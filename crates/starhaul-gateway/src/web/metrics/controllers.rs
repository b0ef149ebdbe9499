//! Metrics of what a path's controller believes, and of the prober that tells it of reconfigurations.

use std::fmt;

use starhaul_metrics::{Families, Unit};

use super::paths::{Row, seconds};
use crate::status::{DetectorStatus, Path};

/// What a prober may be doing.
const STAGES: [&str; 4] = ["searching", "probing", "resting", "waiting"];

pub(super) fn write(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    phases(rows, families)?;
    models(rows, families)?;
    detectors(rows, families)
}

fn present<'r, 's>(
    rows: &'r [Row<'s>],
) -> impl Iterator<Item = ([(&'static str, &'s str); 3], &'s Path)> + use<'r, 's> {
    rows.iter().filter_map(|row| Some((row.labels, row.now?)))
}

fn phases(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    let series = present(rows).filter(|(_, path)| !path.controller.is_empty());
    let series = series.map(|([peer, name, opened_by], path)| {
        let controller = ("controller", path.controller.as_str());
        let phase = ("phase", path.controller_state.as_str());
        ([peer, name, opened_by, controller, phase], 1.0)
    });
    families.gauge(
        "starhaul_path_controller",
        "1 for the controller of a path and its phase",
        None,
        series,
    )
}

fn models(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    let series = present(rows).flat_map(|([peer, name, opened_by], path)| {
        let model = path.model.as_ref();
        let estimates = [
            (
                "aggressive",
                model.and_then(|model| model.bandwidth_aggressive_bit_per_s),
            ),
            (
                "moderate",
                model.and_then(|model| model.bandwidth_moderate_bit_per_s),
            ),
        ];
        estimates.into_iter().filter_map(move |(estimate, rate)| {
            Some((
                [peer, name, opened_by, ("estimate", estimate)],
                rate? as f64,
            ))
        })
    });
    families.gauge(
        "starhaul_path_model_bandwidth",
        "Estimates of a controller that keeps a model (LeoCC's bBW_a and bBW_m)",
        Some(Unit::Other("bits_per_second".to_owned())),
        series,
    )?;
    let series = present(rows).flat_map(|([peer, name, opened_by], path)| {
        let band = path.model.as_ref().and_then(|model| model.rtt_band_ms);
        band.into_iter().flat_map(move |[least, most]| {
            let bounds = [("least", least), ("most", most)];
            bounds.map(|(bound, ms)| ([peer, name, opened_by, ("bound", bound)], seconds(ms)))
        })
    });
    families.gauge(
        "starhaul_path_model_rtt",
        "Range of the RTT without a queue, as a controller that keeps a model believes",
        Some(Unit::Seconds),
        series,
    )?;
    let outages = present(rows).filter_map(|(labels, path)| {
        let last = path.reconfigurations.last.as_ref()?;
        Some((labels, seconds(last.outage_ms?)))
    });
    families.gauge(
        "starhaul_path_reconfiguration_outage",
        "Length of the outage of the last reconfiguration",
        Some(Unit::Seconds),
        outages,
    )
}

fn detectors(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    let probers =
        || present(rows).filter_map(|(labels, path)| Some((labels, path.detector.as_ref()?)));
    let series = probers().flat_map(|([peer, name, opened_by], prober)| {
        STAGES.map(|stage| {
            let is = f64::from(u8::from(prober.state == stage));
            ([peer, name, opened_by, ("state", stage)], is)
        })
    });
    families.gauge(
        "starhaul_path_detector_state",
        "1 for what the prober that detects reconfigurations is doing: searching for a target, probing, resting (nothing flows) or waiting",
        None,
        series,
    )?;
    type Value = fn(&DetectorStatus) -> u64;
    let all: [(&str, &str, Value); 3] = [
        (
            "starhaul_path_detector_probes",
            "Probes of the satellite segment; of all paths that share the prober",
            |prober| prober.sent,
        ),
        (
            "starhaul_path_detector_answers",
            "Probes that were answered",
            |prober| prober.answered,
        ),
        (
            "starhaul_path_detector_reconfigurations",
            "Reconfigurations that the prober found",
            |prober| prober.found,
        ),
    ];
    for (name, help, value) in all {
        let series = probers().map(|(labels, prober)| (labels, value(prober)));
        families.counter(name, help, None, series)?;
    }
    let series = probers().filter_map(|(labels, prober)| Some((labels, seconds(prober.rtt_ms?))));
    families.gauge(
        "starhaul_path_detector_rtt",
        "Median RTT of the last probes",
        Some(Unit::Seconds),
        series,
    )
}
