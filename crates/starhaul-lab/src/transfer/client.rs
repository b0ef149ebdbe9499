//! The end that asks for transfers.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use starhaul_endpoint::{ControllerConfig, Detection, Endpoint, EndpointConfig, PathSpec, Session};
use tokio::io::AsyncReadExt as _;

use super::{
    Secret, Tally, Toward,
    bulk::{failed, fill, read_all},
    full_packet_bytes,
    request::Request,
};
use crate::Error;

/// How often the path's figures are read.
const SAMPLE: Duration = Duration::from_millis(100);
/// How long the server may take to say what arrived, after what is under way.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a tally of the longest transfer.
const MAX_TALLY_BYTES: u64 = 4 << 20;

/// A transfer to make.
#[derive(Clone, Debug)]
pub struct Client {
    /// Address of the server.
    pub server: SocketAddr,
    /// What the server knows too.
    pub secret: Secret,
    /// Which way the data go.
    pub toward: Toward,
    /// Length of the transfer in seconds.
    pub seconds: u32,
    /// Controller of what this end sends.
    pub controller: ControllerConfig,
    /// Bytes of UDP payload.
    pub packet_bytes: u16,
    /// How this end watches its satellite hop for reconfigurations, for whichever end sends.
    pub detection: Option<Detection>,
}

/// What came of a transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transferred {
    /// Which way the data went.
    pub toward: Toward,
    /// The controller of the sending end, where that is known to this one.
    pub controller: Option<String>,
    /// Mean rate of the stream's bytes at the receiving application.
    pub throughput_mbps: f64,
    /// The same in each second since the first byte.
    pub per_second_mbps: Vec<f64>,
    /// Bytes of the stream in all these seconds.
    pub bytes: u64,
    /// Least round-trip time of the path as this end saw it.
    pub rtt_min_ms: f64,
    /// Mean of its smoothed round-trip time.
    pub rtt_mean_ms: f64,
    /// Share of this end's datagrams that were lost.
    pub loss_rate: f64,
    /// Reconfigurations that this end's path was told of.
    pub reconfigurations: u64,
}

impl Client {
    /// A transfer of 10 s to the server with Cubic and packets of 1500 bytes.
    pub fn new(server: SocketAddr, secret: Secret) -> Self {
        Self {
            server,
            secret,
            toward: Toward::Server,
            seconds: 10,
            controller: ControllerConfig::Cubic,
            packet_bytes: full_packet_bytes(server),
            detection: None,
        }
    }

    /// Makes it.
    ///
    /// # Errors
    /// The server is not reached, has another secret, or goes away.
    pub async fn run(self) -> Result<Transferred, Error> {
        let request = Request::new(self.toward, self.seconds)?;
        let endpoint = Endpoint::bind(EndpointConfig {
            packet_bytes: self.packet_bytes,
            sure_packet_bytes: self.packet_bytes,
            ..EndpointConfig::new(self.secret.client())
        })
        .await?;
        let path = PathSpec {
            controller: self.controller.clone(),
            detection: self.detection,
            ..PathSpec::new("flow", self.server)
        };
        let server = self.secret.server().public_key();
        let session = endpoint.connect(server, vec![path]).await?;
        let result = transfer(&session, request).await;
        endpoint.close().await;
        let (tally, figures) = result?;
        Ok(Transferred {
            toward: self.toward,
            controller: (self.toward == Toward::Server).then(|| self.controller.name().to_owned()),
            throughput_mbps: tally.throughput().mbit(),
            per_second_mbps: tally
                .second_bytes
                .iter()
                .map(|bytes| 8e-6 * real(*bytes))
                .collect(),
            bytes: tally.bytes(),
            rtt_min_ms: figures.rtt_min.as_secs_f64() * 1e3,
            rtt_mean_ms: figures.mean_rtt().as_secs_f64() * 1e3,
            loss_rate: figures.loss_rate,
            reconfigurations: figures.reconfigurations,
        })
    }
}

async fn transfer(session: &Session, request: Request) -> Result<(Tally, Figures), Error> {
    let stream = session.open_bytes(4, request.label()?).await?;
    let (mut reader, mut writer) = stream.into_split();
    let mut figures = Figures::default();
    let work = async {
        match request.toward {
            Toward::Server => {
                fill(&mut writer, Instant::now() + request.time()).await?;
                let mut said = Vec::new();
                let mut answer = (&mut reader).take(MAX_TALLY_BYTES);
                tokio::time::timeout(PATIENCE, answer.read_to_end(&mut said))
                    .await
                    .map_err(|_| failed("the server does not say what arrived"))?
                    .map_err(Error::io("the server went away"))?;
                serde_json::from_slice(&said)
                    .map_err(|error| failed(format!("the server's tally: {error}")))
            }
            Toward::Client => {
                let limit = Instant::now() + request.time() + PATIENCE;
                read_all(&mut reader, request.time(), limit).await
            }
        }
    };
    let watch = async {
        loop {
            figures.sample(session);
            tokio::time::sleep(SAMPLE).await;
        }
    };
    let tally = tokio::select! {
        tally = work => tally,
        () = watch => Err(failed("nothing watches for ever")),
    };
    Ok((tally?, figures))
}

/// The path over time.
#[derive(Debug, Default)]
struct Figures {
    rtt_min: Duration,
    rtt_sum: Duration,
    samples: u32,
    loss_rate: f64,
    reconfigurations: u64,
}

impl Figures {
    fn sample(&mut self, session: &Session) {
        let Some(path) = session.path_status().into_iter().next() else {
            return;
        };
        self.reconfigurations = path.reconfigurations.count;
        let Some(stats) = path.stats else {
            return;
        };
        self.rtt_min = match self.samples {
            0 => stats.min_rtt,
            _ => self.rtt_min.min(stats.min_rtt),
        };
        self.rtt_sum += stats.smoothed_rtt;
        self.samples += 1;
        self.loss_rate = stats.loss_rate;
    }

    fn mean_rtt(&self) -> Duration {
        self.rtt_sum.checked_div(self.samples).unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}
