//! A document of several sources: a file, the files that it includes, and variables that stand for keys. Each mistake is
//! told with the source in which it is.

use std::{
    borrow::Cow,
    fmt::Display,
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{Error, quotes};

/// The key of a file that names further files.
pub(crate) const INCLUDE: &str = "include";
/// More files, and bytes of them together, than any configuration needs; a mistaken pattern must not read a whole disk.
const MOST_FILES: usize = 64;
const MOST_BYTES: usize = 1 << 20;

/// A document with the names of its sources, from which positions are told.
pub struct Document<'t> {
    /// The file, then what was added to it.
    sources: Vec<Source<'t>>,
}

struct Source<'t> {
    /// The file, as the caller named it, or the variable.
    name: Cow<'t, Path>,
    /// The text behind `start` spaces, so that each position of the whole document is in one source.
    text: Cow<'t, str>,
    start: usize,
    /// It replaces what is there, and has no lines.
    is_variable: bool,
}

/// The text of an ordinary file of at most `most` bytes.
fn read(file: &Path, most: usize) -> io::Result<String> {
    let no_file = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    if !fs::metadata(file)?.is_file() {
        return Err(no_file("it is no ordinary file"));
    }
    let mut text = String::new();
    let mut bounded = fs::File::open(file)?.take(most as u64 + 1);
    bounded.read_to_string(&mut text)?;
    match text.len() > most {
        true => Err(no_file(&format!(
            "all files together are longer than {MOST_BYTES} bytes"
        ))),
        false => Ok(text),
    }
}

impl<'t> Document<'t> {
    /// A document of one text; `name` stands for its file in messages.
    pub fn new(name: &'t Path, text: &'t str) -> Self {
        let source = Source {
            name: name.into(),
            text: text.into(),
            start: 0,
            is_variable: false,
        };
        Self {
            sources: vec![source],
        }
    }

    /// Adds the files that the key `include` of the document names: a text or a list of texts, beside the file, with a `*` in
    /// the last part of a name for any characters. They come in the order of the list, those of a pattern by their names.
    ///
    /// # Errors
    /// A file that cannot be read; one that includes others.
    pub fn include(&mut self) -> Result<(), Error> {
        let patterns = self.patterns()?;
        let directory = match self.sources.first() {
            Some(source) => source.name.parent().unwrap_or(Path::new("")).to_owned(),
            None => return Ok(()),
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (at, pattern) in patterns {
            let wrong = |problem: String| self.error(Some(at), format!("{INCLUDE}: {problem}"));
            let files = matching(&directory, &pattern).map_err(wrong)?;
            if found.len() + files.len() > MOST_FILES {
                return Err(wrong(format!("more than {MOST_FILES} files")));
            }
            for file in files {
                let text = read(&file, MOST_BYTES - bytes)
                    .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
                bytes += text.len();
                found.push((file, text));
            }
        }
        for (file, text) in found {
            self.add(file, &text, false);
        }
        Ok(())
    }

    /// Adds the value of a key, which replaces what files say; `variable` is its name in messages. The value is as in a file,
    /// and need not be in quotes where nothing else is meant.
    pub fn set(&mut self, variable: &str, key: &str, value: &str) {
        // No value brings a second key with it.
        let line = format!("{key} = {value}");
        let is_value = DeTable::parse(&format!("x = {value}"))
            .is_ok_and(|parsed| parsed.get_ref().len() == 1 && !value.contains(['\n', '\r']));
        let line = match is_value {
            true => line,
            false => format!("{key} = {}", toml::Value::from(value)),
        };
        self.add(PathBuf::from(variable), &line, true);
    }

    /// Names of the files, the first one first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let files = self.sources.iter().filter(|source| !source.is_variable);
        files.map(|source| &*source.name)
    }

    /// Names of those files that set a key which `wanted` knows by the tables around it and its own name, the outermost first.
    pub fn files_with(&self, wanted: impl Fn(&[&str]) -> bool) -> impl Iterator<Item = &Path> {
        let files = self.sources.iter().filter(|source| !source.is_variable);
        let files = files.filter(move |source| {
            let tree = DeTable::parse(&source.text);
            tree.is_ok_and(|tree| sets(tree.get_ref(), &mut Vec::new(), &wanted))
        });
        files.map(|source| &*source.name)
    }

    /// Parses the sources into one tree; the caller keeps it, since tables borrow from it.
    ///
    /// # Errors
    /// What is no TOML; a key of one file that is in another, too, unless both write tables in double brackets.
    pub fn tree(&self) -> Result<Spanned<DeTable<'_>>, Error> {
        let mut sources = self.sources.iter();
        let mut tree = match sources.next() {
            Some(first) => self.parse(first)?,
            None => Spanned::new(0..0, DeTable::new()),
        };
        for source in sources {
            let more = self.parse(source)?.into_inner();
            match source.is_variable {
                true => put(tree.get_mut(), more),
                false => self.append(tree.get_mut(), more)?,
            }
        }
        Ok(tree)
    }

    pub(crate) fn error(&self, offset: Option<usize>, problem: impl Display) -> Error {
        let source =
            offset.and_then(|offset| self.sources.iter().rfind(|source| source.start <= offset));
        let source = source.or(self.sources.first());
        let line = offset.zip(source).filter(|(_, source)| !source.is_variable);
        let line = line.map(|(offset, source)| {
            let before = source.text.as_bytes().iter().take(offset);
            1 + before.filter(|byte| **byte == b'\n').count()
        });
        Error {
            file: source.map_or_else(PathBuf::new, |source| source.name.to_path_buf()),
            line,
            problem: problem.to_string(),
        }
    }

    fn add(&mut self, name: PathBuf, text: &str, is_variable: bool) {
        // A position at the end of a text is still in it.
        let start = self.sources.last().map_or(0, |last| last.text.len() + 1);
        self.sources.push(Source {
            name: name.into(),
            text: (" ".repeat(start) + text.trim_start_matches('\u{feff}')).into(),
            start,
            is_variable,
        });
    }

    fn parse<'s>(&self, source: &'s Source<'_>) -> Result<Spanned<DeTable<'s>>, Error> {
        DeTable::parse(&source.text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            let missing = offset.and_then(|offset| quotes::missing(&source.text, offset));
            let problem = missing.as_deref().unwrap_or(error.message().trim());
            self.error(offset.or(Some(source.start)), problem)
        })
    }

    /// The patterns of `include`, each with its place.
    fn patterns(&self) -> Result<Vec<(usize, String)>, Error> {
        let tree = self.tree()?;
        let Some(value) = tree.get_ref().get(INCLUDE) else {
            return Ok(Vec::new());
        };
        let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::String(text) => Ok((value.span().start, text.to_string())),
            _ => Err(self.error(
                Some(value.span().start),
                format!("{INCLUDE}: write names of files in quotes"),
            )),
        };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(one).collect(),
            _ => one(value).map(|one| vec![one]),
        }
    }

    /// Adds the keys of another file: tables in double brackets to those that are there.
    fn append<'s>(&self, tree: &mut DeTable<'s>, more: DeTable<'s>) -> Result<(), Error> {
        for (key, value) in more {
            let at = key.span().start;
            let name = key.get_ref().to_string();
            if name == INCLUDE {
                return Err(self.error(Some(at), "include: only the first file includes others"));
            }
            let Some(here) = tree.get_mut(key.get_ref().as_ref()) else {
                tree.insert(key, value);
                continue;
            };
            let place = here.span().start;
            match (here.get_mut(), value.into_inner()) {
                (DeValue::Array(items), DeValue::Array(more))
                    if of_tables(items) && of_tables(&more) =>
                {
                    more.into_iter().for_each(|item| items.push(item));
                }
                _ => {
                    let other = self.error(Some(place), "");
                    let line = other
                        .line
                        .map(|line| format!(":{line}"))
                        .unwrap_or_default();
                    let problem = format!(
                        "{name} is also in {}{line}: write it once",
                        other.file.display()
                    );
                    return Err(self.error(Some(at), problem));
                }
            }
        }
        Ok(())
    }
}

/// Whether a table or one within sets a wanted key; `within` are the names of the tables around it.
fn sets<'s>(
    table: &'s DeTable<'_>,
    within: &mut Vec<&'s str>,
    wanted: &impl Fn(&[&str]) -> bool,
) -> bool {
    table.iter().any(|(key, value)| {
        within.push(key.get_ref());
        let is_set = wanted(within)
            || match value.get_ref() {
                DeValue::Table(table) => sets(table, within, wanted),
                DeValue::Array(items) => items.iter().any(|item| match item.get_ref() {
                    DeValue::Table(table) => sets(table, within, wanted),
                    _ => false,
                }),
                _ => false,
            };
        within.pop();
        is_set
    })
}

/// Puts keys in place of those that are there; tables are not replaced, but their keys.
fn put<'s>(tree: &mut DeTable<'s>, more: DeTable<'s>) {
    for (key, value) in more {
        match (tree.get_mut(key.get_ref().as_ref()), value) {
            (Some(here), value) => {
                let span = value.span();
                match (here.get_mut(), value.into_inner()) {
                    (DeValue::Table(here), DeValue::Table(more)) => put(here, more),
                    (_, value) => *here = Spanned::new(span, value),
                }
            }
            (None, value) => {
                tree.insert(key, value);
            }
        }
    }
}

fn of_tables(items: &[Spanned<DeValue<'_>>]) -> bool {
    let is_table = |item: &Spanned<DeValue<'_>>| matches!(item.get_ref(), DeValue::Table(_));
    items.iter().all(is_table)
}

/// The files of a pattern; one without `*` is a file that must be there.
fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let folders = Path::new(pattern).parent();
    if folders.is_some_and(|folders| folders.to_string_lossy().contains('*')) {
        return Err(format!(
            "{pattern:?}: write one \"*\", in the last part of the name"
        ));
    }
    let path = directory.join(pattern);
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some((before, after)) = name.split_once('*') else {
        return Ok(vec![path]);
    };
    let folder = path.parent().unwrap_or(directory);
    if after.contains('*') {
        return Err(format!(
            "{pattern:?}: write one \"*\", in the last part of the name"
        ));
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // As no file of the folder that it has.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let found = entry.file_name();
        let found = found.to_string_lossy();
        let long_enough = found.len() >= before.len() + after.len();
        if long_enough
            && found.starts_with(before)
            && found.ends_with(after)
            && !found.starts_with('.')
        {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Definition, Key};

    static TOP: Definition = Definition {
        introduction: "",
        keys: &[&[
            Key::texts("include", "files"),
            Key::text("name", "text"),
            Key::whole("size", 1..=9),
            Key::tables("peer", &PEER),
            Key::table("egress", &PEER),
        ]],
        examples: &[],
    };
    static PEER: Definition = Definition {
        introduction: "",
        keys: &[&[Key::text("name", "text")]],
        examples: &[],
    };

    /// A folder with files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    /// The names of the peers, or the error without the folder's name.
    fn peers(
        folder: &tempfile::TempDir,
        variables: &[(&str, &str, &str)],
    ) -> Result<Vec<String>, String> {
        let main = folder.path().join("main.toml");
        let text = fs::read_to_string(&main).unwrap();
        let mut document = Document::new(&main, &text);
        let read = |document: &mut Document<'_>| {
            document.include()?;
            for (variable, key, value) in variables {
                document.set(variable, key, value);
            }
            let tree = document.tree()?;
            let top = document.top(&tree, &TOP)?;
            top.whole_if("size")?;
            let name = |table: &crate::Table<'_>| {
                table.text("name", |text| Ok::<_, String>(text.to_owned()))
            };
            let peers = top.tables("peer")?;
            peers.iter().map(name).collect()
        };
        let read: Result<_, Error> = read(&mut document);
        read.map_err(|error| {
            error
                .to_string()
                .replace(&format!("{}/", folder.path().display()), "")
        })
    }

    #[test]
    fn files_are_added_in_order_and_mistakes_are_told_where_they_are() {
        let main = "size = 1\ninclude = [\"more.toml\", \"d/*.toml\", \"none/*.toml\"]\n[[peer]]\nname = \"a\"\n";
        let right = [
            ("main.toml", main),
            ("more.toml", "\u{feff}[[peer]]\nname = \"b\""),
            ("d/2.toml", "[[peer]]\nname = \"d\"\n"),
            ("d/1.toml", "[[peer]]\nname = \"c\"\n"),
            ("d/.1.toml", "left by an editor"),
            ("d/1.toml~", "the same"),
        ];
        let names = peers(&folder(&right), &[]).unwrap();
        assert_eq!(names, ["a", "b", "c", "d"]);
        for (wrong, said) in [
            (
                "\n\nnmae = 1\n",
                "d/2.toml:3: unknown key \"nmae\"; did you mean \"name\"?",
            ),
            (
                "\n[[peer]]\nname = 1\n",
                "d/2.toml:3: [[peer]]: name: write a text",
            ),
            ("\n[[peer]\n", "d/2.toml:2: "),
            (
                "\nname = x\n",
                "d/2.toml:2: write texts in quotes: name = \"x\"",
            ),
            (
                "\nsize = 2\n",
                "d/2.toml:2: size is also in main.toml:1: write it once",
            ),
            ("include = []\n", "d/2.toml:1: include: only the first file"),
        ] {
            let mut files = right;
            files[2].1 = wrong;
            let error = peers(&folder(&files), &[]).unwrap_err();
            assert!(error.contains(said), "{wrong:?}: {error}");
        }
        // A mistake after the files of others is still in its own.
        let mut files = right;
        let main = format!("{main}\nsize = 10\n");
        files[0].1 = &main;
        let error = peers(&folder(&files), &[]).unwrap_err();
        assert!(error.starts_with("main.toml:6: "), "{error}");
    }

    #[test]
    fn a_secret_without_quotes_is_not_told() {
        for secret in [
            "password = hunter2",
            "egress.password = hunter2 # of the proxy",
            "\"password\" = hunter2",
            "egress = { password = hunter2 }",
            "peer = [{ name = \"a\", password = hunter2 }]",
            "peer = [\n{password=hunter2},\n]",
            "Secret = “hunter2”",
            "password = [hunter2]",
        ] {
            let main = format!("{secret}\n");
            let error = peers(&folder(&[("main.toml", &main)]), &[]).unwrap_err();
            assert!(error.starts_with("main.toml:"), "{error}");
            assert!(!error.contains("hunter2"), "{secret:?}: {error}");
        }
        let error = peers(&folder(&[("main.toml", "password = hunter2\n")]), &[]);
        let said = "main.toml:1: write texts in quotes: password = \"…\"";
        assert_eq!(error.unwrap_err(), said);
    }

    #[test]
    fn what_cannot_be_included_is_told() {
        for (include, said) in [
            (
                "\"gone.toml\"",
                "main.toml:1: include: cannot read gone.toml",
            ),
            ("\"*/x.toml\"", "write one \"*\""),
            ("\"x*y*.toml\"", "write one \"*\""),
            ("[1]", "write names of files in quotes"),
        ] {
            let main = format!("include = {include}\n");
            let error = peers(&folder(&[("main.toml", &main)]), &[]).unwrap_err();
            assert!(error.contains(said), "{include}: {error}");
        }
    }

    #[test]
    fn what_would_fill_the_memory_is_refused() {
        let main = ("main.toml", "include = [\"d/*.toml\"]\n");
        let long = "# ".repeat(MOST_BYTES / 4);
        let two = [main, ("d/1.toml", &*long), ("d/2.toml", &*long)];
        assert_eq!(peers(&folder(&two), &[]), Ok(Vec::new()), "1 MiB in all");
        let three = [two.as_slice(), &[("d/3.toml", "#")]].concat();
        let error = peers(&folder(&three), &[]).unwrap_err();
        assert!(error.contains("d/3.toml: all files together"), "{error}");
        let names: Vec<_> = (0..=MOST_FILES).map(|n| format!("d/{n}.toml")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        let error = peers(&folder(&[&many, &[main][..]].concat()), &[]).unwrap_err();
        assert!(error.contains("more than 64 files"), "{error}");
        let pipes = folder(&[("main.toml", "include = \"/dev/zero\"\n")]);
        let error = peers(&pipes, &[]).unwrap_err();
        assert!(error.contains("it is no ordinary file"), "{error}");
    }

    #[test]
    fn variables_go_before_files_and_bring_one_key_each() {
        let files = folder(&[("main.toml", "size = 1\n[[peer]]\nname = \"a\"\n[egress]\n")]);
        let set = |key, value| peers(&files, &[("V", key, value)]);
        assert_eq!(set("peer", "[{ name = \"v\" }]").unwrap(), ["v"]);
        assert_eq!(set("size", "9").unwrap(), ["a"]);
        let wrong = set("size", "10").unwrap_err();
        assert_eq!(wrong, "V: size: write a whole number from 1 to 9");
        // A text in lines stays a text.
        let wrong = set("size", "1\npeer = 1").unwrap_err();
        assert_eq!(wrong, "V: size: write a whole number from 1 to 9");
        assert_eq!(
            set("egress.allow", "x").unwrap(),
            ["a"],
            "in the table that is there"
        );
    }
}
