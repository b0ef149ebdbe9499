//! Parts of bundles that other nodes have cut up (RFC 9171 §5.8), as they come for applications here.

use std::{borrow::Cow, ops::Range};

use hardy_bpa::Bytes;
use hardy_bpv7::{
    block::BibCoverage,
    bpsec::no_keys,
    bundle::{Bundle, FragmentInfo, ParsedBundle},
    editor::{Chunk, Editor},
};

use crate::stock::Stock;

/// The payload block (RFC 9171 §4.1).
const PAYLOAD: u64 = 1;
/// How a bundle begins that is no part of another: an array without a length, and a primary block without a fragment's two fields, without
/// a checksum and with one (RFC 9171 §4.3.1).
const WHOLE: [[u8; 2]; 2] = [[0x9f, 0x88], [0x9f, 0x89]];

/// A part of a bundle for an application here.
pub(crate) struct Part {
    pub(crate) bundle: Bundle,
    pub(crate) info: FragmentInfo,
    /// Bytes of its payload.
    pub(crate) bytes: u64,
}

impl Part {
    /// The part that these bytes are; `None` for all other bundles, and for what is none.
    pub(crate) fn of(data: &Bytes, stock: &Stock) -> Option<Self> {
        if WHOLE.iter().any(|begin| data.starts_with(begin)) {
            return None;
        }
        let bundle = ParsedBundle::parse(data, no_keys).ok()?.bundle;
        let info = bundle.id.fragment_info.clone()?;
        let node = bundle.destination.to_node_id().ok()?;
        let payload = bundle.blocks.get(&PAYLOAD)?.payload(data)?;
        let bytes = payload.len() as u64;
        stock.is_own(&node).then_some(Self {
            bundle,
            info,
            bytes,
        })
    }

    /// Whether bytes of the whole are all that this part has.
    pub(crate) fn is(&self, wanted: &Range<u64>) -> bool {
        wanted.start == self.info.offset && wanted.end - wanted.start == self.bytes
    }

    /// The part with these bytes of the whole alone, which are among its own; `None` if its payload is protected.
    pub(crate) fn cut(&self, data: &[u8], wanted: &Range<u64>) -> Option<Bytes> {
        let block = self.bundle.blocks.get(&PAYLOAD)?;
        // The rest of a ciphertext, or of what was signed, is worth nothing without the block that goes with it.
        if block.bcb.is_some() || !matches!(block.bib, BibCoverage::None) {
            return None;
        }
        let at = |place: u64| usize::try_from(place.checked_sub(self.info.offset)?).ok();
        let payload = block
            .payload(data)?
            .get(at(wanted.start)?..at(wanted.end)?)?;
        let info = FragmentInfo {
            offset: wanted.start,
            total_adu_length: self.info.total_adu_length,
        };
        let editor = Editor::new(&self.bundle, data).with_fragment_info(Some(info));
        let block = editor.ok()?.update_block(PAYLOAD).ok()?;
        let editor = block.with_data(Cow::Borrowed(payload)).rebuild();
        let chunks = editor.rebuild().ok()?;
        Some(Chunk::flatten(chunks, data).into_vec().into())
    }
}

#[cfg(test)]
mod tests {
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};

    use super::*;
    use crate::config::Storage;

    #[test]
    fn a_part_is_known_and_cut_and_nothing_else_is() {
        let stock = Stock::new("ipn:2.0".parse().unwrap(), Storage::small());
        for (to, is_own) in [("ipn:2.5", true), ("ipn:3.5", false)] {
            let builder = Builder::new("ipn:1.5".parse().unwrap(), to.parse().unwrap());
            let payload: Vec<u8> = (0..100).collect();
            let builder = builder.with_payload(payload.into());
            let (bundle, data) = builder.build(CreationTimestamp::now()).unwrap();
            let info = FragmentInfo {
                offset: 1000,
                total_adu_length: 2000,
            };
            let editor = Editor::new(&bundle, &data).with_fragment_info(Some(info));
            let chunks = editor.map_err(|(_, error)| error).unwrap().rebuild();
            let part: Bytes = Chunk::flatten(chunks.unwrap(), &data).into_vec().into();
            let data = Bytes::from(data.into_vec());
            assert!(Part::of(&data, &stock).is_none(), "it is whole");
            let found = Part::of(&part, &stock);
            assert_eq!(found.is_some(), is_own);
            let Some(found) = found else { continue };
            assert!(found.is(&(1000..1100)) && !found.is(&(1000..1099)));
            let cut = found.cut(&part, &(1010..1030)).unwrap();
            let cut_part = Part::of(&cut, &stock).unwrap();
            assert!(cut_part.is(&(1010..1030)));
            assert_eq!(cut_part.info.total_adu_length, 2000);
            let block = &cut_part.bundle.blocks[&PAYLOAD];
            assert_eq!(block.payload(&cut).unwrap(), (10..30).collect::<Vec<u8>>());
            assert!(found.cut(&part, &(990..1030)).is_none());
            assert!(found.cut(&part, &(1090..1101)).is_none());
        }
    }
}
