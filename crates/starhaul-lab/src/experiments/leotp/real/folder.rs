//! Keys, configurations and the content of a chain, in a folder that is removed with this value.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{BufWriter, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};
use starhaul_endpoint::Identity;

use crate::{Error, dialogue};

const PORT: u16 = 4511;
/// Where the gateway of the first node waits for applications.
pub(super) const INGRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const CONTENT: &str = "content";

pub(super) struct Folder {
    folder: tempfile::TempDir,
    program: OsString,
    /// SHA-256 of the content.
    hash: Sha256Sum,
}

type Sha256Sum = [u8; 32];

impl Folder {
    /// With keys for so many hops and a content of so many bytes, which follow from the seed.
    pub(super) fn new(program: &Path, hops: usize, bytes: u64, seed: u64) -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("starhaul-lab-").tempdir();
        let folder = folder.map_err(Error::io("cannot make a folder for a chain"))?;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let at = |name: &str| folder.path().join(name);
        let keys = (1..=hops).map(key).chain(["secret".to_owned()]);
        for name in keys {
            let text = format!("{:016x}{:016x}\n", random.next_u64(), random.next_u64());
            write(&at(&name), &text)?;
        }
        let served = at("served");
        fs::create_dir(&served).map_err(failed(&served))?;
        let content = served.join(CONTENT);
        let hash = fill(&content, bytes, &mut random).map_err(failed(&content))?;
        Ok(Self {
            folder,
            program: program.into(),
            hash,
        })
    }

    /// The command of the server behind hop `hop`.
    pub(super) fn server(&self, hop: usize) -> Vec<OsString> {
        let mut command = self.command("serve");
        command.push(self.at("served").into());
        command.extend(["--listen".into(), format!("0.0.0.0:{PORT}").into()]);
        command.extend(["--key".into(), self.at(&key(hop)).into()]);
        command.extend(["--secret".into(), self.at("secret").into()]);
        command
    }

    /// The command of the relay behind hop `hop`, whose next neighbour toward the server is at `upstream`.
    pub(super) fn relay(&self, hop: usize, upstream: IpAddr) -> Result<Vec<OsString>, Error> {
        let file = self.at(&format!("relay-{hop}.toml"));
        let (upstream, up, down) = (SocketAddr::new(upstream, PORT), key(hop + 1), key(hop));
        let text = format!(
            "listen = \"0.0.0.0:{PORT}\"\nupstream = \"up\"\n\
             [[neighbour]]\nname = \"up\"\naddress = \"{upstream}\"\nkey = \"{up}\"\n\
             [[neighbour]]\nname = \"down\"\nkey = \"{down}\"\n"
        );
        write(&file, &text)?;
        let mut command = self.command("relay");
        command.extend(["--config".into(), file.into()]);
        Ok(command)
    }

    /// The command of the requester, whose neighbour is at `from`.
    pub(super) fn requester(&self, from: IpAddr) -> Vec<OsString> {
        let mut command = self.command("fetch");
        command.extend([CONTENT.into(), "--json".into()]);
        let from = SocketAddr::new(from, PORT).to_string();
        command.extend(["--from".into(), from.into()]);
        command.extend(["--key".into(), self.at(&key(1)).into()]);
        command.extend(["--secret".into(), self.at("secret").into()]);
        command.extend(["--into".into(), self.at("fetched").into()]);
        command
    }

    /// The command of the gateway of the first node, whose neighbour is at `upstream`; it leads applications to the last node, at `last`.
    pub(super) fn near_gateway(
        &self,
        upstream: IpAddr,
        last: IpAddr,
    ) -> Result<Vec<OsString>, Error> {
        let upstream = SocketAddr::new(upstream, PORT);
        let target = SocketAddr::new(last, dialogue::PORT);
        let leotp = format!(
            "upstream = \"up\"\n[[leotp.neighbour]]\nname = \"up\"\naddress = \"{upstream}\"\nkey = \"{}\"\n\
             [[tcp]]\nname = \"messages\"\nlisten = \"{INGRESS}\"\nservice = \"leotp\"\ntarget = \"{target}\"\n",
            key(1)
        );
        self.gateway("near", &leotp)
    }

    /// The command of the gateway behind hop `hop`, at `address`, which reaches targets there.
    pub(super) fn far_gateway(&self, hop: usize, address: IpAddr) -> Result<Vec<OsString>, Error> {
        let leotp = format!(
            "[[leotp.neighbour]]\nname = \"down\"\nkey = \"{}\"\n[egress]\nallow = [\"{address}:{}\"]\n",
            key(hop),
            dialogue::PORT
        );
        self.gateway("far", &leotp)
    }

    fn gateway(&self, name: &str, leotp: &str) -> Result<Vec<OsString>, Error> {
        let file = self.at(&format!("{name}.toml"));
        let identity = Identity::generate().to_secret_text();
        write(&self.at(&format!("{name}.key")), &identity)?;
        let text = format!(
            "control = \"off\"\n[identity]\nfile = \"{name}.key\"\n\
             [leotp]\nlisten = \"0.0.0.0:{PORT}\"\nsecret = \"secret\"\n{leotp}"
        );
        write(&file, &text)?;
        let mut command = self.command("gateway");
        command.extend(["--config".into(), file.into()]);
        Ok(command)
    }

    /// Whether what was fetched is what was served, read and hashed again.
    pub(super) fn is_whole(&self) -> Result<bool, Error> {
        let fetched = self.at("fetched");
        let mut hash = Sha256::new();
        let read = File::open(&fetched).and_then(|mut file| std::io::copy(&mut file, &mut hash));
        read.map_err(failed(&fetched))?;
        Ok(Sha256Sum::from(hash.finalize()) == self.hash)
    }

    fn command(&self, what: &str) -> Vec<OsString> {
        let log = ["--log", "warn", what].map(OsString::from);
        std::iter::once(self.program.clone()).chain(log).collect()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The file of the key that the two ends of a hop share. Hops are counted from 1.
fn key(hop: usize) -> String {
    format!("hop-{hop}.key")
}

fn fill(file: &Path, bytes: u64, random: &mut ChaCha8Rng) -> std::io::Result<Sha256Sum> {
    let mut to = BufWriter::new(File::create(file)?);
    let mut hash = Sha256::new();
    let mut buffer = [0; 8192];
    let mut left = bytes;
    while left > 0 {
        random.fill_bytes(&mut buffer);
        let take = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let chunk = buffer.get(..take).unwrap_or_default();
        hash.update(chunk);
        to.write_all(chunk)?;
        left -= take as u64;
    }
    to.flush()?;
    Ok(hash.finalize().into())
}

/// Only this user reads what may be a secret.
fn write(file: &Path, text: &str) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    let written = options.write(true).create(true).truncate(true).mode(0o600);
    let written = written.open(file);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(failed(file))
}

fn failed(file: &Path) -> impl FnOnce(std::io::Error) -> Error {
    Error::io(file.display().to_string())
}
