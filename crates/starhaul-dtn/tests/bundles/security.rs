//! Payloads that are signed or encrypted (RFC 9172): each key alone, and what is changed on the way.

use std::time::Duration;

use super::kit::{
    LIFETIME, Running, content, over_ltp,
    source::{NODE, SOURCE, Source},
    stop, udp, until, write,
};
use hardy_bpv7::{bpsec::no_keys, bundle::ParsedBundle};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// In which what should not come would.
const A_WHILE: Duration = Duration::from_millis(100);

/// The keys of a node, by their bytes.
#[derive(Clone, Copy, Debug)]
struct Keys {
    sign: Option<u8>,
    encrypt: Option<u8>,
    require: bool,
}

const NONE: Keys = Keys {
    sign: None,
    encrypt: None,
    require: false,
};
const SIGN: Keys = Keys {
    sign: Some(7),
    ..NONE
};
const ENCRYPT: Keys = Keys {
    encrypt: Some(7),
    ..NONE
};
const BOTH: Keys = Keys {
    encrypt: Some(7),
    ..SIGN
};

impl Keys {
    const fn required(self) -> Self {
        Self {
            require: true,
            ..self
        }
    }

    /// Writes their files, and returns what the configuration says of them.
    fn write(self, folder: &TempDir) -> String {
        let mut text = "[security]\n".to_owned();
        for (kind, key) in [("sign", self.sign), ("encrypt", self.encrypt)] {
            if let Some(byte) = key {
                write(folder.path(), &format!("{kind}.key"), &[byte; 32]);
                text += &format!("{kind}_key = \"{kind}.key\"\n");
            }
        }
        text + &format!("require = {}\n", self.require)
    }
}

/// What becomes of a payload where it is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Delivered,
    /// No application may have it.
    Removed,
    /// Its key may be configured before it expires.
    Waits,
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_alone_protects_what_it_is_for() {
    let another_sign = Keys {
        sign: Some(8),
        ..NONE
    };
    let another_encrypt = Keys {
        encrypt: Some(8),
        ..NONE
    };
    for (sender, receiver, fate) in [
        // Integrity only: who has no key can read it, and who has another sees that it is not what he asks for.
        (SIGN, SIGN.required(), Fate::Delivered),
        (SIGN, another_sign, Fate::Removed),
        (SIGN, NONE, Fate::Delivered),
        (SIGN, ENCRYPT.required(), Fate::Removed),
        // Confidentiality only.
        (ENCRYPT, ENCRYPT.required(), Fate::Delivered),
        (ENCRYPT, another_encrypt, Fate::Removed),
        (ENCRYPT, NONE, Fate::Waits),
        (ENCRYPT, SIGN.required(), Fate::Removed),
        // Both: the signature is encrypted, too, and a node without the key for that cannot find that it is wrong.
        (BOTH, BOTH.required(), Fate::Delivered),
        (BOTH, SIGN, Fate::Waits),
        (BOTH, SIGN.required(), Fate::Waits),
        (BOTH, NONE, Fate::Waits),
        (BOTH, another_encrypt, Fate::Removed),
        // Neither.
        (NONE, ENCRYPT.required(), Fate::Removed),
    ] {
        let what = format!("from {sender:?} to {receiver:?}");
        let (a, b) = (udp(), udp());
        let (first, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = over_ltp(1, a, 2, b, "") + &sender.write(&first);
        let lander = Running::start_in(first, &text).await;
        let text = over_ltp(2, b, 1, a, "") + &receiver.write(&last);
        let station = Running::start_in(last, &text).await;
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        let mut source = lander.client().await;
        source.open(None).await.unwrap();
        let payload = content(3000, 1);
        source.send("ipn:2.5", &payload, LIFETIME).await.unwrap();
        if fate == Fate::Delivered {
            assert!(client.has_bundle(PATIENCE).await.unwrap(), "{what}");
            let bundle = client.next_bundle().await.unwrap();
            assert!(bundle.payload == payload, "{what}");
            client.acknowledge(&bundle.id).await.unwrap();
        }
        let left = u64::from(fate == Fate::Waits);
        let came = match fate {
            Fate::Removed => (0, 1),
            Fate::Delivered | Fate::Waits => (1, 0),
        };
        until(&station, &what, |status| {
            let counters = &status.counters;
            (counters.received, counters.dropped) == came && status.storage.bundles == left
        })
        .await;
        // What an application has, and has not acknowledged, is stored, too.
        assert!(!client.has_bundle(A_WHILE).await.unwrap(), "{what}");
        until(&station, &what, |status| status.storage.bundles == left).await;
        drop((client, source));
        stop([lander, station]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_waits_for_its_key() {
    for (sender, missing) in [(ENCRYPT, NONE), (BOTH, NONE), (BOTH, SIGN.required())] {
        let what = format!("from {sender:?} to {missing:?}");
        let (a, b) = (udp(), udp());
        let (first, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = over_ltp(1, a, 2, b, "") + &sender.write(&first);
        let lander = Running::start_in(first, &text).await;
        let without = over_ltp(2, b, 1, a, "");
        let text = without.clone() + &missing.write(&last);
        let station = Running::start_in(last, &text).await;
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        let mut source = lander.client().await;
        source.open(None).await.unwrap();
        let payload = content(3000, 2);
        source.send("ipn:2.5", &payload, LIFETIME).await.unwrap();
        until(&station, &what, |status| {
            (status.counters.received, status.storage.bundles) == (1, 1)
        })
        .await;
        assert!(!client.has_bundle(A_WHILE).await.unwrap(), "{what}");
        drop(client);
        let folder = station.stop().await;
        let text = without + &sender.required().write(&folder);
        let station = Running::start_in(folder, &text).await;
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        assert!(client.has_bundle(PATIENCE).await.unwrap(), "{what}");
        let bundle = client.next_bundle().await.unwrap();
        assert!(bundle.payload == payload, "{what}");
        client.acknowledge(&bundle.id).await.unwrap();
        until(&station, &what, |status| status.storage.bundles == 0).await;
        drop((client, source));
        stop([lander, station]).await;
    }
}

/// Only the ends look at what protects a payload.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_the_way_sends_on_what_it_cannot_read() {
    let others = Keys {
        sign: Some(8),
        encrypt: Some(8),
        require: true,
    };
    for between in [NONE, SIGN.required(), others] {
        let [a, b, c] = [udp(), udp(), udp()];
        let [first, middle, last] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let route = "[[route]]\nto = \"ipn:3.*\"\nvia = \"ipn:2.0\"\n";
        let text = over_ltp(1, a, 2, b, "") + route + &BOTH.write(&first);
        let lander = Running::start_in(first, &text).await;
        let peer = format!("[[ltp.peer]]\nnode = \"ipn:3.0\"\naddress = \"{c}\"\n");
        let text = over_ltp(2, b, 1, a, "") + &peer + &between.write(&middle);
        let orbiter = Running::start_in(middle, &text).await;
        let text = over_ltp(3, c, 2, b, "") + &BOTH.required().write(&last);
        let station = Running::start_in(last, &text).await;
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        let mut source = lander.client().await;
        source.open(None).await.unwrap();
        let payload = content(3000, 3);
        source.send("ipn:3.5", &payload, LIFETIME).await.unwrap();
        assert!(client.has_bundle(PATIENCE).await.unwrap(), "{between:?}");
        let bundle = client.next_bundle().await.unwrap();
        assert!(bundle.payload == payload, "{between:?}");
        client.acknowledge(&bundle.id).await.unwrap();
        until(&orbiter, "it has been sent on", |status| {
            let counters = &status.counters;
            (counters.received, counters.sent, counters.dropped) == (1, 1, 0)
        })
        .await;
        drop((client, source));
        stop([lander, orbiter, station]).await;
    }
}

/// The bundles that a node with these keys sends, as they are on the link.
async fn sent_with(keys: Keys, payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut catcher = Source::between(NODE, SOURCE);
    let (listen, folder) = (udp(), tempfile::tempdir().unwrap());
    let text = over_ltp(1, listen, 2, catcher.driver.local_addr(), "") + &keys.write(&folder);
    let lander = Running::start_in(folder, &text).await;
    catcher.driver.set_address(SOURCE, listen);
    let count = payloads.len();
    let catching = tokio::task::spawn_blocking(move || {
        catcher.receive(count, PATIENCE);
        catcher.received
    });
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    for payload in payloads {
        client.send("ipn:2.5", payload, LIFETIME).await.unwrap();
    }
    let caught = catching.await.unwrap();
    assert_eq!(caught.len(), count, "{keys:?}");
    drop(client);
    stop([lander]).await;
    caught.iter().map(|bundle| bundle.to_vec()).collect()
}

/// A host between two nodes changes one byte of what was signed, or of the ciphertext. It passes another bundle on as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_byte_of_a_protected_payload_reaches_no_application() {
    for keys in [SIGN, ENCRYPT, BOTH] {
        let payloads: Vec<_> = (0..4).map(|number| content(3000, number)).collect();
        let mut bundles = sent_with(keys, &payloads).await;
        let mut good = String::new();
        for (number, bundle) in bundles.iter_mut().enumerate() {
            let parsed = ParsedBundle::parse(bundle, no_keys).unwrap().bundle;
            let range = parsed.blocks[&1].payload_range();
            let middle = (range.start + range.end) / 2;
            let is_plain = payloads
                .iter()
                .any(|sent| bundle[range.clone()] == sent[..]);
            assert_eq!(is_plain, keys.encrypt.is_none(), "{keys:?}");
            match [range.start, middle, range.end - 1].get(number) {
                Some(at) => bundle[*at] ^= 1,
                None => good = parsed.id.to_key(),
            }
        }
        let mut source = Source::new();
        let (listen, folder) = (udp(), tempfile::tempdir().unwrap());
        let text = over_ltp(2, listen, 1, source.driver.local_addr(), "") + &keys.write(&folder);
        let station = Running::start_in(folder, &text).await;
        source.driver.set_address(NODE, listen);
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        bundles.into_iter().for_each(|bundle| source.send(bundle));
        let source = source.settled().await;
        assert!(client.has_bundle(PATIENCE).await.unwrap(), "{keys:?}");
        let arrived = client.next_bundle().await.unwrap();
        assert_eq!(arrived.id, good, "{keys:?}");
        assert!(payloads.contains(&arrived.payload), "{keys:?}");
        client.acknowledge(&arrived.id).await.unwrap();
        until(&station, "the others are gone", |status| {
            let counters = &status.counters;
            (counters.received, counters.dropped, status.storage.bundles) == (1, 3, 0)
        })
        .await;
        assert!(!client.has_bundle(A_WHILE).await.unwrap(), "{keys:?}");
        drop((client, source));
        stop([station]).await;
    }
}

/// When a second copy of a bundle is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Second {
    /// With the first one.
    AtOnce,
    /// When the first one is stored, or dropped.
    Later,
    /// When the node was started anew after that.
    AfterRestart,
}

/// An attacker sends a bundle with another payload under the name of one that is signed or encrypted, before it or behind it. That one
/// arrives, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_copy_does_not_shut_out_the_bundle_of_its_name() {
    for keys in [SIGN, ENCRYPT, BOTH] {
        let payload = content(3000, 5);
        let bundles = sent_with(keys, std::slice::from_ref(&payload)).await;
        let [good] = bundles.as_slice() else {
            panic!("{} bundles of one payload", bundles.len());
        };
        let parsed = ParsedBundle::parse(good, no_keys).unwrap().bundle;
        let mut forged = good.clone();
        forged[parsed.blocks[&1].payload_range().start] ^= 1;
        let name = ParsedBundle::parse(&forged, no_keys).unwrap().bundle.id;
        assert_eq!(name, parsed.id);
        for is_forged_first in [true, false] {
            for second in [Second::AtOnce, Second::Later, Second::AfterRestart] {
                let what = format!("{keys:?}, forged first: {is_forged_first}, {second:?}");
                let mut copies = [forged.clone(), good.clone()];
                if !is_forged_first {
                    copies.reverse();
                }
                let arrived = arrives(keys, copies, second, &what).await;
                assert!(arrived == payload, "{what}");
            }
        }
    }
}

/// The one payload that an application gets of two copies of a bundle that a node with these keys is sent.
async fn arrives(keys: Keys, copies: [Vec<u8>; 2], second: Second, what: &str) -> Vec<u8> {
    let mut source = Source::new();
    let (listen, folder) = (udp(), tempfile::tempdir().unwrap());
    let text = over_ltp(2, listen, 1, source.driver.local_addr(), "");
    let text = text + &keys.required().write(&folder);
    let mut station = Running::start_in(folder, &text).await;
    source.driver.set_address(NODE, listen);
    let [one, other] = copies;
    source.send(one);
    if second != Second::AtOnce {
        source = source.settled().await;
    }
    if second == Second::AfterRestart {
        let folder = station.stop().await;
        station = Running::start_in(folder, &text).await;
    }
    source.send(other);
    let source = source.settled().await;
    // No application took the first one before the second came.
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    assert!(client.has_bundle(PATIENCE).await.unwrap(), "{what}");
    let bundle = client.next_bundle().await.unwrap();
    client.acknowledge(&bundle.id).await.unwrap();
    until(&station, what, |status| status.storage.bundles == 0).await;
    assert!(!client.has_bundle(A_WHILE).await.unwrap(), "{what}");
    drop((client, source));
    stop([station]).await;
    bundle.payload
}
