//! An application's end of the control socket.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::BufReader,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::wire::{
    Reply, Report, ReportedStatus, Request, default_sockets, read, read_payload, write,
};
use crate::{Error, status::Status};

/// Reports that are kept for an application that does not take them.
const MOST_REPORTS: usize = 4096;

/// A bundle for this endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Name of the bundle: source, creation time and sequence number.
    pub id: String,
    /// The endpoint that sent it.
    pub source: String,
    /// Payload of the bundle.
    pub payload: Vec<u8>,
}

/// What a node sends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A bundle for this endpoint.
    Bundle(Bundle),
    /// What became of a bundle that was sent by [`Client::send_reported`].
    Report(Report),
}

/// A connection to a node, with at most one endpoint.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// Bundles that came while an answer was awaited.
    bundles: VecDeque<Bundle>,
    /// Reports that came meanwhile.
    reports: VecDeque<Report>,
    endpoint: String,
    most_bytes: u64,
    contact_bytes: Option<u64>,
}

impl Client {
    /// Connects to the node at `socket`, or at the first default place where one answers.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub async fn connect(socket: Option<&Path>) -> Result<Self, Error> {
        let paths = socket.map_or_else(default_sockets, |path| vec![path.to_owned()]);
        let mut failed = Error::Control {
            path: PathBuf::new(),
            reason: io::ErrorKind::NotFound.into(),
        };
        for path in paths {
            match UnixStream::connect(&path).await {
                Ok(stream) => {
                    let (reader, writer) = stream.into_split();
                    let reader = BufReader::new(reader);
                    return Ok(Self {
                        path,
                        reader,
                        writer,
                        bundles: VecDeque::new(),
                        reports: VecDeque::new(),
                        endpoint: String::new(),
                        most_bytes: 0,
                        contact_bytes: None,
                    });
                }
                Err(reason) => failed = Error::Control { path, reason },
            }
        }
        Err(failed)
    }

    /// The endpoint that was opened.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Greatest payload of a bundle in bytes.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Bytes of the least contact of the node's plan, if it has one: a bundle that is larger would wait for ever, should its way lead
    /// over that contact.
    pub fn contact_bytes(&self) -> Option<u64> {
        self.contact_bytes
    }

    /// What the node does.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub async fn status(&mut self) -> Result<Status, Error> {
        match self.ask(&Request::Status, &[]).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Opens an endpoint; without a name, any that is free.
    ///
    /// # Errors
    /// [`Error::Refused`] if the name is wrong or in use; [`Error::Control`].
    pub async fn open(&mut self, service: Option<&str>) -> Result<(), Error> {
        let service = service.map(ToOwned::to_owned);
        match self.ask(&Request::Open { service }, &[]).await? {
            Reply::Opened {
                endpoint,
                most_bytes,
                contact_bytes,
            } => {
                (self.endpoint, self.most_bytes) = (endpoint, most_bytes);
                self.contact_bytes = contact_bytes;
                Ok(())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends a bundle, and returns its name when the node has stored it.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NotNow`], [`Error::Refused`], and [`Error::Control`].
    pub async fn send(
        &mut self,
        to: &str,
        payload: &[u8],
        lifetime: Duration,
    ) -> Result<String, Error> {
        self.send_as(to, payload, lifetime, false).await
    }

    /// The same for a bundle that asks the nodes which deliver or delete it to report that. Whether they do is their configuration; what
    /// they say comes by [`Client::next_report`] and [`Client::next_message`], as long as this connection is there.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_reported(
        &mut self,
        to: &str,
        payload: &[u8],
        lifetime: Duration,
    ) -> Result<String, Error> {
        self.send_as(to, payload, lifetime, true).await
    }

    async fn send_as(
        &mut self,
        to: &str,
        payload: &[u8],
        lifetime: Duration,
        reports: bool,
    ) -> Result<String, Error> {
        let (to, bytes) = (to.to_owned(), payload.len() as u64);
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        match self
            .ask(
                &Request::Send {
                    to,
                    lifetime_ms,
                    bytes,
                    reports,
                },
                payload,
            )
            .await?
        {
            Reply::Sent { id } => Ok(id),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The next bundle. Must not be dropped before it is ready; [`Client::has_bundle`] can.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub async fn next_bundle(&mut self) -> Result<Bundle, Error> {
        loop {
            if let Some(bundle) = self.bundles.pop_front() {
                return Ok(bundle);
            }
            self.read_message().await?;
        }
    }

    /// The next report or bundle, reports first. Must not be dropped before it is ready; [`Client::has_message`] can.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub async fn next_message(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(report) = self.next_report() {
                return Ok(Message::Report(report));
            }
            if let Some(bundle) = self.bundles.pop_front() {
                return Ok(Message::Bundle(bundle));
            }
            self.read_message().await?;
        }
    }

    /// A report that came while something else was awaited. Of those that nobody takes, 4096 are kept: first those of deletions that have a
    /// reason.
    pub fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// Waits until [`Client::next_message`] has something to read; `false` after `patience`.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub async fn has_message(&mut self, patience: Duration) -> Result<bool, Error> {
        Ok(!self.reports.is_empty() || self.has_bundle(patience).await?)
    }

    /// Waits until [`Client::next_bundle`] has something to read, which may be a report where some were asked for; `false` after `patience`.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub async fn has_bundle(&mut self, patience: Duration) -> Result<bool, Error> {
        if !self.bundles.is_empty() || !self.reader.buffer().is_empty() {
            return Ok(true);
        }
        let readable = self.reader.get_ref().readable();
        match tokio::time::timeout(patience, readable).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(reason)) => Err(self.failed(reason)),
            Err(_) => Ok(false),
        }
    }

    /// Acknowledges a bundle: it will not come again.
    ///
    /// # Errors
    /// [`Error::Refused`] if it took too long, and the bundle comes again; [`Error::Control`].
    pub async fn acknowledge(&mut self, id: &str) -> Result<(), Error> {
        match self
            .ask(&Request::Acknowledge { id: id.to_owned() }, &[])
            .await?
        {
            Reply::Acknowledged { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn ask(&mut self, request: &Request, payload: &[u8]) -> Result<Reply, Error> {
        if let Err(reason) = write(&mut self.writer, request, payload).await {
            return Err(self.failed(reason));
        }
        loop {
            match self.read().await? {
                Some(Reply::Full) => return Err(Error::Full),
                Some(Reply::NotNow { reason }) => return Err(Error::NotNow(reason)),
                Some(Reply::Refused { reason }) => return Err(Error::Refused(reason)),
                Some(reply) => return Ok(reply),
                None => {}
            }
        }
    }

    /// Reads what the node sends by itself.
    async fn read_message(&mut self) -> Result<(), Error> {
        match self.read().await? {
            None => Ok(()),
            Some(reply) => Err(self.unexpected(&reply)),
        }
    }

    /// Keeps a report until it is taken.
    fn keep(&mut self, report: Report) {
        let is_loss =
            |report: &Report| report.fate == ReportedStatus::Deleted && report.reason.is_some();
        if self.reports.len() >= MOST_REPORTS {
            if !is_loss(&report) {
                return;
            }
            let other = self.reports.iter().position(|kept| !is_loss(kept));
            drop(self.reports.remove(other.unwrap_or_default()));
        }
        self.reports.push_back(report);
    }

    /// The next answer; `None` if it was a bundle or a report, which are kept.
    async fn read(&mut self) -> Result<Option<Reply>, Error> {
        let reply = match read::<Reply>(&mut self.reader).await {
            Ok(reply) => reply.ok_or_else(|| self.failed(io::ErrorKind::UnexpectedEof.into()))?,
            Err(reason) => return Err(self.failed(reason)),
        };
        let (id, source, bytes) = match reply {
            Reply::Bundle { id, source, bytes } => (id, source, bytes),
            Reply::Report(report) => {
                self.keep(report);
                return Ok(None);
            }
            answer => return Ok(Some(answer)),
        };
        let payload = read_payload(&mut self.reader, bytes).await;
        let payload = payload.map_err(|reason| self.failed(reason))?;
        self.bundles.push_back(Bundle {
            id,
            source,
            payload,
        });
        Ok(None)
    }

    fn failed(&self, reason: io::Error) -> Error {
        Error::Control {
            path: self.path.clone(),
            reason,
        }
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        let reason = format!("the node answered something else: {reply:?}");
        self.failed(io::Error::new(io::ErrorKind::InvalidData, reason))
    }
}
