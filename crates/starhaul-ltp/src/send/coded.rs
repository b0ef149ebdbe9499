//! How a block is cut, and the repair symbols and parities that go with it. What decides that may change while the block waits, as the
//! path's MTU or what is known of losses does: it is cut when it begins to leave.

use std::collections::VecDeque;

use bytes::Bytes;
use starhaul_fec::Codec;

use super::SendSession;
use crate::{
    coding::{Code, Coding, Layout, encode, parity},
    segment::{Body, Parity, Repair},
};

/// What decides how a block is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Basis {
    /// Bytes of data in a segment.
    pub(crate) segment: usize,
    /// Bytes of data in a segment that fills one packet, as those of codes do at most.
    pub(crate) single: usize,
    /// What repair symbols are to make up for, if there are any.
    pub(crate) coding: Option<Coding>,
}

/// The codes of a red part, and what of them is to leave next.
#[derive(Debug, Default)]
pub(super) struct Coded {
    /// How the red part is cut into codes, if it is.
    layout: Option<Layout>,
    /// The code that holds the next data, and its repair symbols that are to be sent before its last data.
    code: Option<Code>,
    symbols: VecDeque<(u8, Bytes)>,
    /// The places of the parities that follow those of the last code, and the first of them once it is computed.
    columns: VecDeque<u8>,
    parity: Option<Bytes>,
    /// The codes before this byte were sent with their repair symbols.
    until: u64,
}

impl Coded {
    /// Codes of this layout, of which nothing has left.
    fn new(layout: Option<Layout>) -> Self {
        Self {
            layout,
            ..Self::default()
        }
    }

    /// How the red part is cut into codes, if it is.
    pub(super) const fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// The codes before this byte were sent with their repair symbols.
    pub(super) const fn until(&self) -> u64 {
        self.until
    }

    /// All of it is to be sent again.
    pub(super) fn begin_again(&mut self) {
        (self.until, self.code) = (0, None);
    }

    /// Nothing more of it is to be sent.
    pub(super) fn give_up(&mut self) {
        self.symbols.clear();
        self.columns.clear();
        self.parity = None;
    }
}

impl SendSession {
    /// Whether repair symbols go with its red part.
    pub(crate) const fn is_coded(&self) -> bool {
        self.coded.layout.is_some()
    }

    /// Whether it is cut by other than this, and may be cut anew: nothing of it has left.
    pub(crate) fn is_to_cut(&self, basis: &Basis) -> bool {
        !self.has_begun && self.cancel.is_none() && self.basis.as_ref() != Some(basis)
    }

    /// Cuts it into segments, or its red part into the codes of a layout. What was made of a former cut, none of which has left, is dropped:
    /// the codes and sizes of a block are the same from its first segment to its last.
    pub(crate) fn cut(&mut self, basis: Basis, layout: Option<Layout>) {
        if self.has_begun {
            return;
        }
        self.unit = layout.map_or(basis.segment, |layout| layout.symbol);
        self.block.cut(self.unit);
        self.coded = Coded::new(layout);
        self.basis = Some(basis);
    }

    /// Makes the repair symbols of a code when all of its data but the last segment have left.
    pub(crate) fn make_symbols(&mut self, codec: &mut Codec) {
        let Some(layout) = self.coded.layout else {
            return;
        };
        if self.next >= self.red || self.next < self.coded.until || self.cancel.is_some() {
            return;
        }
        let code = self.coded.code.filter(|code| self.next < code.end);
        let code = code.unwrap_or_else(|| layout.code_at(self.next));
        self.coded.code = Some(code);
        if self.next + layout.symbol as u64 >= code.end {
            let symbols = encode(codec, &self.block, code, layout.symbol);
            self.coded.symbols = (code.symbols..=u8::MAX).zip(symbols).collect();
            self.coded.until = code.end;
            if code.end == self.red {
                // Each repair symbol of the last code carries it.
                (self.crc, self.checked) = (self.red_checksum(), self.red);
                self.coded.columns = layout.columns().collect();
            }
            self.make_parity();
        }
    }

    /// Makes the next parity, if no repair symbol is to be sent before it: one at a time, since each is computed of a part of all the block.
    fn make_parity(&mut self) {
        let coded = &mut self.coded;
        if coded.parity.is_none()
            && coded.symbols.is_empty()
            && let (Some(layout), Some(column)) = (coded.layout, coded.columns.front())
        {
            coded.parity = Some(parity(&self.block, self.red, &layout, *column));
        }
    }

    /// The next repair symbol or parity, and the checksum of the red part if it is of the last code or of all.
    pub(crate) fn symbol(&self) -> Option<(Body<'_>, Option<u32>)> {
        let coded = &self.coded;
        let (service, red, is_whole) = (self.service, self.red, self.red == self.len());
        if let (Some((index, payload)), Some(code)) = (coded.symbols.front(), coded.code) {
            let checksum = (code.end == red).then(|| self.red_checksum());
            let symbol = Repair {
                service,
                offset: code.start,
                red,
                is_whole,
                symbols: code.symbols,
                repairs: code.repairs,
                index: *index,
                payload,
            };
            return Some((Body::Repair(symbol), checksum));
        }
        let (payload, index) = (coded.parity.as_ref()?, coded.columns.front()?);
        let layout = coded.layout?;
        let parity = Parity {
            service,
            red,
            is_whole,
            symbols: layout.per_code(),
            index: *index,
            payload,
        };
        Some((Body::Parity(parity), Some(self.red_checksum())))
    }

    /// Notes that the repair symbol or parity has left.
    pub(crate) fn commit_symbol(&mut self) {
        self.has_begun = true;
        let coded = &mut self.coded;
        if coded.symbols.pop_front().is_none() {
            coded.parity = None;
            coded.columns.pop_front();
        }
        self.make_parity();
    }
}
