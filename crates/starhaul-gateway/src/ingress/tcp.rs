//! `[[tcp]]` and the connections of `[[socks5]]`.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{Counted, Rule, count, socks, stream::open};
use crate::{
    config::{ConnectionLimits, Service},
    relay::{relay, unsettle},
    target::Target,
};

/// Pause after the system could not accept, as when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until dropped.
pub(super) async fn serve(mut current: watch::Receiver<Arc<Rule>>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let most = current
            .borrow()
            .connection_limits()
            .map(|limits| limits.max_connections);
        let Some(most) = most else { return };
        let accepted = tokio::select! {
            accepted = listener.accept(), if connections.len() < most => accepted,
            Some(_) = connections.join_next() => continue,
            // It may allow more.
            Ok(()) = current.changed() => continue,
        };
        let rule = current.borrow().clone();
        match accepted {
            Ok((tcp, _)) => {
                connections.spawn(serve_connection(rule.clone(), tcp));
                if connections.len() >= most {
                    rule.limits.connections.reach(&rule.config.name, most);
                }
            }
            Err(error) => {
                rule.shared_limits.note_io(&rule.config.name, &error);
                if let Some(others) = rule.log.accept.is_due(Instant::now()) {
                    tracing::warn!(rule = rule.config.name, %error, others, "cannot accept");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(rule: Arc<Rule>, tcp: TcpStream) {
    let _counted = Counted::new(&rule);
    unsettle(&tcp);
    let result = match &rule.config.service {
        Service::Tcp {
            target,
            connections,
        } => forward(&rule, tcp, target, connections).await,
        Service::Socks5 { .. } => socks::serve_connection(&rule, tcp).await,
        Service::Udp { .. } | Service::Rtp { .. } => return,
    };
    if let Err(error) = result {
        count(&rule.counters.failed_connections);
        tracing::debug!(rule = rule.config.name, %error, "connection ended badly");
    }
}

async fn forward(
    rule: &Rule,
    tcp: TcpStream,
    target: &Target,
    limits: &ConnectionLimits,
) -> io::Result<()> {
    let (reader, writer) = open(rule, target).await?;
    relay(tcp, reader, writer, &[], true, limits.idle_timeout).await
}
