//! Status reports of bundles that expire or are delivered (RFC 9171 §6.1.1), what applications hear of them, and answers that expire with their
//! request.

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use super::kit::{
    Running, over_ltp,
    source::{NODE, Source},
    stop, udp, until, write,
};
use hardy_bpv7::{
    bpsec::no_keys,
    builder::Builder,
    bundle::{Flags, ParsedBundle},
    creation_timestamp::CreationTimestamp,
    dtn_time::DtnTime,
};
use starhaul_dtn::{Config, Error, Node, files::FileSender};
use starhaul_dtn_client::control::{Client, Message, Report, ReportedStatus};

/// Longer than a bundle takes to its node on a busy computer.
const LIFETIME: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(60);

/// A bundle for a node without a route, whose number tells it from others.
fn bundle(number: u64, asks: bool, report_to: &str) -> Vec<u8> {
    let flags = Flags {
        delete_report_requested: asks,
        ..Flags::default()
    };
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:9.5".parse().unwrap());
    let builder = builder
        .with_flags(flags)
        .with_report_to(report_to.parse().unwrap())
        .with_lifetime(LIFETIME)
        .with_payload(b"too late".as_slice().into());
    let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number);
    builder.build(stamp).unwrap().1.into_vec()
}

async fn reports_of(configured: &str) -> (Vec<u8>, Vec<bytes::Bytes>) {
    let mut source = Source::new();
    let text = format!(
        "node = \"ipn:2.0\"\n{configured}\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        source.driver.local_addr()
    );
    let config = Config::parse(&text, Path::new("node.toml"), SystemTime::now().into()).unwrap();
    let node = Node::start(config).await.unwrap();
    let address = node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    let asking = bundle(77, true, "ipn:1.0");
    source.send(bundle(78, false, "ipn:1.0"));
    source.send(bundle(79, true, "dtn:none"));
    source.send(bundle(80, true, "ipn:0.0"));
    source.send(asking.clone());
    let (enough, patience) = match configured.is_empty() {
        true => (1, PATIENCE),
        false => (1, LIFETIME * 4),
    };
    let source = tokio::task::spawn_blocking(move || {
        source.receive(enough, patience);
        // A second report would come now.
        source.receive(enough + 1, LIFETIME * 2);
        source
    });
    let source = source.await.unwrap();
    let until = Instant::now() + PATIENCE;
    while node.handle().status().counters.expired < 4 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let status = node.handle().status();
    assert_eq!(status.counters.expired, 4);
    assert_eq!(status.storage.bundles, 0, "reports for nobody are kept");
    node.shutdown().await;
    (asking, source.received)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_bundle_is_reported_if_its_source_asked() {
    let (asking, reports) = reports_of("").await;
    let asking = ParsedBundle::parse(&asking, no_keys).unwrap().bundle;
    let [report] = reports.as_slice() else {
        panic!("{} reports of one bundle that asks", reports.len());
    };
    let parsed = ParsedBundle::parse(report, no_keys).unwrap().bundle;
    assert!(parsed.flags.is_admin_record);
    assert_eq!(parsed.id.source.to_string(), "ipn:2.0");
    assert_eq!(parsed.destination.to_string(), "ipn:1.0");
    // Record type 1; neither received nor forwarded nor delivered, but deleted; reason 1, "lifetime expired".
    let record = &report[parsed.blocks[&1].payload_range()];
    let head = [
        0x82, 1, 0x84, 0x84, 0x81, 0xf4, 0x81, 0xf4, 0x81, 0xf4, 0x81, 0xf5, 1,
    ];
    assert_eq!(record[..head.len()], head, "{record:02x?}");
    // It ends with the creation timestamp of the bundle.
    let created = asking.id.timestamp.creation_time().unwrap().millisecs();
    let mut stamp = vec![0x82, 0x1b];
    stamp.extend(created.to_be_bytes());
    stamp.extend([0x18, 77]);
    assert!(record.ends_with(&stamp), "{record:02x?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_report_is_sent_where_they_are_off() {
    let (_, reports) = reports_of("status_reports = false").await;
    assert!(reports.is_empty(), "{reports:?}");
}

/// The next report that an application hears.
async fn heard(client: &mut Client) -> Report {
    assert!(client.has_message(PATIENCE).await.unwrap(), "no report");
    match client.next_message().await.unwrap() {
        Message::Report(report) => report,
        Message::Bundle(bundle) => panic!("{bundle:?} in place of a report"),
    }
}

/// A lander and an orbiter, which is asked to carry what is for the station, and has no way there.
async fn lander_and_orbiter() -> [Running; 2] {
    let (a, b) = (udp(), udp());
    let route = "[[route]]\nto = \"ipn:3.*\"\nvia = \"ipn:2.0\"";
    let lander = Running::start(&over_ltp(1, a, 2, b, route)).await;
    let orbiter = Running::start(&over_ltp(2, b, 1, a, "")).await;
    [lander, orbiter]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_hears_where_its_bundle_was_deleted_and_why() {
    let [lander, orbiter] = lander_and_orbiter().await;
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    // Here, and at the next node: that one's report comes over the link.
    for (to, node) in [("ipn:9.5", "ipn:1.0"), ("ipn:3.5", "ipn:2.0")] {
        let id = client.send_reported(to, b"too late", LIFETIME).await;
        let expected = Report {
            id: id.unwrap(),
            node: node.to_owned(),
            fate: ReportedStatus::Deleted,
            reason: Some("lifetime expired".to_owned()),
        };
        assert_eq!(heard(&mut client).await, expected);
    }
    // What the lander has sent on was not deleted there: of the second bundle, one report alone was made.
    until(&lander, "one report has come", |status| {
        (status.counters.received, status.storage.bundles) == (1, 0)
    })
    .await;
    until(&orbiter, "nothing stays behind", |status| {
        status.storage.bundles == 0
    })
    .await;
    // Who asks for no report gets none.
    client.send("ipn:9.5", b"too late", LIFETIME).await.unwrap();
    assert!(!client.has_message(LIFETIME * 2).await.unwrap());
    drop(client);
    stop([lander, orbiter]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_hears_of_a_delivery_once() {
    let [lander, orbiter] = lander_and_orbiter().await;
    let mut receiver = orbiter.client().await;
    receiver.open(Some("5")).await.unwrap();
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    let id = client.send_reported("ipn:2.5", b"in time", PATIENCE).await;
    let bundle = receiver.next_bundle().await.unwrap();
    receiver.acknowledge(&bundle.id).await.unwrap();
    let expected = Report {
        id: id.unwrap(),
        node: "ipn:2.0".to_owned(),
        fate: ReportedStatus::Delivered,
        reason: None,
    };
    assert_eq!(heard(&mut client).await, expected);
    // That it was deleted then would come now.
    assert!(!client.has_message(LIFETIME).await.unwrap());
    drop((client, receiver));
    stop([lander, orbiter]).await;
}

/// It would wait for the far side's answer, which cannot come any more.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_expire_on_their_way_end_the_transfer_with_the_reason() {
    let [lander, orbiter] = lander_and_orbiter().await;
    let file = write(lander.folder.path(), "picture", b"a picture");
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    let sender = FileSender::open(&[file]).unwrap().with_reports();
    let sending = sender.run(&mut client, "ipn:3.100", LIFETIME, Some(PATIENCE), |_| {});
    let error = sending.await.unwrap_err();
    let Error::Deleted { node, reason } = error else {
        panic!("{error}");
    };
    assert_eq!(
        (node.as_str(), reason.as_str()),
        ("ipn:2.0", "lifetime expired")
    );
    drop(client);
    stop([lander, orbiter]).await;
}

/// Each search for what waits would read it, until it expires after a day.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_for_an_application_that_has_left_for_ever_ends() {
    let [lander, orbiter] = lander_and_orbiter().await;
    for to in ["ipn:9.5", "ipn:3.5"] {
        let mut client = lander.client().await;
        client.open(None).await.unwrap();
        client
            .send_reported(to, b"too late", LIFETIME)
            .await
            .unwrap();
    }
    for (running, what) in [(&orbiter, "the report has left"), (&lander, "it has ended")] {
        until(running, what, |status| {
            (status.counters.expired, status.storage.bundles) == (1, 0)
        })
        .await;
    }
    until(
        &lander,
        "the orbiter's report has come and ended",
        |status| (status.counters.received, status.storage.bundles) == (1, 0),
    )
    .await;
    stop([lander, orbiter]).await;
}

/// An echo that answers another one's answer, under a name by which it is not known for one, does so for the lifetime of the first request:
/// each answer has what is left of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_echo_lives_no_longer_than_its_question() {
    let mut source = Source::new();
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"dtn://source/\"\nengine = 1\naddress = \"{}\"\n",
        source.driver.local_addr()
    );
    let config = Config::parse(&text, Path::new("node.toml"), SystemTime::now().into()).unwrap();
    let node = Node::start(config).await.unwrap();
    source
        .driver
        .set_address(NODE, node.handle().ltp_address().unwrap());
    let (lifetime, age) = (Duration::from_secs(60), Duration::from_secs(50));
    let now = DtnTime::now().millisecs();
    let asked = DtnTime::new(now - u64::try_from(age.as_millis()).unwrap());
    let builder = Builder::new(
        "dtn://source/echo".parse().unwrap(),
        "ipn:2.7".parse().unwrap(),
    );
    let builder = builder.with_lifetime(lifetime);
    let builder = builder.with_payload(b"hello".as_slice().into());
    let question = builder.build(CreationTimestamp::from_parts(Some(asked), 1));
    source.send(question.unwrap().1.into_vec());
    let source = tokio::task::spawn_blocking(move || {
        source.receive(1, PATIENCE);
        source
    });
    let source = source.await.unwrap();
    let answer = ParsedBundle::parse(&source.received[0], no_keys)
        .unwrap()
        .bundle;
    assert_eq!(answer.id.source.to_string(), "ipn:2.7");
    assert!(answer.lifetime <= lifetime - age, "{:?}", answer.lifetime);
    assert!(answer.lifetime > Duration::ZERO);
    node.shutdown().await;
}

/// Bundles that come under a key of former times, for one: what is dropped was not delivered.
#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_no_application_may_have_is_reported_as_deleted() {
    let mut source = Source::new();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sign.key", &[7; 32]);
    let text = format!(
        "node = \"ipn:2.0\"\nstatus_reports = true\n[storage]\nkind = \"memory\"\n\
         [security]\nsign_key = \"sign.key\"\nrequire = true\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        source.driver.local_addr()
    );
    let running = Running::start_in(folder, &text).await;
    let mut client = running.client().await;
    client.open(Some("5")).await.unwrap();
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    let flags = Flags {
        delete_report_requested: true,
        delivery_report_requested: true,
        ..Flags::default()
    };
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder
        .with_flags(flags)
        .with_report_to("ipn:1.0".parse().unwrap())
        .with_lifetime(PATIENCE * 3)
        .with_payload(b"not signed".as_slice().into());
    let unsigned = builder.build(CreationTimestamp::now()).unwrap().1;
    source.send(unsigned.into_vec());
    let source = tokio::task::spawn_blocking(move || {
        source.receive(1, PATIENCE);
        // A second report would come now.
        source.receive(2, LIFETIME * 2);
        source
    });
    let source = source.await.unwrap();
    let [report] = source.received.as_slice() else {
        panic!("{} reports", source.received.len());
    };
    let parsed = ParsedBundle::parse(report, no_keys).unwrap().bundle;
    let record = &report[parsed.blocks[&1].payload_range()];
    // Deleted, and neither received nor forwarded nor delivered; reason 12, "missing security operation".
    let head = [
        0x82, 1, 0x84, 0x84, 0x81, 0xf4, 0x81, 0xf4, 0x81, 0xf4, 0x81, 0xf5, 12,
    ];
    assert_eq!(record[..head.len()], head, "{record:02x?}");
    until(&running, "it is gone", |status| status.storage.bundles == 0).await;
    drop(client);
    stop([running]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_as_it_comes_is_not_counted_as_received() {
    let mut source = Source::new();
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        source.driver.local_addr()
    );
    let running = Running::start(&text).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    let created = |ago: u64, number| {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:9.5".parse().unwrap());
        let builder = builder.with_lifetime(PATIENCE * 3);
        let builder = builder.with_payload(b"x".as_slice().into());
        let at = DtnTime::new(DtnTime::now().millisecs() - ago);
        let stamp = CreationTimestamp::from_parts(Some(at), number);
        builder.build(stamp).unwrap().1.into_vec()
    };
    let good = created(0, 1);
    source.send(b"no bundle".to_vec());
    source.send(created(3_600_000, 2));
    source.send(good.clone());
    source.send(good);
    let source = tokio::task::spawn_blocking(move || {
        source.receive(1, LIFETIME);
        source
    });
    let source = source.await.unwrap();
    until(&running, "one of four is received", |status| {
        let counters = &status.counters;
        (counters.received, counters.dropped) == (1, 2)
    })
    .await;
    drop(source);
    stop([running]).await;
}
