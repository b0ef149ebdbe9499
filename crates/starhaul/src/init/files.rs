//! The files of both sides: keys for their owners alone, configurations that are checked before they are written.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Serialize;
use starhaul_gateway::{Config, config::IdentitySource};
use starhaul_quic::PublicKey;

use super::pair::{CONFIGURATION, KEY, Pair};
use crate::{keys::write_new_key, output::Usage};

/// The folder of one side.
pub(super) struct Site {
    name: String,
    directory: PathBuf,
}

/// Files that were written, and the public keys of both sides.
pub(super) struct Written {
    pub(super) files: Vec<WrittenFile>,
    pub(super) here: PublicKey,
    pub(super) there: PublicKey,
}

#[derive(Serialize)]
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    /// Name of the side that needs it.
    pub(super) side: String,
    /// Its permissions, in octal.
    pub(super) mode: String,
    /// It was there before.
    pub(super) kept: bool,
}

impl Site {
    pub(super) fn new(directory: &Path, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
        }
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join(CONFIGURATION)
    }

    fn key(&self) -> PathBuf {
        self.directory.join(KEY)
    }

    /// The key that is there, if there is one.
    fn present_key(&self) -> anyhow::Result<Option<PublicKey>> {
        let file = self.key();
        if !file.exists() {
            return Ok(None);
        }
        Ok(Some(IdentitySource::File(file).load()?.public_key()))
    }

    /// The key of this peer in the configuration that is there, if there is one.
    fn key_of_peer(&self, peer: &str) -> anyhow::Result<Option<PublicKey>> {
        let file = self.configuration();
        if !file.exists() {
            return Ok(None);
        }
        let config = Config::load(&file).map_err(|error| {
            Usage(format!(
                "the configuration to replace cannot be read, so the key of {peer} is not known: {error}; write --peer-key KEY"
            ))
        })?;
        let mut peers = config.peers.into_iter();
        let peer = peers.find(|known| known.name == peer);
        Ok(peer.map(|peer| peer.public_key))
    }

    /// The key that is there, or a new one.
    fn take_key(&self, files: &mut Vec<WrittenFile>) -> anyhow::Result<PublicKey> {
        let file = self.key();
        let present = self.present_key()?;
        let key = match present {
            Some(key) => key,
            None => {
                let folder = file.parent().unwrap_or(&self.directory);
                make_folder(folder, 0o700)?;
                write_new_key(&file)?
            }
        };
        files.push(self.written(file, present.is_some())?);
        Ok(key)
    }

    fn write(&self, text: &str) -> anyhow::Result<WrittenFile> {
        let file = self.configuration();
        replace(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        self.written(file, false)
    }

    fn written(&self, path: PathBuf, kept: bool) -> anyhow::Result<WrittenFile> {
        let found = fs::metadata(&path).with_context(|| path.display().to_string())?;
        let mode = found.permissions().mode() & 0o777;
        Ok(WrittenFile {
            mode: format!("{mode:o}"),
            side: self.name.clone(),
            path,
            kept,
        })
    }
}

/// Writes the files of both sides, or nothing where a configuration is in the way.
pub(super) fn write(
    pair: &Pair,
    here: &Site,
    there: &Site,
    force: bool,
) -> anyhow::Result<Written> {
    for site in [here, there] {
        let file = site.configuration();
        if file.exists() && !force {
            let file = file.display();
            bail!(Usage(format!(
                "{file} is there already, and nothing was written: --force replaces it, --directory DIR writes elsewhere"
            )));
        }
    }
    if pair.peer_key.is_some() && pair.peer_key == here.present_key()? {
        let text = format!(
            "--peer-key: this is the key of {} itself; `starhaul pubkey FILE` at {} prints the other one",
            pair.here, pair.there
        );
        bail!(Usage(text));
    }
    let known = known_key(pair, here, there, force)?;
    // Any key does for a check of the answers, before anything is written.
    let example = starhaul_quic::Identity::generate().public_key();
    for (site, text) in [
        (here, pair.opening(&example)),
        (there, pair.accepting(&example)),
    ] {
        Config::parse(&text, &site.configuration())
            .map_err(|error| Usage(format!("these answers make no configuration: {error}")))?;
    }
    for site in [here, there] {
        make_folder(&site.directory, 0o755)?;
    }
    let mut files = Vec::new();
    let own = here.take_key(&mut files)?;
    let other = match known {
        Some(key) => key,
        None => there.take_key(&mut files)?,
    };
    files.insert(1, here.write(&pair.opening(&other))?);
    files.push(there.write(&pair.accepting(&own))?);
    Ok(Written {
        files,
        here: own,
        there: other,
    })
}

/// The key that the other side has already, as far as this side knows: a new one would make it another gateway.
fn known_key(
    pair: &Pair,
    here: &Site,
    there: &Site,
    force: bool,
) -> anyhow::Result<Option<PublicKey>> {
    // What is in its folder here is kept.
    if pair.peer_key.is_some() || !force || there.key().exists() {
        return Ok(pair.peer_key);
    }
    here.key_of_peer(&pair.there)
}

fn make_folder(folder: &Path, mode: u32) -> anyhow::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(mode)
        .create(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Puts the text in place of the file at once, readable by everyone: it holds no secret.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("toml.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&new)?;
    opened.write_all(text.as_bytes())?;
    opened.set_permissions(fs::Permissions::from_mode(0o644))?;
    opened.sync_all()?;
    fs::rename(&new, file)
}
