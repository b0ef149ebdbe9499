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
    // By its name it is the same.
    let output = run(&["orbit", "paths", "--preset", "leotp", "--json"]);
    let named: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(named["paths"].as_array().unwrap().len(), rows.len());
    for (row, named) in rows.iter().zip(named["paths"].as_array().unwrap()) {
        for key in ["to", "links_mean", "changes"] {
            assert_eq!(row[key], named[key], "{key}");
        }
    }
    let refused = run(&["orbit", "paths", "--preset", "leotp", "--shell", "kuiper"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
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

/// Two hours are the longest trace that is read, and the longest that is written.
#[test]
fn two_hours_are_read_back_and_what_would_not_be_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = |name: &str, more: &[&str]| {
        let out = file(name);
        let mut arguments = vec!["orbit", "paths", "Beijing", "Paris", "--out", path(&out)];
        arguments.extend(more);
        run(&arguments)
    };
    let rate: &[&str] = &["--rate", "10mbit"];
    let two_hours: &[&str] = &["--duration", "2h", "--step", "30s"];
    for (name, more) in [
        ("path.log", &[][..]),
        ("delay.txt", &[]),
        ("path.csv", rate),
    ] {
        let output = write(name, &[more, two_hours].concat());
        assert!(output.status.success(), "{output:?}");
        let link = match name {
            "path.csv" => format!("csv={}", path(&file(name))),
            _ => path(&file(name)).to_owned(),
        };
        let told = run(&["trace", "info", "--json", &link]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(told["duration_s"], 7200.0, "{name}");
    }
    let longer: &[&str] = &["--duration", "7201s", "--step", "30s"];
    for (name, more, said) in [
        ("x.log", &[longer][..], "at most 2h"),
        ("x.txt", &[longer], "at most 2h"),
        ("x.csv", &[longer, rate], "at most 2h"),
        ("x", &[longer, rate], "at most 2h"),
        ("x.csv", &[&["--duration", "1s"], rate], "one step alone"),
        (
            "x.log",
            &[&["--duration", "30s", "--step", "30s"]],
            "one step alone",
        ),
        ("x.json", &[rate], "ends in .csv"),
        ("x.log", &[rate], "ends in .csv"),
        ("x.txt", &[rate], "ends in .csv"),
    ] {
        let output = write(name, &more.concat());
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
        assert!(text(&output.stderr).contains(said), "{name}: {output:?}");
        assert!(!file(name).exists(), "{name} was written");
    }
    for (name, more) in [
        ("long.json", longer),
        ("long.csv", longer),
        ("one.log", &["--duration", "1s"]),
    ] {
        let output = write(name, more);
        assert!(output.status.success(), "{name}: {output:?}");
    }
    let folder = write("folder", longer);
    assert!(folder.status.success(), "{folder:?}");
    assert!(text(&folder.stderr).contains("no path logs"), "{folder:?}");
    assert_eq!(fs::read_dir(file("folder")).unwrap().count(), 2);
}

#[test]
fn stations_that_are_never_connected_make_no_perfect_link() {
    let folder = tempfile::tempdir().unwrap();
    let pole = ["orbit", "paths", "Pole=90,0", "Paris", "--duration", "3s"];
    for name in ["path.txt", "path.log"] {
        let out = folder.path().join(name);
        let output = run(&[&pole[..], &["--out", path(&out)]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            text(&output.stderr).contains("never connected"),
            "{output:?}"
        );
        assert!(!out.exists(), "{name} was written");
    }
    let out = folder.path().join("path.csv");
    let output = run(&[&pole[..], &["--rate", "10mbit", "--out", path(&out)]].concat());
    assert!(output.status.success(), "{output:?}");
    let told = run(&["trace", "info", "--json", &format!("csv={}", path(&out))]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["loss_mean"], 1.0, "{told}");
}

#[test]
fn stations_whose_names_differ_in_case_or_punctuation_have_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    for (pairs, count) in [(&[][..], 2), (&["--all-pairs"], 3)] {
        let out = folder.path().join(format!("of-{count}"));
        let mut arguments = vec!["orbit", "paths", "Paris", "a=48,2", "A=50,3"];
        arguments.extend(pairs);
        arguments.extend(["--duration", "3s", "--out", path(&out)]);
        let output = run(&arguments);
        assert!(output.status.success(), "{output:?}");
        let names = fs::read_dir(&out).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3 * count, "{names:?}");
        let second = fs::read_to_string(out.join("paris-a-2.json")).unwrap();
        assert!(second.contains(r#""nodes":["Paris","A","#), "{second}");
    }
    let out = folder.path().join("multi.log");
    let output = run(&[
        "orbit",
        "paths",
        "Paris",
        "Rome",
        "Oslo",
        "--out",
        path(&out),
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("name a folder"), "{output:?}");
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

/// Two-line elements of 6 planes of 11 satellites, all of one name.
fn elements_of_one_name(name: &str) -> String {
    let summed = |line: String| {
        let digits = line.bytes().map(|byte| match byte {
            b'-' => 1,
            b'0'..=b'9' => u32::from(byte - b'0'),
            _ => 0,
        });
        let sum = digits.sum::<u32>() % 10;
        format!("{line}{sum}\n")
    };
    let satellite = |number: u32| {
        let (plane, slot) = (number / 11, number % 11);
        let node = f64::from(plane) * 31.6;
        let anomaly = (f64::from(slot) + f64::from(plane % 2) / 2.0) * 360.0 / 11.0;
        let one =
            format!("1 {number:05}U 20001A   20010.50000000  .00000000  00000-0  00000-0 0  999");
        let two = format!(
            "2 {number:05}  86.4000 {node:8.4} 0000001   0.0000 {anomaly:8.4} 14.34000000    1"
        );
        format!("{name}\n{}{}", summed(one), summed(two))
    };
    (0..66).map(satellite).collect()
}

#[test]
fn a_page_moves_the_path_over_its_own_satellites_also_where_they_have_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let (elements, page) = (folder.path().join("x.tle"), folder.path().join("x.html"));
    fs::write(&elements, elements_of_one_name("DOVE")).unwrap();
    let mut arguments = vec!["orbit", "plot", "Berlin", "Tokyo", "--tle", path(&elements)];
    arguments.extend(["--duration", "3s", "--elevation", "5", "--out", path(&page)]);
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(&page).unwrap();
    let data = page.split_once("const data = ").unwrap().1;
    let data: Value = serde_json::from_str(data.split_once(";\n").unwrap().0).unwrap();
    let lasers = data["lasers"].as_array().unwrap();
    let nodes = data["routes"][0][1].as_array().unwrap();
    assert!(nodes.len() > 4, "{nodes:?}");
    assert_eq!(
        (&nodes[0], &nodes[nodes.len() - 1]),
        (&66.into(), &67.into())
    );
    for pair in nodes[1..nodes.len() - 1].windows(2) {
        let linked = |laser: &Value| {
            let ends = [&laser[0], &laser[1]];
            ends == [&pair[0], &pair[1]] || ends == [&pair[1], &pair[0]]
        };
        assert!(lasers.iter().any(linked), "{pair:?} is no laser");
    }
}

#[test]
fn debris_carries_nothing_where_there_are_satellites_and_all_do_where_none_is_in_service() {
    let folder = tempfile::tempdir().unwrap();
    let elements = folder.path().join("x.tle");
    let told = |file: &str| {
        fs::write(&elements, file).unwrap();
        let output = run(&["orbit", "info", "--tle", path(&elements), "--json"]);
        assert!(output.status.success(), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counts = [&told["satellites"], &told["left_out"]].map(|count| count.as_u64().unwrap());
        (
            counts,
            text(&output.stderr).contains("no satellite is in service"),
        )
    };
    let dead = elements_of_one_name("IRIDIUM 7 [-]");
    assert_eq!(told(&dead), ([66, 0], true));
    let one = dead.replacen("IRIDIUM 7 [-]", "IRIDIUM 106 [+]", 1);
    assert_eq!(told(&one), ([1, 65], false));
}

#[test]
fn a_page_has_all_lasers_and_tells_by_heights_which_are_in_sight() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("x.html");
    // Neighbours in a plane are 45° apart, behind the horizon of each other.
    let shell = "planes=6,satellites=8,altitude=550km,inclination=86,spread=180";
    let shown = run(&["orbit", "info", "--shell", shell, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let mut arguments = vec!["orbit", "plot", "Berlin", "Paris", "--shell", shell];
    arguments.extend(["--duration", "3s", "--out", path(&page)]);
    let data = |more: &[&str]| -> Value {
        let output = run(&[&arguments[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        let page = fs::read_to_string(&page).unwrap();
        let data = page.split_once("const data = ").unwrap().1;
        serde_json::from_str(data.split_once(";\n").unwrap().0).unwrap()
    };
    let with = data(&[]);
    let lasers = with["lasers"].as_array().unwrap().len();
    assert_eq!(shown["laser_links"], lasers);
    assert!(shown["laser_links_in_sight"].as_u64() < shown["laser_links"].as_u64());
    let radius = with["radii_km"][47].as_f64().unwrap();
    assert!((radius - 6928.0).abs() < 20.0, "{radius}");
    assert_eq!(data(&["--no-lasers"])["lasers"], serde_json::json!([]));
}

/// The route of a moment is that of its step, although satellites have moved on.
#[test]
fn a_picture_of_a_moment_has_the_path_of_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (steps, map) = (file("steps.json"), file("map.svg"));
    let shell = "planes=12,satellites=12,altitude=550km,inclination=53";
    let orbit = |command: &'static str, more: &[&str]| {
        let all = ["orbit", command, "Rome", "Vienna", "--shell", shell];
        let output = run(&[&all[..], &["--duration", "20min"], more].concat());
        assert!(output.status.success(), "{output:?}");
    };
    orbit("paths", &["--step", "10s", "--out", path(&steps)]);
    let told: Value = serde_json::from_str(&fs::read_to_string(&steps).unwrap()).unwrap();
    let steps = told["steps"].as_array().unwrap();
    let connected: Vec<bool> = steps
        .iter()
        .map(|step| !step["path"].as_array().unwrap().is_empty())
        .collect();
    let other = connected.iter().position(|now| *now != connected[0]);
    let moment = format!("{}s", other.expect("a gap, or a path") * 10);
    let more = [
        "--step",
        "20min",
        "--moment",
        moment.as_str(),
        "--out",
        path(&map),
    ];
    orbit("plot", &more);
    let drawn = fs::read_to_string(&map).unwrap();
    assert_eq!(
        drawn.contains("id=\"route\" d=\"M"),
        connected[0],
        "{moment}"
    );
}

#[test]
fn the_axis_of_a_path_that_never_exists_has_labels_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("map.svg");
    let mut arguments = vec!["orbit", "plot", "Pole=90,0", "Paris", "--duration", "3s"];
    arguments.extend(["--out", path(&file)]);
    assert!(run(&arguments).status.success());
    let drawn = fs::read_to_string(&file).unwrap();
    for label in [">20<", ">100<"] {
        assert!(drawn.contains(label), "no {label}");
    }
    let page = folder.path().join("map.html");
    let last = arguments.len() - 1;
    arguments[last] = path(&page);
    assert!(run(&arguments).status.success());
    let drawn = fs::read_to_string(&page).unwrap();
    assert!(drawn.contains("none at any time") && !drawn.contains("mean 0.00"));
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
            &[
                "orbit", "plot", "Beijing", "Paris", "--moment", "1s", "--out", "x.html",
            ],
            "--moment is that of a picture",
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
