//! `starhaul keygen` and `starhaul pubkey`.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use starhaul_gateway::config::IdentitySource;
use starhaul_quic::{Identity, PublicKey};

use crate::output::{print, tell};

#[derive(clap::Args)]
pub(crate) struct KeygenArguments {
    /// Write the secret key to this file, which must not exist yet, and print the public key. Without it the secret
    /// key is printed, and the public key goes to standard error
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct PubkeyArguments {
    /// File with the secret key
    file: PathBuf,
}

pub(crate) fn keygen(arguments: &KeygenArguments) -> anyhow::Result<()> {
    let Some(file) = &arguments.out else {
        let identity = Identity::generate();
        tell(format!("{}\n", identity.public_key()));
        return print(identity.to_secret_text());
    };
    print(format!("{}\n", write_new_key(file)?))
}

/// Makes a key and writes it to a file, which must not exist, for its owner alone.
///
/// # Errors
/// The system's, with the file.
pub(crate) fn write_new_key(file: &Path) -> anyhow::Result<PublicKey> {
    let identity = Identity::generate();
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let written = opened.and_then(|mut opened| {
        let text = identity.to_secret_text();
        let written = opened.write_all(text.as_bytes());
        written.and_then(|()| opened.sync_all()).inspect_err(|_| {
            // What is no key would be in the way of the next attempt.
            let _ = std::fs::remove_file(file);
        })
    });
    written.with_context(|| format!("cannot write a new key to {}", file.display()))?;
    Ok(identity.public_key())
}

pub(crate) fn pubkey(arguments: &PubkeyArguments) -> anyhow::Result<()> {
    let identity = IdentitySource::File(arguments.file.clone()).load()?;
    print(format!("{}\n", identity.public_key()))
}
