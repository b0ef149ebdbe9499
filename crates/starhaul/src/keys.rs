//! `starhaul keygen` and `starhaul pubkey`.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use anyhow::Context as _;
use starhaul_gateway::config::IdentitySource;
use starhaul_quic::Identity;

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
    let identity = Identity::generate();
    let (secret, public) = (identity.to_secret_text(), identity.public_key());
    let Some(file) = &arguments.out else {
        eprintln!("{public}");
        return print(secret);
    };
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut opened| opened.write_all(secret.as_bytes()))
        .with_context(|| format!("cannot write a new key to {}", file.display()))?;
    print(format!("{public}\n"))
}

pub(crate) fn pubkey(arguments: &PubkeyArguments) -> anyhow::Result<()> {
    let identity = IdentitySource::File(arguments.file.clone()).load()?;
    print(format!("{}\n", identity.public_key()))
}
