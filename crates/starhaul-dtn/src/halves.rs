//! Large payloads pass the agent by on their way to a neighbour.
//!
//! The agent has a bundle in one buffer: it copies all of it to change the blocks before the payload, and to add one more block would copy it
//! again. So it gets what is before the block of a large payload, and is told that this has no bytes. What it makes of that it would have made
//! of the whole; the gate has both halves, and LTP sends from where they are.

use std::{cell::RefCell, future::Future, ops::Range, sync::Arc};

use hardy_bpa::{
    Bytes, async_trait,
    bundle::Bundle,
    cla::{self, Cla, ClaAddress, ForwardBundleResult},
    policy::EgressQueue,
    storage::{BundleStorage, RecoveryResponse, Result},
    stream::Sender,
};
use hardy_bpv7::eid::Eid;
use starhaul_ltp::{combined_checksum, rest_checksum};

use crate::{
    reports,
    steady::{self, REFUSED},
    stock::Stock,
    sums,
};

/// The number of the payload block (RFC 9171 §4.1).
const PAYLOAD: u64 = 1;
/// Bytes of a payload block that passes by, at least. To copy less costs no more than to carry it apart.
const LARGE: usize = 64 << 10;
/// The end of a bundle, an array without a length (RFC 8949 §3.2.1).
const END: u8 = 0xff;

tokio::task_local! {
    /// What the agent does not get of the bundle that this task sends.
    static ASIDE: RefCell<Option<Aside>>;
}

/// A payload's block that passes the agent by.
struct Aside {
    /// Where it is in the data of its bundle.
    block: Range<usize>,
    /// It, and the end of the bundle; `None` until the data are read.
    rest: Option<Rest>,
}

/// The last bytes of a bundle, and CRC32C of them if it is known.
#[derive(Clone, Debug, Default)]
struct Rest {
    bytes: Bytes,
    sum: Option<u32>,
}

impl Aside {
    /// Sets the payload's block of a bundle aside, if it is large.
    fn of(bundle: &mut Bundle) -> Option<Self> {
        let bundle = &mut bundle.bundle;
        if bundle.flags.is_admin_record || bundle.id.source.is_null() {
            // A filter takes requests from the blocks of these (`filters`), and reads the whole bundle.
            return None;
        }
        let others = bundle
            .blocks
            .iter()
            .filter(|(number, _)| **number != PAYLOAD);
        let ends = others.map(|(_, block)| block.extent.end).max();
        let payload = bundle.blocks.get_mut(&PAYLOAD)?;
        let at = payload.extent.start;
        if payload.extent.len() < LARGE || ends.is_some_and(|end| end > at) {
            return None;
        }
        payload.data = 0..0;
        let block = std::mem::replace(&mut payload.extent, at..at);
        Some(Self { block, rest: None })
    }

    /// Keeps the block of these data, and returns what is before it. `None` if it is not in them, or was kept before.
    fn keep(&mut self, data: &Bytes) -> Option<Bytes> {
        let Range { start, end } = self.block;
        let block = data.get(start..end).filter(|_| self.rest.is_none())?;
        let (before, behind) = (data.slice(..start), data.get(end..));
        self.rest = Some(if let Some([END]) = behind {
            let bytes = data.slice(start..);
            // What was noted as it came or was made; what is before is short.
            let all = sums::of(data);
            let rest = |all| rest_checksum(all, crc32c::crc32c(&before), bytes.len() as u64);
            let sum = all.map(rest);
            Rest { bytes, sum }
        } else {
            // An array with a length, which the agent does not make.
            let bytes = [block, &[END]].concat().into();
            Rest { bytes, sum: None }
        });
        Some(before)
    }
}

/// Has the agent send a bundle; a large payload passes it by. As no `async fn`, it does not keep the bundle beside what the agent makes of it.
pub(crate) fn send(queue: &dyn EgressQueue, mut bundle: Bundle) -> impl Future<Output = ()> {
    let aside = Aside::of(&mut bundle);
    ASIDE.scope(RefCell::new(aside), queue.forward(bundle))
}

/// Keeps what the agent does not get of data that it reads, and returns the others.
fn keep(data: Bytes) -> Bytes {
    let kept = ASIDE.try_with(|aside| aside.borrow_mut().as_mut()?.keep(&data));
    kept.ok().flatten().unwrap_or(data)
}

/// A bundle for a neighbour, in one buffer or in two.
#[derive(Clone, Debug)]
pub(crate) struct Halves {
    /// All of it, or a bundle without the payload's block.
    made: Bytes,
    /// The payload's block and the end of the bundle, or nothing.
    rest: Rest,
}

impl Halves {
    /// A bundle in one buffer.
    pub(crate) fn whole(bundle: Bytes) -> Self {
        Self {
            made: bundle,
            rest: Rest::default(),
        }
    }

    /// The bundle that this task sends, of which the agent has made this. `None` if the rest is not there: what is known of a bundle and its
    /// data contradict each other.
    pub(crate) fn of(made: Bytes) -> Option<Self> {
        let aside = ASIDE.try_with(|aside| aside.borrow_mut().take());
        match aside.ok().flatten() {
            None => Some(Self::whole(made)),
            Some(aside) => {
                let rest = aside.rest.filter(|_| made.ends_with(&[END]))?;
                Some(Self { made, rest })
            }
        }
    }

    /// Changes what is before the payload's block; `change` gets that as a bundle, which it must stay.
    pub(crate) fn changed(self, change: impl FnOnce(Bytes) -> Bytes) -> Self {
        Self {
            made: change(self.made),
            rest: self.rest,
        }
    }

    /// Bytes of the bundle.
    pub(crate) fn len(&self) -> usize {
        match self.rest.bytes.len() {
            0 => self.made.len(),
            // Both have the end.
            rest => (self.made.len() + rest).saturating_sub(1),
        }
    }

    /// The two buffers of the bundle, in order; no copy.
    pub(crate) fn into_parts(self) -> (Bytes, Bytes) {
        let Self { mut made, rest } = self;
        if !rest.bytes.is_empty() {
            made.truncate(made.len().saturating_sub(1));
        }
        (made, rest.bytes)
    }

    /// CRC32C of the bundle, if the payload need not be read for it.
    pub(crate) fn checksum(&self) -> Option<u32> {
        let (sum, bytes) = (self.rest.sum?, self.rest.bytes.len() as u64);
        let (_, before) = self.made.split_last()?;
        Some(combined_checksum(crc32c::crc32c(before), sum, bytes))
    }

    /// The bundle in one buffer; a copy, if it is in two.
    pub(crate) fn join(self) -> Bytes {
        let (head, rest) = self.into_parts();
        match rest.is_empty() {
            true => head,
            false => [head, rest].concat().into(),
        }
    }
}

/// A convergence layer that may send from two buffers.
#[async_trait]
pub(crate) trait Carrier: Cla {
    /// Sends a bundle as [`Cla::forward`] does, which gets it in one buffer if the layer does not override this.
    async fn carry(
        &self,
        queue: Option<u32>,
        address: &ClaAddress,
        bundle: Halves,
    ) -> cla::Result<ForwardBundleResult> {
        self.forward(queue, address, bundle.join()).await
    }
}

impl Carrier for hardy_tcpclv4::Cla {}

/// The data of bundles, of which the agent gets no large payload that it is about to send. Reports of this node that say nothing are not kept.
pub(crate) struct PassingBy {
    store: Arc<dyn BundleStorage>,
    stock: Arc<Stock>,
}

impl PassingBy {
    /// Wraps the data of the bundles that `stock` counts.
    pub(crate) fn new(store: Arc<dyn BundleStorage>, stock: Arc<Stock>) -> Self {
        Self { store, stock }
    }

    /// Whether these are the bytes of a report that the agent makes now, and that says nothing.
    fn is_void(&self, data: &[u8]) -> bool {
        let is_own = |source: &Eid| {
            let node = source.to_node_id();
            node.is_ok_and(|node| self.stock.is_own(&node))
        };
        reports::says_nothing(data, is_own)
    }
}

#[async_trait]
impl BundleStorage for PassingBy {
    async fn recover(&self, stream: &dyn Sender<RecoveryResponse>) -> Result<()> {
        self.store.recover(stream).await
    }

    async fn load(&self, name: &str) -> Result<Option<Bytes>> {
        Ok(self.store.load(name).await?.map(keep))
    }

    async fn save(&self, data: Bytes) -> Result<Arc<str>> {
        if !steady::is_taking() && self.is_void(&data) {
            // The store of metadata does not note it either (`stock/counted.rs`).
            return Ok(REFUSED.into());
        }
        self.store.save(data).await
    }

    async fn replace(&self, name: &str, data: Bytes) -> Result<()> {
        self.store.replace(name, data).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.store.delete(name).await
    }
}

#[cfg(test)]
mod tests {
    use hardy_bpa::bundle::BundleMetadata;
    use hardy_bpv7::{
        block::Type,
        bpsec::no_keys,
        builder::Builder,
        bundle::{Flags, ParsedBundle},
        creation_timestamp::CreationTimestamp,
        editor::{Chunk, Editor},
        hop_info::HopInfo,
    };
    use parking_lot::Mutex;

    use super::*;

    /// A bundle of this source with this payload, and its data.
    fn bundle(source: &str, payload: usize, is_report: bool) -> (Bundle, Bytes) {
        let to: Eid = "ipn:2.5".parse().unwrap();
        let flags = Flags {
            is_admin_record: is_report,
            ..Flags::default()
        };
        let mut builder = Builder::new(source.parse().unwrap(), to).with_flags(flags);
        if !is_report {
            builder = builder.with_hop_count(&HopInfo { limit: 9, count: 1 });
        }
        let payload: Vec<u8> = (0..payload).map(|at| at.to_le_bytes()[0]).collect();
        let builder = builder.with_payload(payload.into());
        let (bundle, data) = builder.build(CreationTimestamp::now()).unwrap();
        let metadata = BundleMetadata::default();
        (Bundle { bundle, metadata }, data.into_vec().into())
    }

    /// What the agent makes of what it has read: it adds a block, as [`hardy_bpa`] does.
    fn rewrite(bundle: &Bundle, data: &Bytes) -> Bytes {
        let editor = Editor::new(&bundle.bundle, data).insert_block(Type::PreviousNode);
        let block = editor.map_err(|(_, error)| error).unwrap();
        let node: Vec<u8> = vec![0x82, 2, 0x82, 1, 0];
        let editor = block.with_data(node.into()).rebuild();
        let (_, chunks) = editor.rebuild_bundle().unwrap();
        Chunk::flatten(chunks, data).into_vec().into()
    }

    /// An agent with one bundle: reads it, rewrites it and gives it to the gate.
    struct Agent {
        data: Bytes,
        read: Mutex<usize>,
        sent: Mutex<Option<Halves>>,
    }

    impl Agent {
        fn new(data: Bytes) -> Self {
            Self {
                data,
                read: Mutex::default(),
                sent: Mutex::default(),
            }
        }
    }

    #[async_trait]
    impl EgressQueue for Agent {
        async fn forward(&self, bundle: Bundle) {
            let data = keep(self.data.clone());
            *self.read.lock() = data.len();
            *self.sent.lock() = Halves::of(rewrite(&bundle, &data));
        }
    }

    #[tokio::test]
    async fn a_neighbour_gets_what_the_agent_would_make_of_the_whole() {
        let cases = [
            ("ipn:1.5", 100, false, false),
            ("ipn:1.5", LARGE, false, true),
            ("ipn:1.5", 1_000_000, false, true),
            // A filter reads all of these.
            ("ipn:1.5", 1_000_000, true, false),
        ];
        for (source, payload, is_report, passes_by) in cases {
            let (bundle, data) = bundle(source, payload, is_report);
            let expected = rewrite(&bundle, &data);
            let agent = Agent::new(data.clone());
            send(&agent, bundle).await;
            let sent = agent.sent.lock().take().unwrap();
            let read = *agent.read.lock();
            assert_eq!(read < 1000, passes_by || payload < 500, "{payload}");
            assert_eq!(sent.len(), expected.len());
            let (_, rest) = sent.clone().into_parts();
            // The payload has stayed where it was.
            let end = data.as_ptr_range().end;
            assert_eq!(rest.as_ptr_range().end == end, passes_by, "{payload}");
            assert!(sent.join() == expected, "{payload}");
        }
    }

    #[tokio::test]
    async fn a_block_that_is_added_to_the_first_half_is_one_of_the_whole() {
        let (bundle, data) = bundle("ipn:1.5", 1_000_000, false);
        let mark = crate::trail::Mark::of(&"ipn:1.0".parse().unwrap());
        let expected = mark.leave_in(rewrite(&bundle, &data));
        let agent = Agent::new(data);
        send(&agent, bundle).await;
        let sent = agent.sent.lock().take().unwrap();
        let sent = sent.changed(|made| mark.leave_in(made));
        assert_eq!(sent.len(), expected.len());
        let sent = sent.join();
        assert!(sent == expected);
        assert!(ParsedBundle::parse(&sent, no_keys).is_ok());
    }

    /// LTP need not read a payload for the checksum of its block.
    #[tokio::test]
    async fn the_checksum_of_what_is_sent_follows_from_that_of_what_came() {
        for is_known in [false, true] {
            let (bundle, data) = bundle("ipn:1.5", 1_000_000, false);
            let sum = crc32c::crc32c(&data);
            let agent = Agent::new(match is_known {
                true => sums::note(data, sum),
                false => data,
            });
            send(&agent, bundle).await;
            let mark = crate::trail::Mark::of(&"ipn:1.0".parse().unwrap());
            let sent = agent.sent.lock().take().unwrap();
            let sent = sent.changed(|made| mark.leave_in(made));
            let checksum = sent.checksum();
            let expected = crc32c::crc32c(&sent.join());
            assert_eq!(checksum, is_known.then_some(expected));
        }
    }

    /// It would be sent without a payload, and acknowledged.
    #[tokio::test]
    async fn a_bundle_whose_payload_is_not_in_its_data_is_not_sent() {
        let (bundle, data) = bundle("ipn:1.5", 1_000_000, false);
        let agent = Agent::new(data.slice(..data.len() / 2));
        send(&agent, bundle).await;
        assert!(agent.sent.lock().is_none());
    }

    #[test]
    fn a_bundle_of_nobody_passes_whole() {
        let (mut bundle, data) = bundle("ipn:1.5", 1_000_000, false);
        bundle.bundle.id.source = Eid::default();
        assert!(bundle.bundle.id.source.is_null());
        assert!(Aside::of(&mut bundle).is_none());
        assert!(keep(data.clone()) == data, "in no task that sends");
    }
}
