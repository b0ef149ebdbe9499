//! What stands between a peer and the library for TCPCLv4 (RFC 9174), which buffers a segment of any length before it looks at it, and
//! ends the connection at an XFER_ACK whose flags are not those of the segment: a machine that sees all bytes of a connection in both
//! directions, without sockets and clock.

use super::framing::{CONTACT, END, Framing, START, Seen, contact};

pub use super::framing::{Fault, LEAST_SEGMENT_MRU};

/// What this node admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest segment in bytes: the segment MRU that the library tells.
    pub segment: u64,
    /// Longest transfer in bytes: the transfer MRU that the library tells.
    pub transfer: u64,
}

/// Both directions of a connection. After a [`Fault`] nothing may be passed on: the connection is to be ended.
#[derive(Debug)]
pub struct Splice {
    from_peer: Framing,
    from_node: Framing,
    state: State,
}

/// What both directions know of each other.
#[derive(Debug)]
struct State {
    limits: Limits,
    /// Whether the contact headers of peer and node offer TLS.
    peer_can_tls: bool,
    node_can_tls: bool,
    has_peer_init: bool,
    has_node_init: bool,
    /// The latest transfer of the node: the library begins none before the last one is acknowledged.
    leaving: Option<Leaving>,
    /// The transfer of the peer that has begun and not ended.
    coming: Option<Coming>,
    held: u64,
}

#[derive(Debug)]
struct Leaving {
    id: u64,
    /// Bytes of its first segment, and of all that have left.
    first: u64,
    sent: u64,
    has_ended: bool,
}

#[derive(Debug)]
struct Coming {
    id: u64,
    length: u64,
    /// Whether the node has refused it: what the peer had sent by then still comes.
    is_refused: bool,
}

impl Splice {
    /// A connection of which nothing has come yet.
    pub const fn new(limits: Limits) -> Self {
        let state = State {
            limits,
            peer_can_tls: false,
            node_can_tls: false,
            has_peer_init: false,
            has_node_init: false,
            leaving: None,
            coming: None,
            held: 0,
        };
        Self {
            from_peer: Framing::new(),
            from_node: Framing::new(),
            state,
        }
    }

    /// Whether a peer that begins with this header can be talked to.
    ///
    /// # Errors
    /// [`Fault::NoContact`], [`Fault::Version`].
    pub(super) fn greet(header: [u8; CONTACT]) -> Result<(), Fault> {
        contact(header).map(|_| ())
    }

    /// Takes bytes of the peer, and adds those that may pass to the node to `out`: all but up to 20 whose message is not complete yet.
    ///
    /// # Errors
    /// What the peer sends breaks the protocol or exceeds a limit.
    pub fn take_from_peer(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let state = &mut self.state;
        self.from_peer.take(input, out, |seen| state.see_peer(seen))
    }

    /// Takes bytes of the node, and adds those that may pass to the peer to `out`, as [`Splice::take_from_peer`] does.
    ///
    /// # Errors
    /// They are not TCPCLv4.
    pub fn take_from_node(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let state = &mut self.state;
        self.from_node.take(input, out, |seen| state.see_node(seen))
    }

    /// Whether both ends have sent SESS_INIT.
    pub const fn has_session(&self) -> bool {
        self.state.has_peer_init && self.state.has_node_init
    }

    /// Bytes of the transfers that have begun, and that the node has not taken as a whole yet. The segment that is on its way counts as
    /// long as it claims to be.
    pub const fn held(&self) -> u64 {
        self.state.held
    }
}

impl State {
    fn see_peer(&mut self, seen: &mut Seen) -> Result<(), Fault> {
        match seen {
            Seen::Contact { can_tls } => {
                self.peer_can_tls = *can_tls;
                self.check_tls()
            }
            Seen::Init { segment_mru } if *segment_mru < LEAST_SEGMENT_MRU => {
                Err(Fault::SegmentMru(*segment_mru))
            }
            Seen::Init { .. } => {
                self.has_peer_init = true;
                Ok(())
            }
            Seen::Segment { flags, id, bytes } => self.comes(*flags, *id, *bytes),
            Seen::Ack { flags, id, length } => {
                if let Some(own) = self.flags_of(*id, *length) {
                    *flags = own;
                }
                Ok(())
            }
            Seen::Refused { .. } | Seen::Other => Ok(()),
        }
    }

    fn see_node(&mut self, seen: &mut Seen) -> Result<(), Fault> {
        match *seen {
            Seen::Contact { can_tls } => {
                self.node_can_tls = can_tls;
                return self.check_tls();
            }
            Seen::Init { .. } => self.has_node_init = true,
            Seen::Segment { flags, id, bytes } => self.leaves(flags, id, bytes),
            // The node has the whole bundle elsewhere now.
            Seen::Ack { flags, length, .. } if flags & END != 0 => {
                self.held = self.held.saturating_sub(length);
            }
            Seen::Refused { id } => {
                if let Some(coming) = self.coming.as_mut().filter(|coming| coming.id == id) {
                    coming.is_refused = true;
                    self.held = self.held.saturating_sub(coming.length);
                }
            }
            Seen::Ack { .. } | Seen::Other => {}
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), Fault> {
        match self.peer_can_tls && self.node_can_tls {
            true => Err(Fault::Tls),
            false => Ok(()),
        }
    }

    /// A segment of the peer.
    fn comes(&mut self, flags: u8, id: u64, bytes: u64) -> Result<(), Fault> {
        let limits = self.limits;
        if bytes > limits.segment {
            let most = limits.segment;
            return Err(Fault::Segment { bytes, most });
        }
        let mut coming = match (flags & START != 0, self.coming.take()) {
            _ if !self.has_peer_init => return Err(Fault::Order),
            (true, None) => Coming::new(id),
            (true, Some(before)) if before.is_refused => Coming::new(id),
            (false, Some(begun)) if begun.id == id => begun,
            _ => return Err(Fault::Order),
        };
        coming.length = coming.length.saturating_add(bytes);
        if coming.length > limits.transfer {
            let (bytes, most) = (coming.length, limits.transfer);
            return Err(Fault::Transfer { bytes, most });
        }
        if !coming.is_refused {
            self.held = self.held.saturating_add(bytes);
        }
        self.coming = Some(coming).filter(|_| flags & END == 0);
        Ok(())
    }

    /// A segment of the node.
    fn leaves(&mut self, flags: u8, id: u64, bytes: u64) {
        let has_ended = flags & END != 0;
        match &mut self.leaving {
            Some(leaving) if flags & START == 0 && leaving.id == id => {
                leaving.sent = leaving.sent.saturating_add(bytes);
                leaving.has_ended = has_ended;
            }
            leaving => {
                *leaving = Some(Leaving {
                    id,
                    first: bytes,
                    sent: bytes,
                    has_ended,
                });
            }
        }
    }

    /// The flags of the segment up to whose end an XFER_ACK acknowledges, as RFC 9174 §5.2.3 asks for; `None` for another transfer than
    /// the one that is leaving.
    fn flags_of(&self, id: u64, length: u64) -> Option<u8> {
        let leaving = self.leaving.as_ref().filter(|leaving| leaving.id == id)?;
        let start = if length == leaving.first { START } else { 0 };
        let is_last = leaving.has_ended && length == leaving.sent;
        Some(start | if is_last { END } else { 0 })
    }
}

impl Coming {
    const fn new(id: u64) -> Self {
        Self {
            id,
            length: 0,
            is_refused: false,
        }
    }
}
