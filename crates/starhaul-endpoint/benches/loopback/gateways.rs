//! TCP connections of an application through two gateways with one path.

use std::path::Path;

use starhaul_endpoint::Identity;
use starhaul_gateway::{Config, Gateway};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

use crate::{Contender, PACKET_BYTES, stream};

pub(crate) struct Gateways {
    runtime: Runtime,
    connections: Vec<(TcpStream, TcpStream)>,
    _gateways: [Gateway; 2],
}

impl Gateways {
    /// With so many connections.
    pub(crate) fn new(connections: usize) -> Self {
        let runtime = stream::runtime();
        let (gateways, connections) = runtime.block_on(connect(connections));
        Self {
            runtime,
            connections,
            _gateways: gateways,
        }
    }
}

async fn gateway(identity: &Identity, peer: &Identity, rest: &str) -> Gateway {
    let text = format!(
        "control = \"off\"\npacket_bytes = {PACKET_BYTES}\n{rest}[identity]\nsecret = \"\"\"{}\"\"\"\n\
         [[peer]]\nname = \"peer\"\npublic_key = \"{}\"\n",
        identity.to_secret_text(),
        peer.public_key()
    );
    Gateway::start(Config::parse(&text, Path::new("bench.toml")).unwrap())
        .await
        .unwrap()
}

/// Two gateways with one path; the near one has these rules besides.
pub(crate) async fn pair(rules: &str) -> [Gateway; 2] {
    let [ours, theirs] = [1, 2].map(|secret| Identity::from_secret([secret; 32]));
    // As all that they are compared with.
    let far = "listen = [\"127.0.0.1:0\"]\naccept = { controller = \"cubic\" }\n\
               egress = { allow = [\"127.0.0.0/8:*\"] }\n";
    let far = gateway(&theirs, &ours, far).await;
    let near = format!(
        "{rules}session = [{{ peer = \"peer\", path = [{{ name = \"loopback\", remote = \"{}\", controller = \"cubic\" }}] }}]\n",
        far.listen_addresses()[0]
    );
    let near = gateway(&ours, &theirs, &near).await;
    near.connected("peer").await;
    [near, far]
}

async fn connect(count: usize) -> ([Gateway; 2], Vec<(TcpStream, TcpStream)>) {
    let application = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = application.local_addr().unwrap();
    let rule =
        format!("tcp = [{{ name = \"r\", listen = \"127.0.0.1:0\", target = \"{target}\" }}]\n");
    let gateways = pair(&rule).await;
    let ingress = gateways[0].ingress_address("r").unwrap();
    let mut connections = Vec::new();
    for _ in 0..count {
        let (sender, accepted) = tokio::join!(TcpStream::connect(ingress), application.accept());
        connections.push((sender.unwrap(), accepted.unwrap().0));
    }
    (gateways, connections)
}

impl Contender for Gateways {
    fn transfer(&mut self, bytes: u64) {
        carry(&self.runtime, &mut self.connections, bytes);
    }
}

/// Delivers so many bytes over all connections, each from its first end to its second.
pub(crate) fn carry(runtime: &Runtime, connections: &mut Vec<(TcpStream, TcpStream)>, bytes: u64) {
    let share = bytes / connections.len() as u64;
    let tasks: Vec<_> = connections
        .drain(..)
        .map(|(mut sender, mut receiver)| {
            let sending = runtime.spawn(async move {
                let chunk = vec![7; stream::CHUNK_BYTES];
                let mut left = share;
                while left > 0 {
                    let now = left.min(chunk.len() as u64);
                    let part = &chunk[..usize::try_from(now).unwrap()];
                    sender.write_all(part).await.unwrap();
                    left -= now;
                }
                sender
            });
            let receiving = runtime.spawn(async move {
                let mut buffer = vec![0; stream::CHUNK_BYTES];
                let mut left = share;
                while left > 0 {
                    left -= receiver.read(&mut buffer).await.unwrap() as u64;
                }
                receiver
            });
            (sending, receiving)
        })
        .collect();
    for (sending, receiving) in tasks {
        let both = runtime.block_on(async { tokio::join!(sending, receiving) });
        connections.push((both.0.unwrap(), both.1.unwrap()));
    }
}
