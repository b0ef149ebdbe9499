//! The control socket: a local stream socket that takes one JSON object per line and answers each with one.
//!
//! `{"request":"status"}` is answered by `{"ok":{…}}`, anything else by `{"error":"…"}`.

use std::{
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use crate::{Error, config::ControlPath, limits::Seldom, shared::Shared, status::Status};

const MAX_REQUEST_BYTES: u64 = 4096;
const MAX_ANSWER_BYTES: u64 = 64 << 20;
const MAX_CLIENTS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
enum ControlRequest {
    Status,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ControlAnswer {
    Ok(Box<Status>),
    Error(String),
}

/// A listening control socket; dropping it removes its file.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file at `path`.
    file: (u64, u64),
}

impl ControlSocket {
    /// Binds the configured socket. If the default path cannot be bound, the gateway runs without a control socket.
    pub(crate) async fn bind(control: &ControlPath) -> Result<Option<Self>, Error> {
        let path = match control {
            ControlPath::Off => return Ok(None),
            ControlPath::At(path) => path.clone(),
            ControlPath::Default => ControlPath::default_path(),
        };
        match Self::bind_at(&path).await {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if *control == ControlPath::Default => {
                tracing::warn!(path = %path.display(), %error, "no control socket; \"control\" in the configuration names another place, or \"off\"");
                Ok(None)
            }
            Err(reason) => Err(Error::Control { path, reason }),
        }
    }

    async fn bind_at(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_free(path, error.kind()).await?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let made = std::fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (made.dev(), made.ino()),
        })
    }

    /// Answers until dropped.
    pub(crate) async fn serve(self, shared: Arc<Shared>) {
        let mut clients = JoinSet::new();
        let log = Seldom::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept(), if clients.len() < MAX_CLIENTS => accepted,
                Some(_) = clients.join_next() => continue,
            };
            match accepted {
                Ok((client, _)) => {
                    clients.spawn(serve_client(client, shared.clone()));
                }
                Err(error) => {
                    shared.seen.outlet.limits.note_io("control socket", &error);
                    if log.is_due(Instant::now()).is_some() {
                        tracing::warn!(%error, "control socket cannot accept");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Another file may have taken the path meanwhile.
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket file of a gateway that was killed, and no other file.
async fn make_free(path: &Path, kind: io::ErrorKind) -> io::Result<()> {
    let refuse = |why| Err(io::Error::new(kind, why));
    let there = std::fs::symlink_metadata(path)?.file_type();
    if !there.is_socket() {
        return refuse("a file that is no socket is there; name another path, or remove it");
    }
    match UnixStream::connect(path).await {
        Ok(_) => refuse("another gateway listens there"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        // A process listens there that is busy, or that this one may not connect to.
        Err(error) => Err(error),
    }
}

async fn serve_client(mut client: UnixStream, shared: Arc<Shared>) -> io::Result<()> {
    let (reader, mut writer) = client.split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(MAX_REQUEST_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        if tokio::time::timeout(TIMEOUT, read).await?? == 0 {
            return Ok(());
        }
        writer.write_all(&answer(&line, || shared.status())).await?;
        if !line.ends_with(b"\n") {
            // Too long or incomplete: the next read would start in the middle of a line.
            return Ok(());
        }
    }
}

/// The answer to one line of a client: one line of JSON, for valid and invalid requests alike.
#[doc(hidden)]
pub fn answer(line: &[u8], status: impl FnOnce() -> Status) -> Vec<u8> {
    let answer = match serde_json::from_slice(line) {
        Ok(ControlRequest::Status) => ControlAnswer::Ok(Box::new(status())),
        Err(error) => ControlAnswer::Error(format!("not a request: {error}")),
    };
    // Neither a map with other keys than texts nor a failing writer is involved.
    let mut answer = serde_json::to_vec(&answer).unwrap_or_default();
    answer.push(b'\n');
    answer
}

/// Asks the gateway at the first default control socket that answers; returns its path and status.
///
/// # Errors
/// Nothing answers at any of them; each is named with its reason.
pub async fn find_status() -> Result<(PathBuf, Status), Error> {
    let mut tried = Vec::new();
    for path in ControlPath::default_paths() {
        match ask_status(&path).await {
            Ok(status) => return Ok((path, status)),
            Err(Error::Control { path, reason }) => tried.push((path, reason)),
            Err(other) => return Err(other),
        }
    }
    Err(Error::NoGateway { tried })
}

/// Asks the gateway at the control socket `path` for its status.
///
/// # Errors
/// Nothing answers there, or not within five seconds.
pub async fn ask_status(path: &Path) -> Result<Status, Error> {
    let error = |reason| Error::Control {
        path: path.to_owned(),
        reason,
    };
    let ask = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(b"{\"request\":\"status\"}\n").await?;
        let mut line = Vec::new();
        BufReader::new(stream)
            .take(MAX_ANSWER_BYTES)
            .read_until(b'\n', &mut line)
            .await?;
        io::Result::Ok(line)
    };
    let line = tokio::time::timeout(TIMEOUT, ask)
        .await
        .map_err(|_| error(io::ErrorKind::TimedOut.into()))?
        .map_err(error)?;
    match serde_json::from_slice(&line).map_err(|problem| error(problem.into()))? {
        ControlAnswer::Ok(status) => Ok(*status),
        ControlAnswer::Error(reason) => Err(Error::Refused(reason)),
    }
}
