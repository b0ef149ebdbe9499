//! Lander, orbiter and station as three nodes, and the two links between them.

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};
use starhaul_dtn::{
    Config, Node,
    control::Server,
    files::{FileReceiver, FileSender},
    plan::Moment,
};
use starhaul_dtn_client::{control::Client, status::Status};
use starhaul_link::{LinkSpec, Loss};
use starhaul_replay::{Emulator, RelaySpec};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{FASTER, LIGHT_TIME, LOOK, SpaceOptions};
use crate::Error;

/// Minutes in which the lander sees the orbiter, and the orbiter the station: never both.
const CONTACTS: [[Range<u64>; 3]; 2] = [[2..7, 19..24, 36..41], [9..16, 26..33, 43..50]];
const RATE: &str = "20mbit";
/// Bytes of a picture, and how much they differ.
const PICTURE: Range<u32> = 200_000..500_000;
const LIFETIME: Duration = Duration::from_secs(600);
/// The lander, the orbiter and the station.
const NODES: usize = 3;

/// All that runs.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    servers: Vec<Server>,
    emulator: Emulator,
    receiving: JoinHandle<()>,
    random: ChaCha8Rng,
    /// Removed when it is dropped, after those that write into it.
    folder: TempDir,
}

impl Nodes {
    pub(super) async fn start(options: SpaceOptions) -> Result<Self, Error> {
        let random = ChaCha8Rng::seed_from_u64(options.seed);
        // A folder of its own: pictures of another run must not count.
        let folder = tempfile::Builder::new().prefix("starhaul-space-").tempdir();
        let folder = folder.map_err(|error| {
            let place = std::env::temp_dir();
            failed(format!("{}: {error}", place.display()))
        })?;
        let ports = [free_port()?, free_port()?, free_port()?];
        let link = LinkSpec::constant(RATE.parse().map_err(failed)?, LIGHT_TIME / FASTER);
        let loss: Loss = format!("{}", options.loss).parse().map_err(failed)?;
        let link = LinkSpec { loss, ..link };
        let relay = |target| RelaySpec {
            target,
            forward: link.clone(),
            reverse: link.clone(),
            seed: options.seed,
        };
        let emulator = Emulator::start(vec![relay(ports[1]), relay(ports[2])])?;
        let ways: Vec<SocketAddr> = emulator
            .relays()
            .iter()
            .map(starhaul_replay::Relay::address)
            .collect();
        let epoch = Moment::from(SystemTime::now());
        let (mut nodes, mut servers) = (Vec::new(), Vec::new());
        for (number, port) in ports.into_iter().enumerate() {
            let home = folder.path().join(format!("node{number}"));
            fs::create_dir_all(&home)
                .map_err(|error| failed(format!("{}: {error}", home.display())))?;
            let text = configuration(number, port, &ways, epoch);
            let config = Config::parse(&text, &home.join("node.toml"), epoch).map_err(failed)?;
            let node = Node::start(config).await.map_err(failed)?;
            servers.push(Server::start(node.handle()).map_err(failed)?);
            nodes.push(node);
        }
        let receiving = receive(folder.path()).await?;
        fs::create_dir_all(folder.path().join("taken")).map_err(failed)?;
        let started = Self {
            nodes,
            servers,
            emulator,
            receiving,
            random,
            folder,
        };
        started.update_links(Duration::ZERO);
        Ok(started)
    }

    /// Makes a picture and gives it to the lander's node; returns its name and its bytes.
    pub(super) async fn take_picture(&mut self, number: usize) -> Result<(String, u64), Error> {
        let bytes = PICTURE.start + self.random.next_u32() % (PICTURE.end - PICTURE.start);
        let mut content = vec![0; bytes as usize];
        self.random.fill_bytes(&mut content);
        let name = format!("picture-{:02}.raw", number + 1);
        let path = self.folder.path().join("taken").join(&name);
        fs::write(&path, content).map_err(failed)?;
        let sender = FileSender::open(&[path]).map_err(failed)?;
        let mut client = Client::connect(Some(&socket(self.folder.path(), 0)))
            .await
            .map_err(failed)?;
        client.open(None).await.map_err(failed)?;
        sender
            .run(&mut client, "ipn:3.100", LIFETIME, None, |_| {})
            .await
            .map_err(failed)?;
        Ok((name, u64::from(bytes)))
    }

    /// Whether a picture has arrived; then, whether it has the hash of the one that was taken.
    pub(super) fn arrived(&self, name: &str) -> Result<Option<bool>, Error> {
        let arrived = self.folder.path().join("received").join(name);
        if !arrived.exists() {
            return Ok(None);
        }
        let hash = |path: &Path| fs::read(path).map(Sha256::digest).map_err(failed);
        Ok(Some(
            hash(&arrived)? == hash(&self.folder.path().join("taken").join(name))?,
        ))
    }

    /// Takes links down between contacts: what is under way then is lost.
    pub(super) fn update_links(&self, passed: Duration) {
        // A link is up a little before its contact begins, since it is looked at now and then only.
        let minutes = [passed, passed + 2 * LOOK].map(|at| (at * FASTER).as_secs() / 60);
        for (relay, contacts) in self.emulator.relays().iter().zip(CONTACTS) {
            match contacts
                .iter()
                .any(|contact| minutes.iter().any(|minute| contact.contains(minute)))
            {
                true => relay.set_up(),
                false => relay.set_down(),
            }
        }
    }

    pub(super) fn status(&self) -> Vec<Status> {
        self.nodes
            .iter()
            .map(|node| node.handle().status())
            .collect()
    }

    /// Ends the nodes and removes their files.
    pub(super) async fn stop(self) {
        self.receiving.abort();
        drop(self.servers);
        for node in self.nodes {
            node.shutdown().await;
        }
        // Nothing else can be done with a file that cannot be removed.
        let _ = self.folder.close();
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

fn free_port() -> Result<SocketAddr, Error> {
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    socket.local_addr().map_err(failed)
}

fn socket(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("node{number}")).join("control.sock")
}

/// Node 0 is the lander. Who sends first knows the way; the other learns it.
fn configuration(number: usize, listen: SocketAddr, ways: &[SocketAddr], epoch: Moment) -> String {
    let light_time = LIGHT_TIME / FASTER;
    let mut text = format!(
        "node = \"ipn:{}.0\"\ncontrol = \"control.sock\"\nepoch = \"{epoch}\"\n[storage]\nsync = false\n[ltp]\nlisten = \"{listen}\"\n",
        number + 1
    );
    let before = number.checked_sub(1).map(|peer| (peer, None));
    let behind = ways.get(number).map(|way| (number + 1, Some(way)));
    for (peer, way) in before.into_iter().chain(behind) {
        text += &format!(
            "[[ltp.peer]]\nnode = \"ipn:{}.0\"\nlight_time = \"{}us\"\nrate = \"{RATE}\"\n",
            peer + 1,
            light_time.as_micros()
        );
        text += &way.map_or(String::new(), |way| format!("address = \"{way}\"\n"));
    }
    for (link, contacts) in CONTACTS.iter().enumerate() {
        for contact in contacts {
            // A minute is told for a second that passes.
            text += &format!(
                "[[contact]]\nfrom = \"ipn:{}.0\"\nto = \"ipn:{}.0\"\nstart = \"+{}s\"\nend = \"+{}s\"\nrate = \"{RATE}\"\nlight_time = \"{}us\"\n",
                link + 1,
                link + 2,
                contact.start,
                contact.end,
                light_time.as_micros()
            );
        }
    }
    text
}

/// Receives files at the station.
async fn receive(folder: &Path) -> Result<JoinHandle<()>, Error> {
    let receiver = FileReceiver::new(&folder.join("received")).map_err(failed)?;
    let mut client = Client::connect(Some(&socket(folder, NODES - 1)))
        .await
        .map_err(failed)?;
    client.open(Some("100")).await.map_err(failed)?;
    Ok(tokio::spawn(async move {
        while let Ok(bundle) = client.next_bundle().await {
            let taken = receiver.take(&bundle);
            if taken.is_err() || client.acknowledge(&bundle.id).await.is_err() {
                return;
            }
        }
    }))
}
