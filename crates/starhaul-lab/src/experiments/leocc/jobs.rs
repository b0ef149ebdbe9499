//! The runs that each part of the experiment consists of.

use std::time::Duration;

use starhaul_cc::DetectorConfig;

use super::{
    case::{Changed, TraceCase},
    detector, fairness,
    job::{Job, Output, params},
    options::QueueChoice,
    plan::Plan,
    results::{Row, TimeSeries},
    run::{Setup, Signal, SignalSource},
    section::{AS_IT_IS, NO_SIGNALS, STUDY_LOSS, Section},
};

/// LeoCC's Δ_outage is 45 ms.
const THRESHOLDS_MS: [u64; 6] = [20, 30, 60, 90, 120, 150];
/// What a ground link behind the satellite carries, as a share of the satellite link's mean.
const GROUND_SHARE: f64 = 0.6;
const SAMPLE_EACH: Duration = Duration::from_millis(100);

/// All jobs of a section.
pub(super) fn jobs(plan: &Plan, section: Section) -> Vec<Job<'_>> {
    match section {
        Section::Scatter => scatter(plan),
        Section::Series => series(plan),
        Section::Ablation => ablation(plan),
        Section::Queues => queues(plan),
        Section::Sensitivity => sensitivity(plan),
        Section::Shift => shift(plan),
        Section::Fairness => fairness::jobs(plan),
        Section::Detector => detector::jobs(plan),
        Section::Paths | Section::Unseen => changed(plan, section),
    }
}

fn scatter(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for case in plan.cases() {
        for loss in plan.losses(case) {
            for system in plan.systems() {
                let setup = plan.setup(system, case, loss);
                jobs.push(row_job(Section::Scatter, None, setup));
            }
        }
    }
    jobs
}

fn series(plan: &Plan) -> Vec<Job<'_>> {
    let Some(case) = plan.cases().first() else {
        return Vec::new();
    };
    let job = |system| {
        let mut setup = plan.setup(system, case, plan.first_study_loss(case));
        setup.sample_each = Some(SAMPLE_EACH);
        Job {
            section: Section::Series,
            systems: vec![system.name.clone()],
            trace: &case.name,
            weight: setup.weight(),
            time: case.time,
            work: Box::new(move |base| {
                let outcome = setup.run(base)?;
                Ok(Output::Series(TimeSeries {
                    system: setup.system.name.clone(),
                    trace: case.name.clone(),
                    loss: params(case, setup.loss, setup.queue).loss_name(),
                    outages: case.outages.clone(),
                    alarms: outcome.alarms,
                    samples: outcome.report.samples,
                    states: outcome.report.states,
                }))
            }),
        }
    };
    plan.systems().iter().map(job).collect()
}

fn ablation(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (case, loss) in plan.studied() {
        for system in plan.ablations() {
            let setup = plan.setup(system, case, loss);
            jobs.push(row_job(Section::Ablation, None, setup));
        }
    }
    jobs
}

fn queues(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (case, loss) in plan.studied() {
        for system in plan.systems() {
            let mut setup = plan.setup(system, case, loss);
            setup.queue = case.queue(QueueChoice::Bdp);
            jobs.push(row_job(Section::Queues, Some("one BDP".into()), setup));
        }
    }
    jobs
}

fn sensitivity(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    let bbr = plan.systems().iter().find(|system| system.name == "bbr");
    let taking: Vec<_> = plan
        .systems()
        .iter()
        .filter(|system| system.heeds_reconfigurations())
        .collect();
    // It takes no signals, and so is what those who get none are compared with.
    let bbr = bbr.filter(|_| !taking.is_empty());
    for (case, loss) in plan.studied() {
        if let Some(bbr) = bbr {
            let setup = plan.setup(bbr, case, loss);
            let variant = Some(AS_IT_IS.into());
            jobs.push(row_job(Section::Sensitivity, variant, setup));
        }
        for system in &taking {
            for (variant, signal) in signals(case) {
                let mut setup = plan.setup(system, case, loss);
                setup.signal = signal;
                jobs.push(row_job(Section::Sensitivity, Some(variant), setup));
            }
        }
    }
    jobs
}

/// What controllers may hear over one trace. Each variant changes one thing of the first.
fn signals(case: &TraceCase) -> Vec<(String, Signal)> {
    let usual = Signal::default();
    let from = |source| Signal { source, ..usual };
    let mut signals = vec![(AS_IT_IS.to_owned(), usual)];
    // Where probes notice nothing, the truth is told as it is, and no threshold changes that.
    if case.is_sharp() {
        signals.extend(THRESHOLDS_MS.map(|ms| {
            let config = DetectorConfig {
                outage_threshold: Duration::from_millis(ms),
                ..DetectorConfig::default()
            };
            (
                format!("Δ_outage {ms} ms"),
                from(SignalSource::Prober(config)),
            )
        }));
        signals.push((
            "the truth, none missing".to_owned(),
            from(SignalSource::Truth),
        ));
    }
    signals.extend([0.25, 0.5, 1.0].map(|missing| {
        let variant = format!("{:.0} % missing", missing * 100.0);
        (variant, Signal { missing, ..usual })
    }));
    signals.extend([5, 1].map(|seconds| {
        let false_each = Duration::from_secs(seconds);
        let variant = format!("a false one each {seconds} s");
        (
            variant,
            Signal {
                false_each,
                ..usual
            },
        )
    }));
    signals.push((NO_SIGNALS.to_owned(), from(SignalSource::None)));
    signals
}

fn shift(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (case, loss) in plan.studied() {
        for system in plan.systems() {
            let mut setup = plan.setup(system, case, loss);
            setup.ground = Some(case.trace.capacity.mean_rate().scaled(GROUND_SHARE));
            let variant = format!("ground link of {:.0} %", GROUND_SHARE * 100.0);
            jobs.push(row_job(Section::Shift, Some(variant), setup));
        }
    }
    jobs
}

/// One run of each system over each link; all with the loss of the studies, or the link's own.
fn changed(plan: &Plan, section: Section) -> Vec<Job<'_>> {
    let links = match section {
        Section::Paths => &plan.paths,
        _ => &plan.unseen,
    };
    let mut jobs = Vec::new();
    for Changed { case, change } in links {
        for loss in case.losses(&plan.losses, &[STUDY_LOSS]) {
            for system in &plan.path_systems {
                let mut setup = plan.setup(system, case, loss);
                if plan.probed {
                    setup.signal.source = SignalSource::Gateway;
                }
                jobs.push(row_job(section, change.clone(), setup));
            }
        }
    }
    jobs
}

/// A run that gives a row.
pub(super) fn row_job(section: Section, variant: Option<String>, setup: Setup<'_>) -> Job<'_> {
    Job {
        section,
        systems: vec![setup.system.name.clone()],
        trace: &setup.case.name,
        weight: setup.weight(),
        time: setup.case.time,
        work: Box::new(move |base| {
            Ok(Output::Row(Row {
                system: setup.system.name.clone(),
                variant: variant.clone(),
                params: params(setup.case, setup.loss, setup.queue),
                metrics: setup.run(base)?.report.metrics,
            }))
        }),
    }
}
