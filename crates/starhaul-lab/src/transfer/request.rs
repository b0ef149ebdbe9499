//! What a client asks of a server, as the label of the stream that carries the data.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Error;

/// No transfer is longer.
pub const MAX_SECONDS: u32 = 86_400;
/// Version of the label; a server refuses others.
const VERSION: u32 = 1;

/// Which way the data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toward {
    /// From the client to the server.
    Server,
    /// From the server to the client.
    Client,
}

/// A transfer that a client asks the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    version: u32,
    pub(super) toward: Toward,
    seconds: u32,
}

impl Request {
    /// A transfer of whole seconds.
    ///
    /// # Errors
    /// None at all, or more than [`MAX_SECONDS`].
    pub(super) fn new(toward: Toward, seconds: u32) -> Result<Self, Error> {
        let request = Self {
            version: VERSION,
            toward,
            seconds,
        };
        request.checked()
    }

    /// For how long data are sent.
    pub(super) fn time(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    pub(super) fn label(&self) -> Result<Bytes, Error> {
        let label = serde_json::to_vec(self).map_err(|error| Error::Failed(error.to_string()))?;
        Ok(label.into())
    }

    /// Reads what a peer sent.
    ///
    /// # Errors
    /// Not a request of this version, or one beyond the bounds.
    pub(super) fn parse(label: &[u8]) -> Result<Self, Error> {
        let request: Self = serde_json::from_slice(label)
            .map_err(|error| Error::Failed(format!("the client asks for no transfer: {error}")))?;
        if request.version != VERSION {
            return Err(Error::Failed(format!(
                "the client asks for a transfer of version {}, not {VERSION}: use the same starhaul at both ends",
                request.version
            )));
        }
        request.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        match (1..=MAX_SECONDS).contains(&self.seconds) {
            true => Ok(self),
            false => Err(Error::Settings(format!(
                "a transfer of {} s: write 1 to {MAX_SECONDS}",
                self.seconds
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_from_its_label_and_others_are_refused() {
        let request = Request::new(Toward::Client, 30).unwrap();
        assert_eq!(Request::parse(&request.label().unwrap()).unwrap(), request);
        assert!(Request::new(Toward::Client, 0).is_err());
        for (label, said) in [
            (&b"hello"[..], "no transfer"),
            (
                br#"{"version":2,"toward":"server","seconds":1}"#,
                "version 2",
            ),
            (
                br#"{"version":1,"toward":"server","seconds":86401}"#,
                "86401",
            ),
            (
                br#"{"version":1,"toward":"server","seconds":1,"x":1}"#,
                "`x`",
            ),
        ] {
            let error = Request::parse(label).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
