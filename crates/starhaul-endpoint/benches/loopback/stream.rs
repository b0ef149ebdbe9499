//! A reliable stream between two endpoints with one path.

use starhaul_endpoint::{
    ByteReader, ByteStream, ByteWriter, Endpoint, EndpointConfig, Identity, IncomingStream,
    PathSpec, Session,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Runtime,
};

use crate::{Contender, PACKET_BYTES};

/// What applications hand over at once.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

pub(crate) struct Stream {
    runtime: Runtime,
    writer: Option<ByteWriter>,
    reader: Option<ByteReader>,
    _kept: Kept,
}

/// What ends when it is dropped.
struct Kept {
    _ends: [Endpoint; 2],
    _sessions: [Session; 2],
    _unused: (ByteReader, ByteWriter),
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn config(identity: &Identity) -> EndpointConfig {
    EndpointConfig {
        packet_bytes: PACKET_BYTES,
        sure_packet_bytes: PACKET_BYTES,
        ..EndpointConfig::new(identity.clone())
    }
}

impl Stream {
    pub(crate) fn new() -> Self {
        let runtime = runtime();
        let (writer, reader, kept) = runtime.block_on(connect());
        Self {
            runtime,
            writer: Some(writer),
            reader: Some(reader),
            _kept: kept,
        }
    }
}

async fn connect() -> (ByteWriter, ByteReader, Kept) {
    let [ours, theirs] = [1, 2].map(|secret| Identity::from_secret([secret; 32]));
    let server = EndpointConfig {
        trusted: vec![ours.public_key()],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..config(&theirs)
    };
    let server = Endpoint::bind(server).await.unwrap();
    let client = Endpoint::bind(config(&ours)).await.unwrap();
    let path = PathSpec::new("loopback", server.listen_addresses()[0]);
    let near = client
        .connect(theirs.public_key(), vec![path])
        .await
        .unwrap();
    let far = server.accept().await.unwrap();
    let opened: ByteStream = near.open_bytes(1, bytes::Bytes::new()).await.unwrap();
    let (unused_reader, mut writer) = opened.into_split();
    writer.write_all(b"!").await.unwrap();
    let Some(IncomingStream::Bytes(accepted)) = far.accept_stream().await else {
        panic!("no byte stream");
    };
    let (mut reader, unused_writer) = accepted.into_split();
    reader.read_u8().await.unwrap();
    let kept = Kept {
        _ends: [client, server],
        _sessions: [near, far],
        _unused: (unused_reader, unused_writer),
    };
    (writer, reader, kept)
}

impl Contender for Stream {
    fn transfer(&mut self, bytes: u64) {
        let (mut writer, mut reader) = (self.writer.take().unwrap(), self.reader.take().unwrap());
        let sending = self.runtime.spawn(async move {
            let chunk = vec![7; CHUNK_BYTES];
            let mut left = bytes;
            while left > 0 {
                let now = left.min(CHUNK_BYTES as u64);
                let part = &chunk[..usize::try_from(now).unwrap()];
                writer.write_all(part).await.unwrap();
                left -= now;
            }
            writer
        });
        let receiving = self.runtime.spawn(async move {
            let mut buffer = vec![0; CHUNK_BYTES];
            let mut left = bytes;
            while left > 0 {
                left -= reader.read(&mut buffer).await.unwrap() as u64;
            }
            reader
        });
        self.writer = Some(self.runtime.block_on(sending).unwrap());
        self.reader = Some(self.runtime.block_on(receiving).unwrap());
    }
}
