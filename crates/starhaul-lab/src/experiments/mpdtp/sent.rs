//! What leaves beside the data of the blocks.

use std::{collections::HashMap, sync::Arc, time::Instant};

use parking_lot::Mutex;
use starhaul_plot::Column;
use starhaul_session::{BlockId, Fact, Observer, Purpose, StreamId};

/// Counts the fragments of our own sender by their bytes. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragments(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    /// Of the blocks that have not ended: bytes of a fragment.
    lengths: HashMap<(StreamId, BlockId), u64>,
    /// Bytes of fragments of data that were sent for the first time, and of all others.
    data: u64,
    extra: u64,
}

impl Fragments {
    /// Bytes of fragments beside those of the data, as a share of these; `None` if nothing left.
    #[expect(clippy::cast_precision_loss, reason = "bytes of some seconds")]
    pub(super) fn extra_share(&self) -> Option<f64> {
        let Counted { data, extra, .. } = &*self.0.lock();
        (*data > 0).then(|| *extra as f64 / *data as f64)
    }
}

impl Observer for Fragments {
    fn on_fact(&mut self, _: Instant, fact: &Fact<'_>) {
        let counted = &mut *self.0.lock();
        match *fact {
            Fact::BlockCoded {
                stream,
                block,
                fragment_bytes,
                ..
            } => {
                let length = fragment_bytes as u64;
                counted.lengths.insert((stream, block), length);
            }
            Fact::FragmentSent {
                stream,
                block,
                purpose,
                ..
            } => {
                let length = counted.lengths.get(&(stream, block));
                let length = length.copied().unwrap_or_default();
                match purpose {
                    Purpose::Data => counted.data += length,
                    _ => counted.extra += length,
                }
            }
            Fact::BlockEnded { stream, block, .. } => {
                counted.lengths.remove(&(stream, block));
            }
            _ => {}
        }
    }
}

/// What the sender gave to both links, the short one first, headers and acknowledgements included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkBytes(pub(super) [u64; 2]);

impl LinkBytes {
    /// Beside so many bytes of blocks that were offered, as a share of these; below zero where links carry less than that.
    #[expect(clippy::cast_precision_loss, reason = "bytes of some seconds")]
    fn extra_share(self, offered: u64) -> f64 {
        self.0.iter().sum::<u64>() as f64 / offered.max(1) as f64 - 1.0
    }
}

/// The columns of these figures: of rows whose links were given `of`, while so many bytes of blocks were offered.
pub(super) fn columns<R: 'static>(
    of: fn(&R) -> Option<LinkBytes>,
    offered: fn(&R) -> u64,
) -> Vec<Column<R>> {
    let link = |key, name, at: usize| {
        Column::count(key, name, move |row: &R| {
            of(row).map(|bytes| bytes.0[at]).into()
        })
        .median()
    };
    vec![
        Column::share("wire_extra_share", "on the wire", 1, move |row: &R| {
            let share = of(row).map(|bytes| bytes.extra_share(offered(row)));
            share.into()
        })
        .brief("wire")
        .median(),
        link("short_bytes", "short B", 0),
        link("long_bytes", "long B", 1),
        // As in other experiments the name of what is not to be used without need; here both have the same price.
        link("dear_bytes", "dear B", 1),
    ]
}

#[cfg(test)]
mod tests {
    use starhaul_session::{Datagram, Outcome, PathId};

    use super::*;

    #[test]
    fn fragments_count_by_their_length_and_data_once() {
        let (stream, block) = (StreamId(4), BlockId(7));
        let fragments = Fragments::default();
        let mut observer = fragments.clone();
        let now = Instant::now();
        observer.on_fact(
            now,
            &Fact::BlockCoded {
                stream,
                block,
                data: 2,
                redundancy: 1,
                fragment_bytes: 100,
            },
        );
        assert_eq!(fragments.extra_share(), None);
        for purpose in [
            Purpose::Data,
            Purpose::Data,
            Purpose::Redundancy,
            Purpose::Retransmission,
            Purpose::Copy,
        ] {
            observer.on_fact(
                now,
                &Fact::FragmentSent {
                    stream,
                    block,
                    fragment: (0, 0),
                    datagram: Datagram {
                        path: PathId(0),
                        sequence: 0,
                    },
                    purpose,
                    arrivals: &[],
                },
            );
        }
        assert_eq!(fragments.extra_share(), Some(1.5));
        let outcome = Outcome::Failed;
        observer.on_fact(
            now,
            &Fact::BlockEnded {
                stream,
                block,
                outcome,
            },
        );
        assert!(fragments.0.lock().lengths.is_empty());
    }

    #[test]
    fn what_links_carry_beside_the_blocks_is_a_share_of_them() {
        assert!((LinkBytes([600, 500]).extra_share(1000) - 0.1).abs() < 1e-12);
        assert!((LinkBytes([500, 0]).extra_share(1000) + 0.5).abs() < 1e-12);
    }
}
