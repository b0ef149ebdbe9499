//! `starhaul lab leocc` on traces that take a moment.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{fs, path::Path};

use starhaul_lab::{
    experiments::leocc::{LeoCc, Options, Plan, Results, Section},
    kit::{Experiment as _, Found as _, Plan as _},
};

/// Five seconds of 8 and 4 Mbit/s with an outage of 70 ms in between.
fn write_trace(folder: &Path) {
    let mut stamps = String::new();
    for ms in 1..=5000_u32 {
        let outage = (2500..2570).contains(&ms);
        let each = if ms < 2500 { 3 } else { 6 };
        if !outage && ms % each == 0 {
            stamps += &format!("{}\n{ms}\n", ms);
        }
    }
    fs::write(folder.join("bw_step.txt"), stamps).unwrap();
    fs::write(folder.join("delay_step.txt"), "15\n".repeat(500)).unwrap();
}

fn options(folder: &Path, systems: &[&str], sections: &[Section]) -> Options {
    Options {
        traces: Some(folder.to_path_buf()),
        systems: systems.iter().map(|&name| name.to_owned()).collect(),
        losses: vec![0.0, 0.01],
        sections: sections.to_vec(),
        // They are drawn for these parts alone.
        links: [Section::Paths, Section::Unseen]
            .iter()
            .any(|part| sections.contains(part))
            .then_some(1),
        seed: 5,
        ..Options::default()
    }
}

fn run(folder: &Path, systems: &[&str], sections: &[Section]) -> Results {
    let options = options(folder, systems, sections);
    Plan::new(&options)
        .unwrap()
        .results("test", &mut |_| {})
        .unwrap()
}

#[test]
fn the_table_of_a_small_run() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let results = run(folder.path(), &["newreno", "bbr"], &[Section::Scatter]);
    let table = "\
recorded uplink, loss 0 %, one trace
system   Mbit/s  use %  queue ms  p95 ms  rtt ms  p95 ms  lost %
newreno    5.80   97.6    709.84  1521.1   741.6  1554.1   16.97
bbr        5.80   97.6     66.22   165.1    99.7   204.1    0.00

recorded uplink, loss 1 %, one trace
system   Mbit/s  use %  queue ms  p95 ms  rtt ms  p95 ms  lost %
newreno    2.97   49.9     11.42    45.1    45.1    75.9    1.51
bbr        5.72   96.2     69.93   171.1   102.6   204.1    1.14
";
    assert_eq!(results.table(), table);
}

#[test]
fn every_part_gives_its_rows_whatever_the_order_in_which_they_ran() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let all = run(folder.path(), &["cubic", "leocc"], &Section::ALL);
    let again = run(folder.path(), &["cubic", "leocc"], &Section::ALL);
    assert_eq!(all.json().unwrap(), again.json().unwrap());
    assert_eq!(all.rows.len(), 4);
    assert_eq!(all.series.len(), 2);
    // Five delays and three capacities, and one link drawn; both systems and the oracle, at either loss.
    assert_eq!((all.paths.len(), all.unseen.len()), (15 * 3 * 2, 3 * 2));
    let deaf = |row: &&starhaul_lab::experiments::leocc::Row| row.system == "leocc-no-detector";
    // At either loss.
    assert_eq!(all.ablation.iter().filter(deaf).count(), 2);
    // Of one kind 2, 4 and 8; LeoCC beside Cubic and BBR, Cubic beside BBR.
    assert_eq!(all.fairness.len(), 6 + 3);
    // All of a kind have begun when figures count.
    for row in all.fairness.iter().take(6) {
        assert!(
            row.flows.iter().all(|flow| flow.throughput_mbps > 0.0),
            "{row:?}"
        );
    }
    let detector = &all.detector[0];
    assert_eq!(
        (
            detector.reconfigurations,
            detector.found,
            detector.false_alarms
        ),
        (1, 1, 0)
    );

    let out = tempfile::tempdir().unwrap();
    all.write(out.path()).unwrap();
    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    for part in ["Ablation", "Fairness", "Detector", "Over time", "cubic"] {
        assert!(page.contains(part), "{part} is missing");
    }
    for wrong in ["NaN", "inf", "http://", "https://"] {
        assert!(!page.contains(wrong), "the page says {wrong}");
    }
    let json = fs::read_to_string(out.path().join("results.json")).unwrap();
    let read: Results = serde_json::from_str(&json).unwrap();
    let systems = |results: &Results| -> Vec<String> {
        results.rows.iter().map(|row| row.system.clone()).collect()
    };
    assert_eq!(systems(&read), systems(&all));
    let (read, wrote) = (read.rows[3].metrics, all.rows[3].metrics);
    assert!((read.rtt_mean_ms - wrote.rtt_mean_ms).abs() < 1e-9);
    let csv = fs::read_to_string(out.path().join("results.csv")).unwrap();
    assert_eq!(
        csv.lines()
            .filter(|line| line.starts_with("scatter,"))
            .count(),
        4
    );
    assert!(out.path().join("series-leocc.svg").is_file());
    for standings in ["paths.csv", "unseen.csv"] {
        let csv = fs::read_to_string(out.path().join(standings)).unwrap();
        let keys = csv.lines().next().unwrap();
        assert!(keys.contains(",queue_over_oracle_ms_median,"), "{csv}");
    }
}

#[test]
fn each_part_alone_is_told_on_the_terminal_and_on_the_page_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    for (section, said, key) in [
        (Section::Scatter, "leocc beside others, loss 1 %", "rows"),
        (Section::Series, "Over time, trace bw_step", "courses"),
        (Section::Ablation, "Ablation, loss 1 %", "ablation"),
        (Section::Queues, "A queue of one BDP, loss 1 %", "queues"),
        (
            Section::Sensitivity,
            "When the signal is wrong, loss 1 %",
            "sensitivity",
        ),
        (
            Section::Shift,
            "A ground link as the bottleneck, loss 1 %",
            "shift",
        ),
        (Section::Fairness, "Fairness, no random loss", "fairness"),
        (Section::Detector, "Detector\n", "detector"),
    ] {
        let mut options = options(folder.path(), &["leocc", "bbr"], &[section]);
        options.losses = vec![0.01];
        let plan = Plan::new(&options).unwrap();
        let results = plan.results("test", &mut |_| {}).unwrap();
        let table = results.table();
        assert!(table.contains(said), "{section:?}: {table}");
        let json: serde_json::Value = serde_json::from_str(&results.json().unwrap()).unwrap();
        let list = json[key].as_array().unwrap_or_else(|| panic!("no {key}"));
        assert!(!list.is_empty(), "{section:?}: {json}");
        let page = results.html();
        assert!(
            page.contains("over 1 trace") || page.contains("over the same trace"),
            "{page}"
        );
        assert!(!page.contains("0 controllers"), "{section:?}");
    }
}

#[test]
fn wrong_signals_alter_what_the_prober_found_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    // A step of the capacity without any gap: probes notice nothing.
    let mut table = "t_s,owd_ms,capacity_mbps\n".to_owned();
    for step in 0..100 {
        let rate = if step < 50 { 8 } else { 4 };
        table += &format!("{:.2},15,{rate}\n", f64::from(step) * 0.05);
    }
    fs::write(folder.path().join("smooth.csv"), table).unwrap();
    let results = run(folder.path(), &["leocc"], &[Section::Sensitivity]);
    let of = |trace: &str| -> Vec<String> {
        let rows = results.sensitivity.iter();
        let rows = rows.filter(|row| row.params.trace == trace && row.params.loss > 0.0);
        rows.filter_map(|row| row.variant.clone()).collect()
    };
    let smooth = of("smooth");
    assert!(
        smooth.iter().all(|variant| !variant.starts_with('Δ')),
        "{smooth:?}"
    );
    assert_eq!(smooth.len(), 7, "{smooth:?}");
    assert_eq!(of("bw_step").len(), 14);
    assert!(of("bw_step").contains(&"the truth, none missing".to_owned()));
    let page = results.html();
    assert!(page.contains("as a share of that with the signals as they are"));
}

#[test]
fn the_loss_of_a_recording_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = "t_s,owd_ms,capacity_mbps,loss_p\n".to_owned();
    for step in 0..100 {
        let loss = if step < 50 { 0.0 } else { 0.04 };
        table += &format!("{:.2},15,8,{loss}\n", f64::from(step) * 0.05);
    }
    fs::write(folder.path().join("own.csv"), table).unwrap();
    let mut options = options(folder.path(), &["bbr"], &[Section::Scatter]);
    options.losses.clear();
    let plan = Plan::new(&options).unwrap();
    let results = plan.results("test", &mut |_| {}).unwrap();
    let [row] = results.rows.as_slice() else {
        panic!("{:?}", results.rows)
    };
    assert!(row.params.recorded_loss && (row.params.loss - 0.02).abs() < 1e-9);
    assert!(row.metrics.loss_rate > 0.01, "{row:?}");
    assert!(results.table().contains("loss as recorded"));
    options.losses = vec![0.0];
    let plan = Plan::new(&options).unwrap();
    let said = plan.skipped().join("\n");
    assert!(
        said.contains("recorded loss of own (2 % on average)"),
        "{said}"
    );
    let results = plan.results("test", &mut |_| {}).unwrap();
    assert_eq!(results.rows[0].metrics.loss_rate, 0.0);
}

#[test]
fn nothing_to_run_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    for (section, next) in [
        (Section::Ablation, "leocc"),
        (Section::Sensitivity, "satcp"),
    ] {
        let options = options(folder.path(), &["cubic"], &[section]);
        let error = Plan::new(&options).unwrap_err();
        assert!(error.is_configuration(), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("nothing to run") && said.contains(next),
            "{said}"
        );
    }
    let results = run(folder.path(), &["leocc2"], &[Section::Ablation]);
    let systems: Vec<&str> = results.ablation.iter().map(|row| &*row.system).collect();
    assert!(systems.contains(&"leocc2-no-band"), "{systems:?}");
    assert!(!systems.contains(&"leocc-no-band"), "{systems:?}");
    let options = options(folder.path(), &["leocc2"], &[Section::Series]);
    let said = Plan::new(&options).unwrap().describe();
    assert!(
        said.starts_with("1 system over 1 trace, 1 run, 5 s of virtual time"),
        "{said}"
    );
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |options: Options| Plan::new(&options).unwrap_err().to_string();
    let no_traces = refusal(Options {
        traces: Some(folder.path().to_path_buf()),
        ..Options::default()
    });
    assert!(no_traces.contains("holds no trace"), "{no_traces}");
    write_trace(folder.path());
    let unknown = refusal(Options {
        traces: Some(folder.path().to_path_buf()),
        systems: vec!["tahoe".to_owned()],
        ..Options::default()
    });
    assert!(
        unknown.contains("tahoe") && unknown.contains("cubic"),
        "{unknown}"
    );
}

#[test]
fn what_has_no_goal_is_refused_before_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let plan = |arguments: &[&str]| {
        let traces = folder.path().to_str().unwrap();
        let all = [&["leocc", "--check", "--traces", traces][..], arguments].concat();
        let options = LeoCc.command().try_get_matches_from(all).unwrap();
        LeoCc.plan(&options, 1).map(|_| ())
    };
    let both = ["--only", "paths,unseen", "--links", "1"];
    assert!(plan(&both).is_ok());
    assert!(plan(&[&both[..], &["--probed"]].concat()).is_ok());
    assert!(plan(&["--only", "scatter"]).is_ok());
    // Flows of BBR beside ours are a part of it.
    assert!(plan(&["--only", "fairness", "--systems", "leocc2"]).is_ok());
    let refused = |more: &[&str]| plan(more).err().unwrap().to_string();
    let said = refused(&["--only", "series"]);
    assert!(
        said.contains("scatter, fairness, paths and unseen"),
        "{said}"
    );
    let said = refused(&["--only", "scatter", "--systems", "leocc2"]);
    assert!(said.contains("leocc2 beside bbr"), "{said}");
    let said = refused(&["--only", "fairness", "--systems", "bbr"]);
    assert!(said.contains("leocc2 beside bbr"), "{said}");
    let said = refused(&["--only", "scatter", "--probed"]);
    assert!(said.contains("--probed belong"), "{said}");
    let said = refused(&["--real", "--systems", "leocc2"]);
    assert!(said.contains("leocc2 beside kernel-bbr"), "{said}");
    let said = refused(&[&both[..], &["--systems", "leocc2,cubic"]].concat());
    assert!(said.contains("leocc2 beside bbr"), "{said}");
    let said = refused(&[&both[..], &["--quick"]].concat());
    assert!(said.contains("--quick"), "{said}");
}
