//! The join handshake: small messages on the one QUIC stream of a connection.
//!
//! Each is `length u16` (of what follows), `kind u8`, body; integers are big-endian. A refusal is not a message but the
//! application close code of the connection ([`crate::CloseCode`]), which QUIC repeats until it arrives.

use starhaul_paths::PathId;

/// The protocol version of this code.
pub const VERSION: u16 = 1;
/// Greatest length of a path's name in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Greatest number of versions in one OPEN.
const MAX_VERSIONS: usize = 16;
/// Largest `length`; every valid message fits.
const MAX_LENGTH: usize = 256;

const OPEN: u8 = 1;
const WELCOME: u8 = 2;
const JOIN: u8 = 3;
const ACCEPT: u8 = 4;
/// The code of a low-orbit link in a hello.
const LEO: u8 = 1;

/// Number of a session, drawn by its server.
pub type SessionId = [u8; 16];

/// The kind of link of a path, as declared by its opener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// A link over low-orbit satellites, between which it changes.
    Leo,
    /// Any other link.
    #[default]
    Other,
}

/// The properties of a path that both sides know.
#[derive(Clone, Debug, PartialEq)]
pub struct PathHello {
    /// Number of the path.
    pub path: PathId,
    /// Price per byte; finite, not negative.
    pub cost: f64,
    /// Name for people, at most [`MAX_NAME_BYTES`].
    pub name: String,
    /// The kind of link. Others than [`LinkKind::Other`] are allowed on `starhaul/2` only.
    pub link: LinkKind,
}

/// A message of the join handshake.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client, on the first connection: open a session.
    Open {
        /// Versions that the client supports, best first.
        versions: Vec<u16>,
        /// Equal in every attempt to open the same session.
        nonce: [u8; 16],
        /// The path of this connection.
        hello: PathHello,
    },
    /// Server: the session is open.
    Welcome {
        /// The version chosen.
        version: u16,
        /// The session's number.
        session: SessionId,
    },
    /// Client, on a further connection: join an open session.
    Join {
        /// The session's number.
        session: SessionId,
        /// Binds this TLS session to the first one.
        token: [u8; 32],
        /// The path of this connection.
        hello: PathHello,
    },
    /// Server: the path has joined.
    Accept,
}

/// The peer sent bytes that are no message of the join handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Reads one message from the front of `input` and returns it with its size in bytes, or `None` while it is incomplete.
///
/// # Errors
/// [`Malformed`] as soon as the bytes cannot become a message.
pub fn parse(input: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes(*length));
    if length == 0 || length > MAX_LENGTH {
        return Err(Malformed("a join message has an impossible length"));
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let mut reader = Reader(body);
    let message = match reader.u8()? {
        OPEN => Message::Open {
            versions: reader.versions()?,
            nonce: reader.array()?,
            hello: reader.hello()?,
        },
        WELCOME => Message::Welcome {
            version: u16::from_be_bytes(reader.array()?),
            session: reader.array()?,
        },
        JOIN => Message::Join {
            session: reader.array()?,
            token: reader.array()?,
            hello: reader.hello()?,
        },
        ACCEPT => Message::Accept,
        _ => return Err(Malformed("a join message is of an unknown kind")),
    };
    match reader.0 {
        [] => Ok(Some((message, 2 + length))),
        _ => Err(Malformed("a join message is longer than its content")),
    }
}

impl Message {
    /// The bytes of the message. Names and version lists beyond their limits are cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(128);
        match self {
            Self::Open {
                versions,
                nonce,
                hello,
            } => {
                let versions = &versions[..versions.len().min(MAX_VERSIONS)];
                body.push(OPEN);
                body.push(u8::try_from(versions.len()).unwrap_or(0));
                for version in versions {
                    body.extend(version.to_be_bytes());
                }
                body.extend(nonce);
                hello.encode(&mut body);
            }
            Self::Welcome { version, session } => {
                body.push(WELCOME);
                body.extend(version.to_be_bytes());
                body.extend(session);
            }
            Self::Join {
                session,
                token,
                hello,
            } => {
                body.push(JOIN);
                body.extend(session);
                body.extend(token);
                hello.encode(&mut body);
            }
            Self::Accept => body.push(ACCEPT),
        }
        let length = u16::try_from(body.len()).unwrap_or(0);
        [&length.to_be_bytes()[..], &body].concat()
    }
}

impl PathHello {
    fn encode(&self, body: &mut Vec<u8>) {
        let cut = self.name.floor_char_boundary(MAX_NAME_BYTES);
        let name = &self.name[..cut];
        body.extend(self.path.0.to_be_bytes());
        body.extend(self.cost.to_be_bytes());
        body.push(u8::try_from(name.len()).unwrap_or(0));
        body.extend(name.as_bytes());
        // Peers of starhaul/1 read no further, and refuse what follows.
        match self.link {
            LinkKind::Leo => body.push(LEO),
            LinkKind::Other => {}
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self
            .0
            .split_at_checked(count)
            .ok_or(Malformed("a join message is shorter than its content"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn versions(&mut self) -> Result<Vec<u16>, Malformed> {
        let count = usize::from(self.u8()?);
        if count == 0 || count > MAX_VERSIONS {
            return Err(Malformed("OPEN lists too few or too many versions"));
        }
        (0..count)
            .map(|_| self.array().map(u16::from_be_bytes))
            .collect()
    }

    fn hello(&mut self) -> Result<PathHello, Malformed> {
        let path = PathId(u32::from_be_bytes(self.array()?));
        let cost = f64::from_be_bytes(self.array()?);
        if !cost.is_finite() || cost < 0.0 {
            return Err(Malformed("the cost of a path is not a price"));
        }
        let length = usize::from(self.u8()?);
        if length > MAX_NAME_BYTES {
            return Err(Malformed("the name of a path is too long"));
        }
        let name = std::str::from_utf8(self.bytes(length)?)
            .map_err(|_| Malformed("the name of a path is not text"))?;
        // Unknown kinds, and extensions of a hello, are allowed.
        let link = match std::mem::take(&mut self.0).first() {
            Some(&LEO) => LinkKind::Leo,
            _ => LinkKind::Other,
        };
        Ok(PathHello {
            path,
            cost,
            name: name.to_owned(),
            link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Message> {
        let hello = PathHello {
            path: PathId(7),
            cost: 0.25,
            name: "LEO östlich".to_owned(),
            link: LinkKind::Other,
        };
        let leo = PathHello {
            link: LinkKind::Leo,
            ..hello.clone()
        };
        vec![
            Message::Open {
                versions: vec![3, 1],
                nonce: [9; 16],
                hello: hello.clone(),
            },
            Message::Welcome {
                version: 1,
                session: [5; 16],
            },
            Message::Join {
                session: [5; 16],
                token: [6; 32],
                hello,
            },
            Message::Join {
                session: [5; 16],
                token: [6; 32],
                hello: leo,
            },
            Message::Accept,
        ]
    }

    #[test]
    fn messages_survive_the_wire_in_pieces_of_any_size() {
        for message in examples() {
            let bytes = message.encode();
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut]), Ok(None), "{message:?} cut at {cut}");
            }
            let mut more = bytes.clone();
            more.push(0xff);
            assert_eq!(parse(&more), Ok(Some((message, bytes.len()))));
        }
    }

    #[test]
    fn no_changed_byte_is_read_beyond_its_bounds() {
        for message in examples() {
            let bytes = message.encode();
            for position in 0..bytes.len() {
                for value in 0..=255 {
                    let mut changed = bytes.clone();
                    changed[position] = value;
                    if let Ok(Some((_, size))) = parse(&changed) {
                        assert!(size <= changed.len());
                    }
                }
            }
        }
    }

    #[test]
    fn a_hello_may_say_a_kind_of_link_and_grow() {
        let hello = |rest: &[u8]| {
            let plain = examples().swap_remove(2).encode();
            let mut bytes = [&plain[2..], rest].concat();
            let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            bytes.splice(0..0, length);
            match parse(&bytes) {
                Ok(Some((Message::Join { hello, .. }, size))) if size == bytes.len() => hello.link,
                other => panic!("{other:?}"),
            }
        };
        for (rest, link) in [
            (&[][..], LinkKind::Other),
            (&[0], LinkKind::Other),
            (&[LEO], LinkKind::Leo),
            (&[77], LinkKind::Other),
            (&[LEO, 9, 9], LinkKind::Leo),
        ] {
            assert_eq!(hello(rest), link, "{rest:?}");
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        let open = |cost: f64, name: &str, versions: Vec<u16>| {
            Message::Open {
                versions,
                nonce: [0; 16],
                hello: PathHello {
                    path: PathId(0),
                    cost,
                    name: name.to_owned(),
                    link: LinkKind::Other,
                },
            }
            .encode()
        };
        assert!(parse(&open(0.0, "a", vec![1])).is_ok());
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(parse(&open(bad, "a", vec![1])).is_err(), "cost {bad}");
        }
        assert!(parse(&open(0.0, "a", vec![])).is_err());
        assert!(
            parse(&[0xff, 0xff]).is_err(),
            "a length beyond all messages"
        );
        assert!(parse(&[0, 0]).is_err());
        assert!(parse(&[0, 1, 77]).is_err(), "an unknown kind");
        assert!(parse(&[0, 2, ACCEPT, 0]).is_err(), "more than its content");
        let mut text = open(0.0, "ab", vec![1]);
        *text.last_mut().unwrap() = 0xff;
        assert!(parse(&text).is_err(), "a name that is not UTF-8");
        let long = "ä".repeat(40);
        let (message, _) = parse(&open(0.0, &long, vec![1])).unwrap().unwrap();
        let Message::Open { hello, .. } = message else {
            panic!("{message:?}")
        };
        assert_eq!(hello.name, "ä".repeat(32));
    }
}
