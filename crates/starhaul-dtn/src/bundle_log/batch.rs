//! Records that are written together.

use std::io::IoSlice;

use hardy_bpa::Bytes;

use super::record::{Kind, Span, TooLong, begin};

/// Larger data are written from where they are.
const MOST_COPIED: usize = 16 << 10;
/// Bytes of a buffer that is kept for the next batch.
const MOST_KEPT: usize = 16 << 20;

/// Records one behind the other.
#[derive(Default)]
pub(super) struct Batch {
    /// All but large data.
    bytes: Vec<u8>,
    /// Large data, and before which of the bytes they stand.
    apart: Vec<(usize, Bytes)>,
    apart_bytes: usize,
}

impl Batch {
    /// Bytes of all records.
    pub(super) fn len(&self) -> u64 {
        (self.bytes.len() + self.apart_bytes) as u64
    }

    /// Removes the records; memory is kept: what the system gives anew would have to be cleared for each batch.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MOST_KEPT);
        self.apart.clear();
        self.apart_bytes = 0;
    }

    /// Appends a record; the batch begins at the offset `base` of a segment with this salt.
    ///
    /// # Errors
    /// The body, of a head and data, is too long.
    pub(super) fn append(
        &mut self,
        base: u64,
        salt: u64,
        kind: Kind,
        head: &Bytes,
        data: &Bytes,
    ) -> Result<Span, TooLong> {
        let at = base + self.len();
        let before = self.bytes.len();
        let span = begin(&mut self.bytes, at, salt, kind, [head, data])?;
        let mut within = span.length as usize;
        if data.len() > MOST_COPIED {
            self.apart.push((self.bytes.len(), data.clone()));
            self.apart_bytes += data.len();
            within -= data.len();
        } else {
            self.bytes.extend_from_slice(data);
        }
        self.bytes.resize(before + within, 0);
        Ok(span)
    }

    /// All bytes in their order.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        let (mut slices, mut from) = (Vec::with_capacity(2 * self.apart.len() + 1), 0);
        for (to, data) in &self.apart {
            slices.extend(self.bytes.get(from..*to).map(IoSlice::new));
            slices.push(IoSlice::new(data));
            from = *to;
        }
        slices.extend(self.bytes.get(from..).map(IoSlice::new));
        slices.retain(|slice| !slice.is_empty());
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle_log::record::append;

    #[test]
    fn large_data_stand_where_they_would_if_they_were_copied() {
        let (mut batch, mut expected) = (Batch::default(), Vec::new());
        let lengths = [3, MOST_COPIED + 3, 0, MOST_COPIED, 2 * MOST_COPIED, 100_000];
        for (length, head) in lengths.into_iter().zip([5, 0, 8, 1, 13, 7]) {
            let (head, data) = (vec![7; head].into(), vec![9; length].into());
            let kind = Kind::Bundle;
            let span = batch.append(800, 11, kind, &head, &data).unwrap();
            let body: [&[u8]; 2] = [&head, &data];
            assert_eq!(append(&mut expected, 800, 11, kind, body).unwrap(), span);
            assert_eq!(batch.len(), expected.len() as u64);
        }
        let slices: Vec<u8> = batch
            .slices()
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert!(slices == expected);
        batch.clear();
        assert_eq!((batch.len(), batch.slices().len()), (0, 0));
    }
}
