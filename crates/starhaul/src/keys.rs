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

use crate::output::print;

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
        eprintln!("{}", identity.public_key());
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
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut opened| opened.write_all(identity.to_secret_text().as_bytes()))
        .with_context(|| format!("cannot write a new key to {}", file.display()))?;
    Ok(identity.public_key())
}

pub(crate) fn pubkey(arguments: &PubkeyArguments) -> anyhow::Result<()> {
    let identity = IdentitySource::File(arguments.file.clone()).load()?;
    print(format!("{}\n", identity.public_key()))
}
