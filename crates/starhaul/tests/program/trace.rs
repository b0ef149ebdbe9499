//! `starhaul trace` from the user's side.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// Runs in a folder of its own, so that file names are short.
fn trace(folder: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_starhaul"))
        .arg("trace")
        .args(arguments.split_whitespace())
        .env_remove("STARHAUL_LOG")
        .current_dir(folder)
        .output()
        .unwrap()
}

fn done(folder: &Path, arguments: &str) -> String {
    let output = trace(folder, arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn info(folder: &Path, source: &str) -> Value {
    serde_json::from_str(&done(folder, &format!("info --json {source}"))).unwrap()
}

#[test]
fn a_model_goes_through_every_format_and_stays_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, "synth leo --seconds 30 --seed 4 --out a.csv");
    done(folder, "convert a.csv --out bw.txt --out-delay delay.txt");
    done(folder, "convert bw.txt delay.txt --out b.csv");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    // except for the loss, which the pair does not contain
    let without_loss = |table: String| -> Vec<String> {
        let columns = |line: &str| line.splitn(4, ',').take(3).collect::<Vec<_>>().join(",");
        table.lines().map(columns).collect()
    };
    assert_eq!(without_loss(read("a.csv")), without_loss(read("b.csv")));
    // the same seed gives the same bytes, another one others
    done(folder, "synth leo --seconds 30 --seed 4 --out again.csv");
    done(folder, "synth leo --seconds 30 --seed 5 --out other.csv");
    assert_eq!(read("a.csv"), read("again.csv"));
    assert_ne!(read("a.csv"), read("other.csv"));

    let (table, model) = (info(folder, "a.csv"), info(folder, "bw.txt delay.txt"));
    assert_eq!(table["format"], "csv");
    assert_eq!(model["format"], "mahimahi");
    for key in ["capacity", "delay", "outages", "duration_s"] {
        assert_eq!(table[key], model[key], "{key}");
    }
    assert_eq!(table["loss_mean"], 0.002);
}

#[test]
fn a_part_is_what_lies_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // one packet at 10, 20, … 1000 ms; delays of 5 and then 7 ms
    let stamps: Vec<String> = (1..=100).map(|n| format!("{}\n", n * 10)).collect();
    fs::write(folder.join("bw.txt"), stamps.concat()).unwrap();
    fs::write(
        folder.join("delay.txt"),
        "5\n".repeat(50) + &"7\n".repeat(50),
    )
    .unwrap();
    let part = "cut bw.txt delay.txt --from 480ms --to 530ms";
    done(folder, &format!("{part} --out b.txt --out-delay d.txt"));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("b.txt"), "10\n20\n30\n40\n50\n");
    assert_eq!(read("d.txt"), "5\n5\n7\n7\n7\n");
    let table = done(folder, &format!("{part} --out - --step 10ms"));
    assert!(
        table.starts_with("t_s,capacity_mbps,owd_ms\n0.000,1.2,5\n0.010,1.2,5\n0.020,1.2,7\n"),
        "{table}"
    );
    let outside = trace(folder, "cut bw.txt --from 5s --out b.txt");
    assert_eq!(outside.status.code(), Some(2));
}

#[test]
fn links_are_written_as_for_replay() {
    let folder = tempfile::tempdir().unwrap();
    let link = info(folder.path(), "rate=12mbit,delay=25ms,loss=1% --seconds 10");
    assert_eq!(link["duration_s"], 10.0);
    assert_eq!(link["capacity"]["mean_mbps"], 12.0);
    assert_eq!(link["delay"]["median_ms"], 25.0);
    assert_eq!(link["loss_mean"], 0.01);
    assert_eq!(link["reconfigurations"], Value::Null);
    let constant = info(folder.path(), "synth=geo,seed=1 30ms");
    assert_eq!(constant["delay"]["max_ms"], 30.0);
    let text = done(folder.path(), "info synth=leo,seed=3");
    assert!(text.contains("every 15.00"), "{text}");
}

#[test]
fn mistakes_are_named_with_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("bw.txt"), "1\n2\nthree\n").unwrap();
    fs::write(folder.join("delay.txt"), "7\n").unwrap();
    fs::write(folder.join("c.txt"), "1\n2\n").unwrap();
    for (arguments, code, said) in [
        ("info bw.txt", 2, "bw.txt:3: is not a whole number"),
        ("info none.txt", 2, "cannot read trace none.txt"),
        ("info rat=5mbit", 2, "did you mean \"rate\"?"),
        ("info --format cvs bw.txt", 2, "did you mean \"csv\"?"),
        ("synth loe --out a.csv", 2, "did you mean \"leo\"?"),
        (
            "convert delay.txt --out a.csv --out-format csv",
            2,
            "has no capacity",
        ),
        (
            "convert delay.txt --out a.txt --out-format mahimahi",
            2,
            "has no capacity",
        ),
        (
            "synth geo --out a.csv --out-delay d.txt",
            2,
            "--out-format mahimahi",
        ),
        ("synth geo --out a.txt --out-format leoem", 2, "only read"),
        ("synth geo --out none/a.csv", 1, "cannot write none/a.csv"),
        ("synth geo --out a.csv --step soon", 2, "800ms"),
        // As everywhere: a number without a unit is no duration.
        ("cut c.txt --from 20 --out a.csv", 2, "is not a duration"),
        (
            "synth geo --out a.csv --step 1.5ms",
            2,
            "whole milliseconds",
        ),
        ("synth geo --out a.csv --step 0", 2, "whole milliseconds"),
        (
            "synth geo --seconds 1 --out a.csv --step 1s",
            2,
            "take a --step shorter than the trace",
        ),
        (
            "convert c.txt --out a.txt --out-format delay",
            2,
            "this trace has no delays",
        ),
        (
            "convert c.txt --out a.txt --out-delay d.txt",
            2,
            "this trace has no delays",
        ),
    ] {
        let output = trace(folder, arguments);
        let said_there = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments}: {said_there}"
        );
        assert!(said_there.contains(said), "{arguments}: {said_there}");
    }
}

#[test]
fn what_is_not_written_or_not_there_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let log = "0$[1,2]$1$[0.005]$0.010\n1$NULL\n2$[1,2]$1$[0.005]$0.010\n";
    fs::write(folder.join("path.log"), log).unwrap();
    for (arguments, notes) in [
        ("synth geo --out a.txt", &["holds no delay"][..]),
        (
            "synth leo --seconds 15 --out a.txt",
            &["holds no delay", "holds no loss", "has 0.200 %"],
        ),
        (
            "convert path.log --out delay.txt",
            &["the delay format holds no loss", "has 33.333 %"],
        ),
        (
            "info rate=1mbit,duplicate=1%,loss=ge:1%:5,jitter=1ms",
            &["no jitter and no duplicate and no bursts of loss"],
        ),
        (
            "cut path.log --from 1s --to 9s --out part.txt",
            &["the trace ends at 3 s, before --to"],
        ),
        ("cut path.log --from 1s --to 3s --out part.txt", &[]),
    ] {
        let output = trace(folder, arguments);
        assert!(output.status.success(), "{arguments}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for note in notes {
            assert!(said.contains(note), "{arguments}: {said}");
        }
        assert_eq!(said.contains("before --to"), arguments.contains("--to 9s"));
    }
}

#[test]
fn loss_of_a_link_and_of_its_delays_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let log = "0$[1,2]$1$[0.005]$0.010\n1$NULL\n2$[1,2]$1$[0.005]$0.010\n";
    fs::write(folder.join("path.log"), log).unwrap();
    let table = "t_s,capacity_mbps,loss_p\n0,12,0.1\n1,12,0.1\n2,12,0.1\n";
    fs::write(folder.join("path.csv"), table).unwrap();
    for (source, mean) in [
        ("rate=10mbit,delay=path.log", 1.0 / 3.0),
        ("rate=10mbit,delay=path.log,loss=1%", 1.02 / 3.0),
        ("path.csv path.log", 1.2 / 3.0),
        ("csv=path.csv,delay=path.log", 1.2 / 3.0),
        ("path.csv 20ms", 0.1),
    ] {
        let told = info(folder, source)["loss_mean"].as_f64().unwrap();
        assert!((told - mean).abs() < 1e-9, "{source}: {told}");
    }
}

#[test]
fn a_model_lasts_as_long_as_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let lasts = |source: &str| info(folder.path(), source)["duration_s"].as_f64().unwrap();
    assert_eq!(lasts("synth=leo,seed=3 --seconds 30"), 30.0);
    assert_eq!(lasts("synth=leo,seed=3"), 300.0);
    assert_eq!(lasts("rate=1mbit"), 60.0);
}

#[test]
fn a_plot_is_a_page_or_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = "plot synth=leo,seed=2 --from 10s --to 40s";
    done(folder, &format!("{source} --out a.svg"));
    done(folder, &format!("{source} --out a.html"));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("a.svg").starts_with("<svg xmlns="));
    let page = read("a.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("30.0 s"));
    // Two seconds around a reconfiguration, which alone tell of nothing regular.
    let whole = info(folder, "synth=leo,seed=2");
    let comb = &whole["reconfigurations"];
    let at = comb["offset_s"].as_f64().unwrap() + comb["period_s"].as_f64().unwrap();
    let (from, to) = (at.floor() - 1.0, at.floor() + 2.0);
    done(
        folder,
        &format!("plot synth=leo,seed=2 --from {from}s --to {to}s --out part.svg"),
    );
    let part = read("part.svg");
    assert!(part.contains("class=\"verticals reconfiguration\""));
    assert!(part.contains(&format!(">{from} s<")) && !part.contains(">0 s<"));
    assert!(
        page.contains("starhaul trace plot synth=leo,seed=2"),
        "the page says how it was made"
    );
}

#[test]
fn the_recorded_uplink_shows_its_eight_outages() {
    let (Some(bw), Some(delay)) = (
        starhaul_needs::trace("leocc-example/bw_example.txt"),
        starhaul_needs::trace("leocc-example/delay_example.txt"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let figures = info(
        folder.path(),
        &format!("{} {}", bw.display(), delay.display()),
    );
    let outages = figures["outages"].as_array().unwrap();
    let lengths: Vec<f64> = outages
        .iter()
        .map(|outage| outage["length_ms"].as_f64().unwrap())
        .collect();
    assert_eq!(lengths, [59.0, 69.0, 82.0, 68.0, 95.0, 135.0, 59.0, 93.0]);
    for (k, outage) in (0..).zip(outages) {
        let expected = 8.687 + 15.0 * f64::from(k);
        let start = outage["start_s"].as_f64().unwrap();
        assert!((start - expected).abs() < 0.02, "{start} for {expected}");
    }
    let comb = &figures["reconfigurations"];
    assert!(
        (comb["period_s"].as_f64().unwrap() - 15.0).abs() < 0.01,
        "{comb}"
    );
    assert!(
        (comb["offset_s"].as_f64().unwrap() - 8.687).abs() < 0.02,
        "{comb}"
    );
}
