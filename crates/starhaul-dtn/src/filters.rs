//! Where the agent is stricter than other nodes, or breaks a rule itself.

use std::{sync::Arc, time::Instant};

use hardy_bpa::{
    async_trait,
    bpa::Bpa,
    bundle::Bundle,
    filter::{self, Filter, Hook, ReadFilter as _, ReadResult, WriteFilter, WriteResult, rfc9171},
};
use hardy_bpv7::{
    block::Flags,
    editor::{Chunk, Editor},
    status_report::ReasonCode,
};
use starhaul_log::Seldom;

use crate::{security::Keys, stock::Stock};

/// The agent's own check, under its name.
const VALIDITY: &str = "rfc9171-validity";

/// Registers the filters of a node with this stock and these keys.
///
/// # Errors
/// What the agent reports.
pub(crate) fn register(
    agent: &Bpa,
    stock: &Arc<Stock>,
    keys: &Arc<Keys>,
) -> Result<(), filter::Error> {
    // It drops bundles whose primary block has no CRC, for which RFC 9171 (§4.3.1) asks their source, when their transfer was
    // acknowledged already. `dtn7` sends such bundles.
    agent.unregister_filter(Hook::Ingress, VALIDITY)?;
    let checks = rfc9171::Config {
        primary_block_integrity: false,
        ..rfc9171::Config::default()
    };
    let checks = rfc9171::Rfc9171ValidityFilter::new(&checks);
    let checks = Filter::Write(Arc::new(Checks(checks)));
    agent.register_filter(Hook::Ingress, VALIDITY, &[], checks)?;
    let intact = Filter::Write(Arc::new(Intact {
        keys: keys.clone(),
        stock: stock.clone(),
        log: Seldom::default(),
    }));
    agent.register_filter(Hook::Ingress, "intact", &[], intact)?;
    let quiet = Filter::Write(Arc::new(Quiet));
    agent.register_filter(Hook::Egress, "quiet-blocks", &[], quiet)?;
    let expired = Filter::Write(Arc::new(Expired));
    agent.register_filter(Hook::Egress, "expired", &[], expired)?;
    let expired = Filter::Write(Arc::new(Expired));
    agent.register_filter(Hook::Deliver, "expired", &[], expired)?;
    let unusable = Filter::Write(Arc::new(Unusable(stock.clone())));
    agent.register_filter(Hook::Deliver, "unusable", &[], unusable)?;
    if stock.priorities().are_any() {
        for hook in [Hook::Ingress, Hook::Originate] {
            let label = Filter::Write(Arc::new(Label(stock.clone())));
            agent.register_filter(hook, "label", &[], label)?;
        }
    }
    Ok(())
}

/// Labels urgent bundles, by which the agent chooses their queue (`egress`).
struct Label(Arc<Stock>);

#[async_trait]
impl WriteFilter for Label {
    async fn filter(&self, bundle: &Bundle, _: &[u8]) -> Result<WriteResult, hardy_bpa::Error> {
        let mut writable = bundle.metadata.writable.clone();
        writable.flow_label = self.0.priorities().label(&bundle.bundle.destination);
        Ok(WriteResult::Continue(Some(writable), None))
    }
}

/// A check that only reads, among those that may write: of two that only read, the agent gives each a task for each bundle.
struct Checks(rfc9171::Rfc9171ValidityFilter);

#[async_trait]
impl WriteFilter for Checks {
    async fn filter(&self, bundle: &Bundle, data: &[u8]) -> Result<WriteResult, hardy_bpa::Error> {
        Ok(match self.0.filter(bundle, data).await? {
            ReadResult::Continue => WriteResult::Continue(None, None),
            ReadResult::Drop(reason) => WriteResult::Drop(reason),
        })
    }
}

/// Ends bundles whose lifetime is over where they would leave or be delivered: the agent looks at those that wait for a route alone.
struct Expired;

#[async_trait]
impl WriteFilter for Expired {
    async fn filter(&self, bundle: &Bundle, _: &[u8]) -> Result<WriteResult, hardy_bpa::Error> {
        Ok(match bundle.has_expired() {
            true => WriteResult::Drop(Some(ReasonCode::LifetimeExpired)),
            false => WriteResult::Continue(None, None),
        })
    }
}

/// Ends bundles for applications here that are not what their source sent as they come, and not when they are delivered: until then the
/// name of each would shut out another copy, which may be the right one.
struct Intact {
    keys: Arc<Keys>,
    stock: Arc<Stock>,
    log: Seldom,
}

#[async_trait]
impl WriteFilter for Intact {
    async fn filter(&self, bundle: &Bundle, data: &[u8]) -> Result<WriteResult, hardy_bpa::Error> {
        let parsed = &bundle.bundle;
        let node = parsed.destination.to_node_id();
        let is_here = node.is_ok_and(|node| self.stock.is_own(&node));
        // What protects a bundle protects the whole of it: parts are looked at when they have been put together. Reports are the agent's.
        let is_whole = parsed.id.fragment_info.is_none() && !parsed.flags.is_admin_record;
        let checked = match is_here && is_whole {
            true => self.keys.check(parsed, data),
            false => Ok(()),
        };
        let Err(error) = checked else {
            return Ok(WriteResult::Continue(None, None));
        };
        if let Some(others) = self.log.is_due(Instant::now()) {
            tracing::warn!(%error, others, "a bundle for an application is dropped");
        }
        let reason = self.keys.reason(&error);
        // It leaves its name to another copy (`stock/counted.rs`).
        self.stock.set_unusable(&parsed.id, reason);
        Ok(WriteResult::Drop(Some(reason)))
    }
}

/// Ends bundles that no application can have, with the reason: of what an application takes the agent reports that it was delivered.
struct Unusable(Arc<Stock>);

#[async_trait]
impl WriteFilter for Unusable {
    async fn filter(&self, bundle: &Bundle, _: &[u8]) -> Result<WriteResult, hardy_bpa::Error> {
        Ok(match self.0.unusable(&bundle.bundle.id) {
            Some(reason) => WriteResult::Drop(Some(reason)),
            None => WriteResult::Continue(None, None),
        })
    }
}

/// Takes requests for reports from the blocks of administrative records and anonymous bundles, where they are forbidden (RFC 9171
/// §4.2.4): the agent adds blocks with such requests to every bundle that it forwards, and refuses these where they arrive.
struct Quiet;

#[async_trait]
impl WriteFilter for Quiet {
    async fn filter(&self, bundle: &Bundle, data: &[u8]) -> Result<WriteResult, hardy_bpa::Error> {
        let bundle = &bundle.bundle;
        let mut blocks = bundle.blocks.iter();
        let may_ask = !bundle.flags.is_admin_record && !bundle.id.source.is_null();
        if may_ask || !blocks.any(|(_, block)| block.flags.report_on_failure) {
            return Ok(WriteResult::Continue(None, None));
        }
        let mut editor = Editor::new(bundle, data);
        for (number, block) in &bundle.blocks {
            if block.flags.report_on_failure {
                let flags = Flags {
                    report_on_failure: false,
                    ..block.flags.clone()
                };
                let block = editor.update_block(*number).map_err(|(_, error)| error)?;
                editor = block.with_flags(flags).rebuild();
            }
        }
        let chunks = editor.rebuild()?;
        let data = Chunk::flatten(chunks, data).into_vec();
        Ok(WriteResult::Continue(None, Some(data)))
    }
}
