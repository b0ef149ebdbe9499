//! A dish behind an endpoint that only accepts: its prober follows the paths that peers open, and ends with them.

use std::time::{Duration, Instant};

use starhaul_endpoint::{
    BlockOptions, Detection, Endpoint, EndpointConfig, Identity, PathSpec, ProbeMethod,
    Reconfiguration, ReconfigurationSource, Session, StreamConfig,
    prober::{ProbedBy, ProberStatus, Stage},
};

/// What the first of the session's probers says, once it satisfies `ready`.
async fn prober_when(session: &Session, ready: impl Fn(&ProberStatus) -> bool) -> ProberStatus {
    let look = async {
        loop {
            let found = session.path_probers().into_values().next();
            match found.filter(&ready) {
                Some(status) => return status,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), look).await;
    found.unwrap_or_else(|_| panic!("{:?}", session.path_probers()))
}

/// Both ends over loopback, with a dish at the one that accepts.
async fn ends() -> (Endpoint, Endpoint, Session, Session) {
    let identity = Identity::generate();
    let server_identity = Identity::generate();
    let config = EndpointConfig {
        trusted: vec![identity.public_key()],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        accept_detection: Some(Detection {
            method: ProbeMethod::Udp,
            ..Detection::default()
        }),
        accept_interface: Some("lo".to_owned()),
        ..EndpointConfig::new(server_identity.clone())
    };
    let server = Endpoint::bind(config).await.unwrap();
    let client = Endpoint::bind(EndpointConfig::new(identity)).await.unwrap();
    let path = PathSpec::new("to the dish", server.listen_addresses()[0]);
    let connected = client.connect(server_identity.public_key(), vec![path]);
    let ours = connected.await.unwrap();
    let theirs = server.accept().await.unwrap();
    (client, server, ours, theirs)
}

/// It takes 10 s until the prober is sure that nothing flows.
#[tokio::test]
async fn a_prober_rests_while_nothing_flows_and_works_as_soon_as_something_does() {
    let (_client, _server, ours, theirs) = ends().await;
    let rested = prober_when(&theirs, |status| status.resting).await;
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = prober_when(&theirs, |_| true).await;
    let (sent, seconds) = (later.sent - rested.sent, begun.elapsed().as_secs());
    // What the last report before it rested did not count comes on top.
    assert!(
        sent <= seconds + 2 + 30,
        "{sent} probes in {seconds} s: {later:?}"
    );
    let stream = ours.open_stream(StreamConfig::default()).await.unwrap();
    let block = stream.send_block(vec![7; 100].into(), BlockOptions::default());
    block.unwrap();
    let awake = prober_when(&theirs, |status| !status.resting).await;
    prober_when(&theirs, |status| status.answered > awake.answered + 50).await;
}

#[tokio::test]
async fn the_accepting_end_probes_its_dish_toward_whoever_connects_and_tells_their_paths() {
    let (_client, server, ours, theirs) = ends().await;

    // The peer's socket answers, although the peer lets no strangers in.
    let status = prober_when(&theirs, |status| status.answered > 5).await;
    let Stage::Probing { target, by, .. } = status.stage else {
        panic!("{status:?}")
    };
    assert_eq!(
        (target.to_string().as_str(), by),
        ("127.0.0.1", ProbedBy::UdpEcho)
    );
    assert!(ours.path_probers().is_empty(), "the dish is not here");

    let event = Reconfiguration {
        at: Instant::now(),
        outage: Duration::from_millis(68),
        source: ReconfigurationSource::Schedule,
        confidence: 0.6,
    };
    assert_eq!(server.report_reconfiguration("eth7", event), 0);
    assert_eq!(server.report_reconfiguration("lo", event), 1);
    assert_eq!(theirs.path_status()[0].reconfigurations.count, 1);

    ours.close("done").await;
    theirs.closed().await;
    assert!(theirs.path_probers().is_empty());
}
