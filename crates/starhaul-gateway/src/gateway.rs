//! A running gateway: everything that the configuration asks for, started and stopped together.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_endpoint::{Chain, Endpoint, EndpointConfig, SessionConfig};
use tokio::task::JoinSet;

use crate::{
    Config, Error,
    bundles::Bundles,
    chain,
    config::{Carrier, ConnectionService, DatagramService, LeotpRule},
    connect::serve_session,
    control::ControlSocket,
    egress::{self, Outlet},
    egress_policy::CurrentPolicy,
    kept::Kept,
    limits::Limits,
    memory,
    parts::{Changes, Parts, Seen, peer_names},
    peer::PeerSession,
    quota::keeper::Quotas,
    rate_feed,
    resolver::Resolver,
    shared::Shared,
    state_folder::StateFolder,
    status::{self, Rates, Status},
    tunnel::Registry,
    unserved::keep_unserved,
    web::WebServer,
};

/// Time between two readings of what paths have carried: a quota is exceeded by at most about this much traffic.
const SERVICE_INTERVAL: Duration = Duration::from_millis(100);

/// A running gateway; it stops when dropped, and then tells its peers nothing.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    /// The configuration at the start, for the keys that [`Gateway::reload`] cannot change.
    started_with: Config,
    parts: Parts,
    tasks: JoinSet<()>,
}

/// The result of [`Gateway::reload`].
#[derive(Debug, Default)]
pub struct Reload {
    /// What changed, for people, one line each; empty when nothing did.
    pub changes: Vec<String>,
    /// Rules that were to take over the port of another one and could not, so that nothing serves them now, and those that need a restart, which
    /// stay as they were.
    pub failed: Vec<Error>,
    /// Keys of the configuration whose change needs a restart.
    pub needs_restart: Vec<&'static str>,
}

impl Gateway {
    /// Binds everything and starts serving on the current tokio runtime. Sessions are opened in the background.
    ///
    /// # Errors
    /// The key cannot be read, or an address cannot be listened on.
    pub async fn start(config: Config) -> Result<Self, Error> {
        Self::start_with(config, Resolver::system()).await
    }

    /// As [`Gateway::start`], with another resolver of names than the system's.
    #[doc(hidden)]
    pub async fn start_with(config: Config, resolver: Resolver) -> Result<Self, Error> {
        let identity = config.identity.load()?;
        let public_key = identity.public_key();
        let (accept_controller, accept_feed) = config.accept.controller.build();
        let (quotas, kept) = open_state(&config)?;
        let control = ControlSocket::bind(&config.control, config.control_group.as_deref())?;
        let web = match config.metrics {
            Some(address) => Some(WebServer::bind(address).await?),
            None => None,
        };
        let endpoint = Endpoint::bind(EndpointConfig {
            identity,
            trusted: config.peers.iter().map(|peer| peer.public_key).collect(),
            listen: config.listen.clone(),
            accept_controller,
            accept_leo_controller: config.accept.leo_controller.clone(),
            accept_detection: config.accept.detection,
            accept_interface: config.accept.interface.clone(),
            max_sessions: config.accept.max_sessions,
            max_sessions_per_peer: config.accept.max_sessions_per_peer,
            max_handshakes: config.accept.max_handshakes,
            max_handshakes_per_source: config.accept.max_handshakes_per_host,
            session: session_config(&config),
            scheduler: config.scheduler,
            packet_bytes: config.packet_bytes,
            sure_packet_bytes: starhaul_quic::LEAST_PACKET_BYTES,
            peer_names: peer_names(&config),
            qlog: config.qlog.clone(),
        })
        .await?;
        let outlet = Outlet {
            policy: CurrentPolicy::default(),
            resolver,
            limits: Arc::new(Limits::new(config.session_limits, &config.accept)),
            tunnels: Registry::default(),
        };
        let seen = Arc::new(Seen::new(outlet, quotas, kept));
        let chain = match &config.leotp {
            Some(rule) => Some(chain::bind(rule)?),
            None => None,
        };
        let bundles = config.bundle.as_ref().map(Bundles::start).transpose()?;
        let mut parts = Parts::new(
            endpoint.clone(),
            chain.clone(),
            bundles.clone(),
            seen.clone(),
        );
        let changes = parts.change(&config).await?;
        // At the start no rule is in the way of another.
        if let Some(error) = changes.failed.into_iter().next() {
            return Err(error);
        }

        let shared = Arc::new(Shared {
            public_key,
            listen: endpoint.listen_addresses(),
            metrics: web.as_ref().map(WebServer::address),
            started: Instant::now(),
            seen,
            chain: chain.clone(),
            bundles: bundles.clone(),
            rates: Rates::default(),
        });
        let mut tasks = JoinSet::new();
        if let Some((rate, file)) = accept_feed {
            tasks.spawn(rate_feed::follow(file.to_owned(), rate));
        }
        tasks.spawn(accept(endpoint.clone(), shared.clone()));
        let release = memory::Release::new(Instant::now(), memory::ended());
        tasks.spawn(measure(endpoint.clone(), shared.clone(), release));
        tasks.spawn(keep_service(endpoint.clone(), shared.clone()));
        if let Some(chain) = chain {
            tasks.spawn(egress::chain::serve(chain, shared.seen.outlet.clone()));
        }
        if let Some(bundles) = bundles {
            tasks.spawn(egress::bundles::serve(bundles, shared.seen.outlet.clone()));
        }
        if let Some(control) = control {
            tasks.spawn(control.serve(shared.clone()));
        }
        if let Some(web) = web {
            tasks.spawn(web.serve(shared.clone()));
        }
        Ok(Self {
            shared,
            endpoint,
            started_with: config,
            parts,
            tasks,
        })
    }

    /// Changes a running gateway to another configuration: peers, sessions, ingress rules and egress. What is the same
    /// in both goes on undisturbed. A rule that changed takes over the socket of the one before on the same address, whose
    /// connections go on as they began; sessions live on while their paths change.
    ///
    /// # Errors
    /// An address cannot be listened on, or the key cannot be read; then all is as before.
    pub async fn reload(&mut self, mut config: Config) -> Result<Reload, Error> {
        let identity = config.identity.load()?.public_key();
        refuse_uncounted_quotas(self.started_with.state.is_some(), &config)?;
        let mut unserved = self.keep_rules_without_chain(&mut config);
        unserved.extend(self.keep_rules_without_bundles(&mut config));
        let Changes { done, mut failed } = self.parts.change(&config).await?;
        failed.extend(unserved);
        let mut needs_restart = self.started_with.needs_restart(&config);
        if identity != self.shared.public_key {
            needs_restart.insert(0, "identity");
        }
        Ok(Reload {
            changes: done,
            failed,
            needs_restart,
        })
    }

    /// Rules that need a chain with a way upstream stay as they were where there was none at the start: returns them.
    fn keep_rules_without_chain(&self, config: &mut Config) -> Vec<Error> {
        let leads_somewhere = |rule: &LeotpRule| rule.upstream.is_some();
        if self
            .started_with
            .leotp
            .as_ref()
            .is_some_and(leads_somewhere)
        {
            return Vec::new();
        }
        let served = self.shared.seen.rules().connections;
        let (mut rules, mut failed) = (Vec::new(), Vec::new());
        for rule in config.connection_rules.drain(..) {
            if rule.service.carrier != Carrier::Leotp {
                rules.push(rule);
                continue;
            }
            let former = served.iter().find(|known| known.config.name == rule.name);
            rules.extend(former.map(|former| former.config.clone()));
            let name = rule.name;
            failed.push(Error::Leotp(format!(
                "rule {name:?} needs a restart: there was no way upstream at the start"
            )));
        }
        config.connection_rules = rules;
        failed
    }

    /// The same for rules to far gateways over bundles that were not configured at the start.
    fn keep_rules_without_bundles(&self, config: &mut Config) -> Vec<Error> {
        let served = self.shared.seen.rules();
        let bundles = self.shared.bundles.as_ref();
        let of_connections = |service: &ConnectionService| service.carrier;
        let connections = &mut config.connection_rules;
        let mut failed = keep_unserved(bundles, connections, &served.connections, of_connections);
        let of_datagrams = |service: &DatagramService| service.carrier;
        let datagrams = &mut config.datagram_rules;
        failed.extend(keep_unserved(
            bundles,
            datagrams,
            &served.datagrams,
            of_datagrams,
        ));
        failed
    }

    /// The same object that `starhaul status --json` prints.
    pub fn status(&self) -> serde_json::Value {
        // Neither a map with other keys than texts nor a failing writer is involved.
        serde_json::to_value(self.report()).unwrap_or_default()
    }

    /// The same status as [`Gateway::status`], typed.
    pub fn report(&self) -> Status {
        self.shared.status()
    }

    /// Takes an order for a path, as `starhaul path` gives it.
    ///
    /// # Errors
    /// No such path, or it cannot be changed so; the text is for people.
    pub fn order_path(&self, change: &crate::PathChange) -> Result<(), String> {
        self.shared.order_path(change)
    }

    /// Where peers are accepted, with the ports that the kernel chose.
    pub fn listen_addresses(&self) -> Vec<SocketAddr> {
        self.shared.listen.clone()
    }

    /// Where metrics and the live page are served, with the port that the kernel chose, if they are configured.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.shared.metrics
    }

    /// Where this gateway's end of a chain of LEOTP relays is bound, if it has one.
    pub fn leotp_address(&self) -> Option<SocketAddr> {
        Some(self.shared.chain.as_ref()?.local_addr())
    }

    /// Where the ingress rule of this name listens, with the port that the kernel chose.
    pub fn ingress_address(&self, rule: &str) -> Option<SocketAddr> {
        let rules = self.shared.seen.rules();
        let datagrams = rules
            .datagrams
            .iter()
            .map(|rule| (&rule.config.name, rule.address));
        let connections = rules
            .connections
            .iter()
            .map(|rule| (&rule.config.name, rule.address));
        let mut all = datagrams.chain(connections);
        all.find(|(name, _)| *name == rule)
            .map(|(_, address)| address)
    }

    /// The name of the device of the tunnel of this name, with the number that the kernel chose.
    pub fn tunnel_device(&self, rule: &str) -> Option<String> {
        let tunnels = self.shared.seen.outlet.tunnels.all();
        let tunnel = tunnels.iter().find(|tunnel| tunnel.rule.name == rule);
        tunnel?.device_name()
    }

    /// Resolves when a session with the peer of this name is open; never for a name that is not configured.
    pub async fn connected(&self, peer: &str) {
        let peers = self.shared.seen.peers();
        let found = peers.iter().find(|other| other.name == peer);
        match found {
            Some(peer) => peer.wait_for_session().await,
            None => std::future::pending().await,
        }
    }

    /// What sends and receives: no session opens any more when it has ended.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Resolves when it cannot send and receive any more: what serves the sessions has ended, or its end of a chain.
    pub fn ended(&self) -> impl Future<Output = ()> + use<> {
        let (endpoint, chain) = (self.endpoint(), self.shared.chain.clone());
        async move {
            let of_chain = async {
                match &chain {
                    Some(chain) => chain.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = endpoint.ended() => {}
                () = of_chain => {}
            }
        }
    }

    /// Stops serving, closes all sessions in order, and returns when the peers have been told.
    pub async fn shutdown(self) {
        self.shutdown_until(std::future::pending()).await;
    }

    /// The same, but does not wait for peers any longer once `at_once` is done. What quotas have counted is stored all the same.
    pub async fn shutdown_until(mut self, at_once: impl Future<Output = ()>) {
        tokio::select! {
            () = self.close() => {}
            () = at_once => {}
        }
        let quotas = &self.shared.seen.quotas;
        quotas.read(&self.endpoint);
        quotas.close().await;
    }

    async fn close(&mut self) {
        self.tasks.shutdown().await;
        self.parts.end().await;
        let chain = async {
            if let Some(chain) = &self.shared.chain {
                chain.close().await;
            }
        };
        let bundles = async {
            if let Some(bundles) = &self.shared.bundles {
                bundles.flows.close().await;
            }
        };
        tokio::join!(chain, bundles, self.endpoint.close());
    }
}

/// Samples all counters at intervals, from which rates are computed, logs limits that were reached, and gives memory back that is not
/// needed any more.
async fn measure(endpoint: Endpoint, shared: Arc<Shared>, mut release: memory::Release) {
    loop {
        let limits = &shared.seen.outlet.limits;
        limits.note_sessions(endpoint.refused_sessions());
        limits.note_handshakes(endpoint.refused_handshakes());
        let mut carried = shared.chain.as_ref().map_or(0, carried_by);
        for peer in shared.seen.peers() {
            peer.sessions()
                .iter()
                .for_each(|session| session.note_dropped());
            let paths = peer.path_totals();
            let bytes = paths
                .values()
                .map(|path| path.bytes_sent + path.bytes_received);
            carried += bytes.sum::<u64>();
            peer.enforce_limits();
            peer.leave_silent_session();
        }
        shared.rates.sample(Instant::now(), shared.counters());
        if release.is_due(Instant::now(), memory::ended(), carried) {
            memory::release(&endpoint).await;
        }
        tokio::time::sleep(status::INTERVAL).await;
    }
}

/// About how many bytes a chain has carried: of what came it counts packets.
fn carried_by(chain: &Chain) -> u64 {
    const PACKET_BYTES: u64 = 1200;
    let node = chain.status().node;
    node.bytes_sent + node.data_received * PACKET_BYTES
}

/// A gateway that began without a folder of state has none until a restart, and a quota in memory alone would be none.
fn refuse_uncounted_quotas(has_folder: bool, config: &Config) -> Result<(), Error> {
    let mut paths = config.sessions.iter().flat_map(|session| &session.paths);
    match (&config.state, paths.find(|path| path.quota.is_some())) {
        (Some(state), Some(path)) if !has_folder => Err(Error::State {
            path: state.clone(),
            reason: std::io::Error::other(format!(
                "the gateway began without it and cannot keep the count of path {:?}: restart it, or leave out \"monthly\"",
                path.name
            )),
        }),
        _ => Ok(()),
    }
}

/// Opens what former lives of the gateway left.
fn open_state(config: &Config) -> Result<(Quotas, Kept), Error> {
    let Some(path) = &config.state else {
        return Ok(Default::default());
    };
    let error = |reason| Error::State {
        path: path.clone(),
        reason,
    };
    let folder = Some(Arc::new(StateFolder::open(path).map_err(error)?));
    let quotas = Quotas::open(folder.clone()).map_err(error)?;
    Ok((quotas, Kept::open(folder).map_err(error)?))
}

/// Counts what paths with a quota carry, and takes paths into service and out of it as their quotas and hours say.
async fn keep_service(endpoint: Endpoint, shared: Arc<Shared>) {
    let quotas = &shared.seen.quotas;
    loop {
        quotas.read(&endpoint);
        for peer in shared.seen.peers() {
            peer.orders.refresh();
            peer.end_closed_paths().await;
        }
        quotas.store();
        tokio::time::sleep(SERVICE_INTERVAL).await;
    }
}

fn session_config(config: &Config) -> SessionConfig {
    let limits = &config.session_limits;
    SessionConfig {
        keepalive: config.keepalive,
        max_streams: limits.max_streams,
        max_send_bytes: limits.max_send_bytes,
        max_receive_bytes: limits.max_receive_bytes,
        budget: config.budget,
        ..SessionConfig::default()
    }
}

/// Serves the sessions that peers open.
async fn accept(endpoint: Endpoint, shared: Arc<Shared>) {
    let mut sessions = JoinSet::new();
    loop {
        let session = tokio::select! {
            session = endpoint.accept() => session,
            Some(_) = sessions.join_next() => continue,
        };
        let Some(session) = session else { return };
        let peers = shared.seen.peers();
        let Some(peer) = peers
            .iter()
            .find(|peer| peer.public_key == session.peer())
            .cloned()
        else {
            // Only configured keys are trusted, but a peer may have been removed a moment ago.
            sessions.spawn(async move {
                session.close("the peer is not configured any more").await;
            });
            continue;
        };
        let outlet = shared.seen.outlet.clone();
        let session = Arc::new(PeerSession::new(&peer, session, false, &outlet.limits));
        let shared = shared.clone();
        sessions.spawn(async move {
            let served = serve_session(session.clone(), &peer, &outlet);
            // A reload may have removed the peer before its session was listed, and then did not close it.
            let is_known = async {
                tokio::task::yield_now().await;
                let peers = shared.seen.peers();
                match peers.iter().any(|known| Arc::ptr_eq(known, &peer)) {
                    true => std::future::pending().await,
                    false => {
                        session
                            .inner
                            .close("the peer is not configured any more")
                            .await
                    }
                }
            };
            tokio::select! {
                () = served => {}
                () = is_known => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_reload_that_brings_the_first_folder_of_state_brings_no_quota() {
        let key = starhaul_quic::Identity::generate().public_key();
        let config = |monthly: &str| {
            let text = format!(
                "state = \"s\"\nidentity.file = \"k\"\n[[peer]]\nname = \"far\"\npublic_key = \"{key}\"\n[[session]]\n[[session.path]]\nname = \"lte\"\nremote = \"192.0.2.1:1\"\n{monthly}"
            );
            Config::parse(&text, Path::new("test.toml")).unwrap()
        };
        let quota = config("monthly = \"1GB\"");
        let refused = refuse_uncounted_quotas(false, &quota).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("restart") && refused.contains("lte"),
            "{refused}"
        );
        refuse_uncounted_quotas(true, &quota).unwrap();
        refuse_uncounted_quotas(false, &config("")).unwrap();
    }

    /// A gateway with an end of a chain.
    async fn start() -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("k"), "sixteen bytes or more").unwrap();
        let identity = starhaul_quic::Identity::generate().to_secret_text();
        let text = format!(
            "control = \"off\"\n[identity]\nsecret = \"\"\"{identity}\"\"\"\n[leotp]\nlisten = \"127.0.0.1:0\"\nsecret = \"k\"\n[[leotp.neighbour]]\nname = \"n\"\nkey = \"k\"\n"
        );
        let config = Config::parse(&text, &folder.path().join("test.toml")).unwrap();
        Gateway::start(config).await.unwrap()
    }

    #[tokio::test]
    async fn a_gateway_whose_chain_has_ended_has_ended() {
        let gateway = start().await;
        let ended = gateway.ended();
        gateway.shared.chain.as_ref().unwrap().close().await;
        ended.await;
        // The rest of it ends in order.
        gateway.shutdown().await;
    }

    #[tokio::test]
    async fn an_idle_gateway_gives_back_what_a_burst_of_connections_has_left() {
        let gateway = start().await;
        let before = memory::releases();
        (0..1000).for_each(|_| drop(memory::CountedEnd));
        let released = async {
            while memory::releases() == before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let released = tokio::time::timeout(Duration::from_secs(60), released).await;
        released.expect("memory is kept");
        gateway.shutdown().await;
    }
}
