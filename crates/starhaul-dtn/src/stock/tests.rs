use hardy_bpa::bundle::BundleMetadata;
use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp, hop_info::HopInfo};

use super::*;

#[test]
fn a_bundle_that_is_refused_again_and_again_rests_longer_and_longer() {
    let stock = Stock::new("ipn:9.0".parse().unwrap(), Storage::small());
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder.with_payload(b"x".as_slice().into());
    let bundle = Bundle {
        bundle: builder.build(CreationTimestamp::now()).unwrap().0,
        metadata: BundleMetadata::default(),
    };
    stock.insert(&bundle, false);
    let id = &bundle.bundle.id;
    let rest = |is_refused| {
        let busy = stock.begin(id, Task::Sending).unwrap();
        let rest = busy.rest_after(is_refused);
        assert_eq!(stock.in_flight(), usize::from(rest.is_none()));
        assert!(!stock.hand_out(id));
        drop(busy);
        assert!(stock.hand_out(id));
        rest.map(|rest| rest.as_secs())
    };
    for _ in 1..PATIENT_REFUSALS {
        assert_eq!((rest(true), rest(false)), (None, None));
    }
    let rests: Vec<_> = (0..8).filter_map(|_| rest(true)).collect();
    assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 64]);
    // What is gone does not rest.
    let busy = stock.begin(id, Task::Sending).unwrap();
    stock.remove(id);
    assert_eq!(busy.rest_after(true), None);
}

/// A node hears no acknowledgement, as its link has broken, and sends the bundle over another one: that has not been elsewhere.
#[test]
fn a_second_copy_over_another_node_has_not_come_back() {
    let stock = Stock::new("ipn:9.0".parse().unwrap(), Storage::small());
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder.with_payload(b"x".as_slice().into());
    let mut bundle = Bundle {
        bundle: builder.build(CreationTimestamp::now()).unwrap().0,
        metadata: BundleMetadata::default(),
    };
    let mut comes = |count: u64, from: &str| {
        bundle.bundle.hop_count = Some(HopInfo { limit: 64, count });
        bundle.bundle.previous_node = Some(from.parse().unwrap());
        bundle.clone()
    };
    let first = comes(1, "ipn:3.0");
    stock.insert(&first, false);
    let is_back = |bundle: &Bundle| stock.has_come_back(bundle, None);
    let (over_another, round) = (comes(2, "ipn:4.0"), comes(3, "ipn:4.0"));
    assert!(!is_back(&round), "it has not left yet");
    drop(stock.begin(&first.bundle.id, Task::Sending));
    for is_held in [true, false] {
        assert!(!is_back(&first) && !is_back(&over_another), "{is_held}");
        assert!(is_back(&round), "{is_held}");
        // As many hops over others, who have left their marks.
        assert!(!stock.has_come_back(&round, Some(false)), "{is_held}");
        stock.remove(&first.bundle.id);
    }
}

/// A second copy comes another way after a restart. What had left would have come back; what was delivered here has not.
#[test]
fn a_copy_of_what_was_delivered_here_is_no_bundle_that_comes_back() {
    for (destination, comes_back) in [("ipn:9.5", false), ("ipn:2.5", true)] {
        let stock = Stock::new("ipn:9.0".parse().unwrap(), Storage::small());
        let builder = Builder::new("ipn:1.5".parse().unwrap(), destination.parse().unwrap());
        let builder = builder.with_payload(b"x".as_slice().into());
        let mut bundle = Bundle {
            bundle: builder.build(CreationTimestamp::now()).unwrap().0,
            metadata: BundleMetadata::default(),
        };
        stock.insert(&bundle, true);
        stock.remove(&bundle.bundle.id);
        bundle.bundle.previous_node = Some("ipn:3.0".parse().unwrap());
        for says in [None, Some(true)] {
            let has = stock.has_come_back(&bundle, says);
            assert_eq!(has, comes_back, "{destination} {says:?}");
        }
        // Nothing is left of what a former life has sent on but its mark.
        let stock = Stock::new("ipn:9.0".parse().unwrap(), Storage::small());
        let has = [None, Some(true)].map(|says| stock.has_come_back(&bundle, says));
        assert_eq!(has, [false, comes_back], "{destination}");
    }
}
