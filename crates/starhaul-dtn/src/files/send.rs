//! Sending files and folders.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    hash::hash_of,
    wire::{Chunk, Verdict, decode, encode},
};
use starhaul_dtn_client::{
    self as client,
    control::{Bundle, Client, Message, Report, ReportedStatus},
};

use crate::Error;

/// Data of a file in a bundle: enough for full speed, little enough to be lost.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bundles that fit into the least contact of the plan: what is left of a contact is not used when it is too short for one.
const CHUNKS_IN_CONTACT: u64 = 4;
/// Data of a file in a bundle at least, however short contacts are.
const LEAST_CHUNK_BYTES: u64 = 16 << 10;
/// Bytes of a contact for which chunks are cut: what carries less is for other bundles.
pub(crate) const LEAST_CONTACT: u64 = CHUNKS_IN_CONTACT * LEAST_CHUNK_BYTES;
/// How long the sender waits when the node's storage is full.
const FULL: Duration = Duration::from_millis(500);
/// How often progress is told while nothing comes.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// How far sending has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the node has taken.
    pub stored: u64,
    /// Bytes of all files.
    pub length: u64,
    /// Files that the far side has.
    pub arrived: usize,
    /// Number of all files.
    pub files: usize,
}

/// Sends files to an endpoint at which a [`super::FileReceiver`] is, now or later.
#[derive(Debug)]
pub struct FileSender {
    files: Vec<Outgoing>,
    asks: bool,
}

/// The bundles of which reports were asked for.
#[derive(Debug, Default)]
struct Reported {
    /// Those of which none has come. Another copy of one that was delivered may be deleted, and reports of other bundles may come to the same
    /// endpoint.
    under_way: BTreeSet<String>,
}

impl Reported {
    /// Notes a report.
    ///
    /// # Errors
    /// [`Error::Deleted`] if it says that a bundle is lost. Without a reason it does not: some nodes report so of what they have sent on.
    fn note(&mut self, report: Report) -> Result<(), Error> {
        match (report.fate, report.reason) {
            (ReportedStatus::Delivered, _) => {
                self.under_way.remove(&report.id);
            }
            (ReportedStatus::Deleted, Some(reason)) if self.under_way.contains(&report.id) => {
                return Err(Error::Deleted {
                    node: report.node,
                    reason,
                });
            }
            _ => {}
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Outgoing {
    path: PathBuf,
    /// What its chunks say, but for the offset.
    chunk: Chunk,
}

impl FileSender {
    /// Takes files, and all files below folders. Reads them once for their hashes.
    ///
    /// # Errors
    /// [`Error::Read`] and [`Error::Unusable`].
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut found = BTreeMap::new();
        for path in paths {
            let name = path
                .canonicalize()
                .ok()
                .and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let name = name.ok_or_else(|| Error::Unusable {
                file: path.clone(),
                reason: "there is no such file, or its name is no UTF-8",
            })?;
            collect(path, name, &mut found)?;
        }
        let files = found.into_iter().map(|(name, path)| {
            let read = |reason| Error::Read {
                file: path.clone(),
                reason,
            };
            let length = fs::metadata(&path).map_err(read)?.len();
            let sha256 = hash_of(&path).map_err(read)?;
            let chunk = Chunk {
                name,
                length,
                sha256,
                offset: 0,
                lifetime_ms: None,
            };
            Ok(Outgoing { path, chunk })
        });
        let files = files.collect::<Result<Vec<Outgoing>, Error>>()?;
        match files.is_empty() {
            true => Err(Error::Unusable {
                file: paths.first().cloned().unwrap_or_default(),
                reason: "there are no files in it",
            }),
            false => Ok(Self { files, asks: false }),
        }
    }

    /// Has the bundles ask the nodes that deliver or delete them for reports: a deletion ends [`FileSender::run`] at once.
    pub fn with_reports(mut self) -> Self {
        self.asks = true;
        self
    }

    /// Sends all, and, if `patience` is given, waits so long for the far side to say that it has them.
    ///
    /// # Errors
    /// All of [`Error`]; the far side has all files only if there is none, and it was waited for.
    pub async fn run(
        self,
        client: &mut Client,
        to: &str,
        lifetime: Duration,
        patience: Option<Duration>,
        mut tell: impl FnMut(Progress),
    ) -> Result<(), Error> {
        let length = self.files.iter().map(|file| file.chunk.length).sum();
        let mut progress = Progress {
            length,
            files: self.files.len(),
            ..Progress::default()
        };
        let mut reported = Reported::default();
        for file in &self.files {
            let told = &mut |bytes: u64| {
                progress.stored += bytes;
                tell(progress);
            };
            let asks = self.asks.then_some(&mut reported);
            file.send(client, (to, lifetime), asks, told).await?;
        }
        let Some(patience) = patience else {
            return Ok(());
        };
        let until = Instant::now().checked_add(patience);
        let names = self
            .files
            .iter()
            .map(|file| (file.chunk.name.clone(), file.chunk.sha256.clone()));
        let mut missing: BTreeSet<(String, String)> = names.collect();
        while !missing.is_empty() {
            progress.arrived = self.files.len() - missing.len();
            tell(progress);
            if until.is_some_and(|until| Instant::now() > until) {
                return Err(Error::Silent(patience));
            }
            if !client.has_message(TELL_EVERY).await? {
                continue;
            }
            let verdict = match client.next_message().await? {
                Message::Bundle(bundle) => verdict(client, bundle).await?,
                Message::Report(report) => {
                    reported.note(report)?;
                    continue;
                }
            };
            let Some(Verdict {
                name,
                sha256,
                problem,
            }) = verdict
            else {
                continue;
            };
            let is_awaited = missing.remove(&(name.clone(), sha256));
            if let Some(problem) = problem.filter(|_| is_awaited) {
                return Err(Error::FarSide(format!("{name}: {problem}")));
            }
        }
        progress.arrived = progress.files;
        tell(progress);
        Ok(())
    }
}

/// What a bundle of the far side says of a file, if it does; it is acknowledged.
async fn verdict(client: &mut Client, bundle: Bundle) -> Result<Option<Verdict>, Error> {
    let verdict = decode::<Verdict>(&bundle.payload).map(|(verdict, _)| verdict);
    // One that waited here for long comes once more, and either acknowledgement is of both.
    match client.acknowledge(&bundle.id).await {
        Err(client::Error::Refused(_)) => {}
        acknowledged => acknowledged?,
    }
    Ok(verdict)
}

impl Outgoing {
    /// Sends all of the file; if its bundles ask for reports, `reported` notes those that come meanwhile.
    async fn send(
        &self,
        client: &mut Client,
        (to, lifetime): (&str, Duration),
        mut reported: Option<&mut Reported>,
        told: &mut impl FnMut(u64),
    ) -> Result<(), Error> {
        let read = |reason| Error::Read {
            file: self.path.clone(),
            reason,
        };
        let file = File::open(&self.path).map_err(read)?;
        let mut chunk = Chunk {
            lifetime_ms: u64::try_from(lifetime.as_millis()).ok(),
            ..self.chunk.clone()
        };
        // The last offset has the most digits.
        let longest = Chunk {
            offset: chunk.length,
            ..chunk.clone()
        };
        let header = encode(&longest, &[]).len() as u64;
        let suited = chunk_bytes(client.contact_bytes());
        let most = suited.min(client.most_bytes().saturating_sub(header));
        if most == 0 {
            return Err(Error::Unusable {
                file: self.path.clone(),
                reason: "its name alone is larger than max_bundle_bytes of the node",
            });
        }
        loop {
            let bytes = most.min(chunk.length - chunk.offset);
            let mut data = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut data, chunk.offset).map_err(read)?;
            let payload = encode(&chunk, &data);
            loop {
                let sent = match reported.is_some() {
                    true => client.send_reported(to, &payload, lifetime).await,
                    false => client.send(to, &payload, lifetime).await,
                };
                if let Some(reported) = reported.as_deref_mut() {
                    reported.under_way.extend(sent.iter().cloned());
                    while let Some(report) = client.next_report() {
                        reported.note(report)?;
                    }
                }
                match sent {
                    Ok(_) => break,
                    Err(client::Error::Full) => tokio::time::sleep(FULL).await,
                    Err(other) => return Err(other.into()),
                }
            }
            told(bytes);
            chunk.offset += bytes;
            if chunk.offset >= chunk.length {
                return Ok(());
            }
        }
    }
}

/// Data of a file in a bundle where the least contact carries so many bytes.
fn chunk_bytes(contact: Option<u64>) -> u64 {
    let suited = contact.map(|bytes| bytes / CHUNKS_IN_CONTACT);
    suited.map_or(CHUNK_BYTES, |bytes| {
        bytes.clamp(LEAST_CHUNK_BYTES, CHUNK_BYTES)
    })
}

/// All files at and below `path`, by the names that the far side gives them.
fn collect(path: &Path, name: String, found: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    let read = |reason| Error::Read {
        file: path.to_owned(),
        reason,
    };
    let metadata = fs::metadata(path).map_err(read)?;
    if !metadata.is_dir() {
        // To read a pipe would wait for a program that writes into it.
        if !metadata.is_file() {
            return Err(Error::Unusable {
                file: path.to_owned(),
                reason: "it is no regular file",
            });
        }
        let chunk = Chunk {
            name: name.clone(),
            length: 1,
            sha256: "0".repeat(64),
            offset: 0,
            lifetime_ms: None,
        };
        if !chunk.is_proper(1) {
            return Err(Error::Unusable {
                file: path.to_owned(),
                reason: "the far side could not use its name",
            });
        }
        return match found.insert(name, path.to_owned()) {
            Some(_) => Err(Error::Unusable {
                file: path.to_owned(),
                reason: "two files have this name",
            }),
            None => Ok(()),
        };
    }
    for entry in fs::read_dir(path).map_err(read)? {
        let entry = entry.map_err(read)?;
        let Some(part) = entry.file_name().to_str().map(ToOwned::to_owned) else {
            return Err(Error::Unusable {
                file: entry.path(),
                reason: "its name is no UTF-8",
            });
        };
        collect(&entry.path(), format!("{name}/{part}"), found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_parts_of_the_least_contact() {
        // A pass of 8 minutes at 9600 bit/s.
        assert_eq!(chunk_bytes(Some(576_000)), 144_000);
        for (contact, bytes) in [
            (None, CHUNK_BYTES),
            (Some(u64::MAX), CHUNK_BYTES),
            (Some(1), LEAST_CHUNK_BYTES),
        ] {
            assert_eq!(chunk_bytes(contact), bytes);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        // A socket is none either, and is easier to make.
        let _socket = std::os::unix::net::UnixListener::bind(&pipe).unwrap();
        let error = FileSender::open(&[folder.path().to_owned()]).unwrap_err();
        let told = format!("{}: it is no regular file", pipe.display());
        assert_eq!(error.to_string(), told);
    }
}
