//! `[[tcp]]` and the connections of `[[socks5]]`.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{ConnectionWay, CountedClient, Rule, Service, count, socks, stream::open};
use crate::{
    config::{ConnectionService, ConnectionTargets},
    relay::{relay, unsettle},
    status,
};

/// Pause after a failure to accept, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Service for ConnectionService {
    type Socket = TcpListener;
    type Way = ConnectionWay;

    async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    async fn serve(listener: TcpListener, mut current: watch::Receiver<Arc<Rule<Self>>>) {
        let mut connections = JoinSet::new();
        loop {
            let most = current.borrow().config.service.limits.max_connections;
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

    fn limits(rule: &Rule<Self>) -> Vec<status::Limit> {
        let most = rule.config.service.limits.max_connections;
        let connections = &rule.limits.connections;
        vec![connections.snapshot(Some(&rule.config.name), most)]
    }
}

async fn serve_connection(rule: Arc<Rule<ConnectionService>>, tcp: TcpStream) {
    let _counted = CountedClient::new(&rule.counters);
    unsettle(&tcp);
    let served = async {
        match &rule.config.service.targets {
            ConnectionTargets::Fixed(target) => {
                let (reader, writer) = open(&rule, target).await?;
                let idle = rule.config.service.limits.idle_timeout;
                relay(tcp, reader, writer, &[], true, idle).await
            }
            ConnectionTargets::Socks5 {
                credentials,
                delivery,
            } => socks::serve_connection(&rule, credentials.clone(), delivery, tcp).await,
        }
    };
    if let Err(error) = served.await {
        count(&rule.counters.failed_connections);
        tracing::debug!(rule = rule.config.name, %error, "connection ended badly");
    }
}
