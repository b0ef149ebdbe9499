//! A file that is complete gets its name, on any file system. Another one that has got the name meanwhile is never replaced.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

/// Gives a file another name in the same file system.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if another file has it, and those of the system. The file keeps its name then.
pub fn give_name(file: &Path, name: &Path) -> io::Result<()> {
    // FAT, exFAT and shares of other hosts have no links; some of them cannot say what a rename may replace.
    give_name_by(link, rename_without_replacing, file, name)?;
    // The name is there after a loss of power, too. Some file systems sync no folders; it has the name all the same.
    let folder = name.parent().filter(|folder| *folder != Path::new(""));
    let _ = fs::File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    Ok(())
}

type Step = fn(&Path, &Path) -> io::Result<()>;

fn give_name_by(
    link: Step,
    rename_without_replacing: Step,
    file: &Path,
    name: &Path,
) -> io::Result<()> {
    let mut given = link(file, name);
    for step in [rename_without_replacing, take_name] {
        match given {
            Err(error) if is_unsupported(&error) => given = step(file, name),
            given => return given,
        }
    }
    given
}

fn is_unsupported(error: &io::Error) -> bool {
    let known = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|error| known.contains(&error))
}

fn link(file: &Path, name: &Path) -> io::Result<()> {
    fs::hard_link(file, name)?;
    fs::remove_file(file)
}

fn rename_without_replacing(file: &Path, name: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, file, CWD, name, RenameFlags::NOREPLACE)?)
}

/// Takes the name with an empty file, which is then replaced.
fn take_name(file: &Path, name: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(name)?;
    let renamed = fs::rename(file, name);
    if renamed.is_err() {
        // What cannot be removed either stays, as an empty file.
        let _ = fs::remove_file(name);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(_: &Path, _: &Path) -> io::Result<()> {
        Err(Errno::PERM.into())
    }

    fn knows_no_flags(_: &Path, _: &Path) -> io::Result<()> {
        Err(Errno::INVAL.into())
    }

    #[test]
    fn a_file_gets_its_name_without_links_and_replaces_no_other() {
        let ways: [(Step, Step); 3] = [
            (link, refuses),
            (refuses, rename_without_replacing),
            (refuses, knows_no_flags),
        ];
        for (link, rename) in ways {
            let folder = tempfile::tempdir().unwrap();
            let [file, name] = ["file", "name"].map(|name| folder.path().join(name));
            fs::write(&file, "new").unwrap();
            fs::write(&name, "old").unwrap();
            let given = give_name_by(link, rename, &file, &name);
            assert_eq!(given.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&name).unwrap(), "old");
            fs::remove_file(&name).unwrap();
            give_name_by(link, rename, &file, &name).unwrap();
            assert_eq!(fs::read_to_string(&name).unwrap(), "new");
            assert!(!file.exists());
            let gone = give_name_by(link, rename, &file, &folder.path().join("other"));
            assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
            assert!(!folder.path().join("other").exists());
        }
    }
}
