//! Finds circular imports between the files of a crate, and imports between experiments of the lab.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::source::{Scan, SourceError, scan_crate};

/// Greatest number of re-exports followed from a name to its file.
const MOST_REEXPORTS: usize = 8;

/// A file of a crate by its place among the modules; the root is empty.
type Module = Vec<String>;

/// The files of a crate and what they import.
pub struct Imports {
    files: BTreeMap<Module, Scan>,
}

type Edges = BTreeMap<Module, BTreeSet<Module>>;

/// Which imports count between a file and those above and below it among the modules.
#[derive(Clone, Copy)]
enum Line {
    /// What a part imports from those above it.
    Upward,
    /// What a file imports from its parts.
    Downward,
}

impl Line {
    fn counts(self, from: &[String], to: &[String]) -> bool {
        match (from.starts_with(to), to.starts_with(from)) {
            (true, true) => false,
            (true, false) => matches!(self, Self::Upward),
            (false, true) => matches!(self, Self::Downward),
            (false, false) => true,
        }
    }
}

impl Imports {
    /// Reads the crate with sources in `folder`, without tests.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of_crate(folder: &Path) -> Result<Self, SourceError> {
        let root = ["lib.rs", "main.rs"].map(|name| folder.join(name));
        let root = root.iter().find(|file| file.is_file());
        let scans = scan_crate(root.unwrap_or(&folder.join("lib.rs")))?;
        let files = scans.into_iter().map(|(file, scan)| {
            let place = file
                .strip_prefix(folder)
                .unwrap_or(&file)
                .with_extension("");
            let mut module: Module = place
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if ["lib", "main", "mod"].contains(&module.last().map_or("", String::as_str)) {
                module.pop();
            }
            (module, scan)
        });
        Ok(Self {
            files: files.collect(),
        })
    }

    /// Groups of files that import each other, by name. A file and those below it are no circle by themselves: a module may use its
    /// parts, and its parts what they share. So circles are sought twice, each time with one of the two.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let mut circles = BTreeSet::new();
        for line in [Line::Upward, Line::Downward] {
            let edges = self.edges(line);
            let reached: BTreeMap<&Module, BTreeSet<&Module>> = edges
                .keys()
                .map(|module| (module, reached_from(module, &edges)))
                .collect();
            for (module, from_here) in &reached {
                let both_ways = |other: &&Module| {
                    from_here.contains(*other) && reached[*other].contains(*module)
                };
                let circle = self.files.keys().filter(both_ways);
                let circle: Vec<String> = circle.map(|module| module.join("::")).collect();
                if circle.len() > 1 {
                    circles.insert(circle);
                }
            }
        }
        circles.into_iter().collect()
    }

    /// Imports of a child of the module `parent`, or what is below it, by another of its children: `from -> to`.
    pub fn between_children(&self, parent: &str) -> Vec<String> {
        let owner = |module: &Module| {
            let (first, child) = (module.first()?, module.get(1)?);
            (first == parent).then(|| child.clone())
        };
        let mut found = Vec::new();
        for (module, imported) in &self.edges(Line::Upward) {
            for other in imported {
                if let (Some(from), Some(to)) = (owner(module), owner(other))
                    && from != to
                {
                    found.push(format!("{} -> {}", module.join("::"), other.join("::")));
                }
            }
        }
        found
    }

    fn edges(&self, line: Line) -> Edges {
        let files = self.files.iter();
        files
            .map(|(module, scan)| (module.clone(), self.imported_by(module, scan, line)))
            .collect()
    }

    /// The files that a file imports or names.
    fn imported_by(&self, module: &Module, scan: &Scan, line: Line) -> BTreeSet<Module> {
        let imports = scan.paths.iter();
        let imports = imports.filter_map(|path| self.absolute(module, path));
        let named = scan.named.iter();
        let named = named.filter_map(|path| self.named(module, scan, path));
        imports
            .chain(named)
            .filter_map(|path| self.file_of(&path, 0))
            .filter(|other| line.counts(module, other))
            .collect()
    }

    /// Where a path leads that begins with the name of an imported module, or of one below.
    fn named(&self, module: &Module, scan: &Scan, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let imported = scan.paths.iter().find_map(|import| {
            let import = match import.split_last()? {
                (last, start) if last == "self" => start,
                _ => import.as_slice(),
            };
            (import.len() > 1 && import.last() == Some(first)).then_some(import)
        });
        let Some(imported) = imported else {
            return self.absolute(module, path);
        };
        let mut whole = self.absolute(module, imported)?;
        whole.extend_from_slice(rest);
        Some(whole)
    }

    /// The path from the root of the crate; `None` for one of another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut base = module.clone();
        let rest = match first.as_str() {
            "crate" => {
                base.clear();
                rest
            }
            "self" => rest,
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                base.truncate(base.len().saturating_sub(ups));
                path.get(ups..).unwrap_or_default()
            }
            child => {
                let below = [base.as_slice(), &[child.to_owned()]].concat();
                if !self.files.contains_key(&below) {
                    return None;
                }
                path
            }
        };
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The file that defines the item of a path, through re-exports.
    fn file_of(&self, path: &[String], depth: usize) -> Option<Module> {
        let known = (0..=path.len()).rev();
        let length = known
            .into_iter()
            .find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, rest) = (path[..length].to_vec(), &path[length..]);
        let scan = self.files.get(&module)?;
        let given_on = rest.first().and_then(|name| {
            let mut reexports = scan.reexports.iter();
            reexports.find(|reexport| reexport.last() == Some(name))
        });
        match given_on {
            Some(reexport) if depth < MOST_REEXPORTS => {
                let target = self.absolute(&module, reexport);
                target.map_or(Some(module), |target| self.file_of(&target, depth + 1))
            }
            _ => Some(module),
        }
    }
}

fn reached_from<'e>(module: &'e Module, edges: &'e Edges) -> BTreeSet<&'e Module> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![module];
    while let Some(imported) = waiting.pop().and_then(|next| edges.get(next)) {
        waiting.extend(imported.iter().filter(|other| reached.insert(*other)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::source::scan;
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Imports {
        let files = files.iter().map(|(name, text)| {
            let parts = name.split("::").filter(|part| !part.is_empty());
            (parts.map(str::to_owned).collect(), scan(text).unwrap())
        });
        Imports {
            files: files.collect(),
        }
    }

    #[test]
    fn a_circle_is_found_through_reexports_and_paths_in_the_text() {
        let found = crate_of(&[
            ("", "mod a; mod b; mod c; pub use b::Thing;"),
            ("a", "use crate::{Error, Thing};"),
            ("b", "fn f() { crate::c::g() }"),
            ("c", "use super::a::h;"),
        ]);
        assert_eq!(found.circles(), [["a", "b", "c"]]);
    }

    #[test]
    fn parents_and_children_tests_and_comments_are_no_circle() {
        let found = crate_of(&[
            ("", "mod a; mod b;"),
            ("a", "mod inner; use inner::X; use crate::b::Y;"),
            ("a::inner", "use super::Z;"),
            (
                "b",
                "//! [`crate::a`]\n#[cfg(test)] mod tests { use crate::a::X; }",
            ),
        ]);
        assert!(found.circles().is_empty(), "{:?}", found.circles());
    }

    #[test]
    fn a_circle_is_found_that_leads_over_a_parent_and_its_child() {
        let upward = crate_of(&[
            ("", "mod a; mod b;"),
            ("a", "mod inner; use crate::b::Y;"),
            ("a::inner", "use super::Z;"),
            ("b", "use crate::a::inner::W;"),
        ]);
        assert_eq!(upward.circles(), [["a", "a::inner", "b"]]);
        let downward = crate_of(&[
            ("", "mod a; mod b;"),
            ("a", "mod inner; use inner::X;"),
            ("a::inner", "use crate::b::Y;"),
            ("b", "use crate::a::Z;"),
        ]);
        assert_eq!(downward.circles(), [["a", "a::inner", "b"]]);
    }

    #[test]
    fn a_circle_is_found_through_the_name_of_an_imported_module() {
        let found = crate_of(&[
            ("", "mod a; mod b;"),
            ("a", "use crate::b::{self}; fn f() { b::g() }"),
            ("b", "mod c; pub use c::g;"),
            ("b::c", "use crate::a::h;"),
        ]);
        // Over `b` too, downward.
        let expected = [vec!["a", "b", "b::c"], vec!["a", "b::c"]];
        assert_eq!(found.circles(), expected);
    }

    #[test]
    fn what_one_experiment_takes_from_another_is_named() {
        let found = crate_of(&[
            ("", "mod kit; mod all;"),
            ("kit", ""),
            ("all", "mod one; mod two; use one::X; use two::Y;"),
            ("all::one", "mod part;"),
            ("all::one::part", "use crate::{kit::K, all::two::Figure};"),
            ("all::two", "use crate::kit::K;"),
        ]);
        let between = found.between_children("all");
        assert_eq!(between, ["all::one::part -> all::two"]);
    }
}
