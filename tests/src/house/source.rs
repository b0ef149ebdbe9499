//! Checks the source of a core: no clock, socket, thread, global random source, `async` or `unsafe`.
//!
//! Files are parsed as by the compiler, from `lib.rs` along its `mod` declarations, so comments, strings and modules
//! under `#[cfg(test)]` do not count.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree, spanned::Spanned, visit::Visit};

/// Paths that no core may name, and what to use instead.
const FORBIDDEN: [(&[&str], &str); 17] = [
    (&["Instant", "now"], TIME),
    (&["SystemTime", "now"], TIME),
    (&[".elapsed"], TIME),
    (&["std", "thread"], "a core has no threads"),
    (&["thread", "spawn"], "a core has no threads"),
    (&["thread", "sleep"], TIME),
    (&["UdpSocket"], SOCKET),
    (&["TcpStream"], SOCKET),
    (&["TcpListener"], SOCKET),
    (&["rand", "rng"], RANDOM),
    (&["rand", "random"], RANDOM),
    (&["thread_rng"], RANDOM),
    (&["OsRng"], RANDOM),
    (&["SystemRandom"], RANDOM),
    (&["from_os_rng"], RANDOM),
    (&["async"], "a core does not wait"),
    (&[".await"], "a core does not wait"),
];
/// Files that may name one of them, and why.
const EXCEPTIONS: [(&str, &str); 1] = [
    // A new key pair is drawn when an operator asks for one; no state machine calls it.
    ("starhaul-quic/src/identity.rs", "SystemRandom"),
];
const TIME: &str = "take `now: Instant` as an argument";
const SOCKET: &str = "hand datagrams in and out";
const RANDOM: &str = "take a seed or a seeded generator";

/// Why a file could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file could not be read.
    #[error("{} cannot be read: {error}", .file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file is not valid Rust.
    #[error("{} cannot be parsed: {error}", .file.display())]
    Parse {
        /// Path of the file.
        file: PathBuf,
        /// The error of the parser.
        error: syn::Error,
    },
    /// A module's file is at neither of its two locations.
    #[error("module {module} of {} has no file", .file.display())]
    NoFile {
        /// The file that declares it.
        file: PathBuf,
        /// Name of the module.
        module: String,
    },
}

/// The findings in one source text.
#[derive(Debug, Default)]
pub struct Scan {
    /// Forbidden paths: line, and description.
    pub violations: Vec<(usize, String)>,
    /// Lines with `unsafe`.
    pub unsafe_lines: Vec<usize>,
    /// Modules outside tests whose text is in files of their own.
    pub modules: Vec<String>,
    /// Every path imported or named from the root of the crate.
    pub paths: Vec<Vec<String>>,
    /// Those of them that are re-exported.
    pub reexports: Vec<Vec<String>>,
    /// Every other path in the text that begins as the name of a module does.
    pub named: Vec<Vec<String>>,
}

/// Scans every file of the library with `root` (a `lib.rs` or `main.rs`) outside tests.
pub fn scan_crate(root: &Path) -> Result<Vec<(PathBuf, Scan)>, SourceError> {
    let mut waiting = vec![root.to_path_buf()];
    let mut scanned = Vec::new();
    while let Some(file) = waiting.pop() {
        let text = std::fs::read_to_string(&file).map_err(|error| SourceError::Read {
            file: file.clone(),
            error,
        })?;
        let mut scan = scan(&text).map_err(|error| SourceError::Parse {
            file: file.clone(),
            error,
        })?;
        for (excepted, word) in EXCEPTIONS {
            if file.ends_with(excepted) {
                scan.violations.retain(|(_, what)| !what.contains(word));
            }
        }
        for module in &scan.modules {
            waiting.push(
                module_file(&file, module).ok_or_else(|| SourceError::NoFile {
                    file: file.clone(),
                    module: module.clone(),
                })?,
            );
        }
        scanned.push((file, scan));
    }
    Ok(scanned)
}

/// Scans one source text.
pub fn scan(text: &str) -> syn::Result<Scan> {
    let file = syn::parse_file(text)?;
    let mut scan = Scan::default();
    if is_test_only(&file.attrs) {
        return Ok(scan);
    }
    let mut reader = Reader {
        scan: &mut scan,
        in_use: false,
    };
    file.items.iter().for_each(|item| reader.visit_item(item));
    scan.violations.sort();
    scan.violations.dedup();
    scan.named.sort();
    scan.named.dedup();
    Ok(scan)
}

fn module_file(declared_in: &Path, module: &str) -> Option<PathBuf> {
    let folder = declared_in.parent()?;
    let stem = declared_in.file_stem()?;
    let folder = if ["lib", "main", "mod"].iter().any(|name| stem == *name) {
        folder.to_path_buf()
    } else {
        folder.join(stem)
    };
    [
        folder.join(format!("{module}.rs")),
        folder.join(module).join("mod.rs"),
    ]
    .into_iter()
    .find(|file| file.is_file())
}

pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            meta => return meta.path().is_ident("test"),
        };
        tokens == "test"
    })
}

struct Reader<'a> {
    scan: &'a mut Scan,
    /// Within an import, where a path may begin at any crate.
    in_use: bool,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if is_test_only(&module.attrs) => {}
            Item::Mod(module) => match &module.content {
                None => self.scan.modules.push(module.ident.to_string()),
                Some((_, items)) => items.iter().for_each(|item| self.visit_item(item)),
            },
            Item::Fn(function) if is_test_only(&function.attrs) => {}
            Item::Impl(block) if is_test_only(&block.attrs) => {}
            Item::Use(import) if is_test_only(&import.attrs) => {}
            Item::Use(import) => {
                let before = self.scan.paths.len();
                self.in_use = true;
                self.read_use(&import.tree, &mut Vec::new());
                self.in_use = false;
                if !matches!(import.vis, syn::Visibility::Inherited) {
                    let given_on = self.scan.paths.iter().skip(before).cloned();
                    self.scan.reexports.extend(given_on);
                }
            }
            other => self.read_tokens(other.to_token_stream()),
        }
    }
}

impl Reader<'_> {
    /// `use a::{b, c::d}` names `a::b` and `a::c::d`.
    fn read_use(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.read_use(&step.tree, path);
                path.pop();
            }
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.read_use(tree, path)),
            UseTree::Name(name) => self.read_leaf(&name.ident.to_string(), name.span(), path),
            UseTree::Rename(rename) => {
                self.read_leaf(&rename.ident.to_string(), rename.span(), path)
            }
            UseTree::Glob(star) => self.judge(path, star.span()),
        }
    }

    fn read_leaf(&mut self, name: &str, span: Span, path: &mut Vec<String>) {
        path.push(name.to_owned());
        self.judge(path, span);
        path.pop();
    }

    /// Finds paths among tokens, so that those within macro calls are seen too.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut colons, mut dot) = (0, false);
        let mut at = Span::call_site();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.judge(&path, at);
                        path.clear();
                    }
                    path.push(if dot {
                        format!(".{ident}")
                    } else {
                        ident.to_string()
                    });
                    (colons, dot) = (0, false);
                    at = ident.span();
                }
                TokenTree::Punct(punct) => {
                    colons = if punct.as_char() == ':' {
                        colons + 1
                    } else {
                        0
                    };
                    dot = punct.as_char() == '.';
                }
                TokenTree::Group(group) => {
                    self.judge(&path, at);
                    path.clear();
                    (colons, dot) = (0, false);
                    self.read_tokens(group.stream());
                }
                TokenTree::Literal(_) => (colons, dot) = (0, false),
            }
        }
        self.judge(&path, at);
    }

    fn judge(&mut self, path: &[String], span: Span) {
        let line = span.start().line;
        let anchored = path.first().is_some_and(|first| {
            path.len() > 1 && ["crate", "super", "self"].contains(&first.as_str())
        });
        let begins_with_name = path
            .first()
            .is_some_and(|first| path.len() > 1 && first.starts_with(char::is_lowercase));
        if anchored || self.in_use {
            self.scan.paths.push(path.to_vec());
        } else if begins_with_name {
            self.scan.named.push(path.to_vec());
        }
        if path.iter().any(|segment| segment == "unsafe") {
            self.scan.unsafe_lines.push(line);
        }
        for (forbidden, instead) in FORBIDDEN {
            if path
                .windows(forbidden.len())
                .any(|window| window == forbidden)
            {
                let what = format!("`{}`: {instead}", forbidden.join("::"));
                self.scan.violations.push((line, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scan;

    fn violations(text: &str) -> Vec<(usize, String)> {
        scan(text).unwrap().violations
    }

    #[test]
    fn a_clock_a_socket_a_thread_and_global_randomness_are_found() {
        let bad = [
            "fn f() { let now = std::time::Instant::now(); }",
            "fn f() { assert!(later > Instant::now()); }",
            "fn f(at: Instant) -> Duration { at.elapsed() }",
            "use std::{net::{IpAddr, UdpSocket}, time::Duration};",
            "use std::thread;",
            "fn f() { std::thread::sleep(t) }",
            "fn f() -> u8 { rand::rng().random() }",
            "async fn f() {}",
            "mod inner { impl X { fn f(&self) { tokio::spawn(async move { g().await }); } } }",
            "static SEED: LazyLock<u64> = LazyLock::new(|| thread_rng().next_u64());",
        ];
        for text in bad {
            assert!(!violations(text).is_empty(), "not found in: {text}");
        }
        assert_eq!(violations("\n\nfn f() { SystemTime::now(); }")[0].0, 3);
    }

    #[test]
    fn comments_strings_tests_and_like_names_are_not() {
        let good = [
            "/// Pass `Instant::now()`.\nfn f(now: Instant) { log(\"std::thread\"); /* UdpSocket */ }",
            "#[cfg(test)] mod tests { use std::thread; fn f() { Instant::now(); } }",
            "#[cfg(test)] mod tests;",
            "fn f(x: &mut R) { let elapsed = now - then; x.random(); let rng = self.rng(); }",
            "use std::time::{Duration, Instant};",
        ];
        for text in good {
            assert_eq!(violations(text), [], "in: {text}");
        }
        assert_eq!(
            scan("mod a; #[cfg(test)] mod b; mod c { mod d {} }")
                .unwrap()
                .modules,
            ["a"]
        );
    }

    #[test]
    fn unsafe_is_found_with_its_line() {
        let text = "fn f() {\n  unsafe { g() }\n}\n#[expect(unsafe_code)] fn h() {}";
        assert_eq!(scan(text).unwrap().unsafe_lines, [2]);
    }
}
