//! Standard output and standard error, which may be pipes with an early end; names of output files; and the command line as typed.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, IsTerminal, Write as _},
    path::Path,
};

#[cfg(feature = "tools")]
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use starhaul_gateway::QlogFolder;

/// The reader of standard output has closed it.
#[derive(Debug)]
pub(crate) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of the output has closed it")
    }
}

impl std::error::Error for Closed {}

/// Prints text as it is.
///
/// # Errors
/// [`Closed`] when the reader has closed the pipe, or the system's error.
pub(crate) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        other => Ok(other?),
    }
}

/// Writes text to standard error as it is. A failure is ignored: a caller that has closed it changes no outcome.
pub(crate) fn tell(text: impl AsRef<[u8]>) {
    let _ = io::stderr().write_all(text.as_ref());
}

/// Puts the text in place of a file at once: whatever happens meanwhile, the old one or the new one is there, whole. What is no
/// regular file, such as a pipe, is written, and so is a file that its folder does not let be replaced.
///
/// # Errors
/// Those of the system; what was there is there still, unless it had to be written.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let there = fs::metadata(file).ok();
    let is_regular = there.as_ref().is_some_and(fs::Metadata::is_file);
    if !is_regular && fs::symlink_metadata(file).is_ok() {
        return fs::write(file, text);
    }
    // A link stays one.
    let target = match is_regular {
        true => fs::canonicalize(file)?,
        false => file.to_owned(),
    };
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let new = target.with_file_name(name);
    // A killed run may have left it: in a container the next one has the same process number.
    let _ = fs::remove_file(&new);
    let mut opened = match File::create_new(&new) {
        // Of a folder in which nothing can be made the file itself may be open to us.
        Err(error) if is_regular && is_closed(&error) => return write_over(&target, text),
        opened => opened?,
    };
    let written = opened.write_all(text.as_bytes());
    let kept = written.and_then(|()| match &there {
        Some(there) => opened.set_permissions(there.permissions()),
        None => Ok(()),
    });
    let synced = kept.and_then(|()| opened.sync_all());
    let is_whole = synced.is_ok();
    let replaced = synced.and_then(|()| fs::rename(&new, &target));
    if replaced.is_err() {
        // It would be left as a part of a file.
        let _ = fs::remove_file(&new);
    }
    match replaced {
        // A mount of its own, or the file of another user in a sticky folder.
        Err(error) if is_regular && is_whole && (is_busy(&error) || is_closed(&error)) => {
            write_over(&target, text)
        }
        replaced => replaced,
    }
}

/// Something is mounted there.
fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// Nothing can be made in a folder.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Writes a file that is there. Linux refuses to open one of another user in a sticky folder where it might be made.
fn write_over(file: &Path, text: &str) -> io::Result<()> {
    let opened = File::options().write(true).truncate(true).open(file);
    opened?.write_all(text.as_bytes())
}

/// Text of the far side for people: control characters would command their terminal, and make lines of their own.
#[cfg(feature = "tools")]
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// The folder of `--qlog`, for at most 1 GiB of records.
///
/// # Errors
/// It cannot be made or written.
pub(crate) fn qlog_folder(folder: &Path) -> anyhow::Result<QlogFolder> {
    QlogFolder::create(folder, QlogFolder::DEFAULT_BYTES).map_err(|error| {
        let folder = folder.display();
        let text = format!("--qlog {folder}: {error}; name a folder that can be written");
        Usage(text).into()
    })
}

/// Whether lines can be overwritten: the stream is a terminal that supports it.
pub(crate) fn redraws(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The progress of a file: a bar on a terminal, nothing elsewhere.
#[cfg(feature = "tools")]
pub(crate) fn bar() -> ProgressBar {
    let target = match redraws(&io::stderr()) {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% {wide_msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// What long work does now: on a terminal, nothing elsewhere.
#[cfg(feature = "tools")]
pub(crate) fn spinner() -> ProgressBar {
    let spinner = bar();
    let style = ProgressStyle::with_template("{elapsed:>4} {wide_msg}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner
}

/// A wrong command line, with a remedy.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The kinds of plot files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picture {
    Svg,
    /// HTML that loads nothing from the network.
    Page,
}

impl Picture {
    /// The kind that the file name of `option` indicates.
    ///
    /// # Errors
    /// [`Usage`] for other file names.
    pub(crate) fn of(option: &str, file: &Path) -> Result<Self, Usage> {
        let ending = ending(file);
        match ending.as_str() {
            "svg" => Ok(Self::Svg),
            "html" | "htm" => Ok(Self::Page),
            other => {
                let near = match strsim::damerau_levenshtein(other, "html") <= 2 || other.is_empty()
                {
                    true => "html",
                    false => "svg",
                };
                Err(Usage(format!(
                    "{option} {}: its name must end in .svg for a picture or in .html for a page, for example {}",
                    file.display(),
                    file.with_extension(near).display()
                )))
            }
        }
    }
}

/// Refuses a folder with the name of a file, unless it exists.
///
/// # Errors
/// [`Usage`] with a name that would do.
#[cfg(feature = "tools")]
pub(crate) fn check_folder(option: &str, folder: &Path) -> Result<(), Usage> {
    const FILES: [&str; 11] = [
        "html", "htm", "json", "csv", "log", "svg", "png", "pdf", "txt", "gz", "times",
    ];
    if !FILES.contains(&ending(folder).as_str()) || folder.is_dir() {
        return Ok(());
    }
    Err(Usage(format!(
        "{option} {}: several files are written into a folder; name a folder, for example {}",
        folder.display(),
        folder.with_extension("").display()
    )))
}

/// The part of a name after its last dot, in lower case.
pub(crate) fn ending(file: &Path) -> String {
    let ending = file.extension().unwrap_or_default();
    ending.to_string_lossy().to_ascii_lowercase()
}

/// The command line as typed, with the program's bare name, quoted for a shell.
pub(crate) fn command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    shell_line(std::iter::once("starhaul".into()).chain(arguments))
}

/// A line that a shell splits into these arguments.
pub(crate) fn shell_line(words: impl IntoIterator<Item = OsString>) -> String {
    let words = words.into_iter();
    let quoted = words.map(|word| quoted(&word.to_string_lossy()));
    quoted.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    if !word.chars().any(char::is_control) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    // All on one line, as in POSIX.1-2024.
    let mut text = String::from("$'");
    for character in word.chars() {
        match character {
            '\n' => text.push_str(r"\n"),
            '\t' => text.push_str(r"\t"),
            '\\' | '\'' => text.extend(['\\', character]),
            character if character.is_ascii_control() => {
                text.push_str(&format!(r"\{:03o}", u32::from(character)));
            }
            character => text.push(character),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_makes_the_same_words_of_the_line() {
        let words = [
            "sh",
            "-c",
            "iperf3 -c $STARHAUL_SERVER; echo 'it''s' \"done\" `true` \\n",
            "",
            "loss=0.2%,queue=500p",
            "a*b?~#!",
            "tränen und späße",
        ];
        let line = shell_line(words.map(OsString::from));
        let script = format!("printf '%s\\0' {line}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let read: Vec<_> = said.split_terminator('\0').collect();
        assert_eq!(read, words, "{line}");
        assert!(line.starts_with("sh -c 'iperf3"), "{line}");
    }

    #[test]
    fn a_file_is_replaced_at_once_and_what_is_none_is_written() {
        use std::{io::Read as _, os::unix::fs::PermissionsExt as _};
        let folder = tempfile::tempdir().unwrap();
        let [file, link, new] = ["a.html", "b.html", "c.html"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut reader = File::open(&file).unwrap();
        // What a killed run of the same process number has left.
        let left = folder
            .path()
            .join(format!(".a.html.{}", std::process::id()));
        fs::write(left, "a part").unwrap();
        replace(&link, "another").unwrap();
        replace(&new, "first").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "old", "it was written over");
        assert_eq!(fs::read_to_string(&file).unwrap(), "another");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&new).unwrap(), "first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        replace(Path::new("/dev/null"), "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_line_remains_one_line() {
        let line = shell_line(["printf".into(), "a\n\t'b'\\\u{1b}".into()]);
        assert_eq!(line, r"printf $'a\n\t\'b\'\\\033'");
    }
}
