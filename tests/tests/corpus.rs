//! Replays every input that the fuzzers kept, so that fixed defects stay fixed.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
};

use starhaul_system_tests::fuzz::TARGETS;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz_folder().join(folder)).expect("the fuzz folder is there");
    let stem = |path: PathBuf| {
        path.file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    entries
        .filter_map(|entry| stem(entry.ok()?.path()))
        .collect()
}

#[test]
fn every_target_has_a_file_and_a_corpus() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("fuzz_targets"), known);
    assert_eq!(names("corpus"), known);
}

#[test]
fn every_kept_input_passes() {
    for (name, body) in TARGETS {
        let mut files: Vec<PathBuf> = fs::read_dir(fuzz_folder().join("corpus").join(name))
            .expect("every target has a corpus")
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for file in files {
            let input = fs::read(&file).expect("a corpus file can be read");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&input))) {
                eprintln!("{name} fails on {}", file.display());
                resume_unwind(panic);
            }
        }
    }
}
