//! Whole nodes over loopback: files, contacts that open and close, keys, full stores, garbage.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    path::Path,
    time::{Duration, SystemTime},
};

use super::kit::{LIFETIME, Running, connected, content, over_ltp, stop, tcp, udp, until, write};
use starhaul_dtn::{Config, ECHO, Node, plan::Moment};
use starhaul_dtn_client::endpoint_of;
use tempfile::TempDir;

/// A folder crosses LTP and TCPCLv4, over a node between; an answer comes back the same way.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_crosses_ltp_and_tcp() {
    let (a, b, c) = (udp(), udp(), tcp());
    let first = over_ltp(1, a, 2, b, "[[route]]\nto = \"ipn:3.*\"\nvia = \"ipn:2.0\"");
    let lander = Running::start(&first).await;
    let middle = over_ltp(2, b, 1, a, "");
    let orbiter = Running::start(&format!(
        "{middle}[tcp]\n[[tcp.peer]]\nnode = \"ipn:3.0\"\naddress = \"{c}\""
    ))
    .await;
    let last = format!(
        "node = \"ipn:3.0\"\n[storage]\nkind = \"memory\"\n[tcp]\nlisten = \"{c}\"\n[[tcp.peer]]\nnode = \"ipn:2.0\"\n\
         [[route]]\nto = \"ipn:1.*\"\nvia = \"ipn:2.0\""
    );
    let station = Running::start(&last).await;
    let (received, _task) = station.receive_files().await;
    let folder = lander.folder.path().join("pictures");
    let contents = [
        ("one.bin", content(3_000_000, 1)),
        ("deep/two.bin", content(10, 2)),
        ("deep/empty", Vec::new()),
    ];
    for (name, content) in &contents {
        write(&folder, name, content);
    }
    lander
        .send_files(std::slice::from_ref(&folder), "ipn:3.0")
        .await
        .unwrap();
    for (name, content) in &contents {
        assert_eq!(
            fs::read(received.join("pictures").join(name)).unwrap(),
            *content,
            "{name}"
        );
    }
    // Once more changes nothing; another content under the same name is told to its sender.
    lander
        .send_files(std::slice::from_ref(&folder), "ipn:3.0")
        .await
        .unwrap();
    write(&folder, "deep/two.bin", b"another");
    let error = lander.send_files(&[folder.join("deep")], "ipn:3.0").await;
    assert!(error.is_ok(), "{error:?}: it has another path there");
    let error = lander.send_files(&[folder], "ipn:3.0").await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("exists already with another content"),
        "{error}"
    );
    // The station's echo answers the lander.
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    let echo = endpoint_of("ipn:3.0", ECHO).unwrap();
    client
        .send(&echo, b"are you there?", LIFETIME)
        .await
        .unwrap();
    assert!(client.has_bundle(LIFETIME).await.unwrap());
    let answer = client.next_bundle().await.unwrap();
    client.acknowledge(&answer.id).await.unwrap();
    assert_eq!(answer.payload, b"are you there?");
    // Answers to commands that ended before them stay at the lander.
    for running in [&orbiter, &station] {
        until(running, "nothing stays behind", |status| {
            status.storage.bundles == 0
        })
        .await;
    }
    stop([lander, orbiter, station]).await;
}

/// While no contact is open, bundles stay; `status` tells when they leave. Then they go the way that arrives first.
#[tokio::test(flavor = "multi_thread")]
async fn bundles_wait_for_their_contact() {
    let (a, b) = (udp(), udp());
    // After both have started and the file is stored, on a busy computer too.
    let epoch = Moment::from(SystemTime::now()).plus(Duration::from_secs(8));
    let plan = format!(
        "epoch = \"{epoch}\"\n[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+0s\"\nend = \"+20s\"\nrate = \"1gbit\"\n"
    );
    let lander = Running::start(&over_ltp(1, a, 2, b, &plan)).await;
    let station = Running::start(&over_ltp(2, b, 1, a, &plan)).await;
    let (received, _task) = station.receive_files().await;
    let picture = write(lander.folder.path(), "picture", &content(200_000, 3));
    let sending = lander.send_files(std::slice::from_ref(&picture), "ipn:2.0");
    let watching = async {
        until(&lander, "it is stored", |status| {
            status.storage.bundles == 1
        })
        .await;
        let status = lander.client().await.status().await.unwrap();
        assert_eq!(status.stored[0].next_hop.as_deref(), Some("ipn:2.0"));
        assert_eq!(status.stored[0].leaves, Some(epoch.to_string()));
        assert!(!status.neighbours[0].is_open && status.counters.sent == 0);
        assert!(!received.join("picture").exists());
    };
    let (sent, ()) = tokio::join!(sending, watching);
    sent.unwrap();
    assert!(Moment::from(SystemTime::now()) > epoch);
    assert_eq!(
        fs::read(received.join("picture")).unwrap(),
        content(200_000, 3)
    );
    stop([lander, station]).await;
}

/// What was stored when a node ended is delivered by its next life.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_started_anew_delivers_what_it_held() {
    let (a, b) = (udp(), udp());
    let (first, last) = (over_ltp(1, a, 2, b, ""), over_ltp(2, b, 1, a, ""));
    let lander = Running::start(&first).await;
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    for number in 0_u32..20 {
        client
            .send("ipn:2.5", &number.to_be_bytes(), LIFETIME)
            .await
            .unwrap();
    }
    drop(client);
    let folder = lander.stop().await;
    let lander = Running::start_in(folder, &first).await;
    assert_eq!(
        lander
            .client()
            .await
            .status()
            .await
            .unwrap()
            .storage
            .bundles,
        20
    );
    let station = Running::start(&last).await;
    // No application is at the endpoint yet: they wait, also through an end of the station.
    until(&station, "all have come", |status| {
        status.storage.bundles == 20
    })
    .await;
    until(&lander, "all are acknowledged", |status| {
        status.storage.bundles == 0
    })
    .await;
    let folder = station.stop().await;
    let station = Running::start_in(folder, &last).await;
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    let mut numbers = Vec::new();
    for _ in 0..20 {
        assert!(client.has_bundle(LIFETIME).await.unwrap(), "{numbers:?}");
        let bundle = client.next_bundle().await.unwrap();
        numbers.push(u32::from_be_bytes(bundle.payload.try_into().unwrap()));
        client.acknowledge(&bundle.id).await.unwrap();
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    until(&station, "nothing stays", |status| {
        status.storage.bundles == 0
    })
    .await;
    stop([lander, station]).await;
}

/// Bytes of a payload that is not in the log.
const IN_A_FILE: usize = 1_100_000;

/// Data that are gone, and data that belong to no bundle, do not keep a node from starting, however often.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_store_is_used_as_far_as_it_goes() {
    let (a, b) = (udp(), udp());
    let text = over_ltp(1, a, 2, b, "");
    let mut lander = Running::start(&text).await;
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    for number in 0..4_u8 {
        client
            .send("ipn:2.5", &vec![number; IN_A_FILE], LIFETIME)
            .await
            .unwrap();
    }
    drop(client);
    let folder = lander.stop().await;
    let data = folder.path().join("bundles/data");
    let mut files = Vec::new();
    let mut folders = vec![data.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    assert_eq!(files.len(), 4);
    fs::remove_file(&files[0]).unwrap();
    fs::write(&files[1], &fs::read(&files[1]).unwrap()[..500]).unwrap();
    fs::copy(&files[2], data.join("00000000")).unwrap();
    lander = Running::start_in(folder, &text).await;
    until(&lander, "two are left", |status| {
        status.storage.bundles == 2
    })
    .await;
    let folder = lander.stop().await;
    lander = Running::start_in(folder, &text).await;
    until(&lander, "two are left", |status| {
        status.storage.bundles == 2
    })
    .await;
    stop([lander]).await;
}

/// A full station refuses, the lander keeps, and all arrives when there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_pushes_back() {
    let (a, b) = (udp(), udp());
    let lander = Running::start(&over_ltp(1, a, 2, b, "")).await;
    let last =
        over_ltp(2, b, 1, a, "").replace("sync = false", "kind = \"memory\"\nmax_bundles = 5");
    let station = Running::start(&last).await;
    let mut sender = lander.client().await;
    sender.open(None).await.unwrap();
    for number in 0..12_u8 {
        sender
            .send("ipn:2.5", &[number; 1000], LIFETIME)
            .await
            .unwrap();
    }
    until(&station, "it refuses", |status| {
        status.counters.refused > 0 && !status.limits_met.is_empty()
    })
    .await;
    let held = station
        .client()
        .await
        .status()
        .await
        .unwrap()
        .storage
        .bundles;
    assert!(held <= 5, "{held} bundles");
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 12 {
        assert!(client.has_bundle(LIFETIME).await.unwrap(), "{seen:?}");
        let bundle = client.next_bundle().await.unwrap();
        assert!(
            seen.insert(bundle.payload[0]),
            "{} came twice",
            bundle.payload[0]
        );
        client.acknowledge(&bundle.id).await.unwrap();
    }
    stop([lander, station]).await;
}

/// An application has bundles and acknowledges none, and a neighbour over TCPCLv4 waits for room: the node ends all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_ends_while_others_wait_for_it() {
    let address = tcp();
    let storage = "[storage]\nkind = \"memory\"\n";
    let last = format!(
        "node = \"ipn:2.0\"\n{storage}max_bundles = 3\n[tcp]\nlisten = \"{address}\"\n[[tcp.peer]]\nnode = \"ipn:1.0\"\n"
    );
    let first = format!(
        "node = \"ipn:1.0\"\n{storage}[tcp]\n[[tcp.peer]]\nnode = \"ipn:2.0\"\naddress = \"{address}\"\n"
    );
    let station = Running::start(&last).await;
    let lander = Running::start(&first).await;
    let mut receiver = station.client().await;
    receiver.open(Some("5")).await.unwrap();
    let mut sender = lander.client().await;
    sender.open(None).await.unwrap();
    for number in 0..8_u8 {
        sender.send("ipn:2.5", &[number], LIFETIME).await.unwrap();
    }
    until(&station, "it is full", |status| {
        !status.limits_met.is_empty()
    })
    .await;
    assert!(receiver.has_bundle(LIFETIME).await.unwrap());
    stop([station, lander]).await;
}

/// The neighbour is not there, and the agent may send to it at any time: nothing waits for a route.
#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_for_a_neighbour_that_is_away_expires() {
    let (a, b) = (udp(), udp());
    let lander = Running::start(&over_ltp(1, a, 2, b, "")).await;
    let mut sender = lander.client().await;
    sender.open(None).await.unwrap();
    let short = Duration::from_millis(300);
    for number in 0..5_u8 {
        sender.send("ipn:2.5", &[number], short).await.unwrap();
    }
    sender.send("ipn:2.5", b"lives", LIFETIME).await.unwrap();
    tokio::time::sleep(3 * short).await;
    let station = Running::start(&over_ltp(2, b, 1, a, "")).await;
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    assert!(client.has_bundle(LIFETIME).await.unwrap());
    assert_eq!(client.next_bundle().await.unwrap().payload, b"lives");
    until(&lander, "they expire", |status| {
        status.counters.expired == 5 && status.storage.bundles <= 1
    })
    .await;
    stop([lander, station]).await;
}

/// More bundles than a node delivers at a time are for an application that takes none of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_takes_nothing_stops_no_other() {
    let (a, b) = (udp(), udp());
    let lander = Running::start(&over_ltp(1, a, 2, b, "")).await;
    let station = Running::start(&over_ltp(2, b, 1, a, "")).await;
    let (mut idle, mut busy) = (station.client().await, station.client().await);
    idle.open(Some("5")).await.unwrap();
    busy.open(Some("6")).await.unwrap();
    let mut sender = lander.client().await;
    sender.open(None).await.unwrap();
    for number in 0..400_u32 {
        let payload = number.to_be_bytes();
        sender.send("ipn:2.5", &payload, LIFETIME).await.unwrap();
    }
    until(&station, "all have come", |status| {
        status.storage.bundles == 400
    })
    .await;
    sender.send("ipn:2.6", b"other", LIFETIME).await.unwrap();
    assert!(busy.has_bundle(LIFETIME).await.unwrap());
    let bundle = busy.next_bundle().await.unwrap();
    assert_eq!(bundle.payload, b"other");
    busy.acknowledge(&bundle.id).await.unwrap();
    // Each is there when it is wanted, and once.
    let mut numbers = std::collections::BTreeSet::new();
    while numbers.len() < 400 {
        let seen = numbers.len();
        assert!(idle.has_bundle(LIFETIME).await.unwrap(), "{seen} came");
        let bundle = idle.next_bundle().await.unwrap();
        let number = u32::from_be_bytes(bundle.payload.try_into().unwrap());
        assert!(numbers.insert(number), "{number} came twice");
        idle.acknowledge(&bundle.id).await.unwrap();
    }
    stop([lander, station]).await;
}

/// Two applications take nothing: a third gets its bundle all the same.
#[tokio::test(flavor = "multi_thread")]
async fn applications_that_take_nothing_leave_room_for_others() {
    let (a, b) = (udp(), udp());
    let station =
        Running::start(&over_ltp(2, b, 1, a, "").replace("sync = false", "kind = \"memory\""))
            .await;
    let (first, second) = (station.client().await, station.client().await);
    let (mut busy, mut sender) = (station.client().await, station.client().await);
    let mut idle = [first, second];
    for (client, name) in idle.iter_mut().zip(["5", "6"]) {
        client.open(Some(name)).await.unwrap();
    }
    busy.open(Some("8")).await.unwrap();
    sender.open(None).await.unwrap();
    for number in 0..300_u32 {
        for to in ["ipn:2.5", "ipn:2.6"] {
            let payload = number.to_be_bytes();
            sender.send(to, &payload, LIFETIME).await.unwrap();
        }
    }
    for number in 0..3_u8 {
        sender.send("ipn:2.8", &[number], LIFETIME).await.unwrap();
        assert!(busy.has_bundle(LIFETIME).await.unwrap());
        let bundle = busy.next_bundle().await.unwrap();
        assert_eq!(bundle.payload, [number]);
        busy.acknowledge(&bundle.id).await.unwrap();
    }
    stop([station]).await;
}

/// A bundle waits for its application while many times as many pass as a store in memory may hold.
#[tokio::test(flavor = "multi_thread")]
async fn bundles_that_pass_do_not_drive_out_one_that_waits() {
    let text = over_ltp(2, udp(), 1, udp(), "")
        .replace("sync = false", "kind = \"memory\"\nmax_bundles = 5");
    let station = Running::start(&text).await;
    let (mut sender, mut busy) = (station.client().await, station.client().await);
    sender.open(None).await.unwrap();
    busy.open(Some("5")).await.unwrap();
    sender.send("ipn:2.6", b"waits", LIFETIME).await.unwrap();
    for number in 0..40_u8 {
        sender.send("ipn:2.5", &[number], LIFETIME).await.unwrap();
        assert!(busy.has_bundle(LIFETIME).await.unwrap());
        let bundle = busy.next_bundle().await.unwrap();
        assert_eq!(bundle.payload, [number]);
        busy.acknowledge(&bundle.id).await.unwrap();
        until(&station, "it is removed", |status| {
            status.storage.bundles == 1
        })
        .await;
    }
    let mut late = station.client().await;
    late.open(Some("6")).await.unwrap();
    assert!(late.has_bundle(LIFETIME).await.unwrap());
    let bundle = late.next_bundle().await.unwrap();
    assert_eq!(bundle.payload, b"waits");
    late.acknowledge(&bundle.id).await.unwrap();
    until(&station, "nothing stays", |status| {
        status.storage.bundles == 0
    })
    .await;
    stop([station]).await;
}

/// What is larger than a bundle may be is refused with the reason, and the connection goes on.
#[tokio::test(flavor = "multi_thread")]
async fn too_large_a_payload_is_refused_with_the_reason() {
    let text = over_ltp(2, udp(), 1, udp(), "")
        .replace("sync = false", "sync = false\nmax_bundle_bytes = \"1KiB\"");
    let station = Running::start(&text).await;
    let mut sender = station.client().await;
    sender.open(None).await.unwrap();
    // More than the socket buffers.
    for length in [1025, 5_000_000] {
        let refused = sender.send("ipn:1.5", &vec![7; length], LIFETIME).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("max_bundle_bytes"), "{error}");
        sender.send("ipn:1.5", &[7; 800], LIFETIME).await.unwrap();
    }
    // Nor is a file sent whose name alone fills a bundle.
    let folder = "a long name ".repeat(20);
    let name = [folder.as_str(); 5].join("/");
    let folder = write(station.folder.path(), &name, b"x");
    let top = folder.ancestors().nth(4).unwrap().to_owned();
    let error = station.send_files(&[top], "ipn:1.0").await.unwrap_err();
    assert!(error.to_string().contains("max_bundle_bytes"), "{error}");
    stop([station]).await;
}

/// A start that fails leaves nothing behind: the next one can use the same addresses.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_start_gives_its_addresses_back() {
    let (a, occupied) = (udp(), TcpListener::bind("127.0.0.1:0").unwrap());
    let taken = occupied.local_addr().unwrap();
    let text = over_ltp(2, a, 1, udp(), "").replace("sync = false", "kind = \"memory\"");
    let text = format!("{text}[tcp]\nlisten = \"{taken}\"\n");
    let config = Config::parse(&text, Path::new("node.toml"), SystemTime::now().into()).unwrap();
    let error = Node::start(config).await.err().unwrap();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    UdpSocket::bind(a).unwrap();
}

/// With keys at both ends payloads arrive; without the key, or with another, an application gets nothing.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_keys_open_a_payload() {
    for (station_key, is_delivered) in [(Some(7), true), (Some(8), false), (None, false)] {
        let (a, b) = (udp(), udp());
        let (first, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let keys = |folder: &TempDir, byte: u8| {
            write(folder.path(), "sign.key", &[byte; 32]);
            write(folder.path(), "encrypt.key", &[byte + 1; 32]);
            "[security]\nsign_key = \"sign.key\"\nencrypt_key = \"encrypt.key\"\nrequire = true\n"
        };
        let text = over_ltp(1, a, 2, b, "") + keys(&first, 7);
        let lander = Running::start_in(first, &text).await;
        let security = station_key.map_or("", |byte| keys(&last, byte));
        let text = over_ltp(2, b, 1, a, "") + security;
        let station = Running::start_in(last, &text).await;
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        let mut sender = lander.client().await;
        sender.open(None).await.unwrap();
        sender.send("ipn:2.5", b"a secret", LIFETIME).await.unwrap();
        until(&lander, "it is taken", |status| status.storage.bundles == 0).await;
        let patience = Duration::from_millis(if is_delivered { 60_000 } else { 700 });
        assert_eq!(
            client.has_bundle(patience).await.unwrap(),
            is_delivered,
            "key {station_key:?}"
        );
        if is_delivered {
            assert_eq!(client.next_bundle().await.unwrap().payload, b"a secret");
        }
        stop([lander, station]).await;
    }
}

/// Garbage at every door: the node goes on serving, and holds nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_dropped_and_others_are_served() {
    let (a, b, c) = (udp(), udp(), tcp());
    let lander = Running::start(&over_ltp(1, a, 2, b, "")).await;
    let text = over_ltp(2, b, 1, a, "") + &format!("[tcp]\nlisten = \"{c}\"\n");
    let station = Running::start(&text).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in 0..600 {
        stranger
            .send_to(&content(length, length as u64), b)
            .unwrap();
    }
    let connections: Vec<_> = (0..20)
        .map(|seed| {
            let mut stream = connected(c);
            let header: &[u8] = if seed % 2 == 0 { b"dtn!\x04\x00" } else { b"" };
            // The node may have closed it by then.
            let _ =
                std::io::Write::write_all(&mut stream, &[header, &content(5000, seed)].concat());
            stream
        })
        .collect();
    // A bundle of a peer that is none, in a block of the peer.
    let mut control =
        std::os::unix::net::UnixStream::connect(station.folder.path().join("control.sock"))
            .unwrap();
    std::io::Write::write_all(&mut control, &content(5000, 9)).unwrap();
    let (received, _task) = station.receive_files().await;
    let picture = write(lander.folder.path(), "picture", &content(100_000, 4));
    lander.send_files(&[picture], "ipn:2.0").await.unwrap();
    assert_eq!(
        fs::read(received.join("picture")).unwrap(),
        content(100_000, 4)
    );
    until(&station, "nothing is held", |status| {
        status.storage.bundles == 0 && status.counters.ltp_strangers > 0
    })
    .await;
    drop(connections);
    stop([lander, station]).await;
}

#[test]
fn the_sample_and_wrong_configurations() {
    let parse = |text: &str| {
        Config::parse(text, Path::new("node.toml"), Moment::default())
            .map_err(|error| error.to_string())
    };
    let config = parse(&Config::sample()).unwrap();
    let described = config.describe(Moment::default());
    for said in [
        "node ipn:1.0",
        "LTP: engine 1",
        "ipn:2.0: engine 2",
        "30 contacts",
        "ipn:2.0: 1 MB arrives at 1970-01-01T00:00:01.331",
    ] {
        assert!(described.contains(said), "{said} is not in\n{described}");
    }
    for (from, to, said) in [
        (
            "light_time =",
            "light_tim =",
            "[[ltp.peer]]: unknown key \"light_tim\"; did you mean \"light_time\"?",
        ),
        (
            "kind = \"disk\"",
            "kind = \"disc\"",
            "did you mean \"disk\"?",
        ),
        (
            "node = \"ipn:1.0\"",
            "node = \"ipn:1\"",
            "is no node: write ipn:2.0 or dtn://orbiter/",
        ),
        (
            "node = \"ipn:2.0\"",
            "node = \"ipn:1.0\"",
            "this is the node itself",
        ),
        (
            "via = \"ipn:9.0\"",
            "via = \"ipn:9.4\"",
            "via: \"ipn:9.4\" is no node",
        ),
        (
            "to = \"ipn:9.*\"",
            "to = \"*9\"",
            "is no pattern of endpoints",
        ),
        ("[ltp]", "[lpt]", "did you mean \"ltp\"?"),
    ] {
        let wrong = Config::sample().replacen(from, to, 1);
        let error = parse(&wrong).unwrap_err();
        assert!(error.contains(said), "{error}");
        if let Some(line) = wrong
            .lines()
            .position(|line| line.starts_with("light_tim ="))
        {
            let place = format!("node.toml:{}: ", line + 1);
            assert!(error.starts_with(&place), "{error}");
        }
    }
    assert!(
        parse("node = \"ipn:1.0\"")
            .unwrap_err()
            .contains("the node talks to nobody")
    );
}
