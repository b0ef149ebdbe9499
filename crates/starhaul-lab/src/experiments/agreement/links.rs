//! The links over which simulator, replay and kernel are compared.

use starhaul_link::{LinkSpec, Loss, QueueLimit, Trace};

use crate::{Error, traces::recorded_folder};

/// Without loss, a queue decides what a controller gets; with loss, how it recovers does.
const USUAL: [&str; 2] = [
    "rate=20mbit,delay=25ms,queue=100p",
    "rate=20mbit,delay=25ms,queue=100p,loss=0.2%",
];
/// As LeoCC's authors replay their recorded uplink.
const TRACE: (&str, &str, &str) = (
    "leocc-example, loss 0.2 %",
    "leocc-example/bw_example.txt",
    "leocc-example/delay_example.txt",
);
const TRACE_LOSS: f64 = 0.002;
const TRACE_QUEUE: usize = 500;
/// Acknowledgements never find this queue full.
const BACK_QUEUE: usize = 50_000;

/// A link for data, and the one on which acknowledgements come back.
#[derive(Clone, Debug)]
pub struct AgreementLink {
    /// As it was written, or the trace's name.
    pub name: String,
    /// The link for data.
    pub forward: LinkSpec,
    /// The link for acknowledgements: the same without loss, and with a queue that is never full.
    pub backward: LinkSpec,
}

impl AgreementLink {
    /// The link written so.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn written(text: &str) -> Result<Self, Error> {
        Ok(Self::of(text.to_owned(), text.parse()?))
    }

    /// The usual ones, and why one is left out.
    pub(super) fn usual() -> (Vec<Self>, Option<String>) {
        let written = USUAL
            .into_iter()
            .filter_map(|text| Self::written(text).ok());
        let mut links: Vec<_> = written.collect();
        let (name, capacity, delay) = TRACE;
        let folder = recorded_folder();
        let trace = Trace::read(&folder.join(capacity), Some(&folder.join(delay)));
        let spec = trace.and_then(|trace| {
            Ok(LinkSpec::from_trace(trace)
                .with_loss(Loss::bernoulli(TRACE_LOSS)?)
                .with_queue(QueueLimit::Packets(TRACE_QUEUE)))
        });
        match spec {
            Ok(spec) => {
                links.push(Self::of(name.to_owned(), spec));
                (links, None)
            }
            Err(error) => (links, Some(format!("skipped: {name}: {error}"))),
        }
    }

    fn of(name: String, forward: LinkSpec) -> Self {
        let backward = forward
            .clone()
            .with_loss(Loss::NONE)
            .with_queue(QueueLimit::Packets(BACK_QUEUE));
        Self {
            name,
            forward,
            backward,
        }
    }
}
