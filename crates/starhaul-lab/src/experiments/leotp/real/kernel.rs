//! The kernel's TCP from end to end of a chain, by `iperf3`.

use serde_json::Value;

use super::{Figures, Hops};
use crate::{
    Error,
    realtime::{Bench, Measured, said},
    systems::kernel::{Kernel, SERVER},
};

/// 1500 bytes less the headers of IPv4 and of TCP with timestamps.
pub(super) const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Where `iperf3 --json` tells what the receiving application got.
const RECEIVED: &str = "/end/sum_received/bits_per_second";

/// A flow toward the first node for the run's time.
pub(super) fn run(
    bench: &Bench,
    hops: &Hops,
    seed: u64,
    kernel: &Kernel,
) -> Result<Measured<Figures>, Error> {
    let links = hops.links(seed);
    let Measured {
        metrics: text,
        valid,
    } = bench.along(&links, |chain| {
        let address = chain.address(hops.count);
        let address = address.map_or_else(String::new, |address| address.to_string());
        let _server = chain.serve(hops.count, &["sh", "-c", SERVER].map(Into::into))?;
        let client = kernel.download(hops.seconds, &address);
        said(chain, &client, |_| Ok(()))
    })?;
    let told: Value = serde_json::from_str(&text)
        .map_err(|error| Error::Failed(format!("{error} in what iperf3 said: {text}")))?;
    let rate = told.pointer(RECEIVED).and_then(Value::as_f64);
    let rate = rate.ok_or_else(|| Error::Failed(format!("iperf3 told no {RECEIVED}: {text}")))?;
    Ok(Measured {
        metrics: Figures {
            goodput_mbps: rate / 1e6,
            longest_pause_ms: None,
        },
        valid,
    })
}
