//! The store of metadata, over stores in memory and the log.

use hardy_bpv7::{
    builder::Builder, bundle::Flags, creation_timestamp::CreationTimestamp,
    status_report::ReasonCode,
};

use super::*;
use crate::{
    bundle_log::BundleLog,
    config::Storage,
    stock::{copies::MOST_OF_ONE, memory::Metadata},
};

#[tokio::test]
async fn a_bundle_that_no_store_can_note_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Storage {
        folder: Some(folder.path().to_owned()),
        ..Storage::small()
    };
    let log = BundleLog::open(folder.path(), &limits, ()).unwrap();
    let counted = Counted::new(
        Arc::new(log),
        Stock::new("ipn:3.0".parse().unwrap(), limits),
        None,
    );
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder.with_payload(b"x".as_slice().into());
    let mut bundle = Bundle {
        bundle: builder.build(CreationTimestamp::now()).unwrap().0,
        metadata: BundleMetadata::default(),
    };
    // What is known of it is longer than a record may be.
    let long = "a".repeat(20 << 20);
    bundle.bundle.report_to = format!("dtn://{long}/a").parse().unwrap();
    let inserting = counted.insert(&bundle);
    let inserted = tokio::time::timeout(Duration::from_secs(30), inserting).await;
    let is_new = inserted.expect("it is tried for ever").unwrap();
    assert!(!is_new);
    assert_eq!(counted.stock.total().bundles, 0);
}

fn counted(limits: Storage) -> Arc<Counted> {
    let stock = Stock::new("ipn:3.0".parse().unwrap(), limits);
    stock.begin_life();
    Counted::new(Arc::new(Metadata::new(10)), stock, None)
}

fn bundle(builder: Builder<'_>) -> Bundle {
    let builder = builder.with_payload(b"x".as_slice().into());
    Bundle {
        bundle: builder.build(CreationTimestamp::now()).unwrap().0,
        metadata: BundleMetadata::default(),
    }
}

#[tokio::test]
async fn reports_beyond_the_limits_are_not_stored_and_are_counted() {
    let counted = counted(Storage {
        bundles: 2,
        ..Storage::small()
    });
    let report = || {
        let builder = Builder::new("ipn:3.0".parse().unwrap(), "ipn:2.0".parse().unwrap());
        bundle(builder.with_flags(Flags {
            is_admin_record: true,
            ..Flags::default()
        }))
    };
    for is_stored in [true, true, false] {
        assert_eq!(counted.insert(&report()).await.unwrap(), is_stored);
    }
    let stock = &counted.stock;
    assert_eq!((stock.total().bundles, stock.ended().refused), (2, 1));
    // What a neighbour gives was let in by the gate.
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    assert!(counted.insert(&bundle(builder)).await.unwrap());
}

#[tokio::test]
async fn a_search_passes_over_what_is_for_an_application_that_takes_no_more() {
    let counted = counted(Storage::small());
    let to = ["ipn:3.5", "ipn:3.6"].map(|to| to.parse::<Eid>().unwrap());
    for to in &to {
        let mut waiting = bundle(Builder::new("ipn:1.5".parse().unwrap(), to.clone()));
        waiting.metadata.status = BundleStatus::Waiting;
        assert!(counted.insert(&waiting).await.unwrap());
    }
    for (is_full, found) in [(true, 1), (false, 2)] {
        counted.stock.set_full(&to[0], is_full);
        let all = AllIds::default();
        counted.poll_waiting(&all).await.unwrap();
        assert_eq!(all.0.into_inner().unwrap().len(), found, "{is_full}");
    }
}

/// A node without a clock counts its bundles anew when it starts, but a copy of one may live longer.
#[tokio::test]
async fn the_name_of_a_bundle_is_free_again_when_its_lifetime_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(BundleLog::open(folder.path(), &Storage::small(), ()).unwrap());
    let log = open();
    let stores: [Arc<dyn MetadataStorage>; 2] = [log.clone(), Arc::new(Metadata::new(10))];
    let named = |lifetime| {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        bundle(builder.with_lifetime(lifetime))
    };
    let (short, long) = (
        named(Duration::from_millis(1)),
        named(Duration::from_secs(3600)),
    );
    // It expired a while ago, and its name is kept for as long as it lived, or for an hour.
    let without_clock = |number, lifetime: u64, expired: u64| {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let builder = builder.with_lifetime(Duration::from_secs(lifetime));
        let builder = builder.with_payload(b"x".as_slice().into());
        let stamp = CreationTimestamp::from_parts(None, number);
        let mut bundle = Bundle {
            bundle: builder.build(stamp).unwrap().0,
            metadata: BundleMetadata::default(),
        };
        let ago = Duration::from_secs(lifetime + expired);
        bundle.metadata.read_only.received_at -= ago;
        bundle
    };
    let kept = [without_clock(7, 600, 300), without_clock(8, 100_000, 1800)];
    let free = [without_clock(9, 600, 900), without_clock(10, 100_000, 5400)];
    for store in &stores {
        for bundle in [&short, &long].into_iter().chain(&kept).chain(&free) {
            assert!(store.insert(bundle).await.unwrap());
            store.tombstone(&bundle.bundle.id).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(store.insert(&short).await.unwrap());
        assert!(!store.insert(&long).await.unwrap());
        for bundle in &kept {
            assert!(!store.insert(bundle).await.unwrap());
        }
        for bundle in &free {
            assert!(store.insert(bundle).await.unwrap());
        }
    }
    // The next life finds the later one.
    log.close();
    let log = open();
    assert!(log.get(&short.bundle.id).await.unwrap().is_some());
    assert!(log.get(&long.bundle.id).await.unwrap().is_none());
}

/// Two bundles of one name: a forged one, and what its source sent.
fn copies(to: &str) -> [Bundle; 2] {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), to.parse().unwrap());
    let forged = bundle(builder.with_lifetime(Duration::from_secs(3600)));
    let mut good = forged.clone();
    good.metadata.writable.flow_label = Some(7);
    [forged, good]
}

#[tokio::test]
async fn a_bundle_that_is_forgotten_leaves_its_name_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(BundleLog::open(folder.path(), &Storage::small(), ()).unwrap());
    let log = open();
    let stores: [Arc<dyn Forgetful>; 2] = [log.clone(), Arc::new(Metadata::new(10))];
    let ([forged, good], [lost, _]) = (copies("ipn:3.5"), copies("ipn:3.5"));
    let (id, other) = (&good.bundle.id, &lost.bundle.id);
    for store in &stores {
        assert!(store.insert(&lost).await.unwrap());
        assert!(store.insert(&forged).await.unwrap());
        assert!(!store.insert(&good).await.unwrap());
        store.forget(other).await.unwrap();
        store.forget(id).await.unwrap();
        assert!(store.get(id).await.unwrap().is_none());
        assert!(store.insert(&good).await.unwrap());
        assert!(!store.insert(&forged).await.unwrap());
    }
    // So it is in the next life.
    log.close();
    let log = open();
    let found = log.get(id).await.unwrap().unwrap();
    assert_eq!(found.metadata.writable.flow_label, Some(7));
    assert!(log.get(other).await.unwrap().is_none());
    assert!(log.insert(&lost).await.unwrap());
}

/// As the agent gives it to the store when it comes.
async fn arrives(
    counted: Arc<Counted>,
    bundle: Bundle,
) -> std::result::Result<bool, steady::Fault> {
    let taking = async {
        steady::saved();
        counted.insert(&bundle).await.unwrap()
    };
    steady::accept(taking).await
}

#[tokio::test]
async fn a_copy_waits_until_it_is_known_what_the_first_is() {
    for is_forged in [true, false] {
        let counted = counted(Storage::small());
        let [forged, good] = copies("ipn:3.5");
        let id = good.bundle.id.clone();
        assert_eq!(arrives(counted.clone(), forged.clone()).await, Ok(true));
        let copy = arrives(counted.clone(), good);
        tokio::pin!(copy);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut copy);
        assert!(early.await.is_err(), "the first is still being looked at");
        if is_forged {
            let reason = ReasonCode::FailedSecurityOperation;
            counted.stock.set_unusable(&id, reason);
            counted.tombstone(&id).await.unwrap();
        } else {
            let mut known = forged;
            known.metadata.status = BundleStatus::Dispatching;
            counted.update_status(&known).await.unwrap();
        }
        assert_eq!(copy.await, Ok(is_forged));
        assert_eq!(counted.stock.total().bundles, 1);
    }
}

/// A neighbour that sends the same bundle hundreds of times while the first is being looked at would have all others wait with them.
#[tokio::test]
async fn few_copies_wait_for_the_first() {
    let counted = counted(Storage::small());
    let [first, copy] = copies("ipn:3.5");
    assert_eq!(arrives(counted.clone(), first.clone()).await, Ok(true));
    let arriving = |_| tokio::spawn(arrives(counted.clone(), copy.clone()));
    let waiting: Vec<_> = (0..MOST_OF_ONE).map(arriving).collect();
    while counted.copies.count() < MOST_OF_ONE {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        let one_more = arrives(counted.clone(), copy.clone());
        let refused = tokio::time::timeout(PATIENCE / 2, one_more).await;
        let refused = refused.expect("it waits, too");
        assert!(matches!(refused, Err(steady::Fault::NotStored(_))));
    }
    let mut known = first;
    known.metadata.status = BundleStatus::Dispatching;
    counted.update_status(&known).await.unwrap();
    for copy in waiting {
        assert_eq!(copy.await.unwrap(), Ok(false));
    }
    assert_eq!(counted.copies.count(), 0, "no place is left behind");
}

/// The agent notes the name of a bundle that it cannot read, and drops it.
#[tokio::test]
async fn a_bundle_that_cannot_be_read_does_not_take_the_name_of_one_that_can() {
    for to in ["ipn:2.5", "ipn:3.5"] {
        let counted = counted(Storage::small());
        let [unreadable, good] = copies(to);
        let taking = steady::accept(counted.insert(&unreadable)).await;
        assert!(!taking.unwrap().unwrap());
        assert_eq!(arrives(counted.clone(), good).await, Ok(true), "{to}");
    }
}

/// Too many hops over one way say nothing of a copy that comes over another.
#[tokio::test]
async fn a_bundle_that_is_dropped_as_it_comes_leaves_its_name_to_another() {
    let counted = counted(Storage::small());
    let [dropped, good] = copies("ipn:2.5");
    let taking = async {
        steady::saved();
        assert!(counted.insert(&dropped).await.unwrap());
        counted.tombstone(&dropped.bundle.id).await.unwrap();
    };
    steady::accept(taking).await.unwrap();
    assert_eq!(arrives(counted.clone(), good.clone()).await, Ok(true));
    // One that was sent on or delivered keeps it.
    counted.tombstone(&good.bundle.id).await.unwrap();
    assert_eq!(arrives(counted.clone(), good).await, Ok(false));
}
