//! The label of a stream between gateways: a versioned JSON object that says what the stream carries, and where to.

use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{rtp::Codec, target::Target};

/// Version of the label format and of what follows from it.
const VERSION: u8 = 1;
/// Longest label that a session carries.
const MAX_LABEL_BYTES: usize = 1024;
/// Longest rule name.
pub const MAX_RULE_BYTES: usize = 64;

/// The label of a stream between gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    #[serde(rename = "v")]
    version: u8,
    /// The ingress rule behind the stream, for people: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub rule: String,
    /// The kind of flow that the stream carries, and its target.
    pub flow: Flow,
}

/// What a stream carries, and where to. Numbers of flows are unique among those that one side opens in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Flow {
    /// Each block is a datagram for `target`.
    Udp {
        /// Number of the flow.
        id: u64,
        /// The destination of the data.
        target: Target,
    },
    /// Each block is a row of packets for `target`.
    Rtp {
        /// Number of the flow.
        id: u64,
        /// The destination of the data.
        target: Target,
        /// Codec of the replies, too.
        codec: Codec,
        /// Frame timeout of the replies, in milliseconds.
        frame_timeout_ms: u32,
    },
    /// Each block is a datagram behind its own target (RFC 1928 §7, without the reserved and fragment fields).
    Associate {
        /// Number of the flow.
        id: u64,
    },
    /// The other direction of a flow that the receiver of this label opened.
    Reply {
        /// Number of that flow.
        id: u64,
    },
    /// Each block is an IP packet, or a byte stream has packets, each behind two bytes with its length, for the `[[tun]]` of the
    /// label's name.
    Packets {
        /// The class of the packets, for people.
        class: String,
    },
    /// A byte stream, answered first with the result of connecting to `target`.
    Tcp {
        /// The destination of the data.
        target: Target,
        /// The address from which the receiver connects, where it is to be the client's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<IpAddr>,
    },
}

/// Why the label of a peer's stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// It is longer than a label can be.
    #[error("the peer sent a label of {0} bytes, more than 1024")]
    TooLong(usize),
    /// It has another version.
    #[error(
        "the peer speaks version {0} of the gateway protocol, this side version 1; update the older one"
    )]
    Version(u8),
    /// It has an invalid rule name.
    #[error("the peer sent a rule name that is not 1 to 64 letters, digits, '-', '_' and '.'")]
    Rule,
    /// It is no such object.
    #[error("the peer sent a label that cannot be read: {0}")]
    Syntax(#[from] serde_json::Error),
}

impl Label {
    /// A label of the current version.
    pub fn new(rule: &str, flow: Flow) -> Self {
        Self {
            version: VERSION,
            rule: rule.to_owned(),
            flow,
        }
    }

    /// The bytes of the label; at most 1024, since names are bounded.
    pub fn encode(&self) -> Bytes {
        // Neither a map with other keys than texts nor a failing writer is involved.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Parses the bytes of a label.
    pub fn parse(bytes: &[u8]) -> Result<Self, LabelError> {
        if bytes.len() > MAX_LABEL_BYTES {
            return Err(LabelError::TooLong(bytes.len()));
        }
        let label: Self = serde_json::from_slice(bytes).map_err(|error| why(bytes, error))?;
        if label.version != VERSION {
            return Err(LabelError::Version(label.version));
        }
        if !is_rule_name(&label.rule) {
            return Err(LabelError::Rule);
        }
        Ok(label)
    }
}

impl Flow {
    /// The name of its kind, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Udp { .. } => "udp",
            Self::Rtp { .. } => "rtp",
            Self::Associate { .. } => "associate",
            Self::Reply { .. } => "reply",
            Self::Packets { .. } => "tun",
            Self::Tcp { .. } => "tcp",
        }
    }

    /// The destination, if there is a single one.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Udp { target, .. } | Self::Rtp { target, .. } | Self::Tcp { target, .. } => {
                Some(target)
            }
            Self::Associate { .. } | Self::Reply { .. } | Self::Packets { .. } => None,
        }
    }
}

/// Why a label cannot be read: its version first, for another one may have other fields.
fn why(bytes: &[u8], error: serde_json::Error) -> LabelError {
    #[derive(Deserialize)]
    struct Versioned {
        v: u8,
    }
    match serde_json::from_slice(bytes) {
        Ok(Versioned { v: VERSION }) => error.into(),
        Ok(Versioned { v }) => LabelError::Version(v),
        Err(error) => error.into(),
    }
}

/// Whether a text can name a rule, a peer or a path: it is shown on terminals as it is.
pub fn is_rule_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_RULE_BYTES).contains(&text.len()) && text.chars().all(good)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_keep_their_form_on_the_wire() {
        let target: Target = "example.org:80".parse().unwrap();
        for (flow, json) in [
            (
                Flow::Udp {
                    id: 7,
                    target: target.clone(),
                },
                r#"{"udp":{"id":7,"target":"example.org:80"}}"#,
            ),
            (
                Flow::Rtp {
                    id: 8,
                    target: target.clone(),
                    codec: Codec::H264,
                    frame_timeout_ms: 50,
                },
                r#"{"rtp":{"id":8,"target":"example.org:80","codec":"h264","frame_timeout_ms":50}}"#,
            ),
            (Flow::Associate { id: 9 }, r#"{"associate":{"id":9}}"#),
            (
                Flow::Packets {
                    class: "voice".to_owned(),
                },
                r#"{"packets":{"class":"voice"}}"#,
            ),
            (Flow::Reply { id: 9 }, r#"{"reply":{"id":9}}"#),
            (
                Flow::Tcp {
                    target: target.clone(),
                    client: None,
                },
                r#"{"tcp":{"target":"example.org:80"}}"#,
            ),
            (
                Flow::Tcp {
                    target,
                    client: Some([10, 0, 0, 7].into()),
                },
                r#"{"tcp":{"target":"example.org:80","client":"10.0.0.7"}}"#,
            ),
        ] {
            let label = Label::new("rule", flow);
            let expected = format!(r#"{{"v":1,"rule":"rule","flow":{json}}}"#);
            assert_eq!(label.encode(), expected);
            assert_eq!(Label::parse(expected.as_bytes()).unwrap(), label);
        }
    }

    #[test]
    fn the_longest_label_fits() {
        let name = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(61));
        let target = format!("{name}:65535").parse().unwrap();
        let flow = Flow::Rtp {
            id: u64::MAX,
            target,
            codec: Codec::Audio,
            frame_timeout_ms: u32::MAX,
        };
        assert!(Label::new(&"r".repeat(MAX_RULE_BYTES), flow).encode().len() <= MAX_LABEL_BYTES);
    }

    #[test]
    fn what_is_not_a_label_is_refused() {
        for (bytes, expected) in [
            (&b""[..], "cannot be read"),
            (b"{}", "cannot be read"),
            (br#"{"v":2,"new":1}"#, "version 2"),
            (
                br#"{"v":2,"rule":"r","flow":{"reply":{"id":1}}}"#,
                "version 2",
            ),
            (br#"{"v":300}"#, "cannot be read"),
            (
                br#"{"v":1,"rule":"r","flow":{"reply":{"id":1}},"more":1}"#,
                "unknown field",
            ),
            (
                br#"{"v":1,"rule":"r","flow":{"reply":{"id":1,"x":1}}}"#,
                "unknown field",
            ),
            (
                br#"{"v":1,"rule":"r","flow":{"quic":{}}}"#,
                "unknown variant",
            ),
            (
                br#"{"v":1,"rule":"r","flow":{"tcp":{"target":"nowhere"}}}"#,
                "host:port",
            ),
            (
                br#"{"v":1,"rule":"r","flow":{"reply":{"id":-1}}}"#,
                "cannot be read",
            ),
            (
                br#"{"v":1,"rule":"\u001b[2J","flow":{"reply":{"id":1}}}"#,
                "rule name",
            ),
            (&[b' '; 1025], "1025 bytes"),
        ] {
            let error = Label::parse(bytes)
                .map(|_| ())
                .expect_err("accepted")
                .to_string();
            assert!(
                error.contains(expected),
                "{error:?} does not say {expected:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(label) = Label::parse(&bytes) {
                prop_assert_eq!(Label::parse(&label.encode()).unwrap(), label);
            }
        }
    }
}
