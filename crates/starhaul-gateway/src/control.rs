//! The control socket: a local stream socket that takes one JSON object per line and answers each with one.
//!
//! `{"request":"status"}` and `{"request":"path",…}` are answered by `{"ok":{…}}` with the status, anything else by
//! `{"error":"…"}`. The gateway's own user and root may change paths; members of the configured group may read.

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};
use starhaul_net::LocalSocketFile;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use crate::{
    Error, PathChange,
    config::{ControlPath, group_number},
    limits::Seldom,
    shared::Shared,
    status::Status,
};

const MAX_REQUEST_BYTES: u64 = 4096;
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Clients served at once that may change something.
const MAX_OWNERS: usize = 16;
/// Others, who thus cannot take the places of those.
const MAX_READERS: usize = 16;
/// For a request to come, and for its answer to be taken.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
enum ControlRequest {
    Status,
    Path(PathChange),
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
    /// Goes with this.
    _file: LocalSocketFile,
}

impl ControlSocket {
    /// Binds the configured socket. If the default path cannot be bound, the gateway runs without a control socket.
    pub(crate) fn bind(
        control: &ControlPath,
        readers: Option<&str>,
    ) -> Result<Option<Self>, Error> {
        let path = match control {
            ControlPath::Off => return Ok(None),
            ControlPath::At(path) => path.clone(),
            ControlPath::Default => ControlPath::default_path(),
        };
        let group = match readers {
            Some(name) => Some((name, group_number(name)?)),
            None => None,
        };
        let socket = match LocalSocketFile::listen(&path) {
            Ok((file, listener)) => Self {
                listener,
                _file: file,
            },
            Err(error) if *control == ControlPath::Default => {
                tracing::warn!(path = %path.display(), %error, "no control socket; \"control\" in the configuration names another place, or \"off\"");
                return Ok(None);
            }
            Err(reason) => return Err(Error::Control { path, reason }),
        };
        if let Some((name, number)) = group {
            give(&path, number).map_err(|error| Error::ControlGroup {
                group: name.to_owned(),
                reason: io::Error::new(
                    error.kind(),
                    format!(
                        "the control socket {} cannot be given to it: {error}",
                        path.display()
                    ),
                ),
            })?;
        }
        Ok(Some(socket))
    }

    /// Answers until dropped.
    pub(crate) async fn serve(self, shared: Arc<Shared>) {
        let (mut owners, mut readers) = (JoinSet::new(), JoinSet::new());
        let log = Seldom::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept(), if owners.len() < MAX_OWNERS => accepted,
                Some(_) = owners.join_next() => continue,
                Some(_) = readers.join_next() => continue,
            };
            match accepted {
                Ok((client, _)) if may_change(&client) => {
                    owners.spawn(serve_client(client, shared.clone(), true));
                }
                Ok((client, _)) if readers.len() < MAX_READERS => {
                    readers.spawn(serve_client(client, shared.clone(), false));
                }
                Ok((client, _)) => refuse(&client),
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

/// Lets the members of a group use a socket.
fn give(path: &Path, group: u32) -> io::Result<()> {
    std::os::unix::fs::chown(path, None, Some(group))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
}

/// Whether the client may change something: it runs as the gateway's user, or as root.
fn may_change(client: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    client
        .peer_cred()
        .is_ok_and(|other| other.uid() == own || other.uid() == 0)
}

/// Tells a client that there is no place for it, as far as it takes that at once.
fn refuse(client: &UnixStream) {
    let refusal = ControlAnswer::Error("too many ask at once: try again".to_owned());
    // The runtime does not know yet that it can be written to.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    _ = rustix::net::send(client, &line(&refusal), flags);
}

async fn serve_client(
    mut client: UnixStream,
    shared: Arc<Shared>,
    may_change: bool,
) -> io::Result<()> {
    let (reader, mut writer) = client.split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(MAX_REQUEST_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        if tokio::time::timeout(TIMEOUT, read).await?? == 0 {
            return Ok(());
        }
        let order = |change: &PathChange| match may_change {
            true => shared.order_path(change),
            false => Err("only the gateway's own user and root may change paths".to_owned()),
        };
        let answer = answer(&line, || shared.status(), order);
        // One that never reads its answers must not keep its place.
        tokio::time::timeout(TIMEOUT, writer.write_all(&answer)).await??;
        if !line.ends_with(b"\n") {
            // Too long or incomplete: the next read would start in the middle of a line.
            return Ok(());
        }
    }
}

/// The answer to one line of a client: one line of JSON, for valid and invalid requests alike.
#[doc(hidden)]
pub fn answer(
    line: &[u8],
    status: impl FnOnce() -> Status,
    order: impl FnOnce(&PathChange) -> Result<(), String>,
) -> Vec<u8> {
    let answer = match serde_json::from_slice(line) {
        Ok(ControlRequest::Status) => ControlAnswer::Ok(Box::new(status())),
        Ok(ControlRequest::Path(change)) => match order(&change) {
            Ok(()) => ControlAnswer::Ok(Box::new(status())),
            Err(reason) => ControlAnswer::Error(reason),
        },
        Err(error) => ControlAnswer::Error(format!("not a request: {error}")),
    };
    self::line(&answer)
}

fn line(answer: &ControlAnswer) -> Vec<u8> {
    // Neither a map with other keys than texts nor a failing writer is involved.
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line
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
    ask(path, &ControlRequest::Status).await
}

/// Orders a change of a path of the gateway at the control socket `path`; returns its status with that change.
///
/// # Errors
/// As [`ask_status`], or the gateway refuses the change.
pub async fn order_path(path: &Path, change: PathChange) -> Result<Status, Error> {
    ask(path, &ControlRequest::Path(change)).await
}

async fn ask(path: &Path, request: &ControlRequest) -> Result<Status, Error> {
    // Neither a map with other keys than texts nor a failing writer is involved.
    let mut request = serde_json::to_vec(request).unwrap_or_default();
    request.push(b'\n');
    let error = |reason| Error::Control {
        path: path.to_owned(),
        reason,
    };
    let ask = async {
        let mut stream = UnixStream::connect(path).await?;
        let sent = stream.write_all(&request).await;
        let mut line = Vec::new();
        BufReader::new(stream)
            .take(MAX_ANSWER_BYTES)
            .read_until(b'\n', &mut line)
            .await?;
        // A refusal may have come before the request was sent.
        if line.is_empty() {
            sent?;
        }
        io::Result::Ok(line)
    };
    let line = tokio::time::timeout(TIMEOUT, ask)
        .await
        .map_err(|_| error(io::ErrorKind::TimedOut.into()))?
        .map_err(error)?;
    let read = read_answer(&line).map_err(|problem| error(problem.into()))?;
    read.map_err(Error::Refused)
}

/// Reads an answer. Its texts are shown on terminals, and some are a peer's, as the names of the paths that it opens: characters
/// that control a terminal are replaced.
#[doc(hidden)]
pub fn read_answer(line: &[u8]) -> Result<Result<Status, String>, serde_json::Error> {
    let mut answer = serde_json::from_slice(line)?;
    replace_controls(&mut answer);
    Ok(match serde_json::from_value(answer)? {
        ControlAnswer::Ok(status) => Ok(*status),
        ControlAnswer::Error(reason) => Err(reason),
    })
}

/// The depth is bounded by the parser.
fn replace_controls(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) if text.contains(char::is_control) => {
            *text = text.replace(char::is_control, "\u{fffd}");
        }
        Value::Array(items) => items.iter_mut().for_each(replace_controls),
        Value::Object(entries) => entries.values_mut().for_each(replace_controls),
        _ => {}
    }
}
