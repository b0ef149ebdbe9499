//! `starhaul lab leocc` on traces that take a moment.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{fs, path::Path};

use starhaul_lab::leocc::{Options, Plan, Results, Section};

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

fn run(folder: &Path, systems: &[&str], sections: &[Section]) -> Results {
    let options = Options {
        traces: Some(folder.to_path_buf()),
        systems: systems.iter().map(|&name| name.to_owned()).collect(),
        losses: vec![0.0, 0.01],
        sections: sections.to_vec(),
        seed: 5,
        ..Options::default()
    };
    Plan::new(&options).unwrap().run("test", |_| {}).unwrap()
}

#[test]
fn the_table_of_a_small_run() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let results = run(folder.path(), &["newreno", "bbr"], &[Section::Scatter]);
    let table = "\
recorded uplink, loss 0 %, one trace
system            Mbit/s   use %  queue ms   p95 ms   rtt ms   p95 ms  lost %
newreno             5.80    97.6    709.84   1521.1    741.6   1554.1   16.75
bbr                 5.80    97.6     51.11    129.1     84.7    168.1    0.00

recorded uplink, loss 1 %, one trace
system            Mbit/s   use %  queue ms   p95 ms   rtt ms   p95 ms  lost %
newreno             2.97    49.9     11.42     45.1     45.1     75.9    1.35
bbr                 5.72    96.2     54.14    129.1     87.7    168.1    0.86

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
    assert_eq!(all.courses.len(), 2);
    let deaf = |row: &&starhaul_lab::leocc::Row| row.system == "leocc-no-detector";
    assert_eq!(all.ablation.iter().filter(deaf).count(), 1);
    // Of one kind 2, 4 and 8; LeoCC beside Cubic and BBR, Cubic beside BBR.
    assert_eq!(all.fairness.len(), 6 + 3);
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
