//! Whole nodes in one process.

pub(crate) mod source;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use starhaul_dtn::{
    Config, Node,
    control::Server,
    files::{FileReceiver, FileSender, SERVICE},
};
use starhaul_dtn_client::{control::Client, endpoint_of, status::Status};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// A running node with its folder.
pub(crate) struct Running {
    pub(crate) node: Node,
    server: Server,
    pub(crate) folder: TempDir,
}

impl Running {
    pub(crate) async fn start(text: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), text).await
    }

    pub(crate) async fn start_in(folder: TempDir, text: &str) -> Self {
        let name = folder.path().join("node.toml");
        let text = format!("control = \"control.sock\"\n{text}");
        let config = Config::parse(&text, &name, SystemTime::now().into()).unwrap();
        let node = Node::start(config).await.unwrap();
        let server = Server::start(node.handle()).unwrap();
        Self {
            node,
            server,
            folder,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(Some(&self.folder.path().join("control.sock")))
            .await
            .unwrap()
    }

    /// Receives files until it is aborted.
    pub(crate) async fn receive_files(&self) -> (PathBuf, JoinHandle<()>) {
        let folder = self.folder.path().join("received");
        let receiver = FileReceiver::new(&folder).unwrap();
        let mut client = self.client().await;
        client.open(Some("100")).await.unwrap();
        let task = tokio::spawn(async move {
            loop {
                let bundle = client.next_bundle().await.unwrap();
                let (_, answer) = receiver.take(&bundle).unwrap();
                if let Some(answer) = answer {
                    client
                        .send(&bundle.source, &answer.payload, answer.lifetime)
                        .await
                        .unwrap();
                }
                client.acknowledge(&bundle.id).await.unwrap();
            }
        });
        (folder, task)
    }

    pub(crate) async fn send_files(
        &self,
        paths: &[PathBuf],
        to: &str,
    ) -> Result<(), starhaul_dtn::Error> {
        let sender = FileSender::open(paths).unwrap();
        let mut client = self.client().await;
        client.open(None).await.unwrap();
        let to = endpoint_of(to, SERVICE).unwrap();
        sender
            .run(&mut client, &to, LIFETIME, Some(LIFETIME), |_| {})
            .await
    }

    pub(crate) async fn stop(self) -> TempDir {
        drop(self.server);
        assert!(self.node.shutdown().await, "the agent does not end");
        self.folder
    }
}

/// The agent's tasks must not outlive the runtime's end.
pub(crate) async fn stop<const N: usize>(nodes: [Running; N]) {
    for running in nodes {
        running.stop().await;
    }
}

// Both ends are told of each other before either is bound.
pub(crate) use starhaul_needs::{free as tcp, free as udp};

pub(crate) fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    });
    bytes.collect()
}

/// A node that talks LTP to one other.
pub(crate) fn over_ltp(
    number: u32,
    listen: SocketAddr,
    peer: u32,
    address: SocketAddr,
    more: &str,
) -> String {
    format!(
        "node = \"ipn:{number}.0\"\n{more}\n[storage]\nsync = false\n[ltp]\nlisten = \"{listen}\"\n\
         [[ltp.peer]]\nnode = \"ipn:{peer}.0\"\naddress = \"{address}\"\n"
    )
}

pub(crate) fn write(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// Waits until a condition on a node's status is true, or fails after a minute.
pub(crate) async fn until(running: &Running, what: &str, is_so: impl Fn(&Status) -> bool) {
    let mut client = running.client().await;
    let begun = Instant::now();
    loop {
        let status = client.status().await.unwrap();
        if is_so(&status) {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: {status:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a node over TCPCLv4 begins with: the header, and SESS_INIT with what it takes, its name and no extensions (RFC 9174 §4.2, §4.6).
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap().to_be_bytes();
    let most = (1_u64 << 20).to_be_bytes();
    let parts = [
        b"dtn!\x04\x00".as_slice(),
        &[7, 0, 0],
        &most,
        &most,
        &length,
        name.as_bytes(),
        &[0; 4],
    ];
    parts.concat()
}

/// A connection to a node that may not listen yet.
pub(crate) fn connected(to: SocketAddr) -> std::net::TcpStream {
    let begun = Instant::now();
    loop {
        match std::net::TcpStream::connect(to) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
