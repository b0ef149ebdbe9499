//! The two systems of the demo behind one face: where applications send, and the emulated links in between.
//!
//! The field side opens everything; text, audio, video and the download all flow from the ground to the field, so they
//! share the same direction of the same links.

use std::{net::SocketAddr, path::Path, time::Duration};

use starhaul_gateway::{Config, Gateway, QlogFolder};
use starhaul_link::LinkSpec;
use starhaul_quic::Identity;
use starhaul_replay::{Emulator, Relay, RelaySpec};
use tokio::time::timeout;

use super::Paths;
use crate::{
    Error,
    baseline::{Carrier, Controller},
    load::{Class, Classes},
};

const SET_UP_LIMIT: Duration = Duration::from_secs(20);

/// A system that runs between applications.
#[derive(Debug)]
pub(super) struct Running {
    /// Where the sending application of each class sends.
    pub(super) ingress: Classes<SocketAddr>,
    /// SOCKS5 on the field side.
    pub(super) proxy: SocketAddr,
    links: Links,
    ends: Ends,
}

#[derive(Debug)]
enum Ends {
    Starhaul {
        field: Box<Gateway>,
        ground: Box<Gateway>,
    },
    MpQuic {
        controller: Controller,
        field: Box<Carrier>,
        ground: Box<Carrier>,
    },
}

async fn gateway(name: &str, config: &str, qlog: Option<&QlogFolder>) -> Result<Gateway, Error> {
    let mut config = Config::parse(config, Path::new(&format!("{name}.toml")))?;
    config.qlog = qlog.map(|folder| folder.prefixed(name));
    Ok(Gateway::start(config).await?)
}

fn ground_config(
    [ground, field]: &[Identity; 2],
    egress: &Classes<SocketAddr>,
    server: SocketAddr,
) -> String {
    let mut config = format!(
        r#"
            listen = ["127.0.0.1:0"]
            control = "off"
            identity.secret = '''{}'''
            peer = [{{ name = "field", public_key = "{}" }}]
            egress.allow = ["{server}"]
        "#,
        ground.to_secret_text(),
        field.public_key(),
    );
    for class in Class::ALL {
        let (kind, codec) = match class {
            Class::Video => ("rtp", "codec = \"h264\""),
            Class::Text | Class::Audio => ("udp", ""),
        };
        config += &format!(
            r#"
            [[{kind}]]
            name = "{}"
            listen = "127.0.0.1:0"
            target = "{}"
            deadline = "{}ms"
            priority = {}
            {codec}
            "#,
            class.name(),
            egress.of(class),
            class.deadline().as_millis(),
            class.priority(),
        );
    }
    config
}

fn field_config([ground, field]: &[Identity; 2], relays: &Paths<Relay>) -> String {
    format!(
        r#"
            control = "off"
            identity.secret = '''{}'''
            peer = [{{ name = "ground", public_key = "{}" }}]
            egress.allow = ["127.0.0.1/32:*"]

            # On loopback no hop behind a satellite answers: the probes take the emulated link to the peer.
            [[session]]
            path = [
                {{ name = "leo", remote = "{}", link = "leo", detect_by = "udp" }},
                {{ name = "geo", remote = "{}" }},
            ]

            [[socks5]]
            name = "proxy"
            listen = "127.0.0.1:0"
            priority = 5
        "#,
        field.to_secret_text(),
        ground.public_key(),
        relays.leo.address(),
        relays.geo.address(),
    )
}

fn both_paths_up(gateway: &Gateway) -> bool {
    let status = gateway.status();
    let up = |path: &serde_json::Value| path["state"] == "up";
    let paths = status["sessions"][0]["paths"].as_array();
    paths.is_some_and(|paths| paths.iter().filter(|path| up(path)).count() == 2)
}

/// The emulated links of one system.
#[derive(Debug)]
pub(super) struct Links {
    relays: Paths<Relay>,
    emulator: Emulator,
}

/// What the links have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkCounters {
    /// Bytes delivered towards the field.
    pub(super) delivered: Paths<u64>,
    /// Bytes that could have been.
    pub(super) capacity: Paths<u64>,
    /// Bytes given to the links in both directions.
    pub(super) carried: Paths<u64>,
}

/// By what a path is controlled.
#[derive(Clone, Debug, Default)]
pub(super) struct ControllerFigures {
    pub(super) name: String,
    /// Reconfigurations of which it was told; `None` without a prober.
    pub(super) reconfigurations: Option<u64>,
}

impl ControllerFigures {
    /// As the sending gateway's status tells it; `prober` is the gateway that may have one.
    fn of(sender: &Gateway, prober: &Gateway, path: &str) -> Self {
        let known = |gateway: &Gateway| {
            let status = gateway.status();
            let paths = status["sessions"][0]["paths"].as_array();
            let mut paths = paths.into_iter().flatten();
            paths.find(|known| known["name"] == path).cloned()
        };
        let at_sender = known(sender).unwrap_or_default();
        let probes = known(prober).is_some_and(|path| !path["detector"].is_null());
        let told = at_sender["reconfigurations"]["count"].as_u64();
        Self {
            name: at_sender["controller"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            reconfigurations: told.filter(|_| probes),
        }
    }
}

impl Running {
    /// Two ends of the baseline, which take the same applications.
    pub(super) async fn mpquic(
        controller: Controller,
        links: Paths<LinkSpec>,
        seed: u64,
        egress: Classes<SocketAddr>,
        _server: SocketAddr,
    ) -> Result<Self, Error> {
        let egress = Class::ALL.map(|class| (class, *egress.of(class)));
        let mut ground = Carrier::start(true, controller, seed, &[]).await?;
        let mut field = Carrier::start(false, controller, seed, &egress).await?;
        let links = Links::start(&links, seed, ground.address())?;
        // The path of lowest delay first is the baseline's best order.
        field
            .connect(
                &[links.relays.leo.address(), links.relays.geo.address()],
                SET_UP_LIMIT,
            )
            .await?;
        let [text, audio, video] = [
            ground.ingress(Class::Text)?,
            ground.ingress(Class::Audio)?,
            ground.ingress(Class::Video)?,
        ];
        Ok(Self {
            ingress: Classes { text, audio, video },
            proxy: field.socks().await?,
            links,
            ends: Ends::MpQuic {
                controller,
                field: Box::new(field),
                ground: Box::new(ground),
            },
        })
    }

    /// Two gateways, from configurations such as their users write.
    pub(super) async fn starhaul(
        links: Paths<LinkSpec>,
        seed: u64,
        egress: Classes<SocketAddr>,
        server: SocketAddr,
        qlog: Option<&QlogFolder>,
    ) -> Result<Self, Error> {
        let keys = [Identity::generate(), Identity::generate()];
        let ground = gateway("ground", &ground_config(&keys, &egress, server), qlog).await?;
        let [address] = ground.listen_addresses()[..] else {
            return Err(Error::Failed("the ground gateway does not listen".into()));
        };
        let links = Links::start(&links, seed, address)?;
        let field = gateway("field", &field_config(&keys, &links.relays), qlog).await?;
        let all_up = async {
            while !(both_paths_up(&field) && both_paths_up(&ground)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SET_UP_LIMIT, all_up).await.map_err(|_| {
            Error::Failed(format!(
                "the gateways did not have both paths up within {SET_UP_LIMIT:?}"
            ))
        })?;
        let listens = |gateway: &Gateway, rule: &str| {
            gateway
                .ingress_address(rule)
                .ok_or_else(|| Error::Failed(format!("no rule {rule:?} in the gateway")))
        };
        Ok(Self {
            ingress: Classes {
                text: listens(&ground, "text")?,
                audio: listens(&ground, "audio")?,
                video: listens(&ground, "video")?,
            },
            proxy: listens(&field, "proxy")?,
            links,
            ends: Ends::Starhaul {
                field: Box::new(field),
                ground: Box::new(ground),
            },
        })
    }

    /// What the links have done so far.
    pub(super) fn counters(&self) -> LinkCounters {
        self.links.counters()
    }

    /// Why the figures would say nothing of the system any more, if so.
    pub(super) fn failure(&self) -> Option<String> {
        if self.links.emulator.has_ended() {
            let why = "the emulated links ended, for the reason logged before";
            return Some(why.to_owned());
        }
        match &self.ends {
            Ends::Starhaul { .. } => None,
            Ends::MpQuic { field, ground, .. } => field.failure().or_else(|| ground.failure()),
        }
    }

    /// By what each path is controlled towards the field. The prober of the LEO path is the field's, which has the dish.
    pub(super) fn controllers(&self) -> Paths<ControllerFigures> {
        let of = |path| match &self.ends {
            Ends::Starhaul { field, ground } => ControllerFigures::of(ground, field, path),
            Ends::MpQuic { controller, .. } => ControllerFigures {
                name: controller.name().to_owned(),
                reconfigurations: None,
            },
        };
        Paths {
            leo: of("leo"),
            geo: of("geo"),
        }
    }

    /// 99th percentile of how late the emulator was, on the later of both paths.
    pub(super) fn lateness_p99(&self) -> Duration {
        let relays = [&self.links.relays.leo, &self.links.relays.geo];
        let late = relays.map(|relay| relay.lateness().quantile(0.99));
        late.into_iter().max().unwrap_or_default()
    }
}

impl Links {
    fn start(links: &Paths<LinkSpec>, seed: u64, target: SocketAddr) -> Result<Self, Error> {
        let relay = |link: &LinkSpec| RelaySpec {
            target,
            forward: link.clone(),
            reverse: link.clone(),
            seed,
        };
        let emulator = Emulator::start(vec![relay(&links.leo), relay(&links.geo)])?;
        let [leo, geo] = emulator.relays() else {
            return Err(Error::Failed(
                "the emulator made another number of links than asked for".into(),
            ));
        };
        Ok(Self {
            relays: Paths {
                leo: leo.clone(),
                geo: geo.clone(),
            },
            emulator,
        })
    }

    fn counters(&self) -> LinkCounters {
        let mut counters = LinkCounters::default();
        let paths = [
            (
                &self.relays.leo,
                (
                    &mut counters.delivered.leo,
                    &mut counters.capacity.leo,
                    &mut counters.carried.leo,
                ),
            ),
            (
                &self.relays.geo,
                (
                    &mut counters.delivered.geo,
                    &mut counters.capacity.geo,
                    &mut counters.carried.geo,
                ),
            ),
        ];
        for (relay, (delivered, capacity, carried)) in paths {
            let totals = relay.totals();
            *delivered = totals.reverse.link.delivered_bytes;
            *capacity = totals.reverse.capacity_bytes;
            *carried = totals.forward.link.enqueued_bytes + totals.reverse.link.enqueued_bytes;
        }
        counters
    }
}
