//! The control socket: status, and endpoints for applications.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hardy_bpv7::eid::Eid;
use tokio::{
    io::{self, AsyncReadExt as _, BufReader, ErrorKind},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};

use crate::{
    Error,
    app::{App, Delivery, MOST_APPLICATIONS},
    node::Handle,
    payload::Payload,
    plan::Moment,
    schedule::Schedule,
    stock::NoRoom,
};
use starhaul_dtn_client::{
    Error as ClientError,
    control::wire::{Reply, Report, Request, default_sockets, read, write},
};
use starhaul_net::LocalSocketFile;

/// Bundles that an application has and has not acknowledged.
const MOST_DELIVERIES: usize = 16;
/// Reports that wait for an application to read them.
const MOST_REPORTS: usize = 1024;
/// How long a connection that is refused may take to hear why.
const SAY_NO: Duration = Duration::from_secs(1);
/// The least lifetime of a bundle is a millisecond, the greatest ten years.
const LIFETIMES_MS: std::ops::RangeInclusive<u64> = 1..=315_576_000_000;

/// Serves the control socket of a node until it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Goes with this.
    file: LocalSocketFile,
    task: JoinHandle<()>,
}

impl Server {
    /// Makes the socket where the configuration says, or at the first default place that can be used.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn start(node: Handle) -> Result<Self, Error> {
        let paths = node
            .control()
            .map_or_else(default_sockets, |path| vec![path]);
        let (file, listener) = listen_at_one_of(paths)?;
        let task = tokio::spawn(accept(listener, node));
        Ok(Self { file, task })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens at the first place that can be made. One that is taken ends the search: a node elsewhere would not be found where
/// its owner expects it.
fn listen_at_one_of(paths: Vec<PathBuf>) -> Result<(LocalSocketFile, UnixListener), Error> {
    let mut failed = Error::Control {
        path: PathBuf::new(),
        reason: io::ErrorKind::NotFound.into(),
    };
    for path in paths {
        match LocalSocketFile::listen(&path) {
            Ok(made) => return Ok(made),
            Err(reason) => {
                let kind = reason.kind();
                failed = Error::Control { path, reason };
                if matches!(kind, ErrorKind::AddrInUse | ErrorKind::AlreadyExists) {
                    break;
                }
            }
        }
    }
    Err(failed)
}

async fn accept(listener: UnixListener, node: Handle) {
    let connections = Arc::new(Semaphore::new(MOST_APPLICATIONS));
    loop {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let Ok(permit) = connections.clone().try_acquire_owned() else {
                    let reason = format!(
                        "the node serves {MOST_APPLICATIONS} applications at a time, and all are connected"
                    );
                    let reply = Reply::NotNow { reason };
                    tokio::spawn(tokio::time::timeout(SAY_NO, async move {
                        let _ = write(&mut stream, &reply, &[]).await;
                        // A client that writes its request to a connection that has ended gets an error, and does not read the reason.
                        let _ = stream.readable().await;
                    }));
                    continue;
                };
                let node = node.clone();
                tokio::spawn(async move {
                    let mut connection = Connection::new(node, stream);
                    if let Err(error) = connection.serve().await {
                        tracing::debug!(%error, "a connection of the control socket ends");
                    }
                    connection.close().await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the control socket accepts nothing");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

struct Connection {
    node: Handle,
    requests: mpsc::Receiver<io::Result<(Request, Payload)>>,
    writer: OwnedWriteHalf,
    app: Option<Arc<App>>,
    deliveries: mpsc::Receiver<Delivery>,
    incoming: mpsc::Sender<Delivery>,
    reports: mpsc::Receiver<Report>,
    reported: mpsc::Sender<Report>,
    /// Bundles that the application has and has not acknowledged.
    open: HashMap<String, (Moment, tokio::sync::oneshot::Sender<()>)>,
}

impl Connection {
    fn new(node: Handle, stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let (incoming, deliveries) = mpsc::channel(1);
        let (reported, reports) = mpsc::channel(MOST_REPORTS);
        let (requested, requests) = mpsc::channel(1);
        tokio::spawn(read_all(
            BufReader::new(reader),
            node.bundle_bytes(),
            requested,
        ));
        Self {
            node,
            requests,
            writer,
            app: None,
            deliveries,
            incoming,
            reports,
            reported,
            open: HashMap::new(),
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        loop {
            tokio::select! {
                request = self.requests.recv() => match request {
                    None => return Ok(()),
                    Some(request) => {
                        let (request, payload) = request?;
                        let reply = match self.handle(request, payload).await {
                            Ok(reply) => reply,
                            Err(ClientError::Full) => Reply::Full,
                            Err(ClientError::NotNow(reason)) => Reply::NotNow { reason },
                            Err(ClientError::Refused(reason)) => Reply::Refused { reason },
                            Err(error) => Reply::Refused { reason: error.to_string() },
                        };
                        write(&mut self.writer, &reply, &[]).await?;
                    }
                },
                delivery = self.deliveries.recv(), if self.open.len() < MOST_DELIVERIES => {
                    if let Some(delivery) = delivery {
                        self.deliver(delivery).await?;
                    }
                }
                report = self.reports.recv() => {
                    if let Some(report) = report {
                        write(&mut self.writer, &Reply::Report(report), &[]).await?;
                    }
                }
            }
            self.open
                .retain(|_, (_, acknowledged)| !acknowledged.is_closed());
        }
    }

    async fn deliver(&mut self, delivery: Delivery) -> io::Result<()> {
        let Delivery {
            id,
            source,
            payload,
            kept_until,
            acknowledged,
        } = delivery;
        // The task that waited for this application's acknowledgement has given up: the bundle comes again.
        if acknowledged.is_closed() {
            return Ok(());
        }
        let reply = Reply::Bundle {
            id: id.clone(),
            source: source.to_string(),
            bytes: payload.len() as u64,
        };
        self.open.insert(id, (kept_until, acknowledged));
        write(&mut self.writer, &reply, &payload).await
    }

    async fn handle(&mut self, request: Request, payload: Payload) -> Result<Reply, ClientError> {
        let refused = |reason: &str| ClientError::Refused(reason.to_owned());
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.node.status()))),
            Request::Open { service } => {
                if self.app.is_some() {
                    return Err(refused("this connection has an endpoint already"));
                }
                let opened = self
                    .node
                    .open_reporting(
                        service.as_deref(),
                        self.incoming.clone(),
                        self.reported.clone(),
                    )
                    .await;
                let (app, endpoint) = opened?;
                self.app = Some(app);
                Ok(Reply::Opened {
                    endpoint: endpoint.to_string(),
                    most_bytes: self.node.bundle_bytes(),
                    contact_bytes: self.node.least_contact(),
                })
            }
            Request::Send {
                to,
                lifetime_ms,
                bytes,
                reports,
            } => {
                let app = self.app.as_ref();
                let app = app.ok_or_else(|| refused("open an endpoint first"))?;
                if bytes > self.node.bundle_bytes() {
                    return Err(NoRoom::TooLarge.into());
                }
                let to: Eid = to.parse().map_err(|_| {
                    ClientError::Refused(format!(
                        "{to:?} is no endpoint: write ipn:3.100 or dtn://station/files"
                    ))
                })?;
                if !LIFETIMES_MS.contains(&lifetime_ms) {
                    return Err(refused("the lifetime is zero or above ten years"));
                }
                let lifetime = Duration::from_millis(lifetime_ms);
                let id = app.send_prepared(to, payload, lifetime, reports).await?;
                Ok(Reply::Sent { id })
            }
            Request::Acknowledge { id } => {
                let open = self.open.remove(&id);
                let (kept_until, acknowledged) =
                    open.ok_or_else(|| refused("no such bundle is open here"))?;
                // It waits for the medium.
                let (node, name) = (self.node.clone(), id.clone());
                let recording = tokio::task::spawn_blocking(move || {
                    node.desk()
                        .journal
                        .record(&name, kept_until, Schedule::now())
                });
                let recorded = recording.await.map_err(io::Error::other).flatten();
                recorded.map_err(|error| {
                    ClientError::Refused(format!("the acknowledgement cannot be kept: {error}"))
                })?;
                // If the agent has given up waiting, it hands the bundle out again, and the journal stops it.
                let _ = acknowledged.send(());
                Ok(Reply::Acknowledged { id })
            }
        }
    }

    async fn close(&mut self) {
        self.open.clear();
        self.deliveries.close();
        if let Some(app) = self.app.take() {
            app.close().await;
        }
    }
}

async fn skip(reader: &mut BufReader<OwnedReadHalf>, bytes: u64) -> io::Result<()> {
    let skipped = io::copy_buf(&mut reader.take(bytes), &mut io::sink()).await?;
    match skipped == bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads requests; ends with the connection, or when the task that answers them has ended.
async fn read_all(
    mut reader: BufReader<OwnedReadHalf>,
    most_bytes: u64,
    requested: mpsc::Sender<io::Result<(Request, Payload)>>,
) {
    loop {
        let request = match read::<Request>(&mut reader).await {
            Ok(None) => return,
            Ok(Some(request)) => match request {
                // It is refused when it has been passed over, so that its sender reads the reason.
                Request::Send { bytes, .. } if bytes > most_bytes => skip(&mut reader, bytes)
                    .await
                    .map(|()| (request, Payload::default())),
                Request::Send { bytes, .. } => Payload::read(&mut reader, bytes)
                    .await
                    .map(|payload| (request, payload)),
                other => Ok((other, Payload::default())),
            },
            Err(error) => Err(error),
        };
        let is_error = request.is_err();
        if requested.send(request).await.is_err() || is_error {
            return;
        }
    }
}
