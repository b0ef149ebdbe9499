//! The rules of the house, checked on the workspace.

#![expect(clippy::unwrap_used, reason = "what a test cannot read fails it")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use starhaul_system_tests::house::{
    CORES, EXPERIMENTS, FLOORS, LOGGED, OF_OTHER_COMMANDS, UNSAFE_ALLOWED,
    circles::Imports,
    dependencies::{tree_of, violations},
    events::events_of_crate,
    source::{scan, scan_crate},
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn crates() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(workspace().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The fields of the table in docs/operate.md.
fn documented_fields() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join("docs/operate.md")).unwrap();
    let rows = text.lines().skip_while(|line| *line != "| field | of |");
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn the_fields_of_the_log_are_those_that_are_documented() {
    let mut told = BTreeSet::new();
    for root in LOGGED {
        for (file, event) in events_of_crate(&workspace().join("crates").join(root)).unwrap() {
            if event.is_told() && !OF_OTHER_COMMANDS.iter().any(|other| file.ends_with(other)) {
                told.extend(event.fields);
            }
        }
    }
    let documented = documented_fields();
    let missing: Vec<_> = told.difference(&documented).collect();
    let unused: Vec<_> = documented.difference(&told).collect();
    assert!(missing.is_empty(), "not in docs/operate.md: {missing:?}");
    assert!(unused.is_empty(), "logged by nothing: {unused:?}");
}

/// Each line of `--log-format json` has a `target` of its own: the part of the program.
#[test]
fn no_field_of_an_event_hides_a_key_of_every_line() {
    for name in crates() {
        let sources = workspace().join("crates").join(&name).join("src");
        for root in ["lib.rs", "main.rs"].map(|root| sources.join(root)) {
            let events = root.is_file().then(|| events_of_crate(&root).unwrap());
            for (file, event) in events.into_iter().flatten() {
                for key in ["timestamp", "level", "target", "message"] {
                    let hides = event.fields.iter().any(|field| field == key);
                    assert!(!hides, "{}: a field {key}", file.display());
                }
            }
        }
    }
}

#[test]
fn every_crate_has_a_floor() {
    let mut known: Vec<&str> = FLOORS.concat();
    known.sort_unstable();
    assert_eq!(crates(), known, "crates on disk, and crates with a floor");
}

#[test]
fn imports_go_one_way_between_floors_files_and_experiments() {
    let mut found = Vec::new();
    for name in crates() {
        let tree = tree_of(&workspace(), &name).unwrap();
        found.extend(violations(&name, &tree).unwrap());
        let imports = Imports::of_crate(&workspace().join("crates").join(&name).join("src"));
        let imports = imports.unwrap();
        let circles = imports.circles().into_iter();
        found.extend(circles.map(|circle| format!("{name}: a circle of {}", circle.join(", "))));
        if name == "starhaul-lab" {
            found.extend(imports.between_children(EXPERIMENTS));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn cores_name_no_clock_socket_thread_or_global_randomness() {
    let mut found = Vec::new();
    for name in CORES {
        let root = workspace().join("crates").join(name).join("src/lib.rs");
        for (file, scan) in scan_crate(&root).unwrap() {
            let lines = scan.violations.into_iter();
            found.extend(lines.map(|(line, what)| format!("{}:{line}: {what}", file.display())));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A test with a skip of its own would pass even if `STARHAUL_REQUIRE` lists what it lacks.
#[test]
fn tests_are_skipped_in_one_way_only() {
    let mut found = Vec::new();
    for name in crates() {
        let mut files = Vec::new();
        rust_files(&workspace().join("crates").join(name), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let said = text.lines().zip(1..).filter(|(line, _)| {
                let words = line.trim_start();
                words.contains("print") && words.contains("ln!(\"skipped")
            });
            found.extend(said.map(|(_, line)| format!("{}:{line}", file.display())));
        }
    }
    assert!(
        found.is_empty(),
        "use starhaul_needs::skip:\n{}",
        found.join("\n")
    );
}

#[test]
fn unsafe_code_stays_in_one_crate() {
    let mut found = Vec::new();
    for name in crates()
        .into_iter()
        .filter(|name| !UNSAFE_ALLOWED.contains(&name.as_str()))
    {
        let mut files = Vec::new();
        rust_files(&workspace().join("crates").join(name), &mut files);
        for file in files {
            let scan = scan(&fs::read_to_string(&file).unwrap()).unwrap();
            found.extend(
                scan.unsafe_lines
                    .iter()
                    .map(|line| format!("{}:{line}", file.display())),
            );
        }
    }
    assert!(
        found.is_empty(),
        "unsafe outside {UNSAFE_ALLOWED:?}:\n{}",
        found.join("\n")
    );
}
