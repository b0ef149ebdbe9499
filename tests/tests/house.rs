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

/// Messages of the system and of libraries, which no source of ours has.
const OF_OTHERS: [&str; 9] = [
    "Address already in use",
    "Bad line checksum",
    "Connection refused",
    "File name too long",
    "No such file or directory",
    "Not a directory",
    "Operation not permitted",
    "Permission denied",
    "failed to lookup address information",
];

/// What of a message is in the source as it is printed: its parts between names, numbers and the texts that it is made of.
fn fixed_parts(message: &str) -> Vec<String> {
    let mut message = message.to_owned();
    for joint in [": ", "; ", ", because ", " raises it"] {
        message = message.replace(joint, "…");
    }
    let parts = message.split(|c: char| matches!(c, '…' | '"') || c.is_ascii_digit());
    let parts = parts.map(|part| part.trim_matches(|c: char| " .:;,[]()%".contains(c)));
    // Shorter ones are in some source anyway.
    let parts = parts.filter(|part| part.chars().count() >= 12);
    parts.map(str::to_owned).collect()
}

/// The sources of all crates, their texts as they are printed.
fn sources() -> String {
    let mut files = Vec::new();
    for name in crates() {
        rust_files(
            &workspace().join("crates").join(name).join("src"),
            &mut files,
        );
    }
    let mut printed = String::new();
    for file in files {
        // A text goes on behind the white space of the next line.
        let text = fs::read_to_string(file).unwrap();
        let mut pieces = text.split("\\\n");
        printed.push_str(pieces.next().unwrap_or_default());
        pieces.for_each(|piece| printed.push_str(piece.trim_start()));
    }
    printed.replace("\\\"", "\"")
}

/// Who searches for a message finds it only as the program says it.
#[test]
fn messages_of_the_troubleshooting_are_said_by_the_program() {
    let sources = sources();
    let file = workspace().join("docs/troubleshooting.md");
    let text = fs::read_to_string(file).unwrap();
    let (mut count, mut stale) = (0, Vec::new());
    for (line, number) in text.lines().zip(1..) {
        let Some(row) = line.strip_prefix("| ") else {
            continue;
        };
        let messages = row.split(" | ").next().unwrap_or_default();
        for part in messages.split('`').skip(1).step_by(2).flat_map(fixed_parts) {
            count += 1;
            if !sources.contains(&part) && !OF_OTHERS.contains(&&*part) {
                stale.push(format!("docs/troubleshooting.md:{number}: {part}"));
            }
        }
    }
    assert!(count > 300, "{count} parts of messages");
    assert!(stale.is_empty(), "no source says\n{}", stale.join("\n"));
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

/// The crates of the table in ARCHITECTURE.md with their floors, as it writes them.
fn documented_floors() -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let rows = text
        .lines()
        .skip_while(|line| *line != "| floor | crate | contents |");
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let mut floors = BTreeSet::new();
    for row in rows {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let [floor, crates] = [(); 2].map(|()| cells.next().unwrap());
        // Beside the floors are what no crate uses.
        for name in quoted(crates).filter(|_| floor != "beside") {
            let name = match name.strip_prefix('-') {
                Some(rest) => format!("starhaul-{rest}"),
                None => name.to_owned(),
            };
            floors.insert((floor.to_owned(), name));
        }
    }
    floors
}

/// Who reads where a crate belongs reads what is checked.
#[test]
fn floors_are_those_that_the_architecture_shows() {
    let mut checked = BTreeSet::new();
    for (crates, number) in FLOORS.iter().zip(-1..) {
        let floor = match crates.contains(&"starhaul") {
            true => "roof".to_owned(),
            false => number.to_string(),
        };
        checked.extend(
            crates
                .iter()
                .map(|name| (floor.clone(), (*name).to_owned())),
        );
    }
    let documented = documented_floors();
    let missing: Vec<_> = checked.difference(&documented).collect();
    let other: Vec<_> = documented.difference(&checked).collect();
    assert!(missing.is_empty(), "not in ARCHITECTURE.md: {missing:?}");
    assert!(other.is_empty(), "not in FLOORS: {other:?}");
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

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The names of the tests in a source.
fn tests_in(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let after = lines.windows(2).filter(|pair| pair[0] == "#[test]");
    let names = after.filter_map(|pair| pair[1].strip_prefix("fn ")?.split('(').next());
    names.map(str::to_owned).collect()
}

/// The rows of the table of RFC 5326 in docs/ltp.md: sections, code and tests.
fn rows_of_rfc_5326() -> Vec<[String; 3]> {
    let text = fs::read_to_string(workspace().join("docs/ltp.md")).unwrap();
    let rows = text
        .lines()
        .skip_while(|line| *line != "| section | code | test |");
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
        [(); 3].map(|()| cells.next().unwrap())
    });
    cells.collect()
}

/// Who wants to see how a section is kept finds its code, and a test that fails without it.
#[test]
fn code_and_tests_of_rfc_5326_are_where_its_table_says() {
    let engine = workspace().join("crates/starhaul-ltp");
    let mut files = Vec::new();
    rust_files(&engine.join("src"), &mut files);
    rust_files(&engine.join("tests"), &mut files);
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let sources: Vec<String> = texts.collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(|text| tests_in(text)).collect();
    let has_code = |name: &str| {
        let path = engine.join("src").join(name);
        let item = name.rsplit("::").next().unwrap_or(name);
        let items = [
            format!("fn {item}("),
            format!("fn {item}<"),
            format!("struct {item} "),
        ];
        let is_item = |text: &String| items.iter().any(|item| text.contains(item));
        path.exists() || sources.iter().any(is_item)
    };
    let has_test = |name: &str| {
        let target = format!("fuzz/fuzz_targets/{name}.rs");
        tests.contains(name) || workspace().join(target).is_file()
    };
    let rows = rows_of_rfc_5326();
    let mut wrong = Vec::new();
    for [section, code, test] in &rows {
        if quoted(code).next().is_none() && !code.starts_with("the same") {
            wrong.push(format!("{section}: no code"));
        }
        let code = quoted(code).filter(|name| !has_code(name));
        wrong.extend(code.map(|name| format!("{section}: no {name}")));
        let unknown = quoted(test).filter(|name| !has_test(name));
        wrong.extend(unknown.map(|name| format!("{section}: no test {name}")));
        if quoted(test).next().is_none() {
            wrong.push(format!("{section}: no test"));
        }
    }
    // Its internal procedures.
    for number in 1..=22 {
        let number = format!("6.{number}");
        let is_told = rows.iter().any(|[section, ..]| {
            let mut words = section.split(|c: char| !c.is_ascii_digit() && c != '.');
            words.any(|word| word == number)
        });
        if !is_told {
            wrong.push(format!("{number}: no row"));
        }
    }
    assert!(wrong.is_empty(), "docs/ltp.md:\n{}", wrong.join("\n"));
}
