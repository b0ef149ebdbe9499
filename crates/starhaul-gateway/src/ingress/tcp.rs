//! `[[tcp]]`, `[[tproxy]]` and the connections of `[[socks5]]`.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{net::TcpStream, sync::watch, task::JoinSet, time::MissedTickBehavior};

use super::{
    ConnectionWay, CountedClient, Rule, Service, count, socks,
    stream::open,
    transparent::{self, Listener},
};
use crate::{
    config::{ConnectionService, ConnectionTargets},
    relay::{relay, unsettle},
    status,
    target::Target,
};

/// Pause after a failure to accept, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Pause before interception is tried again.
const FOLLOW_PAUSE: Duration = Duration::from_secs(10);

impl Service for ConnectionService {
    type Socket = Listener;
    type Way = ConnectionWay;

    async fn bind(&self, address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
        let mut listener = Listener::bind(address, &self.targets)?;
        listener.follow(&self.targets).await?;
        let address = listener.tcp.local_addr()?;
        Ok((listener, address))
    }

    async fn serve(mut listener: Listener, mut current: watch::Receiver<Arc<Rule<Self>>>) {
        let mut connections = JoinSet::new();
        let mut is_followed = true;
        let mut retry = tokio::time::interval(FOLLOW_PAUSE);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let most = current.borrow().config.service.limits.max_connections;
            let accepted = tokio::select! {
                accepted = listener.tcp.accept(), if connections.len() < most => accepted,
                Some(_) = connections.join_next() => continue,
                // It may allow more.
                Ok(()) = current.changed() => {
                    is_followed = follow(&mut listener, &current).await;
                    continue;
                }
                _ = retry.tick(), if !is_followed => {
                    is_followed = follow(&mut listener, &current).await;
                    continue;
                }
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

    fn limits(rule: &Rule<Self>) -> Vec<status::LimitStatus> {
        let most = rule.config.service.limits.max_connections;
        let connections = &rule.limits.connections;
        vec![connections.snapshot(Some(&rule.config.name), most)]
    }
}

/// Lets the kernel intercept what the present rule asks for; `false` if it does not.
async fn follow(
    listener: &mut Listener,
    current: &watch::Receiver<Arc<Rule<ConnectionService>>>,
) -> bool {
    let rule = current.borrow().clone();
    let followed = listener.follow(&rule.config.service.targets).await;
    if let Err(error) = &followed
        && let Some(others) = rule.log.accept.is_due(Instant::now())
    {
        tracing::warn!(rule = rule.config.name, %error, others, "connections are not intercepted; will try again");
    }
    followed.is_ok()
}

async fn serve_connection(rule: Arc<Rule<ConnectionService>>, tcp: TcpStream) {
    let _counted = CountedClient::new(&rule.counters);
    unsettle(&tcp);
    let served = async {
        match &rule.config.service.targets {
            ConnectionTargets::Fixed(target) => carry(&rule, tcp, target, None).await,
            ConnectionTargets::Transparent(transparent) => {
                let target = transparent::target(&tcp, rule.address)?;
                let client = match transparent.keep_client {
                    true => Some(tcp.peer_addr()?.ip().to_canonical()),
                    false => None,
                };
                carry(&rule, tcp, &target, client).await
            }
            ConnectionTargets::Socks5 {
                credentials,
                delivery,
            } => socks::serve_connection(&rule, credentials.clone(), delivery, tcp).await,
        }
    };
    if let Err(error) = served.await {
        count(&rule.counters.failed_connections);
        rule.counters.refusals.count(&error);
        tracing::debug!(rule = rule.config.name, %error, "connection ended badly");
    }
}

/// Carries a connection to a target, at the far side from the client's address if one is given.
async fn carry(
    rule: &Rule<ConnectionService>,
    tcp: TcpStream,
    target: &Target,
    client: Option<IpAddr>,
) -> io::Result<()> {
    let (reader, writer) = open(rule, target, client).await?;
    let idle = rule.config.service.limits.idle_timeout;
    relay(tcp, reader, writer, &[], true, idle).await
}
