//! Receiving files into a folder. Each chunk is a file of its own until all are there, so that nothing that was acknowledged is
//! lost when the command ends or the host crashes.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::wire::{Chunk, PARTS, Verdict, decode, encode};
use crate::{Error, control::Bundle};

/// Stores received files in a folder; an existing file is never replaced.
#[derive(Debug)]
pub struct FileReceiver {
    folder: PathBuf,
}

/// A file that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The endpoint that sent it.
    pub from: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub length: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

impl FileReceiver {
    /// Receives into `folder`, which is made if need be.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn new(folder: &Path) -> Result<Self, Error> {
        let parts = folder.join(PARTS);
        fs::create_dir_all(&parts).map_err(|reason| Error::Write {
            file: parts,
            reason,
        })?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Stores what a bundle carries. Returns a file that is complete now, and the answer to its sender. After that, the bundle
    /// may be acknowledged.
    ///
    /// # Errors
    /// [`Error::Write`] when the chunk cannot be stored: the bundle is to come again.
    pub fn take(&self, bundle: &Bundle) -> Result<(Option<Received>, Option<Vec<u8>>), Error> {
        let chunk =
            decode::<Chunk>(&bundle.payload).filter(|(chunk, data)| chunk.is_proper(data.len()));
        let Some((chunk, data)) = chunk else {
            tracing::warn!(from = bundle.source, "a bundle that is no part of a file");
            return Ok((None, None));
        };
        let path = self.folder.join(&chunk.name);
        let received = || Received {
            from: bundle.source.clone(),
            path: path.clone(),
            length: chunk.length,
            sha256: chunk.sha256.clone(),
        };
        let answer = |problem| {
            encode(
                &Verdict {
                    name: chunk.name.clone(),
                    sha256: chunk.sha256.clone(),
                    problem,
                },
                &[],
            )
        };
        if path.exists() {
            // It was complete before, and its sender has not heard of it.
            let problem = match hash_of(&path) {
                Ok(hash) if hash == chunk.sha256 => None,
                Ok(_) => Some(format!(
                    "{} exists already with another content",
                    chunk.name
                )),
                Err(error) => Some(format!(
                    "{} exists already and cannot be read: {error}",
                    chunk.name
                )),
            };
            return Ok((None, Some(answer(problem))));
        }
        let parts = self.folder.join(PARTS).join(part_name(&chunk));
        let write = |reason| Error::Write {
            file: parts.clone(),
            reason,
        };
        store(&parts, &chunk, data).map_err(write)?;
        if !is_complete(&parts, chunk.length).map_err(write)? {
            return Ok((None, None));
        }
        match self.put_together(&parts, &chunk, &path) {
            Ok(true) => Ok((Some(received()), Some(answer(None)))),
            Ok(false) => Ok((None, Some(answer(Some("its hash differs".to_owned()))))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok((None, Some(answer(Some(error.to_string())))))
            }
            Err(error) => Err(write(error)),
        }
    }

    /// Joins the chunks; `false` if the file has another hash than its sender said.
    fn put_together(&self, parts: &Path, chunk: &Chunk, path: &Path) -> io::Result<bool> {
        let whole = parts.join("whole");
        let mut file = File::create(&whole)?;
        let (mut hash, mut at) = (Sha256::new(), 0_u64);
        while at < chunk.length {
            let (start, part) = covering(parts, at)?;
            let data = fs::read(part)?;
            let new = usize::try_from(at - start)
                .ok()
                .and_then(|skip| data.get(skip..))
                .unwrap_or_default();
            file.write_all(new)?;
            hash.update(new);
            at += new.len() as u64;
        }
        file.sync_all()?;
        let is_right = hex(&hash.finalize()) == chunk.sha256;
        if is_right {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            // A link fails where a file has the name; a rename would replace it.
            fs::hard_link(&whole, path)?;
        }
        fs::remove_dir_all(parts)?;
        Ok(is_right)
    }
}

/// A name for the chunks of a file, the same for each of them.
fn part_name(chunk: &Chunk) -> String {
    let mut hash = Sha256::new();
    for part in [
        chunk.name.as_bytes(),
        b"\0",
        chunk.sha256.as_bytes(),
        &chunk.length.to_be_bytes(),
    ] {
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// A crash leaves the whole chunk or none.
fn store(parts: &Path, chunk: &Chunk, data: &[u8]) -> io::Result<()> {
    fs::create_dir_all(parts)?;
    let name = format!("{:016x}-{:x}", chunk.offset, data.len());
    let new = parts.join("new");
    let mut file = File::create(&new)?;
    file.write_all(data)?;
    file.sync_data()?;
    fs::rename(&new, parts.join(name))
}

/// Where each chunk begins, its length, and its file, in order.
fn chunks(parts: &Path) -> io::Result<Vec<(u64, u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parts)? {
        let entry = entry?;
        let name = entry.file_name();
        let place = name.to_str().and_then(|name| name.split_once('-'));
        let place = place.and_then(|(offset, length)| {
            Some((
                u64::from_str_radix(offset, 16).ok()?,
                u64::from_str_radix(length, 16).ok()?,
            ))
        });
        found.extend(place.map(|(offset, length)| (offset, length, entry.path())));
    }
    found.sort();
    Ok(found)
}

fn is_complete(parts: &Path, length: u64) -> io::Result<bool> {
    let mut end = 0;
    for (offset, bytes, _) in chunks(parts)? {
        if offset > end {
            return Ok(false);
        }
        end = end.max(offset + bytes);
    }
    Ok(end >= length)
}

/// The chunk that holds the byte at `at` and reaches furthest.
fn covering(parts: &Path, at: u64) -> io::Result<(u64, PathBuf)> {
    let found = chunks(parts)?
        .into_iter()
        .filter(|(start, bytes, _)| (*start..*start + *bytes).contains(&at));
    let furthest = found.max_by_key(|(start, bytes, _)| start + bytes);
    let (start, _, path) = furthest.ok_or(io::ErrorKind::NotFound)?;
    Ok((start, path))
}

/// SHA-256 of a file in hexadecimal digits.
pub(super) fn hash_of(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
