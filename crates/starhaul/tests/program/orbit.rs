//! `starhaul orbit` from the user's side.

use std::{fs, process::Output};

use crate::program::{path, run, text};
use serde_json::Value;

const HYPATIA: [&str; 6] = [
    "--shell",
    "hypatia",
    "--elevation",
    "0",
    "--range",
    "1089.686",
];

#[test]
fn the_figures_of_table_2_are_one_command() {
    let mut arguments = vec![
        "orbit",
        "paths",
        "Beijing",
        "hong-kong",
        "Paris",
        "new york",
        "--json",
    ];
    arguments.extend(HYPATIA);
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = told["paths"].as_array().unwrap();
    for (row, (name, links)) in
        rows.iter()
            .zip([("Hong Kong", 3.15), ("Paris", 7.53), ("New York", 16.88)])
    {
        assert_eq!(row["to"], name);
        assert!(
            (row["links_mean"].as_f64().unwrap() - links).abs() < 0.01,
            "{row}"
        );
    }
}

#[test]
fn what_is_written_is_read_as_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = |name: &str, more: &[&str]| {
        let (out, mut arguments) = (
            file(name),
            vec!["orbit", "paths", "Beijing", "Paris", "--duration", "60s"],
        );
        arguments.extend(["--out", path(&out)]);
        arguments.extend(more);
        let output = run(&arguments);
        assert!(output.status.success(), "{output:?}");
    };
    write("path.log", &[]);
    write("delay.txt", &[]);
    write("path.json", &[]);
    write("path.csv", &["--rate", "10mbit", "--limited-at", "to"]);
    let shown = |link: &str| {
        let output = run(&["trace", "info", "--json", link]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let log = shown(&format!("rate=5mbit,delay={}", path(&file("path.log"))));
    let table = shown(&format!("csv={}", path(&file("path.csv"))));
    let lines = shown(path(&file("delay.txt")));
    for told in [&log, &table, &lines] {
        assert_eq!(told["duration_s"], 60.0, "{told}");
        let median = told["delay"]["median_ms"].as_f64().unwrap();
        assert!((30.0..45.0).contains(&median), "{told}");
    }
    let mean = table["capacity"]["mean_mbps"].as_f64().unwrap();
    assert!((5.0..10.0).contains(&mean), "{table}");
    let whole = fs::read_to_string(file("path.json")).unwrap();
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["steps"].as_array().unwrap().len(), 60);
}

#[test]
fn stations_may_lie_in_the_south() {
    let named = run(&[
        "orbit",
        "paths",
        "Cape=-33.9,18.4",
        "Paris",
        "--duration",
        "3s",
    ]);
    // All but the name.
    let figures = |output: &Output| {
        let row = text(&output.stdout).lines().nth(1).unwrap_or_default();
        let words = row.split_whitespace().skip(1).map(str::to_owned);
        words.collect::<Vec<_>>()
    };
    assert!(figures(&named).len() > 5, "{named:?}");
    for station in ["-33.9,18.4", "33.9S,18.4E"] {
        for arguments in [
            &["orbit", "paths", station, "Paris", "--duration", "3s"][..],
            &["orbit", "paths", "--duration", "3s", "--", station, "Paris"],
        ] {
            let output = run(arguments);
            assert!(output.status.success(), "{output:?}");
            assert_eq!(figures(&output), figures(&named), "{arguments:?}");
        }
    }
    let wrong = run(&["orbit", "paths", "-33.9,18.4", "Paris", "--stp", "1s"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("--step"), "{wrong:?}");
}

#[test]
fn several_paths_go_into_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("paths");
    let output = run(&[
        "orbit",
        "paths",
        "Beijing",
        "Paris",
        "A/B=1,2",
        "--all-pairs",
        "--duration",
        "3s",
        "--out",
        path(&out),
    ]);
    assert!(output.status.success(), "{output:?}");
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 9, "{names:?}");
    assert_eq!(names[0], "beijing-a-b.csv");
}

#[test]
fn maps_need_no_network_and_names_cannot_leave_them() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["map.svg", "map.html"] {
        let file = folder.path().join(name);
        let output = run(&[
            "orbit",
            "plot",
            "</script><b>=48,2",
            "Berlin",
            "--duration",
            "5s",
            "--shell",
            "iridium",
            "--elevation",
            "5",
            "--out",
            path(&file),
        ]);
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(&file).unwrap();
        let schemes =
            text.matches("http").count() - text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(schemes, 0, "{name} refers to a network");
        assert!(!text.contains("</script><b>"), "{name}");
    }
}

#[test]
fn wrong_usage_is_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let elements = folder.path().join("bad.tle");
    fs::write(&elements, "SAT\nno elements\n").unwrap();
    for (arguments, said) in [
        (&["orbit", "paths", "Beijing"][..], "two ground stations"),
        (
            &["orbit", "paths", "Beijing", "Pariss"],
            "did you mean \"Paris\"",
        ),
        (&["orbit", "paths", "Beijing", "beijing"], "given twice"),
        (
            &["orbit", "paths", "Beijing", "Paris", "--shell", "starlnk"],
            "did you mean \"starlink\"",
        ),
        (
            &[
                "orbit",
                "paths",
                "Beijing",
                "Paris",
                "--tle",
                path(&elements),
            ],
            "bad.tle:2: ",
        ),
        (
            &[
                "orbit",
                "paths",
                "Beijing",
                "Paris",
                "--tle",
                "/nonexistent.tle",
            ],
            "cannot read /nonexistent.tle",
        ),
        (
            &["orbit", "paths", "Beijing", "Paris", "--out", "x.svg"],
            "orbit plot",
        ),
        (
            &[
                "orbit",
                "paths",
                "Beijing",
                "Paris",
                "--step",
                "1ms",
                "--duration",
                "24h",
            ],
            "at most 86400 steps",
        ),
        (
            &["orbit", "plot", "Beijing", "Paris", "--out", "x.png"],
            ".html for a page",
        ),
        (
            &["orbit", "paths", "Beijing", "Paris", "--elevation", "95"],
            "less than 90",
        ),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let error = text(&output.stderr);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn a_constellation_and_its_stations_are_shown() {
    let output = run(&["orbit", "info", "--shell", "oneweb", "Svalbard", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["satellites"], 18 * 36);
    assert!(
        told["stations"][0]["satellites_in_reach"].as_u64().unwrap() > 5,
        "{told}"
    );
    let cities = run(&["orbit", "info", "--cities"]);
    assert!(text(&cities.stdout).contains("Hong Kong"));
}
